"""Cartesia's websocket: contexts whose text goes on while `continue` is true.

A connection speaks one output format, that of its first message. Transcripts are joined as they
come. Of the generation settings `speed` is honoured; what tunes a model of theirs is taken without
effect, and so is the name of theirs as `model_id`.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from omni_speak.streams.dialect import Reply
from omni_speak.streams.dialects.text import Foreign, parse
from omni_speak.streams.messages import (
    AudioFormat,
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
)
from omni_speak.streams.websocket import converse
from omni_speak.streams.wire import WireFrame

_FORMATS: dict[str, AudioFormat] = {
    "pcm_s16le": "pcm_s16le",
    "pcm_f32le": "pcm_f32le",
    "pcm_mulaw": "mulaw",
    "pcm_alaw": "alaw",
}


class Voice(Foreign):
    mode: Literal["id"] = "id"
    id: str


class OutputFormat(Foreign):
    container: Literal["raw"]
    encoding: Literal["pcm_s16le", "pcm_f32le", "pcm_mulaw", "pcm_alaw"]
    sample_rate: SampleRate


class GenerationConfig(Foreign):
    speed: float = 1.0
    volume: float | None = None
    emotion: Any = None


class Generation(Foreign):
    """A generation request, or `cancel` of one."""

    context_id: str = Field(min_length=1, max_length=64)
    cancel: bool = False
    transcript: str = ""
    voice: Voice | None = None
    output_format: OutputFormat | None = None
    continue_: bool = Field(False, alias="continue")
    flush: bool = False
    add_timestamps: bool = False
    generation_config: GenerationConfig | None = None
    model_id: str | None = None
    language: str | None = None
    max_buffer_delay_ms: int | None = None
    add_phoneme_timestamps: bool | None = None
    use_normalized_timestamps: bool | None = None
    pronunciation_dict_id: str | None = None
    speed: Any = None


@dataclass(slots=True)
class _Context:
    """`flushes`: up to which character the words are to come before each is done."""

    timestamps: bool
    text: str = ""
    heard: int = 0
    flushes: list[int] = field(default_factory=list)
    flush_id: int = 1


class CartesiaDialect:
    """See `dialect.Dialect`."""

    def __init__(self) -> None:
        self._format: OutputFormat | None = None
        self._contexts: dict[str, _Context] = {}
        self._names: dict[int, str] = {}

    def open(self) -> Sequence[ClientMessage | Reply]:
        return []

    def receive(self, data: str | bytes) -> Sequence[ClientMessage | Reply]:
        message = parse(Generation, data)
        name = message.context_id
        if message.cancel:
            return [Cancel(context=name)] if name in self._contexts else []
        answer: list[ClientMessage | Reply] = self._begin(message)
        context = self._contexts[name]
        if message.transcript and (context.text or message.transcript.strip()):
            context.text += message.transcript
            answer.append(TextAppend(context=name, text=message.transcript))
        if message.flush:
            context.flushes.append(len(re.sub(r"\W+\Z", "", context.text)))
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
            self._contexts[name] = _Context(message.add_timestamps)
            speed = (message.generation_config or GenerationConfig()).speed
            voice = None if message.voice is None else message.voice.id
            begin.append(ContextOpen(context=name, voice=voice, speed=speed))
        return begin

    def send(self, event: ServerMessage | WireFrame) -> Sequence[str | bytes | Close]:
        match event:
            case ContextOpened():
                self._names[event.handle] = event.context
            case Marks():
                context = self._contexts[event.context]
                context.heard = event.words[-1].end_char
                if context.timestamps:
                    return [_timestamps(event)]
            case WireFrame():
                return self._chunk(self._names[event.context], bytes(event.payload))
            case ContextFlushed() if event.segments == 0:
                return self._flushed(event.context)
            case ContextDone():
                return self._done(event)
            case ErrorEvent():
                return self._error(event)
        return []

    def _chunk(self, name: str, payload: bytes) -> list[str | bytes | Close]:
        context = self._contexts[name]
        chunk = {
            "type": "chunk",
            "data": b64encode(payload).decode(),
            "done": False,
            "status_code": 206,
            "step_time": 0.0,
            "context_id": name,
            "flush_id": context.flush_id,
        }
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
        told: list[str | bytes | Close] = [
            _flush_done(event.context, context) for _ in context.flushes
        ]
        done = {
            "type": "done",
            "done": True,
            "status_code": 200,
            "context_id": event.context,
        }
        return [*told, json.dumps(done)]

    def _error(self, event: ErrorEvent) -> list[str | bytes | Close]:
        if event.code == "unknown_context":  # why it was not opened, or ended, was told
            return []
        name = event.context
        if name in self._contexts and name not in self._names.values():
            del self._contexts[name]  # it was never opened
        message = {
            "type": "error",
            "title": event.code.replace("_", " "),
            "message": event.message,
            "error": event.message,
            "error_code": event.code,
            "status_code": 500 if event.fatal else 400,
            "done": True,
            "context_id": name,
        }
        return [json.dumps(message)]


def _flush_done(name: str, context: _Context) -> str:
    flush_id, context.flush_id = context.flush_id, context.flush_id + 1
    return json.dumps(
        {
            "type": "flush_done",
            "flush_done": True,
            "flush_id": flush_id,
            "done": False,
            "status_code": 206,
            "context_id": name,
        }
    )


def _timestamps(event: Marks) -> str:
    words = {
        "words": [word.text for word in event.words],
        "start": [word.start_ms / 1000 for word in event.words],
        "end": [word.end_ms / 1000 for word in event.words],
    }
    return json.dumps(
        {
            "type": "timestamps",
            "word_timestamps": words,
            "done": False,
            "status_code": 206,
            "context_id": event.context,
        }
    )


async def websocket(websocket: WebSocket) -> None:
    await converse(websocket, CartesiaDialect(), name="cartesia")


ROUTES = [WebSocketRoute("/tts/websocket", websocket)]
