"""vLLM-Omni's duplex websocket: OpenAI-Realtime names, text in, audio as base64, and resume.

A response begins with the first text and is spoken as its text comes; `input.commit` (or its other
name, or `response.create`) ends the text. One response is spoken at a time: text that comes after
its commit is refused until `response.done`, or a `barge_in`, which tells what was heard. Nothing
listens here, so audio is refused; what a session's input should be like is taken without effect.

An event of ours is one message of theirs, its number `server_event_seq`; theirs begin with 1.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from omni_speak.runtime.errors import InvalidRequest
from omni_speak.runtime.request import EngineInfo
from omni_speak.streams.dialect import Reply, Texts
from omni_speak.streams.dialects.openai_speech import error_response
from omni_speak.streams.dialects.text import Foreign, parse
from omni_speak.streams.errors import status_of_event
from omni_speak.streams.messages import (
    AnyEvent,
    AudioFormat,
    Cancel,
    ClientMessage,
    Close,
    ContextDone,
    ContextInterrupted,
    ContextOpen,
    ContextOpened,
    ErrorEvent,
    Interrupt,
    Marks,
    PlaybackAck,
    Refused,
    Resume,
    SampleRate,
    ServerMessage,
    SessionClose,
    SessionClosed,
    SessionOpen,
    SessionOpened,
    TextAppend,
    TextEnd,
    TextFlush,
)
from omni_speak.streams.websocket import Conversation, conversation
from omni_speak.streams.wire import WireFrame

_FORMATS: dict[str, AudioFormat] = {
    "pcm16": "pcm_s16le",
    "pcm_s16le": "pcm_s16le",
    "s16le": "pcm_s16le",
    "pcm_f32le": "pcm_f32le",
    "g711_ulaw": "mulaw",
    "g711_alaw": "alaw",
}
_STATUS = {"stop": "completed", "length": "incomplete", "cancelled": "cancelled", "error": "failed"}
_CODES = {"resume_refused": "invalid_session_resume", "resume_gap": "session_resume_expired"}

_OF_SESSION = {"voice", "temperature"}
"""Ours stand in messages of their own, theirs in the session."""


class Output(Foreign):
    sample_rate_hz: SampleRate | None = None


class Audio(Foreign):
    output: Output = Output()
    input: Any = None


class Extra(Foreign):
    auto_response: Literal[True] = True


class SessionConfig(Foreign):
    """What is only ever null has no meaning here."""

    type: Literal["realtime"] | None = None
    model: str | None = None
    modalities: tuple[Literal["audio", "text"], ...] = ("audio", "text")
    output_audio_format: Literal[
        "pcm16", "pcm_s16le", "s16le", "pcm_f32le", "g711_ulaw", "g711_alaw"
    ] = "pcm16"
    audio: Audio = Audio()
    voice: str | None = None
    temperature: float | None = Field(None, ge=0.0, le=2.0)
    extra_body: Extra = Extra()
    instructions: None = None
    ref_audio: None = None
    turn_detection: None = None
    idle_timeout_s: None = None
    input_audio_format: Any = None
    sample_rate_hz: Any = None
    overlap_policy: Any = None
    playback_commit_policy: Any = None


class Incoming(Foreign):
    type: Literal[
        "session.update",
        "session.resume",
        "session.heartbeat",
        "session.event_ack",
        "session.close",
        "input.text.append",
        "input.commit",
        "input_audio_buffer.commit",
        "response.create",
        "response.cancel",
        "barge_in",
        "playback.ack",
    ]
    event_id: str | None = None
    session: SessionConfig = SessionConfig()
    session_id: str = Field("", max_length=64)
    resume_token: str = Field("", max_length=256)
    last_received_server_event_seq: int = Field(0, ge=0, le=2**32)
    server_event_seq: int | None = None
    text: str = ""
    final: bool = True
    response_create: Literal[True] | None = None
    response_id: str | None = None
    item_id: str | None = None
    played_ms: float = Field(0.0, ge=0.0, allow_inf_nan=False, lt=2**53)
    committed_ms: float | None = None
    reason: str | None = None


@dataclass(slots=True)
class _Response:
    name: str
    committed: bool = False


class RealtimeDialect:
    """See `dialect.Dialect`. `model` is the server's."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._config: SessionConfig | None = None
        self._opened: SessionOpened | None = None
        self._count = 0
        self._speaking: _Response | None = None
        self._latest: str | None = None
        """The response that was begun last; it may be over."""
        self._names: dict[int, str] = {}

    def open(self, texts: Texts) -> Sequence[ClientMessage | Reply]:
        return []

    # What the client said

    def receive(self, data: str | bytes) -> Sequence[ClientMessage | Reply]:
        message = parse(Incoming, data)
        match message.type:
            case "session.update":
                return self._update(message.session)
            case "session.resume":
                return [_resumption(message)]
            case "session.heartbeat" | "session.event_ack":
                return []
            case "session.close":
                return [SessionClose()]
            case "input.text.append":
                return self._append(message.text)
            case "input.commit" | "input_audio_buffer.commit" | "response.create":
                return self._commit(final=message.final)
            case "response.cancel":
                return self._cancel(message.response_id)
            case "barge_in":
                return self._barge_in()
            case "playback.ack":
                return self._played(message.response_id, message.played_ms)

    def _update(self, config: SessionConfig) -> list[ClientMessage | Reply]:
        if config.model is not None and config.model != self._model:
            text = f"no model {config.model[:64]!r} here; there is {self._model!r}"
            raise Refused("model_not_found", text, param="session.model")
        if "audio" not in config.modalities:
            raise Refused(
                "invalid_message", "modalities must hold audio", param="session.modalities"
            )
        before, self._config = self._config, config
        if before is None:
            return [
                SessionOpen(
                    voice=config.voice,
                    format=_FORMATS[config.output_audio_format],
                    sample_rate=config.audio.output.sample_rate_hz,
                )
            ]
        if _sound(config) != _sound(before):
            self._config = before
            raise Refused("format_fixed", "a session's audio format cannot change", param="session")
        return [Reply(json.dumps({"type": "session.updated", "session": self._session()}))]

    def _append(self, text: str) -> list[ClientMessage | Reply]:
        begin: list[ClientMessage | Reply] = []
        if self._speaking is None:
            if not text.strip():
                return []
            config = self._config or SessionConfig()
            self._count += 1
            self._latest = f"resp_{self._count}"
            self._speaking = _Response(self._latest)
            begin.append(
                ContextOpen(
                    context=self._speaking.name, voice=config.voice, temperature=config.temperature
                )
            )
        response = self._speaking
        if response.committed:
            raise Refused(
                "conversation_already_has_active_response",
                f"{response.name} is being spoken; wait for response.done, or send barge_in",
                context=response.name,
            )
        return [*begin, TextAppend(context=response.name, text=text)]

    def _commit(self, *, final: bool) -> list[ClientMessage | Reply]:
        response = self._speaking
        if response is None:
            raise Refused("input_audio_buffer_commit_empty", "no text was appended to commit")
        if response.committed:
            return []
        if not final:
            return [TextFlush(context=response.name)]
        response.committed = True
        return [TextEnd(context=response.name)]

    def _cancel(self, name: str | None) -> list[ClientMessage | Reply]:
        if self._speaking is None or name not in (None, self._speaking.name):
            return []
        response, self._speaking = self._speaking, None
        return [Cancel(context=response.name)]

    def _barge_in(self) -> list[ClientMessage | Reply]:
        """The last response may be all made, and still be playing: it is interrupted, too."""
        if self._latest is None:
            return []
        return [Interrupt(context=self._latest), *self._cancel(None)]

    def _played(self, name: str | None, played_ms: float) -> list[ClientMessage | Reply]:
        if self._opened is None or self._latest is None:
            return []
        samples = int(played_ms * self._opened.sample_rate / 1000)
        return [PlaybackAck(context=name or self._latest, samples=samples)]

    # How the client is told

    def send(self, event: ServerMessage | WireFrame) -> Sequence[str | bytes | Close]:
        message = self._message(event)
        if message is None:
            return []
        if isinstance(event, AnyEvent | WireFrame):
            message["server_event_seq"] = event.seq + 1
        return [json.dumps(message)]

    def _message(self, event: ServerMessage | WireFrame) -> dict[str, Any] | None:
        match event:
            case SessionOpened():
                self._opened = event
                return {
                    "type": "session.resumed" if event.resumed else "session.created",
                    "session": self._session(),
                    "session_id": event.session,
                    "resume_token": event.resume_token,
                }
            case SessionClosed():
                return {"type": "session.closed"}
            case ContextOpened():
                return self._created(event)
            case Marks():
                part = _part("response.output_audio_transcript.delta", event.context)
                return part | {"delta": event.text} if event.text else None
            case WireFrame():
                return self._audio(event)
            case ContextInterrupted():
                return {
                    "type": "conversation.item.truncated",
                    "item_id": f"item_{event.context}",
                    "content_index": 0,
                    "audio_end_ms": round(event.heard_ms),
                    "text_spoken": event.text_spoken,
                    "text_remaining": event.text_remaining,
                }
            case ContextDone():
                return self._done(event)
            case ErrorEvent():
                return self._error(event)
        return None

    def _session(self) -> dict[str, Any]:
        assert self._opened is not None and self._config is not None
        return {
            "id": self._opened.session,
            "object": "realtime.session",
            "model": self._model,
            "modalities": ["audio", "text"],
            "voice": self._config.voice or self._opened.voice,
            "temperature": self._config.temperature,
            "output_audio_format": self._config.output_audio_format,
            "audio": {"output": {"sample_rate_hz": self._opened.sample_rate}},
            "capabilities": {"supports_barge_in": True, "supports_audio_input": False},
        }

    def _created(self, event: ContextOpened) -> dict[str, Any]:
        self._names[event.handle] = event.context
        shown = {"id": event.context, "object": "realtime.response", "status": "in_progress"}
        return {"type": "response.created", "response_id": event.context, "response": shown}

    def _audio(self, frame: WireFrame) -> dict[str, Any]:
        assert self._opened is not None  # or there would be no frame
        return _part("response.output_audio.delta", self._names[frame.context]) | {
            "delta": b64encode(frame.payload).decode(),
            "sample_rate_hz": self._opened.sample_rate,
        }

    def _done(self, event: ContextDone) -> dict[str, Any]:
        if self._speaking is not None and self._speaking.name == event.context:
            self._speaking = None
        status = _STATUS.get(event.reason, "incomplete")
        shown = {
            "id": event.context,
            "object": "realtime.response",
            "status": status,
            "status_details": {"type": status, "reason": event.reason},
        }
        return {"type": "response.done", "response_id": event.context, "response": shown}

    def _error(self, event: ErrorEvent) -> dict[str, Any] | None:
        if event.code == "unknown_context":  # it has ended, which was told
            return None
        if self._opened is None:
            self._config = None
        name = event.context
        if self._speaking is not None and self._speaking.name == name not in self._names.values():
            self._speaking = None  # it was never opened
        kind = "server_error" if status_of_event(event) >= 500 else "invalid_request_error"
        code = _CODES.get(event.code, event.code)
        param = f"session.{event.param}" if event.param in _OF_SESSION else event.param
        error = {"type": kind, "code": code, "message": event.message, "param": param}
        return {"type": "error", "error": error}


def _resumption(message: Incoming) -> SessionOpen:
    seq = message.last_received_server_event_seq
    resume = Resume(
        session=message.session_id, token=message.resume_token, seq=seq - 1 if seq else None
    )
    return SessionOpen(resume=resume)


def _sound(config: SessionConfig) -> tuple[str, int | None]:
    return _FORMATS[config.output_audio_format], config.audio.output.sample_rate_hz


def _part(kind: str, response: str) -> dict[str, Any]:
    """Where in a response a delta belongs: there is one item, with one part."""
    place = {"item_id": f"item_{response}", "output_index": 0, "content_index": 0}
    return {"type": kind, "response_id": response, **place}


def _begin(websocket: WebSocket, info: EngineInfo) -> Conversation:
    if websocket.query_params.get("duplex") != "1":
        raise InvalidRequest("only duplex=1 is answered here", param="duplex")
    return Conversation(RealtimeDialect(info.model))


ROUTES = [WebSocketRoute("/v1/realtime", conversation(_begin, error_response, name="vllm-omni"))]
