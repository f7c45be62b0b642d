"""Deepgram's speak: the plain HTTP call, and the websocket of version 1. Version 2's is in
deepgram_v2.

Over the websocket words come in and binary audio goes out, a turn at a time. A turn is what is
spoken up to `Flush`; `Flushed` follows the last of its audio.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from omni_speak.runtime.errors import InvalidRequest, SpeechError
from omni_speak.runtime.request import EngineInfo
from omni_speak.streams.audio import WavEncoding
from omni_speak.streams.dialect import Reply, Texts
from omni_speak.streams.dialects.deepgram_v2 import DeepgramV2Dialect
from omni_speak.streams.dialects.text import Foreign, parse, separated
from omni_speak.streams.dialects.turns import Ended, Heard, Turns
from omni_speak.streams.encoder import OPUS_RATES, ContainerFormat
from omni_speak.streams.errors import close_code_of, error_json
from omni_speak.streams.http_speech import Plain, Speech, Wav, endpoint, read_body
from omni_speak.streams.messages import (
    POLICY_VIOLATION,
    SAMPLE_RATES,
    TRY_AGAIN_LATER,
    ClientMessage,
    Close,
    ContextDone,
    ContextOpened,
    ErrorEvent,
    SampleRate,
    ServerMessage,
    SessionClose,
    SessionOpen,
    SessionOpened,
)
from omni_speak.streams.speaking import Engine, speak_text
from omni_speak.streams.websocket import Conversation, conversation
from omni_speak.streams.wire import WireFrame

_RAW: dict[str, WavEncoding] = {"linear16": "pcm_s16le", "mulaw": "mulaw", "alaw": "alaw"}
_ENCODED: dict[str, ContainerFormat] = {
    "mp3": "mp3",
    "opus": "ogg_opus",
    "flac": "flac",
    "aac": "aac",
}
_RATES = {
    "linear16": 24000,
    "mulaw": 8000,
    "alaw": 8000,
    "mp3": 22050,
    "opus": 48000,
    "flac": 48000,
    "aac": 22050,
}
"""What is spoken at unless asked otherwise."""


class Incoming(Foreign):
    type: Literal["Speak", "Flush", "Clear", "Close"]
    text: str | None = None


class DeepgramDialect:
    """See `dialect.Dialect`. `voice` none is the server's default."""

    def __init__(self, session: SessionOpen, speed: float) -> None:
        self._session = session
        self._speed = speed
        self._texts: Texts
        self._turns = Turns()
        self._flushes = 0
        self._closing = False

    def open(self, texts: Texts) -> Sequence[ClientMessage | Reply]:
        self._texts = texts
        return [self._session]

    def receive(self, data: str | bytes) -> Sequence[ClientMessage | Reply]:
        message = parse(Incoming, data)
        match message.type:
            case "Speak":
                return self._speak(message.text or "")
            case "Flush":
                return self._flush()
            case "Clear":
                return [*self._turns.clear(), Reply(_numbered("Cleared", self._flushes))]
            case "Close":
                self._closing = True
                return self._flush() if self._turns else [SessionClose()]

    def _speak(self, text: str) -> Sequence[ClientMessage | Reply]:
        if not text.strip():
            return []
        turn = self._turns.last
        before = self._texts(turn.name) if turn is not None else ""
        return self._turns.speak(separated(before, text), self._speed)

    def _flush(self) -> Sequence[ClientMessage | Reply]:
        return self._turns.flush() if self._turns else [Reply(self._flushed())]

    def send(self, event: ServerMessage | WireFrame) -> Sequence[str | bytes | Close]:
        match event:
            case SessionOpened():
                return [_metadata(event)]
            case ContextOpened():
                return self._told(self._turns.opened(event))
            case WireFrame():
                return self._told(self._turns.audio(event))
            case ContextDone():
                return self._told(self._turns.done(event.context))
            case ErrorEvent() if event.code != "unknown_context":  # whose end was told already
                return self._error(event)
        return []

    def _error(self, event: ErrorEvent) -> list[str | bytes | Close]:
        told = [_problem(event), *self._told(self._turns.refused(event.context))]
        if close_code_of(event) == TRY_AGAIN_LATER:  # or its client waits for audio of the turn
            told.append(Close(TRY_AGAIN_LATER, event.message))
        return told

    def _told(self, heard: Sequence[Heard]) -> list[str | bytes | Close]:
        told: list[str | bytes | Close] = []
        for item in heard:
            if isinstance(item, bytes):
                told.append(item)
            elif isinstance(item, Ended):
                told.append(self._flushed())
        if self._turns.overfull:
            told.append(Close(POLICY_VIOLATION, "more was flushed than can be spoken in time"))
        elif self._closing and not self._turns:
            told.append(Close(1000, ""))
        return told

    def _flushed(self) -> str:
        told = _numbered("Flushed", self._flushes)
        self._flushes += 1
        return told


def _numbered(kind: str, number: int) -> str:
    return json.dumps({"type": kind, "sequence_id": number})


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


def _problem(event: ErrorEvent) -> str:
    message: dict[str, Any] = {
        "type": "Warning" if close_code_of(event) == POLICY_VIOLATION else "Error",
        "code": event.code.upper(),
        "description": event.message,
        "warn_code": event.code.upper(),
        "warn_msg": event.message,
    }
    return json.dumps(message)


# -- what a query asks for ---------------------------------------------------------------------

_FIELDS = ("model", "encoding", "sample_rate", "container", "speed")
_WITHOUT_EFFECT = ("bit_rate", "mip_opt_out", "tag")


@dataclass(frozen=True, slots=True)
class Query:
    """`encoding` is one of `encodings`, by default the first. `voice` none is the server's default.
    `of` raises InvalidRequest."""

    encoding: str
    rate: int
    voice: str | None
    speed: float

    @classmethod
    def of(cls, query: Mapping[str, str], info: EngineInfo, encodings: Sequence[str]) -> Query:
        if unknown := sorted(set(query) - {*_FIELDS, *_WITHOUT_EFFECT}):
            raise InvalidRequest(
                f"no field {unknown[0]!r} in the query; there are: {', '.join(_FIELDS)}",
                param=unknown[0],
            )
        encoding = query.get("encoding", encodings[0])
        if encoding not in encodings:
            raise InvalidRequest(
                f"encoding must be one of {', '.join(encodings)}", param="encoding"
            )
        rate = query.get("sample_rate", str(_RATES[encoding]))
        rates = [str(rate) for rate in (OPUS_RATES if encoding == "opus" else SAMPLE_RATES)]
        if rate not in rates:
            raise InvalidRequest(
                f"sample_rate must be one of {', '.join(rates)}", param="sample_rate"
            )
        return cls(encoding, int(rate), _voice(query, info), _speed(query, info))


def _voice(query: Mapping[str, str], info: EngineInfo) -> str | None:
    """`model` is a voice's name, or the model's for its default voice."""
    voice = query.get("model", info.model)
    known = list(dict.fromkeys(name.lower() for name in (info.model, *info.voices)))
    if voice.lower() not in known:
        raise InvalidRequest(f"model must be one of {', '.join(known)}", param="model")
    return None if voice.lower() == info.model.lower() else voice


def _speed(query: Mapping[str, str], info: EngineInfo) -> float:
    low, high = info.speed_range
    try:
        speed = float(query.get("speed", "1"))
    except ValueError:
        speed = float("nan")
    if not low <= speed <= high:
        raise InvalidRequest(f"speed must be a number from {low} to {high}", param="speed")
    return speed


# -- endpoints ---------------------------------------------------------------------------------


def error_response(error: SpeechError) -> Response:
    """An error in Deepgram's shape."""
    return error_json(error, {"err_code": error.code.upper(), "err_msg": error.message})


def _session(websocket: WebSocket, info: EngineInfo) -> tuple[SessionOpen, float]:
    """And how fast to speak."""
    query = Query.of(websocket.query_params, info, list(_RAW))
    session = SessionOpen(
        voice=query.voice,
        format=_RAW[query.encoding],
        sample_rate=cast(SampleRate, query.rate),
        resumable=False,
    )
    return session, query.speed


def _begin_v1(websocket: WebSocket, info: EngineInfo) -> Conversation:
    return Conversation(DeepgramDialect(*_session(websocket, info)))


def _begin_v2(websocket: WebSocket, info: EngineInfo) -> Conversation:
    return Conversation(DeepgramV2Dialect(*_session(websocket, info), info.speed_range))


class Body(Foreign):
    text: str


async def _ask(request: Request, engine: Engine) -> Speech:
    text = (await read_body(request, Body)).text
    query = Query.of(request.query_params, engine.info, [*_ENCODED, *_RAW])
    container = _container(request.query_params, query.encoding)
    stream = speak_text(engine, text, voice=query.voice, speed=query.speed)
    if query.encoding in _ENCODED:
        format = _ENCODED[query.encoding]
        return Speech(text, stream, format, query.rate, Plain(format, query.rate))
    raw = _RAW[query.encoding]
    shape = Wav(raw, query.rate) if container == "wav" else Plain(raw, query.rate)
    return Speech(text, stream, raw, query.rate, shape)


def _container(query: Mapping[str, str], encoding: str) -> str:
    """Raises InvalidRequest. Samples come as a WAV file unless asked otherwise."""
    containers = ["wav", "none"] if encoding in _RAW else ["none"]
    if encoding == "opus":
        containers = ["ogg"]
    container = query.get("container", containers[0])
    if container not in containers:
        raise InvalidRequest(
            f"the container of {encoding} must be one of {', '.join(containers)}",
            param="container",
        )
    return container


_answer = endpoint(_ask, error_response, name="deepgram")

ROUTES: list[BaseRoute] = [
    WebSocketRoute("/v1/speak", conversation(_begin_v1, error_response, name="deepgram")),
    WebSocketRoute("/v2/speak", conversation(_begin_v2, error_response, name="deepgram")),
    Route("/v1/speak", _answer, methods=["POST"]),
    Route("/v2/speak", _answer, methods=["POST"]),
]
