"""Cartesia's websocket, of contexts whose text goes on while `continue` is true, and its plain
HTTP calls.

A connection speaks one output format, that of its first message. Transcripts are joined as they
come; with a space where `max_buffer_delay_ms` is 0, for then each is a phrase of its own. Of the
generation settings `speed` is honoured; what tunes a model of theirs is taken without effect, and
so is the name of theirs as `model_id`.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from omni_speak.runtime.errors import SpeechError
from omni_speak.runtime.request import EngineInfo
from omni_speak.streams.audio import WavEncoding
from omni_speak.streams.dialect import Reply, Texts
from omni_speak.streams.dialects.text import Foreign, Transcript, parse, separated
from omni_speak.streams.errors import error_json, status_of, status_of_event
from omni_speak.streams.http_speech import (
    Plain,
    Speech,
    Wav,
    endpoint,
    read_body,
    server_sent,
)
from omni_speak.streams.messages import (
    Cancel,
    ClientMessage,
    Close,
    ContextDone,
    ContextFlushed,
    ContextOpen,
    ContextOpened,
    ErrorEvent,
    Marks,
    Refused,
    SampleRate,
    ServerMessage,
    SessionOpen,
    TextAppend,
    TextEnd,
    TextFlush,
    Word,
)
from omni_speak.streams.speaking import Engine, SpokenResult, speak_text
from omni_speak.streams.websocket import Conversation, conversation
from omni_speak.streams.wire import WireFrame

_Json = dict[str, Any]
_FORMATS: dict[str, WavEncoding] = {
    "pcm_s16le": "pcm_s16le",
    "pcm_f32le": "pcm_f32le",
    "pcm_mulaw": "mulaw",
    "pcm_alaw": "alaw",
}
Encoding = Literal["pcm_s16le", "pcm_f32le", "pcm_mulaw", "pcm_alaw"]


class Voice(BaseModel):
    id: str


class Raw(Foreign):
    container: Literal["raw"]
    encoding: Encoding
    sample_rate: SampleRate


class WavFile(Foreign):
    container: Literal["wav"]
    encoding: Encoding
    sample_rate: SampleRate


class Mp3File(Foreign):
    container: Literal["mp3"]
    sample_rate: SampleRate
    bit_rate: int | None = None


class GenerationConfig(Foreign):
    speed: float | None = None
    volume: float | None = None
    emotion: Any = None


class Asked(Foreign):
    """What every request may say."""

    voice: str | Voice | None = None
    generation_config: GenerationConfig | None = None
    model_id: str | None = None
    language: str | None = None
    locale: str | None = None
    normalization: str | None = None
    pronunciation_dict_id: str | None = None
    speed: Any = None

    @property
    def voice_id(self) -> str | None:
        return self.voice.id if isinstance(self.voice, Voice) else self.voice

    @property
    def rate(self) -> float:
        """How fast to speak."""
        config = self.generation_config
        return 1.0 if config is None or config.speed is None else config.speed


class Generation(Asked):
    """A message of the websocket: a generation request, or `cancel` of one."""

    context_id: str = Field(min_length=1, max_length=64)
    cancel: bool = False
    transcript: str = ""
    output_format: Raw | None = None
    continue_: bool = Field(False, alias="continue")
    flush: bool = False
    add_timestamps: bool | None = None
    max_buffer_delay_ms: int | None = None
    add_phoneme_timestamps: bool | None = None
    use_normalized_timestamps: bool | None = None


class BytesBody(Asked):
    transcript: str
    output_format: Raw | WavFile | Mp3File = Field(discriminator="container")
    save: bool | None = None
    duration: float | None = None


class EventsBody(Asked):
    transcript: str
    output_format: Raw
    context_id: str | None = None
    add_timestamps: bool | None = None
    add_phoneme_timestamps: bool | None = None
    use_normalized_timestamps: bool | None = None


@dataclass(slots=True)
class _Context:
    """`flushes`: up to which character the words are to come before each is done."""

    timestamps: bool
    transcript: Transcript = field(default_factory=Transcript)
    opened: bool = False
    heard: int = 0
    flushes: list[int] = field(default_factory=list)
    flush_id: int = 1


class CartesiaDialect:
    """See `dialect.Dialect`."""

    def __init__(self) -> None:
        self._texts: Texts
        self._format: Raw | None = None
        self._contexts: dict[str, _Context] = {}
        self._names: dict[int, str] = {}

    def open(self, texts: Texts) -> Sequence[ClientMessage | Reply]:
        self._texts = texts
        return []

    def receive(self, data: str | bytes) -> Sequence[ClientMessage | Reply]:
        message = parse(Generation, data)
        name = message.context_id
        if message.cancel:
            return [Cancel(context=name)] if name in self._contexts else []
        before = self._texts(name) if name in self._contexts else ""
        answer: list[ClientMessage | Reply] = self._begin(message)
        text = message.transcript
        if message.max_buffer_delay_ms == 0:
            text = separated(before, text)
        if text and (before or text.strip()):
            answer.append(TextAppend(context=name, text=text))
        if message.flush:
            answer.append(TextFlush(context=name))
        if not message.continue_:
            answer.append(TextEnd(context=name))
        return answer

    def _begin(self, message: Generation) -> list[ClientMessage | Reply]:
        """What opens the session and the context where this is their first message."""
        name, format = message.context_id, message.output_format
        begin: list[ClientMessage | Reply] = []
        if self._format is None:
            if format is None:
                raise Refused("invalid_message", "output_format is missing", param="output_format")
            self._format = format
            begin.append(
                SessionOpen(
                    format=_FORMATS[format.encoding],
                    sample_rate=format.sample_rate,
                    resumable=False,
                )
            )
        elif format is not None and format != self._format:
            text = "a connection speaks one output_format; open another for this one"
            raise Refused("format_fixed", text, param="output_format", context=name)
        if name not in self._contexts:
            self._contexts[name] = _Context(bool(message.add_timestamps))
            begin.append(ContextOpen(context=name, voice=message.voice_id, speed=message.rate))
        return begin

    def send(self, event: ServerMessage | WireFrame) -> Sequence[str | bytes | Close]:
        match event:
            case ContextOpened():
                self._names[event.handle] = event.context
                self._contexts[event.context].opened = True
            case Marks():
                context = self._contexts[event.context]
                context.heard = event.words[-1].end_char
                context.transcript.append(event.text)
                if context.timestamps:
                    tokens = context.transcript.tokens(event.words)
                    return [json.dumps(_timestamps(event.context, tokens))] if tokens else []
            case WireFrame():
                return self._chunk(self._names[event.context], bytes(event.payload))
            case ContextFlushed():
                flushed = self._texts(event.context)[: event.end_char]
                end = len(re.sub(r"\W+\Z", "", flushed))
                self._contexts[event.context].flushes.append(end)
                return self._flushed(event.context)
            case ContextDone():
                return self._done(event)
            case ErrorEvent():
                return self._error(event)
        return []

    def _chunk(self, name: str, payload: bytes) -> list[str | bytes | Close]:
        chunk = _chunk(name, payload) | {"flush_id": self._contexts[name].flush_id}
        return [json.dumps(chunk), *self._flushed(name)]

    def _flushed(self, name: str) -> list[str | bytes | Close]:
        context = self._contexts[name]
        told: list[str | bytes | Close] = []
        while context.flushes and context.flushes[0] <= context.heard:
            context.flushes.pop(0)
            told.append(_flush_done(name, context))
        return told

    def _done(self, event: ContextDone) -> list[str | bytes | Close]:
        context = self._contexts.pop(event.context)
        if event.reason == "error":  # which ended it for the client
            return []
        told: list[str | bytes | Close] = []
        context.transcript.append(event.text)
        if context.timestamps and event.complete and (rest := context.transcript.rest_token()):
            told.append(json.dumps(_timestamps(event.context, rest)))
        told += [_flush_done(event.context, context) for _ in context.flushes]
        return [*told, json.dumps(_done(event.context))]

    def _error(self, event: ErrorEvent) -> list[str | bytes | Close]:
        if event.code == "unknown_context":  # why it was not opened, or ended, was told
            return []
        name = event.context
        if name in self._contexts and not self._contexts[name].opened:
            del self._contexts[name]
        return [json.dumps(_error(event.code, event.message, status_of_event(event), name))]


def _told(kind: str, context: str | None, *, done: bool = False, status: int = 206) -> _Json:
    """What every message has; clients differ in which of `type` and `done` they read."""
    return {"type": kind, "done": done, "status_code": status, "context_id": context}


def _chunk(context: str | None, audio: bytes) -> _Json:
    return _told("chunk", context) | {"data": b64encode(audio).decode(), "step_time": 0.0}


def _timestamps(context: str | None, words: Sequence[Word]) -> _Json:
    told = {
        "words": [word.text for word in words],
        "start": [word.start_ms / 1000 for word in words],
        "end": [word.end_ms / 1000 for word in words],
    }
    return _told("timestamps", context) | {"word_timestamps": told}


def _done(context: str | None) -> _Json:
    return _told("done", context, done=True, status=200)


def _error(code: str, message: str, status: int, context: str | None) -> _Json:
    return _told("error", context, done=True, status=status) | {
        "title": code.replace("_", " "),
        "message": message,
        "error": message,
        "error_code": code,
    }


def _flush_done(name: str, context: _Context) -> str:
    flush_id, context.flush_id = context.flush_id, context.flush_id + 1
    told = _told("flush_done", name) | {"flush_done": True, "flush_id": flush_id}
    return json.dumps(told)


# -- plain HTTP --------------------------------------------------------------------------------


class _Events:
    """Server-sent events, see `Shape`; `event` is the message's type."""

    media_type = "text/event-stream"

    def __init__(self, body: EventsBody) -> None:
        self._context = body.context_id
        self._transcript = Transcript(body.transcript) if body.add_timestamps else None

    def block(self, audio: bytes, words: Sequence[Word]) -> bytes:
        tokens = self._transcript.tokens(words) if self._transcript is not None else []
        return self._told(tokens, audio)

    def end(self, audio: bytes, result: SpokenResult) -> bytes:
        rest = self._transcript.rest_token() if self._transcript is not None else []
        return self._told(rest, audio) + _event(_done(self._context))

    def _told(self, tokens: Sequence[Word], audio: bytes) -> bytes:
        told = _event(_timestamps(self._context, tokens)) if tokens else b""
        return told + _event(_chunk(self._context, audio)) if audio else told


def _event(message: _Json) -> bytes:
    return server_sent(message, message["type"])


async def _ask_bytes(request: Request, engine: Engine) -> Speech:
    body = await read_body(request, BytesBody)
    stream = speak_text(engine, body.transcript, voice=body.voice_id, speed=body.rate)
    asked = body.output_format
    rate = asked.sample_rate
    if isinstance(asked, Mp3File):
        return Speech(body.transcript, stream, "mp3", rate, Plain("mp3", rate))
    format = _FORMATS[asked.encoding]
    shape = Wav(format, rate) if isinstance(asked, WavFile) else Plain(format, rate)
    return Speech(body.transcript, stream, format, rate, shape)


async def _ask_events(request: Request, engine: Engine) -> Speech:
    body = await read_body(request, EventsBody)
    stream = speak_text(engine, body.transcript, voice=body.voice_id, speed=body.rate)
    format, rate = _FORMATS[body.output_format.encoding], body.output_format.sample_rate

    def broken(error: SpeechError) -> bytes:
        return _event(_problem(error, body.context_id))

    return Speech(body.transcript, stream, format, rate, _Events(body), broken=broken)


def _problem(error: SpeechError, context: str | None) -> _Json:
    return _error(error.code, error.message, status_of(error), context)


def error_response(error: SpeechError) -> Response:
    """An error in Cartesia's shape."""
    return error_json(error, _problem(error, None))


def _begin(websocket: WebSocket, info: EngineInfo) -> Conversation:
    return Conversation(CartesiaDialect())


ROUTES: list[BaseRoute] = [
    WebSocketRoute("/tts/websocket", conversation(_begin, error_response, name="cartesia")),
    *(
        Route(path, endpoint(ask, error_response, name="cartesia"), methods=["POST"])
        for path, ask in (("/tts/bytes", _ask_bytes), ("/tts/sse", _ask_events))
    ),
]
