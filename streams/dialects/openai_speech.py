"""OpenAI's speech endpoint: POST /v1/audio/speech, the lists beside it, and its shape of errors.

It takes vLLM-Omni's fields, too. What they ask for is done, or refused.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from omni_speak.runtime.errors import InvalidRequest, ModelNotFound, SpeechError
from omni_speak.runtime.request import MAX_SEED, EngineInfo
from omni_speak.streams.encoder import OPUS_RATES, EncodedFormat
from omni_speak.streams.errors import error_json, status_of
from omni_speak.streams.http_speech import (
    Plain,
    Shape,
    Speech,
    WholeWav,
    endpoint,
    read_body,
    server_sent,
)
from omni_speak.streams.messages import SampleRate, Word
from omni_speak.streams.service import service_of
from omni_speak.streams.speaking import Engine, SpokenResult, speak_text

HOSTED_VOICES = (
    *("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable"),
    *("marin", "nova", "onyx", "sage", "shimmer", "verse"),
)
MAX_HEADER_BYTES = 4096
ENCODINGS: dict[str, EncodedFormat] = {
    "mp3": "mp3",
    "opus": "ogg_opus",
    "aac": "aac",
    "flac": "flac",
    "wav": "wav",
    "pcm": "pcm_s16le",
}


class VoiceId(BaseModel):
    id: str


class SpeechBody(BaseModel):
    """OpenAI's fields, then vLLM-Omni's. Audio is sent as it is made; `stream` false waits for the
    whole and then tells its length, true alone means events. `max_new_tokens` counts frames. Every
    first chunk is one frame."""

    model_config = ConfigDict(extra="forbid", strict=True)

    input: str
    model: str | None = None
    voice: str | VoiceId | None = None
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] = "mp3"
    stream_format: Literal["audio", "sse"] | None = None
    speed: float = Field(1.0, allow_inf_nan=False)
    seed: int | None = Field(None, ge=0, le=MAX_SEED)
    temperature: float | None = Field(None, ge=0.0, le=2.0)
    stream: bool | None = None
    sample_rate: SampleRate | None = None
    language: str | None = None
    task_type: Literal["CustomVoice"] | None = None
    max_new_tokens: int | None = Field(None, ge=1, le=1_000_000)
    initial_codec_chunk_frames: Literal[1] | None = None
    word_timestamps: bool = False
    extra_params: dict[str, Any] | None = None

    @property
    def whole(self) -> bool:
        return self.stream_format != "sse" and (
            self.stream is False or (self.stream is None and self.word_timestamps)
        )

    @property
    def events(self) -> bool:
        return self.stream_format == "sse" or (self.stream is True and self.stream_format is None)


async def _ask(request: Request, engine: Engine) -> Speech:
    body = await read_body(request, SpeechBody)
    _check(body, engine.info)
    stream = speak_text(
        engine,
        body.input,
        voice=_voice(body, engine.info),
        speed=body.speed,
        seed=body.seed,
        temperature=body.temperature,
        max_frames=body.max_new_tokens,
    )
    rate = body.sample_rate or engine.info.sample_rate
    format: EncodedFormat = ENCODINGS[body.response_format]
    headers: dict[str, str] = {}
    shape: Shape = Plain(format, rate)
    if body.events:
        shape = _Events(body.input)
        return Speech(body.input, stream, format, rate, shape, broken=_broken)
    if format == "wav" and body.whole:
        format, shape = "pcm_s16le", WholeWav(rate)
    if body.word_timestamps:
        shape = _WithWords(shape, headers)
    return Speech(body.input, stream, format, rate, shape, body.whole, headers)


def _check(body: SpeechBody, info: EngineInfo) -> None:
    """Raises InvalidRequest or ModelNotFound for what the fields' types do not tell."""
    check_model(body.model, info)
    check_language(body.language, info)
    if body.extra_params:
        raise InvalidRequest(
            "extra_params must be empty: this model has none; seed and temperature stand beside it",
            param="extra_params",
        )
    if body.word_timestamps and not body.whole:
        raise InvalidRequest(
            "word_timestamps needs stream false; WS /v1/audio/speech/stream tells them while it "
            "speaks",
            param="word_timestamps",
        )
    format, rate = body.response_format, body.sample_rate or info.sample_rate
    if format == "opus" and rate not in OPUS_RATES:
        raise InvalidRequest(
            f"the sample rate of opus must be one of {', '.join(map(str, OPUS_RATES))}",
            param="sample_rate",
        )


def check_model(model: str | None, info: EngineInfo) -> None:
    """Raises ModelNotFound."""
    if model is not None and model != info.model:
        raise ModelNotFound(f"no model {model[:64]!r} here; there is {info.model!r}", param="model")


def check_language(language: str | None, info: EngineInfo) -> None:
    """Raises InvalidRequest."""
    known = ("Auto", *info.languages)
    if language is not None and language.casefold() not in map(str.casefold, known):
        raise InvalidRequest(f"language must be one of {', '.join(known)}", param="language")


def _voice(body: SpeechBody, info: EngineInfo) -> str | None:
    """The hosted service's names are our voices in turn, where we have none of that name."""
    voice = body.voice.id if isinstance(body.voice, VoiceId) else body.voice
    own = [name.lower() for name in info.voices]
    if voice in HOSTED_VOICES and voice not in own:
        return info.voices[HOSTED_VOICES.index(voice) % len(info.voices)]
    return voice


class _Events:
    """Server-sent events, see `Shape`."""

    media_type = "text/event-stream"

    def __init__(self, text: str) -> None:
        self._text = text

    def block(self, audio: bytes, words: Sequence[Word]) -> bytes:
        if not audio:
            return b""
        return server_sent({"type": "speech.audio.delta", "audio": b64encode(audio).decode()})

    def end(self, audio: bytes, result: SpokenResult) -> bytes:
        sent, made = len(self._text), result.frames
        usage = {"input_tokens": sent, "output_tokens": made, "total_tokens": sent + made}
        done = server_sent({"type": "speech.audio.done", "usage": usage})
        return self.block(audio, ()) + done


def _broken(error: SpeechError) -> bytes:
    """vLLM-Omni's event; OpenAI's have none for it, and end without the one that is last."""
    return server_sent({"type": "speech.audio.error", **_body(error)})


class _WithWords:
    """Another shape, and the times of the words in a header; see `Shape`."""

    def __init__(self, shape: Shape, headers: dict[str, str]) -> None:
        self.media_type = shape.media_type
        self._shape = shape
        self._headers = headers
        self._words: list[dict[str, Any]] = []

    def block(self, audio: bytes, words: Sequence[Word]) -> bytes:
        self._words += [word_timestamp(word) for word in words]
        return self._shape.block(audio, words)

    def end(self, audio: bytes, result: SpokenResult) -> bytes:
        told = json.dumps(self._words)
        if len(told) <= MAX_HEADER_BYTES:
            self._headers["x-word-timestamps"] = told
        else:
            self._headers["x-word-timestamps-omitted"] = (
                f"oversize; bytes={len(told)}; limit={MAX_HEADER_BYTES}"
            )
        return self._shape.end(audio, result)


def word_timestamp(word: Word) -> dict[str, Any]:
    return {
        "word": word.text,
        "start_ms": round(word.start_ms),
        "end_ms": round(word.end_ms),
    }


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


# -- errors ------------------------------------------------------------------------------------


def error_response(error: SpeechError) -> Response:
    """An error in OpenAI's shape."""
    return error_json(error, _body(error))


def _body(error: SpeechError) -> dict[str, Any]:
    # Ours says text, OpenAI's field is called input.
    param = "input" if error.param == "text" else error.param
    return _told(status_of(error), error.message, param, error.code)


def openai_error(status: int, message: str, param: str | None, code: str | None) -> Response:
    return JSONResponse(_told(status, message, param, code), status_code=status)


def _told(status: int, message: str, param: str | None, code: str | None) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


ROUTES = [
    Route("/v1/audio/speech", endpoint(_ask, error_response, name="http"), methods=["POST"]),
    Route("/v1/audio/voices", voices),
    Route("/v1/models", models),
]
