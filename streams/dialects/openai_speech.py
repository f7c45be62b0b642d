"""OpenAI's speech endpoint: POST /v1/audio/speech, the lists beside it, and its shape of errors."""

from __future__ import annotations

import json
import logging
import math
import time
import uuid
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Literal

import anyio
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from omni_speak.runtime.errors import (
    EngineDead,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
    SpeechError,
)
from omni_speak.runtime.request import MAX_SEED, EngineInfo
from omni_speak.streams.audio import to_s16le, wav_header
from omni_speak.streams.encoder import EncodedFormat, Encoder
from omni_speak.streams.service import Service, Unavailable, service_of
from omni_speak.streams.speaking import SpokenFrame, TextStream, speak_text

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 1024 * 1024

HOSTED_VOICES = (
    *("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable"),
    *("marin", "nova", "onyx", "sage", "shimmer", "verse"),
)
_ENCODINGS: dict[str, EncodedFormat] = {"pcm": "pcm_s16le", "opus": "ogg_opus"}
_MEDIA_TYPES = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "aac": "audio/aac",
}


class BodyTooLarge(InvalidRequest):
    """The request's body is over the limit."""

    code = "body_too_large"


class VoiceId(BaseModel):
    id: str


class SpeechBody(BaseModel):
    """OpenAI's fields, those we honour. `stream` false waits for the whole and then tells its
    length; true sends audio as it is made."""

    model_config = ConfigDict(extra="forbid", strict=True)

    input: str
    model: str | None = None
    voice: str | VoiceId | None = None
    response_format: Literal["wav", "pcm", "mp3", "opus", "flac", "aac"] = "wav"
    stream_format: Literal["audio", "sse"] = "audio"
    speed: float = Field(1.0, allow_inf_nan=False)
    seed: int | None = Field(None, ge=0, le=MAX_SEED)
    temperature: float | None = Field(None, ge=0.0, le=2.0)
    stream: bool = True


async def speech(request: Request) -> Response:
    service = service_of(request)
    body = parse_speech(await _read_body(request))
    engine = service.ready_engine()
    if body.model is not None and body.model != engine.info.model:
        raise ModelNotFound(
            f"no model {body.model[:64]!r} here; there is {engine.info.model!r}", param="model"
        )
    stream = speak_text(
        engine,
        body.input,
        voice=_voice(body, engine.info),
        speed=body.speed,
        seed=body.seed,
        temperature=body.temperature,
    )
    return _SpeechResponse(service, stream, body, engine.info.sample_rate)


def _voice(body: SpeechBody, info: EngineInfo) -> str | None:
    """The hosted service's names are our voices in turn, where we have none of that name."""
    voice = body.voice.id if isinstance(body.voice, VoiceId) else body.voice
    own = [name.lower() for name in info.voices]
    if voice in HOSTED_VOICES and voice not in own:
        return info.voices[HOSTED_VOICES.index(voice) % len(info.voices)]
    return voice


class _SpeechResponse(Response):
    """Audio as it is made. The status waits for the first frame, so that what is wrong before it
    is a proper error; the request leaves the engine when the client leaves."""

    def __init__(
        self, service: Service, stream: TextStream, body: SpeechBody, sample_rate: int
    ) -> None:
        self._service = service
        self._stream = stream
        self._body = body
        self._rate = sample_rate
        format = body.response_format
        self._encoder = Encoder(_ENCODINGS.get(format, format), sample_rate, sample_rate)  # type: ignore[arg-type]
        self._arrived = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        active = self._service.metrics.active.labels("http")
        outcome = "disconnected"
        with active.track_inprogress():
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_cancel_on_disconnect, receive, tasks.cancel_scope)
                    tasks.start_soon(self._cancel_at_drain_limit, tasks.cancel_scope)
                    outcome = await self._speak(scope, receive, send)
                    tasks.cancel_scope.cancel()
            finally:
                self._service.metrics.requests.labels("http", outcome).inc()

    async def _cancel_at_drain_limit(self, scope: anyio.CancelScope) -> None:
        await self._service.drain.over.wait()
        logger.warning("speech broke off: the time to drain is over")
        scope.cancel()

    async def _speak(self, scope: Scope, receive: Receive, send: Send) -> str:
        """Returns the outcome for the metrics."""
        started = False
        try:
            async with aclosing(self._stream.__aiter__()) as frames:
                first = await anext(frames)
                self._service.metrics.first_audio.observe(time.monotonic() - self._arrived)
                if self._body.stream or self._body.stream_format == "sse":
                    await self._start(send, {})
                    started = True
                    await self._send_frames(send, first, frames)
                else:
                    await self._send_whole(send, first, frames)
        except SpeechError as error:
            if started:
                # The status is long gone. A body that breaks off is the one honest signal left.
                logger.error("speech broke off: %s", error)
            else:
                await error_response(error)(scope, receive, send)
            return error.code
        except TimeoutError:
            logger.warning("a client took nothing for %g s; given up", self._service.send_timeout)
            return "stalled"
        assert self._stream.result is not None  # it ended by itself
        reason = self._stream.result.reason
        if started and reason == "stop":
            await self._end(send)
        elif started:
            logger.error("speech is incomplete: the frame budget was spent; the body breaks off")
        return reason

    async def _send_frames(
        self, send: Send, first: SpokenFrame, frames: AsyncGenerator[SpokenFrame]
    ) -> None:
        await self._send_audio(send, self._encoder.encode(first.pcm))
        async for frame in frames:
            await self._send_audio(send, self._encoder.encode(frame.pcm))

    async def _send_audio(self, send: Send, audio: bytes) -> None:
        self._service.metrics.frames.labels("http").inc()
        if audio:
            await self._send_block(send, self._shaped(audio))

    async def _end(self, send: Send) -> None:
        audio = self._encoder.flush()
        if audio:
            await self._send_block(send, self._shaped(audio))
        done = b""
        if self._body.stream_format == "sse":
            assert self._stream.result is not None  # it ended by itself
            sent, made = len(self._body.input), self._stream.result.frames
            usage = {"input_tokens": sent, "output_tokens": made, "total_tokens": sent + made}
            done = _event({"type": "speech.audio.done", "usage": usage})
        await send({"type": "http.response.body", "body": done, "more_body": False})

    def _shaped(self, audio: bytes) -> bytes:
        if self._body.stream_format == "audio":
            return audio
        return _event({"type": "speech.audio.delta", "audio": b64encode(audio).decode()})

    async def _send_block(self, send: Send, block: bytes) -> None:
        with anyio.fail_after(self._service.send_timeout):
            await send({"type": "http.response.body", "body": block, "more_body": True})

    async def _send_whole(
        self, send: Send, first: SpokenFrame, frames: AsyncGenerator[SpokenFrame]
    ) -> None:
        blocks = [first.pcm]
        async for frame in frames:
            blocks.append(frame.pcm)
        pcm = np.concatenate(blocks)
        if self._body.response_format == "wav":
            data = wav_header(self._rate, 2 * len(pcm)) + to_s16le(pcm)
        else:
            data = self._encoder.encode(pcm) + self._encoder.flush()
        assert self._stream.result is not None  # the frames ended by themselves
        extra = {"content-length": str(len(data)), "x-finish-reason": self._stream.result.reason}
        await self._start(send, extra)
        await send({"type": "http.response.body", "body": data, "more_body": False})
        self._service.metrics.frames.labels("http").inc(len(blocks))

    async def _start(self, send: Send, extra: dict[str, str]) -> None:
        pcm = f"audio/pcm; rate={self._rate}; channels=1"
        media_type = _MEDIA_TYPES.get(self._body.response_format, pcm)
        if self._body.stream_format == "sse":
            media_type = "text/event-stream"
        headers = {
            "content-type": media_type,
            "x-request-id": f"speech-{uuid.uuid4().hex}",
            "x-seed": str(self._stream.seed),
            "x-sample-rate": str(self._rate),
            "cache-control": "no-store",
            **extra,
        }
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


async def _cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _read_body(request: Request) -> bytes:
    """Raises BodyTooLarge as soon as the limit is passed, before the rest is read."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise BodyTooLarge(f"the body may have at most {MAX_BODY_BYTES} bytes")
    return bytes(body)


def parse_speech(data: bytes) -> SpeechBody:
    """Raises InvalidRequest naming the field."""
    try:
        return SpeechBody.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    param = ".".join(str(part)[:64] for part in first["loc"]) or None
    if first["type"] == "json_invalid":
        raise InvalidRequest(f"the body is not JSON: {first['msg']}")
    if first["type"] == "extra_forbidden":
        known = ", ".join(SpeechBody.model_fields)
        raise InvalidRequest(f"unknown field {param!r}; the fields are: {known}", param=param)
    raise InvalidRequest(f"{param or 'the body'}: {first['msg']}", param=param)


async def models(request: Request) -> Response:
    info = service_of(request).ready_engine().info
    model = {"id": info.model, "object": "model", "created": 0, "owned_by": "omni-speak"}
    return JSONResponse({"object": "list", "data": [model]})


async def voices(request: Request) -> Response:
    info = service_of(request).ready_engine().info
    return JSONResponse(
        {
            "object": "list",
            "data": [
                {"id": voice, "object": "voice", "model": info.model} for voice in info.voices
            ],
            "default": info.default_voice,
            "sample_rate": info.sample_rate,
        }
    )


# -- errors over HTTP --------------------------------------------------------------------------

_STATUS: dict[type[SpeechError], int] = {
    BodyTooLarge: 413,
    InvalidRequest: 400,
    ModelNotFound: 404,
    Overloaded: 503,
    Unavailable: 503,
    EngineDead: 503,
}


def error_response(error: SpeechError) -> Response:
    """An error in OpenAI's shape."""
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
    # Ours says text, OpenAI's field is called input.
    param = "input" if error.param == "text" else error.param
    wait = error.retry_after if isinstance(error, Overloaded) else 1.0
    return openai_error(status, error.message, param, error.code, retry_after=wait)


def openai_error(
    status: int, message: str, param: str | None, code: str | None, *, retry_after: float = 1.0
) -> Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    headers = {"retry-after": f"{math.ceil(retry_after)}"} if status == 503 else None
    content = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return JSONResponse(content, status_code=status, headers=headers)


ROUTES = [
    Route("/v1/audio/speech", speech, methods=["POST"]),
    Route("/v1/audio/voices", voices),
    Route("/v1/models", models),
]
