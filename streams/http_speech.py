"""Speech as the body of an HTTP response, as it is made: what all dialects' plain calls share.

A dialect says what is asked for (`Speech`), how audio and words become bytes (`Shape`), and how an
error is told. The status waits for the first frame, so that what is wrong before it is a proper
error; the request leaves the engine when the client leaves.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import anyio
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from omni_speak.runtime.errors import InvalidRequest, SpeechError
from omni_speak.streams.audio import WavEncoding, wav_header
from omni_speak.streams.dialects.text import parse
from omni_speak.streams.encoder import EncodedFormat, Encoder
from omni_speak.streams.errors import BodyTooLarge, Incomplete, TellError
from omni_speak.streams.messages import Refused, Word
from omni_speak.streams.service import Service, service_of
from omni_speak.streams.speaking import Engine, SpokenFrame, SpokenResult, TextStream

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 1024 * 1024


# -- what a dialect says -----------------------------------------------------------------------


class Shape(Protocol):
    """How encoded audio, and the words that end in it, become bytes of the body."""

    media_type: str

    def block(self, audio: bytes, words: Sequence[Word]) -> bytes: ...

    def end(self, audio: bytes, result: SpokenResult) -> bytes:
        """The last of the audio, maybe none, and what follows it."""


@dataclass(frozen=True, slots=True)
class Speech:
    """`text` is spoken by `stream`, encoded as `format` at `rate` Hz. `whole`: nothing is sent
    until all of it is there, and its length is told; until then `shape` may add `headers`.
    `broken` is the last event of a body that can tell that something went wrong in its middle."""

    text: str
    stream: TextStream
    format: EncodedFormat
    rate: int
    shape: Shape
    whole: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    broken: Callable[[SpeechError], bytes] | None = None


class Plain:
    """The audio itself."""

    def __init__(self, format: EncodedFormat, rate: int) -> None:
        self.media_type = media_type(format, rate)

    def block(self, audio: bytes, words: Sequence[Word]) -> bytes:
        return audio

    def end(self, audio: bytes, result: SpokenResult) -> bytes:
        return audio


class Wav:
    """A WAV file of samples in any of its encodings, as they are made."""

    media_type = "audio/wav"

    def __init__(self, encoding: WavEncoding, rate: int) -> None:
        self._header = wav_header(rate, encoding=encoding)

    def block(self, audio: bytes, words: Sequence[Word]) -> bytes:
        header, self._header = self._header, b""
        return header + audio

    def end(self, audio: bytes, result: SpokenResult) -> bytes:
        return audio


class WholeWav:
    """A WAV file whose header tells its size, of s16le samples: for a body that waits."""

    media_type = "audio/wav"

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._samples = bytearray()

    def block(self, audio: bytes, words: Sequence[Word]) -> bytes:
        self._samples += audio
        return b""

    def end(self, audio: bytes, result: SpokenResult) -> bytes:
        self._samples += audio
        return wav_header(self._rate, len(self._samples)) + self._samples


def media_type(format: EncodedFormat, rate: int) -> str:
    match format:
        case "mp3":
            return "audio/mpeg"
        case "ogg_opus":
            return "audio/ogg"
        case "wav" | "flac" | "aac" | "opus":
            return f"audio/{format}"
        case "mulaw":
            return f"audio/PCMU; rate={rate}; channels=1"
        case "alaw":
            return f"audio/PCMA; rate={rate}; channels=1"
        case "pcm_f32le":
            return f"audio/pcm; rate={rate}; channels=1; encoding=float32"
        case "pcm_s16le":
            return f"audio/pcm; rate={rate}; channels=1"


def server_sent(data: dict[str, Any], event: str | None = None) -> bytes:
    """One server-sent event."""
    name = "" if event is None else f"event: {event}\n"
    return f"{name}data: {json.dumps(data)}\n\n".encode()


# -- the endpoint ------------------------------------------------------------------------------

Ask = Callable[[Request, Engine], Awaitable[Speech]]


def endpoint(
    ask: Ask, tell_error: TellError, *, name: str
) -> Callable[[Request], Awaitable[Response]]:
    """What answers a request with the speech that `ask` finds in it, counted as `name`. A
    SpeechError, raised by `ask` or before the first frame, is told by `tell_error`."""

    async def answer(request: Request) -> Response:
        service = service_of(request)
        try:
            engine = service.ready_engine()
            speech = await ask(request, engine)
        except SpeechError as error:
            return tell_error(error)
        return SpeechResponse(service, engine, speech, tell_error, name)

    return answer


class SpeechResponse(Response):
    def __init__(
        self, service: Service, engine: Engine, speech: Speech, tell_error: TellError, name: str
    ) -> None:
        self._service = service
        self._speech = speech
        self._tell_error = tell_error
        self._name = name
        self._model_rate = engine.info.sample_rate
        self._encoder = Encoder(speech.format, self._model_rate, speech.rate)
        self._arrived = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        active = self._service.metrics.active.labels(self._name)
        outcome = "disconnected"
        with active.track_inprogress():
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_cancel_on_disconnect, receive, tasks.cancel_scope)
                    tasks.start_soon(self._cancel_at_drain_limit, tasks.cancel_scope)
                    outcome = await self._speak(scope, receive, send)
                    tasks.cancel_scope.cancel()
            finally:
                self._service.metrics.requests.labels(self._name, outcome).inc()

    async def _cancel_at_drain_limit(self, scope: anyio.CancelScope) -> None:
        await self._service.drain.over.wait()
        logger.warning("speech broke off: the time to drain is over")
        scope.cancel()

    async def _speak(self, scope: Scope, receive: Receive, send: Send) -> str:
        """Returns the outcome for the metrics."""
        try:
            return await self._answer(scope, receive, send)
        except TimeoutError:
            logger.warning("a client took nothing for %g s; given up", self._service.send_timeout)
            return "stalled"

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> str:
        stream, started = self._speech.stream, False
        try:
            async with aclosing(stream.__aiter__()) as frames:
                first = await anext(frames)
                self._service.metrics.first_audio.observe(time.monotonic() - self._arrived)
                if self._speech.whole:
                    await self._send_whole(send, first, frames)
                else:
                    await self._start(send, {})
                    started = True
                    await self._send_block(send, self._block(first))
                    async for frame in frames:
                        await self._send_block(send, self._block(frame))
        except SpeechError as error:
            if started:
                await self._break_off(send, error)
            else:
                await self._tell_error(error)(scope, receive, send)
            return error.code
        assert stream.result is not None  # it ended by itself
        reason = stream.result.reason
        if started and reason == "stop":
            await self._finish(send, self._end())
        elif started:
            await self._break_off(send, Incomplete("audio is missing: the frame budget was spent"))
        return reason

    async def _break_off(self, send: Send, error: SpeechError) -> None:
        """The status is long gone. Where no event can tell it, a body that breaks off is the one
        honest signal left."""
        logger.error("speech broke off: %s", error)
        if self._speech.broken is not None:
            await self._finish(send, self._speech.broken(error))

    async def _finish(self, send: Send, block: bytes) -> None:
        await self._send_block(send, block)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _block(self, frame: SpokenFrame) -> bytes:
        self._service.metrics.frames.labels(self._name).inc()
        words = [word.told(self._speech.text, self._model_rate) for word in frame.words]
        return self._speech.shape.block(self._encoder.encode(frame.pcm), words)

    def _end(self) -> bytes:
        assert self._speech.stream.result is not None  # it ended by itself
        return self._speech.shape.end(self._encoder.flush(), self._speech.stream.result)

    async def _send_block(self, send: Send, block: bytes) -> None:
        if not block:  # a resampler or a codec may look ahead
            return
        with anyio.fail_after(self._service.send_timeout):
            await send({"type": "http.response.body", "body": block, "more_body": True})

    async def _send_whole(
        self, send: Send, first: SpokenFrame, frames: AsyncGenerator[SpokenFrame]
    ) -> None:
        data = self._block(first)
        async for frame in frames:
            data += self._block(frame)
        data += self._end()
        result = self._speech.stream.result
        assert result is not None  # it ended by itself
        await self._start(
            send, {"content-length": str(len(data)), "x-finish-reason": result.reason}
        )
        await send({"type": "http.response.body", "body": data, "more_body": False})

    async def _start(self, send: Send, extra: dict[str, str]) -> None:
        headers = {
            "content-type": self._speech.shape.media_type,
            "x-request-id": f"speech-{uuid.uuid4().hex}",
            "x-seed": str(self._speech.stream.seed),
            "x-sample-rate": str(self._speech.rate),
            "cache-control": "no-store",
            **self._speech.headers,
            **extra,
        }
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})


async def _cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


# -- bodies received ---------------------------------------------------------------------------

M = TypeVar("M", bound=BaseModel)


async def read_body(request: Request, kind: type[M]) -> M:
    """Raises BodyTooLarge as soon as the limit is passed, before the rest is read, and
    InvalidRequest naming the field that is wrong."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise BodyTooLarge(f"the body may have at most {MAX_BODY_BYTES} bytes")
    try:
        return parse(kind, body.decode())
    except UnicodeDecodeError:
        raise InvalidRequest("the body is not UTF-8") from None
    except Refused as error:
        raise InvalidRequest(error.message, param=error.param) from None
