"""The duplex session as a pure state machine: events in, effects out, no I/O.

`Session` takes what the client sent (`receive`) and what the speakers made (`frame`, `finished`,
`failed`), and answers with a list of effects to carry out in order. Frames and ends are stamped
when they are about to be sent, so a context that was cancelled in between sends nothing more, and
`seq` has no gaps.

Every opened context ends in exactly one `context.done`, after its last audio frame; `error` events
are never the end of a context by themselves. There is no LAST flag: that a frame was the last is
only known one step after it was made, and waiting for that would delay every frame.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal, assert_never

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from omni_speak.runtime.errors import (
    EngineDead,
    InvalidRequest,
    SpeechError,
    TextTooLong,
)
from omni_speak.runtime.request import MAX_SEED, MIN_LEAD_MS, EngineInfo, SpeechRequest
from omni_speak.streams.audio import to_f32le, to_s16le
from omni_speak.streams.segmenter import Segmenter
from omni_speak.streams.speaking import MAX_TEXT_CHARS, SpokenFrame, segment_chars, settle
from omni_speak.streams.wire import Encoding, Flag, Kind, WireFrame, encode

SUBPROTOCOL = "omni-speak.v1"
MAX_FRAMES_PER_MESSAGE = 8  # with f32 samples at 24 kHz, just under 64 KiB

AudioFormat = Literal["pcm_s16le", "pcm_f32le"]
DoneReason = Literal["stop", "length", "cancelled", "error", "shutdown"]
DEFAULT_LEAD_MS = 2000

ContextName = Annotated[str, Field(min_length=1, max_length=64)]

NORMAL_CLOSURE = 1000
INTERNAL_ERROR = 1011
SERVICE_RESTART = 1012


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


# -- client → server ---------------------------------------------------------------------------


class SessionOpen(Message):
    """`voice` is the default of the session's contexts. The first message of a context carries one
    frame, so that sound starts at once, the following ones `frames_per_message`."""

    type: Literal["session.open"] = "session.open"
    voice: str | None = None
    format: AudioFormat = "pcm_s16le"
    frames_per_message: Annotated[int, Field(ge=1, le=MAX_FRAMES_PER_MESSAGE)] = 1


class ContextOpen(Message):
    type: Literal["context.open"] = "context.open"
    context: ContextName
    voice: str | None = None
    speed: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] | None = None
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    max_lead_ms: Annotated[int, Field(ge=MIN_LEAD_MS)] | None = DEFAULT_LEAD_MS
    """How far generation may run ahead of the listener; null: as fast as it can."""


class TextAppend(Message):
    type: Literal["text.append"] = "text.append"
    context: ContextName
    text: str


class TextFlush(Message):
    """Speak what has arrived without waiting for the end of its sentence."""

    type: Literal["text.flush"] = "text.flush"
    context: ContextName


class TextEnd(Message):
    type: Literal["text.end"] = "text.end"
    context: ContextName


class Cancel(Message):
    type: Literal["cancel"] = "cancel"
    context: ContextName


class Ping(Message):
    type: Literal["ping"] = "ping"


class SessionClose(Message):
    type: Literal["session.close"] = "session.close"


ClientMessage = Annotated[
    SessionOpen | ContextOpen | TextAppend | TextFlush | TextEnd | Cancel | Ping | SessionClose,
    Field(discriminator="type"),
]
_CLIENT_TYPES = (
    "session.open, context.open, text.append, text.flush, text.end, cancel, ping, session.close"
)
CLIENT_MESSAGE: TypeAdapter[ClientMessage] = TypeAdapter(ClientMessage)


# -- server → client ---------------------------------------------------------------------------


class Limits(Message):
    """`message_bytes` per message received, `text_chars` per context in all, `contexts` at once."""

    message_bytes: int = 256 * 1024
    text_chars: int = MAX_TEXT_CHARS
    contexts: int = 16


class SessionOpened(Message):
    type: Literal["session.opened"] = "session.opened"
    session: str
    model: str
    format: AudioFormat
    frames_per_message: int
    sample_rate: int
    channels: Literal[1] = 1
    frame_rate: float
    samples_per_frame: int
    codebooks: int
    voices: tuple[str, ...]
    voice: str
    limits: Limits


class ContextOpened(Message):
    """Everything the context was accepted with, the seed drawn included."""

    type: Literal["context.opened"] = "context.opened"
    context: str
    handle: int
    voice: str
    speed: float
    seed: int
    temperature: float | None
    format: AudioFormat
    sample_rate: int
    channels: Literal[1] = 1


class ContextFlushed(Message):
    """Answers `text.flush`: how many segments it sent to be spoken, 0 if nothing was waiting."""

    type: Literal["context.flushed"] = "context.flushed"
    context: str
    segments: int


class ContextDone(Message):
    """The one end of a context. `complete` is false if audio of the accepted text is missing."""

    type: Literal["context.done"] = "context.done"
    context: str
    reason: DoneReason
    frames: int
    samples: int
    segments: int
    complete: bool


class ErrorEvent(Message):
    type: Literal["error"] = "error"
    code: str
    message: str
    param: str | None = None
    context: str | None = None
    fatal: bool = False


class Pong(Message):
    type: Literal["pong"] = "pong"


class SessionClosed(Message):
    type: Literal["session.closed"] = "session.closed"


ServerMessage = Annotated[
    SessionOpened
    | ContextOpened
    | ContextFlushed
    | ContextDone
    | ErrorEvent
    | Pong
    | SessionClosed,
    Field(discriminator="type"),
]
SERVER_MESSAGE: TypeAdapter[ServerMessage] = TypeAdapter(ServerMessage)


# -- effects -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    data: str | bytes


@dataclass(frozen=True, slots=True)
class Start:
    """Start a speaker; `request` has everything but its text."""

    handle: int
    request: SpeechRequest


@dataclass(frozen=True, slots=True)
class Say:
    handle: int
    segment: str


@dataclass(frozen=True, slots=True)
class End:
    """No more segments will come."""

    handle: int


@dataclass(frozen=True, slots=True)
class Abort:
    """Stop the speaker; nothing it still makes is wanted."""

    handle: int


@dataclass(frozen=True, slots=True)
class Close:
    code: int
    reason: str


Effect = Send | Start | Say | End | Abort | Close


# -- the state machine -------------------------------------------------------------------------


class Refused(InvalidRequest):
    """A message that is well formed but not allowed now."""

    def __init__(self, code: str, message: str, *, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.code = code


@dataclass(slots=True)
class _Context:
    name: str
    handle: int
    segmenter: Segmenter
    chars: int = 0
    text_ended: bool = False
    frames: int = 0
    samples: int = 0
    segment: int = -1
    held: list[SpokenFrame] = field(default_factory=list)


class Session:
    """One session's state, from `session.open` to its close."""

    def __init__(
        self,
        info: EngineInfo,
        limits: Limits,
        *,
        session_id: str,
        draw_seed: Callable[[], int] = lambda: secrets.randbelow(MAX_SEED),
    ) -> None:
        self._info = info
        self._limits = limits
        self._id = session_id
        self._draw_seed = draw_seed
        self._options: SessionOpen | None = None
        self._by_name: dict[str, _Context] = {}
        self._by_handle: dict[int, _Context] = {}
        self._handles = 0
        self._seq = 0
        self._draining = False
        self._closed = False

    # What the client sent

    def receive(self, data: str | bytes) -> list[Effect]:
        if self._closed:
            return []
        context: str | None = None
        try:
            if isinstance(data, bytes):
                raise Refused("unexpected_binary", "binary messages are not expected here")
            try:
                message = CLIENT_MESSAGE.validate_json(data)
            except ValidationError as error:
                context = _context_in(data)
                raise _refusal(error) from None
            context = getattr(message, "context", None)
            return self._handle(message)
        except InvalidRequest as error:
            return [_error(error, context)]

    def _handle(self, message: ClientMessage) -> list[Effect]:
        if isinstance(message, Ping):
            return [_send(Pong())]
        if isinstance(message, SessionClose):
            close = self._close(NORMAL_CLOSURE, "")
            return [*self._end_all("cancelled"), _send(SessionClosed()), close]
        if isinstance(message, SessionOpen):
            return self._open(message)
        if self._options is None:
            raise Refused("session_not_open", f"send session.open before {message.type}")
        if isinstance(message, ContextOpen):
            return self._open_context(message, self._options)
        context = self._by_name.get(message.context)
        if context is None:
            raise Refused("unknown_context", "no such context is open", param="context")
        match message:
            case TextAppend():
                return self._append(context, message.text)
            case TextFlush():
                segments = _say(context, context.segmenter.flush())
                return [
                    *segments,
                    _send(ContextFlushed(context=context.name, segments=len(segments))),
                ]
            case TextEnd():
                return self._end_text(context)
            case Cancel():
                return [Abort(context.handle), *self._done(context, "cancelled")]
            case _:
                assert_never(message)

    def _open(self, message: SessionOpen) -> list[Effect]:
        if self._options is not None:
            raise Refused("session_already_open", "this session is already open")
        voice = settle(self._info, SpeechRequest(text="", voice=message.voice, seed=0)).voice
        assert voice is not None  # settled
        self._options = message
        info = self._info
        opened = SessionOpened(
            session=self._id,
            model=info.model,
            format=message.format,
            frames_per_message=message.frames_per_message,
            sample_rate=info.sample_rate,
            frame_rate=info.frame_rate,
            samples_per_frame=info.samples_per_frame,
            codebooks=info.codebooks,
            voices=info.voices,
            voice=voice,
            limits=self._limits,
        )
        return [_send(opened)]

    def _open_context(self, message: ContextOpen, options: SessionOpen) -> list[Effect]:
        if self._draining:
            raise Refused("shutting_down", "the server is shutting down; open no more contexts")
        if message.context in self._by_name:
            raise Refused("context_exists", "this context is already open", param="context")
        if len(self._by_name) >= self._limits.contexts:
            raise Refused(
                "too_many_contexts",
                f"at most {self._limits.contexts} contexts may be open at once",
                param="context",
            )
        request = settle(
            self._info,
            SpeechRequest(
                text="",
                voice=options.voice if message.voice is None else message.voice,
                speed=message.speed,
                seed=message.seed,
                temperature=message.temperature,
                max_lead_ms=message.max_lead_ms,
            ),
            self._draw_seed,
        )
        assert request.voice is not None and request.seed is not None  # settled
        handle = self._next_handle()
        context = _Context(message.context, handle, Segmenter(segment_chars(self._info)))
        self._by_name[message.context] = self._by_handle[handle] = context
        opened = ContextOpened(
            context=message.context,
            handle=handle,
            voice=request.voice,
            speed=request.speed,
            seed=request.seed,
            temperature=request.temperature,
            format=options.format,
            sample_rate=self._info.sample_rate,
        )
        return [_send(opened), Start(handle, request)]

    def _append(self, context: _Context, text: str) -> list[Effect]:
        if context.text_ended:
            raise Refused("text_ended", "text.end was already sent for this context")
        if context.chars + len(text) > self._limits.text_chars:
            raise TextTooLong(
                f"a context takes at most {self._limits.text_chars} characters; "
                f"it has {context.chars} and {len(text)} more were sent",
                param="text",
            )
        context.chars += len(text)
        return _say(context, context.segmenter.push(text))

    def _end_text(self, context: _Context) -> list[Effect]:
        if context.text_ended:
            raise Refused("text_ended", "text.end was already sent for this context")
        context.text_ended = True
        return [*_say(context, context.segmenter.flush()), End(context.handle)]

    def _next_handle(self) -> int:
        while True:
            self._handles = self._handles % 0xFFFF + 1
            if self._handles not in self._by_handle:
                return self._handles

    # What the speakers made

    def frame(self, handle: int, frame: SpokenFrame) -> list[Effect]:
        context = self._by_handle.get(handle)
        if context is None:  # it ended while this frame was on its way
            return []
        assert self._options is not None
        context.held.append(frame)
        due = 1 if context.frames == 0 else self._options.frames_per_message
        return self._send_held(context) if len(context.held) >= due else []

    def finished(
        self, handle: int, reason: Literal["stop", "length"], segments: int
    ) -> list[Effect]:
        """The speaker said all its segments."""
        context = self._by_handle.get(handle)
        if context is None:
            return []
        return [*self._send_held(context), *self._done(context, reason, segments)]

    def failed(self, handle: int, error: SpeechError) -> list[Effect]:
        """The speaker met an error; a dead engine ends the session."""
        context = self._by_handle.get(handle)
        if context is None:
            return []
        fatal = isinstance(error, EngineDead)
        effects = [*self._send_held(context), _error(error, context.name, fatal=fatal)]
        if not fatal:
            return [*effects, *self._done(context, "error")]
        close = self._close(INTERNAL_ERROR, "the engine died")
        return [*effects, *self._end_all("error"), close]

    def _send_held(self, context: _Context) -> list[Effect]:
        if not context.held:
            return []
        assert self._options is not None
        first, pcm = context.held[0], np.concatenate([frame.pcm for frame in context.held])
        flags = Flag.FIRST if context.frames == 0 else Flag(0)
        if any(frame.segment != context.segment for frame in context.held):
            flags |= Flag.KEY
        as_float = self._options.format == "pcm_f32le"
        data = encode(
            WireFrame(
                kind=Kind.AUDIO,
                flags=flags,
                encoding=Encoding.PCM_F32LE if as_float else Encoding.PCM_S16LE,
                context=context.handle,
                seq=self._seq,
                tick=first.index,
                pts=first.pts,
                payload=to_f32le(pcm) if as_float else to_s16le(pcm),
            )
        )
        self._seq = (self._seq + 1) & 0xFFFFFFFF
        context.frames += len(context.held)
        context.samples += len(pcm)
        context.segment = context.held[-1].segment
        context.held = []
        return [Send(data)]

    # Ends

    def drain(self) -> list[Effect]:
        """Let open contexts finish, open no more, then close."""
        if self._closed or self._draining:
            return []
        self._draining = True
        return [] if self._by_name else [self._close_for_restart()]

    def shut_down(self) -> list[Effect]:
        """End everything now: the time to drain is over."""
        if self._closed:
            return []
        self._draining = True
        return self._end_all("shutdown") or [self._close_for_restart()]

    def _end_all(self, reason: DoneReason) -> list[Effect]:
        effects: list[Effect] = []
        for context in list(self._by_name.values()):
            effects += [Abort(context.handle), *self._done(context, reason)]
        return effects

    def _done(
        self, context: _Context, reason: DoneReason, segments: int | None = None
    ) -> list[Effect]:
        del self._by_name[context.name], self._by_handle[context.handle]
        done = ContextDone(
            context=context.name,
            reason=reason,
            frames=context.frames,
            samples=context.samples,
            segments=context.segment + 1 if segments is None else segments,
            complete=reason == "stop",
        )
        effects: list[Effect] = [_send(done)]
        if self._draining and not self._by_name and not self._closed:
            effects.append(self._close_for_restart())
        return effects

    def _close_for_restart(self) -> Close:
        return self._close(SERVICE_RESTART, "the server is shutting down")

    def _close(self, code: int, reason: str) -> Close:
        self._closed = True
        return Close(code, reason)


def _say(context: _Context, segments: list[str]) -> list[Effect]:
    return [Say(context.handle, segment) for segment in segments]


def _send(message: Message) -> Send:
    return Send(message.model_dump_json())


def _error(error: SpeechError, context: str | None, *, fatal: bool = False) -> Send:
    return _send(
        ErrorEvent(
            code=error.code,
            message=error.message,
            param=error.param,
            context=context,
            fatal=fatal,
        )
    )


def _refusal(error: ValidationError) -> Refused:
    """The first thing wrong with a message, in the words of whoever wrote the message."""
    first = error.errors(include_url=False, include_input=False)[0]
    kind = first["type"]
    if kind == "json_invalid":
        return Refused("invalid_json", f"the message is not JSON: {first['msg']}")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return Refused("unknown_type", f"type must be one of {_CLIENT_TYPES}", param="type")
    # The first part is the message's type, which the client did not write as a path.
    message_type, *path = (str(part)[:64] for part in first["loc"] or ("",))
    param = ".".join(path) or None
    if kind == "extra_forbidden":
        return Refused("unknown_field", f"{message_type} has no field {param!r}", param=param)
    return Refused("invalid_message", f"{param or 'the message'}: {first['msg']}", param=param)


def _context_in(data: str) -> str | None:
    """The context a malformed message names, so that its error reaches who sent it."""
    try:
        message = from_json(data)
    except ValueError:
        return None
    context = message.get("context") if isinstance(message, dict) else None
    return context if isinstance(context, str) and len(context) <= 64 else None
