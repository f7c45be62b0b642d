"""Deepgram's speak websocket, version 1: words in, binary audio out, a turn at a time.

A turn is what is spoken up to `Flush`; `Flushed` follows the last of its audio. The audio of a turn
that was begun before the one before it ended waits here, up to `MAX_WAITING_BYTES`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from omni_speak.runtime.errors import InvalidRequest
from omni_speak.runtime.request import EngineInfo
from omni_speak.streams.dialect import Reply
from omni_speak.streams.dialects.openai_speech import error_response
from omni_speak.streams.dialects.text import Foreign, Transcript, parse
from omni_speak.streams.messages import (
    SAMPLE_RATES,
    AudioFormat,
    Cancel,
    ClientMessage,
    Close,
    ContextDone,
    ContextOpen,
    ContextOpened,
    ErrorEvent,
    SampleRate,
    ServerMessage,
    SessionClose,
    SessionOpen,
    SessionOpened,
    TextAppend,
    TextEnd,
)
from omni_speak.streams.service import service_of
from omni_speak.streams.websocket import POLICY_VIOLATION, converse
from omni_speak.streams.wire import WireFrame

MAX_WAITING_BYTES = 4 * 1024 * 1024
_FORMATS: dict[str, AudioFormat] = {"linear16": "pcm_s16le", "mulaw": "mulaw", "alaw": "alaw"}


class Incoming(Foreign):
    type: Literal["Speak", "Flush", "Clear", "Close"]
    text: str | None = None


@dataclass(slots=True)
class _Turn:
    name: str
    transcript: Transcript = field(default_factory=Transcript)
    flushed: bool = False
    done: bool = False
    waiting: list[bytes] = field(default_factory=list)


class DeepgramDialect:
    """See `dialect.Dialect`. `voice` none is the server's default."""

    def __init__(self, voice: str | None, format: AudioFormat, rate: SampleRate | None) -> None:
        self._open = SessionOpen(voice=voice, format=format, sample_rate=rate, resumable=False)
        self._turns: deque[_Turn] = deque()
        self._names: dict[int, str] = {}
        self._count = 0
        self._flushes = 0
        self._closing = False

    def open(self) -> Sequence[ClientMessage | Reply]:
        return [self._open]

    def receive(self, data: str | bytes) -> Sequence[ClientMessage | Reply]:
        message = parse(Incoming, data)
        match message.type:
            case "Speak":
                return self._speak(message.text or "")
            case "Flush":
                return self._flush()
            case "Clear":
                return self._clear()
            case "Close":
                self._closing = True
                return self._flush() if self._turns else [SessionClose()]

    def _speak(self, text: str) -> list[ClientMessage | Reply]:
        if not text.strip():
            return []
        begin: list[ClientMessage | Reply] = []
        if not self._turns or self._turns[-1].flushed:
            self._count += 1
            self._turns.append(_Turn(f"turn-{self._count}"))
            begin.append(ContextOpen(context=self._turns[-1].name))
        turn = self._turns[-1]
        piece = turn.transcript.append(text, separate=True)
        return [*begin, TextAppend(context=turn.name, text=piece)]

    def _flush(self) -> list[ClientMessage | Reply]:
        if self._turns and not self._turns[-1].flushed:
            self._turns[-1].flushed = True
            return [TextEnd(context=self._turns[-1].name)]
        return [] if self._turns else [Reply(self._told_flushed())]

    def _clear(self) -> list[ClientMessage | Reply]:
        cancelled = [Cancel(context=turn.name) for turn in self._turns if not turn.done]
        self._turns.clear()
        cleared = json.dumps({"type": "Cleared", "sequence_id": self._flushes})
        return [*cancelled, Reply(cleared)]

    def send(self, event: ServerMessage | WireFrame) -> Sequence[str | bytes | Close]:
        match event:
            case SessionOpened():
                return [_metadata(event)]
            case ContextOpened():
                self._names[event.handle] = event.context
            case WireFrame():
                return self._audio(self._names[event.context], bytes(event.payload))
            case ContextDone():
                return self._done(event.context)
            case ErrorEvent():
                return self._error(event)
        return []

    def _turn(self, name: str) -> _Turn | None:
        return next((turn for turn in self._turns if turn.name == name), None)

    def _audio(self, name: str, payload: bytes) -> list[str | bytes | Close]:
        turn = self._turn(name)
        if turn is None:  # cleared
            return []
        if turn is self._turns[0]:
            return [payload]
        turn.waiting.append(payload)
        if sum(map(len, turn.waiting)) > MAX_WAITING_BYTES:
            return [Close(POLICY_VIOLATION, "too much was flushed before it could be spoken")]
        return []

    def _done(self, name: str) -> list[str | bytes | Close]:
        turn = self._turn(name)
        if turn is not None:
            turn.done = True
        told: list[str | bytes | Close] = []
        while self._turns and self._turns[0].done:
            self._turns.popleft()
            told.append(self._told_flushed())
            if self._turns:
                told += self._turns[0].waiting
                self._turns[0].waiting = []
        if self._closing and not self._turns:
            told.append(Close(1000, ""))
        return told

    def _told_flushed(self) -> str:
        told = json.dumps({"type": "Flushed", "sequence_id": self._flushes})
        self._flushes += 1
        return told

    def _error(self, event: ErrorEvent) -> list[str | bytes | Close]:
        if event.code == "unknown_context":  # why it was not opened, or ended, was told
            return []
        name = event.context
        if name is not None and name not in self._names.values():
            self._turns = deque(turn for turn in self._turns if turn.name != name)
        message: dict[str, Any] = {
            "type": "Error" if event.fatal else "Warning",
            "code": event.code.upper(),
            "description": event.message,
            "warn_code": event.code.upper(),
            "warn_msg": event.message,
        }
        return [json.dumps(message)]


def _metadata(event: SessionOpened) -> str:
    return json.dumps(
        {
            "type": "Metadata",
            "request_id": event.session,
            "model_name": event.model,
            "model_version": event.model,
            "model_uuid": event.model,
        }
    )


def _dialect(websocket: WebSocket, info: EngineInfo) -> DeepgramDialect:
    """Raises InvalidRequest. `model` is a voice's name, or the model's for its default voice."""
    query = websocket.query_params
    encoding = query.get("encoding", "linear16")
    if encoding not in _FORMATS:
        raise InvalidRequest(f"encoding must be one of {', '.join(_FORMATS)}", param="encoding")
    rates = [str(rate) for rate in SAMPLE_RATES]
    rate = query.get("sample_rate", "24000" if encoding == "linear16" else "8000")
    if rate not in rates:
        raise InvalidRequest(f"sample_rate must be one of {', '.join(rates)}", param="sample_rate")
    voice = query.get("model", info.model)
    known = [name.lower() for name in (info.model, *info.voices)]
    if voice.lower() not in known:
        raise InvalidRequest(f"model must be one of {', '.join(known)}", param="model")
    return DeepgramDialect(
        None if voice.lower() == info.model.lower() else voice,
        _FORMATS[encoding],
        cast(SampleRate, int(rate)),
    )


async def speak(websocket: WebSocket) -> None:
    engine = service_of(websocket).engine
    if engine is not None:  # or converse says why it is not there
        try:
            dialect = _dialect(websocket, engine.info)
        except InvalidRequest as error:
            await websocket.send_denial_response(error_response(error))
            return
    else:
        dialect = DeepgramDialect(None, "pcm_s16le", None)
    await converse(websocket, dialect, name="deepgram")


ROUTES = [WebSocketRoute("/v1/speak", speak)]
