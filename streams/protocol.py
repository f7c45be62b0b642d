"""The duplex session as a pure state machine: messages in, effects out, no I/O.

`Session` takes what the client said (`handle`) and what the speakers made (`frame`, `finished`,
`failed`), and answers with a list of effects to carry out in order. A frame becomes a message when
it is about to be sent, so a context that was interrupted or cancelled in between sends nothing
more. `Journal` then counts what is sent, and keeps it for a client that lost its connection.

Every opened context ends in exactly one `context.done`, after its last audio frame; `error` events
are never the end of a context by themselves. There is no LAST flag: that a frame was the last is
only known one step after it was made, and waiting for that would delay every frame.

A context's media time runs on over interruptions: ticks, samples and milliseconds count what was
sent, so epochs never overlap in it.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, assert_never

import numpy as np

from omni_speak.runtime.errors import EngineDead, InvalidRequest, SpeechError, TextTooLong
from omni_speak.runtime.request import MAX_SEED, EngineInfo, SpeechRequest
from omni_speak.streams.allowance import Allowance
from omni_speak.streams.encoder import (
    OPUS_PACKET_MS,
    OPUS_RATES,
    Encoder,
    opus_packets,
)
from omni_speak.streams.messages import (
    INTERNAL_ERROR,
    MAX_FRAMES_PER_MESSAGE,
    NORMAL_CLOSURE,
    SAMPLE_RATES,
    SERVICE_RESTART,
    AnyEvent,
    AudioFormat,
    Cancel,
    ClientMessage,
    Close,
    ContextDone,
    ContextFlushed,
    ContextInterrupted,
    ContextOpen,
    ContextOpened,
    DoneReason,
    ErrorEvent,
    HeardBy,
    Interrupt,
    Limits,
    Marks,
    Ping,
    PlaybackAck,
    Pong,
    Refused,
    ServerMessage,
    SessionClose,
    SessionClosed,
    SessionOpen,
    SessionOpened,
    TextAppend,
    TextEnd,
    TextFlush,
)
from omni_speak.streams.segmenter import Segment, Segmenter, token_end
from omni_speak.streams.speaking import SpokenFrame, SpokenWord, new_segmenter, settle
from omni_speak.streams.wire import Encoding, Flag, Kind, WireFrame

MAX_PAYLOAD_BYTES = 63 * 1024
RESAMPLER_BYTES = 8 * 1024
"""What a resampler may hold back of float samples; it comes on top of the last message's frames."""

_ENCODINGS = {
    "pcm_s16le": Encoding.PCM_S16LE,
    "pcm_f32le": Encoding.PCM_F32LE,
    "opus": Encoding.OPUS,
    "mulaw": Encoding.MULAW,
    "alaw": Encoding.ALAW,
    "codes_u16": Encoding.CODES_U16,
}
_SAMPLE_BYTES = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1}

# -- effects -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    event: ServerMessage | WireFrame


@dataclass(frozen=True, slots=True)
class Start:
    """Start a speaker for this epoch of a context; `request` has everything but its text."""

    handle: int
    epoch: int
    request: SpeechRequest


@dataclass(frozen=True, slots=True)
class Say:
    handle: int
    segment: Segment


@dataclass(frozen=True, slots=True)
class End:
    """No more segments will come."""

    handle: int


@dataclass(frozen=True, slots=True)
class Abort:
    """Stop the speaker; nothing it still makes is wanted."""

    handle: int


@dataclass(frozen=True, slots=True)
class Played:
    """The listener has heard this many of the model's samples of the speaker's audio."""

    handle: int
    samples: int


Effect = Send | Start | Say | End | Abort | Played | Close


# -- the state machine -------------------------------------------------------------------------


@dataclass(slots=True)
class _Context:
    """`frames` of all epochs, `samples` at the session's rate, were sent. `text` is all that was
    appended, and this epoch speaks it from `epoch_char` on, in audio from `epoch_start` on (the
    model's samples)."""

    name: str
    handle: int
    request: SpeechRequest
    segmenter: Segmenter
    encoder: Encoder | None
    frames_per_message: int | Literal["auto"]
    max_frames: int
    """Per message."""
    text: str = ""
    text_ended: bool = False
    done: bool = False
    epoch: int = 0
    epoch_char: int = 0
    epoch_start: int = 0
    frames: int = 0
    samples: int = 0
    segments_before: int = 0
    segment: int = -1
    words: list[SpokenWord] = field(default_factory=list)
    told: int = 0
    """Characters of `text` that marks, or an interrupt, have told of."""
    held: list[SpokenFrame] = field(default_factory=list)
    complete: bool = True
    spoken: bool = False
    """Something of this epoch was sent."""
    acked: int | None = None
    dry_at: float = 0.0
    """When a player that starts at once and never stops will have played all that was sent."""

    @property
    def segments(self) -> int:
        return self.segments_before + self.segment + 1


class Session:
    """One session's state, from `session.open` to its close. `clock` in seconds, monotonic."""

    def __init__(
        self,
        info: EngineInfo,
        limits: Limits,
        allowance: Allowance,
        *,
        session_id: str,
        resume_token: str,
        clock: Callable[[], float],
        draw_seed: Callable[[], int] = lambda: secrets.randbelow(MAX_SEED),
    ) -> None:
        self._info = info
        self._limits = limits
        self._allowance = allowance
        self._id = session_id
        self._token = resume_token
        self._clock = clock
        self._draw_seed = draw_seed
        self.received = 0
        """The client's messages so far, as they came over the wire."""
        self._opened: SessionOpened | None = None
        self._resumable = False
        self._max_frames = 1
        self._by_name: dict[str, _Context] = {}
        self._by_handle: dict[int, _Context] = {}
        self._ended: OrderedDict[str, _Context] = OrderedDict()
        self._handles = 0
        self._draining = False
        self._closed = False

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    @property
    def resumable(self) -> bool:
        """A lost connection may come back."""
        return self._resumable and not self._closed

    # What the client said

    def text(self, context: str) -> str:
        """All that was accepted of a context's text; nothing of one that ended long ago."""
        found = self._by_name.get(context) or self._ended.get(context)
        return found.text if found is not None else ""

    def handle(self, message: ClientMessage) -> list[Effect]:
        if self._closed:
            return []
        try:
            return self._handle(message)
        except InvalidRequest as error:
            return self.refuse(error, getattr(message, "context", None))

    def refuse(self, error: InvalidRequest, context: str | None = None) -> list[Effect]:
        """Tell the client that its message changed nothing."""
        if isinstance(error, Refused):
            context = error.context or context
        return [] if self._closed else [_error(error, context)]

    def resume(self, token: str) -> SessionOpened:
        """The greeting for a connection that takes the session over. Raises Refused."""
        if not secrets.compare_digest(token.encode(), self._token.encode()) or not self.resumable:
            raise no_such_session()
        assert self._opened is not None  # or it was not resumable
        return self._opened.model_copy(update={"resumed": True, "received": self.received})

    def _handle(self, message: ClientMessage) -> list[Effect]:
        if isinstance(message, Ping):
            return [Send(Pong())]
        if isinstance(message, SessionClose):
            close = self._close(NORMAL_CLOSURE, "")
            return [*self._end_all("cancelled"), Send(SessionClosed()), close]
        if isinstance(message, SessionOpen):
            return self._open(message)
        if self._opened is None:
            raise Refused("session_not_open", f"send session.open before {message.type}")
        if isinstance(message, ContextOpen):
            return self._open_context(message, self._opened)
        context = self._by_name.get(message.context)
        if isinstance(message, Interrupt | PlaybackAck):  # it may be playing still
            context = context or self._ended.get(message.context)
        if context is None:
            raise Refused("unknown_context", "no such context is open", param="context")
        match message:
            case TextAppend():
                return self._append(context, message.text)
            case TextFlush():
                segments = _say(context, context.segmenter.flush())
                flushed = ContextFlushed(
                    context=context.name, segments=len(segments), end_char=len(context.text)
                )
                return [*segments, Send(flushed)]
            case TextEnd():
                return self._end_text(context)
            case Interrupt():
                return self._interrupt(context, message.played_ms)
            case PlaybackAck():
                return self._ack(context, message.samples)
            case Cancel():
                return [Abort(context.handle), *self._done(context, "cancelled")]
            case _:
                assert_never(message)

    def _open(self, message: SessionOpen) -> list[Effect]:
        if self._opened is not None:
            raise Refused("session_already_open", "this session is already open")
        info = self._info
        rate = message.sample_rate or info.sample_rate
        check_format(message.format, rate, info)
        samples_per_frame = round(rate / info.frame_rate)
        room = MAX_PAYLOAD_BYTES - (RESAMPLER_BYTES if rate != info.sample_rate else 0)
        self._max_frames = max(1, min(MAX_FRAMES_PER_MESSAGE, room // (4 * samples_per_frame)))
        voice = settle(info, SpeechRequest(text="", voice=message.voice, seed=0)).voice
        assert voice is not None  # settled
        self._resumable = message.resumable
        self._opened = SessionOpened(
            session=self._id,
            resume_token=self._token,
            resumed=False,
            received=0,
            model=info.model,
            format=message.format,
            frames_per_message=_at_most(self._max_frames, message.frames_per_message),
            sample_rate=rate,
            frame_rate=info.frame_rate,
            samples_per_frame=samples_per_frame,
            codebooks=info.codebooks,
            codebook_size=info.codebook_size,
            voices=info.voices,
            voice=voice,
            speed_range=info.speed_range,
            limits=self._limits.model_copy(
                update={"streams": self._allowance.streams, "text_rate": self._allowance.text_rate}
            ),
        )
        return [Send(self._opened)]

    def _open_context(self, message: ContextOpen, opened: SessionOpened) -> list[Effect]:
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
                voice=opened.voice if message.voice is None else message.voice,
                speed=message.speed,
                seed=message.seed,
                temperature=message.temperature,
                max_lead_ms=message.max_lead_ms,
                starve_timeout_s=message.starve_timeout_ms / 1000,
                normalise=message.normalise,
            ),
            self._draw_seed,
        )
        assert request.voice is not None and request.seed is not None  # settled
        handle = self._next_handle()
        max_frames = self._max_frames
        if message.max_lead_ms is not None:
            # Frames that wait here were not heard: if they were more, a stream held for its lead
            # would wait for a listener who waits for them.
            half = message.max_lead_ms / 2000 * self._info.frame_rate
            max_frames = max(1, min(max_frames, int(half)))
        per_message = message.frames_per_message or opened.frames_per_message
        context = _Context(
            message.context,
            handle,
            request,
            new_segmenter(self._info),
            self._new_encoder(opened),
            _at_most(max_frames, per_message),
            max_frames,
        )
        self._allowance.open_stream()
        self._ended.pop(context.name, None)
        self._by_name[context.name] = self._by_handle[handle] = context
        event = ContextOpened(
            context=context.name,
            handle=handle,
            voice=request.voice,
            speed=request.speed,
            seed=request.seed,
            temperature=request.temperature,
            max_lead_ms=message.max_lead_ms,
            starve_timeout_ms=message.starve_timeout_ms,
            frames_per_message=context.frames_per_message,
            normalise=request.normalise,
            format=opened.format,
            sample_rate=opened.sample_rate,
        )
        return [Send(event), Start(handle, 0, request)]

    def _append(self, context: _Context, text: str) -> list[Effect]:
        if context.text_ended:
            raise Refused("text_ended", "text.end was already sent for this context")
        if len(context.text) + len(text) > self._limits.text_chars:
            raise TextTooLong(
                f"a context takes at most {self._limits.text_chars} characters; "
                f"it has {len(context.text)} and {len(text)} more were sent",
                param="text",
            )
        self._allowance.take_text(len(text))
        context.text += text
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

    # What the listener heard

    def _ack(self, context: _Context, samples: int) -> list[Effect]:
        samples = self._to_model(samples)
        # An ack of an earlier epoch's audio says nothing of this one's.
        heard = min(samples, self._sent(context)) - context.epoch_start
        if heard < 0:
            return []
        context.acked = max(context.acked or 0, heard)
        return [Played(context.handle, context.acked)]

    def _interrupt(self, context: _Context, played_ms: float | None) -> list[Effect]:
        heard, heard_by = self._heard(context, played_ms)
        split = context.epoch_char
        for word in context.words:
            if word.end <= heard:
                split = word.end_char
        if context.done and heard >= self._sent(context) - context.epoch_start:
            split = len(context.text)
        context.epoch = (context.epoch + 1) & 0xFFFF
        event = ContextInterrupted(
            context=context.name,
            epoch=context.epoch,
            heard_ms=self._ms(context.epoch_start + heard),
            heard_by=heard_by,
            text_spoken=context.text[context.epoch_char : split],
            text_remaining=context.text[split:],
        )
        self._begin_epoch(context)
        if context.done:
            return [Send(event)]
        return [
            Abort(context.handle),
            Send(event),
            Start(context.handle, context.epoch, context.request),
        ]

    def _begin_epoch(self, context: _Context) -> None:
        context.complete = False
        context.epoch_char = context.told = len(context.text)
        context.epoch_start = self._sent(context)
        context.segmenter = new_segmenter(self._info, context.epoch_char)
        assert self._opened is not None
        context.encoder = self._new_encoder(self._opened)
        context.text_ended = context.done
        context.segments_before, context.segment = context.segments, -1
        context.words, context.held = [], []
        context.acked, context.dry_at, context.spoken = None, 0.0, False

    def _heard(self, context: _Context, played_ms: float | None) -> tuple[int, HeardBy]:
        """Samples of this epoch that were heard."""
        sent = self._sent(context) - context.epoch_start
        if played_ms is not None:
            offset = round(played_ms * self._info.sample_rate / 1000) - context.epoch_start
            return max(0, min(offset, sent)), "offset"
        if context.acked is not None:
            return context.acked, "acks"
        to_play = max(0.0, context.dry_at - self._clock())
        return max(0, sent - round(to_play * self._info.sample_rate)), "clock"

    def _sent(self, context: _Context) -> int:
        return self._to_model(context.samples)

    def _to_model(self, samples: int) -> int:
        """The model's samples that last as long."""
        assert self._opened is not None
        return samples * self._info.sample_rate // self._opened.sample_rate

    def _ms(self, samples: float) -> float:
        return round(samples * 1000 / self._info.sample_rate, 1)

    # What the speakers made

    def frame(self, handle: int, epoch: int, frame: SpokenFrame) -> list[Effect]:
        context = self._current(handle, epoch)
        if context is None:  # it ended or was interrupted while this frame was on its way
            return []
        context.held.append(frame)
        due = frame.dry or len(context.held) >= self._due(context)
        return self._send_held(context) if due else []

    def _due(self, context: _Context) -> int:
        """How many frames go into one message."""
        if not context.spoken:
            return 1
        if context.frames_per_message != "auto":
            return context.frames_per_message
        unheard = self._sent(context) - self._heard(context, None)[0]
        return max(1, min(unheard // (2 * self._info.samples_per_frame), context.max_frames))

    def finished(
        self, handle: int, epoch: int, reason: Literal["stop", "length"], segments: int
    ) -> list[Effect]:
        """The speaker said all its segments."""
        context = self._current(handle, epoch)
        if context is None:
            return []
        effects = self._send_held(context, last=True)
        context.segment = segments - 1
        return [*effects, *self._done(context, reason)]

    def failed(self, handle: int, epoch: int, error: SpeechError) -> list[Effect]:
        """The speaker met an error; a dead engine ends the session."""
        context = self._current(handle, epoch)
        if context is None:
            return []
        fatal = isinstance(error, EngineDead)
        effects = [*self._send_held(context), _error(error, context.name, fatal=fatal)]
        if not fatal:
            return [*effects, *self._done(context, "error")]
        close = self._close(INTERNAL_ERROR, "the engine died")
        return [*effects, *self._end_all("error"), close]

    def _current(self, handle: int, epoch: int) -> _Context | None:
        context = self._by_handle.get(handle)
        return context if context is not None and context.epoch == epoch else None

    def _send_held(self, context: _Context, *, last: bool = False) -> list[Effect]:
        held, context.held = context.held, []
        effects: list[Effect] = []
        words = [word for frame in held for word in frame.words]
        if words:
            context.words += words
            effects.append(Send(self._marks(context, words)))
        payload = self._payload(context, held, last=last)
        if payload:  # a resampler or a codec may look ahead
            effects.append(Send(self._wire_frame(context, payload, any(f.key for f in held))))
        if held:
            context.spoken = True
            context.frames += len(held)
            context.segment = held[-1].segment
            seconds = len(held) / self._info.frame_rate
            context.dry_at = max(context.dry_at, self._clock()) + seconds
        return effects

    def _payload(self, context: _Context, held: list[SpokenFrame], *, last: bool) -> bytes:
        if context.encoder is None:
            return b"".join(frame.codes.astype("<u2").tobytes() for frame in held)
        payload = b""
        if held:
            payload = context.encoder.encode(np.concatenate([frame.pcm for frame in held]))
        return payload + context.encoder.flush() if last else payload

    def _marks(self, context: _Context, words: list[SpokenWord]) -> Marks:
        told = context.told
        context.told = max(told, token_end(context.text, words[-1].end_char))
        return Marks(
            context=context.name,
            epoch=context.epoch,
            words=tuple(
                word.told(context.text, self._info.sample_rate, context.epoch_start)
                for word in words
            ),
            text=context.text[told : context.told],
            measured=True,
        )

    def _wire_frame(self, context: _Context, payload: bytes, key: bool) -> WireFrame:
        opened = self._opened
        assert opened is not None
        flags = Flag.KEY if key else Flag(0)
        if context.samples == 0:
            flags |= Flag.FIRST
        pts = context.samples
        context.samples += self._samples_in(payload, opened)
        return WireFrame(
            kind=Kind.CODES if opened.format == "codes_u16" else Kind.AUDIO,
            flags=flags,
            encoding=_ENCODINGS[opened.format],
            context=context.handle,
            epoch=context.epoch,
            seq=0,  # the journal's
            tick=pts // opened.samples_per_frame,
            pts=pts,
            payload=payload,
        )

    def _samples_in(self, payload: bytes, opened: SessionOpened) -> int:
        match opened.format:
            case "codes_u16":
                return len(payload) // (2 * opened.codebooks) * opened.samples_per_frame
            case "opus":
                return opus_packets(payload) * opened.sample_rate * OPUS_PACKET_MS // 1000
            case format:
                return len(payload) // _SAMPLE_BYTES[format]

    def _new_encoder(self, opened: SessionOpened) -> Encoder | None:
        if opened.format == "codes_u16":
            return None
        return Encoder(opened.format, self._info.sample_rate, opened.sample_rate)

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

    def _done(self, context: _Context, reason: DoneReason) -> list[Effect]:
        del self._by_name[context.name], self._by_handle[context.handle]
        self._allowance.close_stream()
        context.done = True
        self._ended[context.name] = context  # its audio may still be playing, and be interrupted
        if len(self._ended) > self._limits.contexts:
            self._ended.popitem(last=False)
        done = ContextDone(
            context=context.name,
            reason=reason,
            text=context.text[context.told :] if reason in ("stop", "length") else "",
            frames=context.frames,
            samples=context.samples,
            segments=context.segments,
            complete=context.complete and reason == "stop",
        )
        effects: list[Effect] = [Send(done)]
        if self._draining and not self._by_name and not self._closed:
            effects.append(self._close_for_restart())
        return effects

    def _close_for_restart(self) -> Close:
        return self._close(SERVICE_RESTART, "the server is shutting down")

    def _close(self, code: int, reason: str) -> Close:
        self._closed = True
        return Close(code, reason)


def check_format(format: AudioFormat, rate: int, info: EngineInfo) -> None:
    """Raises Refused."""
    if format == "codes_u16":
        allowed: tuple[int, ...] = (info.sample_rate,)
    else:
        allowed = OPUS_RATES if format == "opus" else SAMPLE_RATES
    if rate not in allowed:
        raise Refused(
            "unsupported_rate",
            f"the sample rate of {format} must be one of {', '.join(map(str, allowed))}",
            param="sample_rate",
        )


def _at_most(frames: int, asked: int | Literal["auto"]) -> int | Literal["auto"]:
    return asked if asked == "auto" else min(asked, frames)


def _say(context: _Context, segments: list[Segment]) -> list[Effect]:
    return [Say(context.handle, segment) for segment in segments]


def _error(error: SpeechError, context: str | None, *, fatal: bool = False) -> Send:
    return Send(
        ErrorEvent(
            code=error.code,
            message=error.message,
            param=error.param,
            context=context,
            fatal=fatal,
            retry_after=error.retry_after,
        )
    )


def no_such_session() -> Refused:
    """One answer to a wrong session and a wrong token: neither can be guessed by the other."""
    return Refused(
        "resume_refused", "no such session can be resumed; open a new one", param="resume"
    )


# -- what was sent -----------------------------------------------------------------------------


class Journal:
    """Counts what is sent, and keeps the last of it for a client that comes back.

    Events and frames are kept as they were sent, not as codes: audio decoded again, from the middle
    of a stream and in another batch, would differ in its last bit.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: deque[AnyEvent | WireFrame] = deque()
        self._first = 0
        self._next = 0
        self._bytes = 0

    def add(self, event: AnyEvent | WireFrame) -> AnyEvent | WireFrame:
        """The event with its number. The oldest are forgotten where they take too much room."""
        event = _numbered(event, self._next)
        self._next += 1
        self._kept.append(event)
        self._bytes += _size(event)
        while self._bytes > self._max_bytes and len(self._kept) > 1:
            self._bytes -= _size(self._kept.popleft())
            self._first += 1
        return event

    def size_since(self, seq: int) -> int:
        """Bytes of `seq` and what came after it."""
        return sum(map(_size, self._after(seq - 1)))

    def replay(self, seq: int | None) -> list[AnyEvent | WireFrame]:
        """What came after `seq`, frames flagged REPLAY. Raises Refused if that is no longer known,
        or if `seq` was never sent."""
        last = -1 if seq is None else seq
        if not self._first - 1 <= last < self._next:
            raise Refused(
                "resume_gap",
                f"what came after seq {last} is not known here; open a new session",
                param="resume.seq",
            )
        return [
            replace(event, flags=event.flags | Flag.REPLAY)
            if isinstance(event, WireFrame)
            else event
            for event in self._after(last)
        ]

    def _after(self, seq: int) -> Iterator[AnyEvent | WireFrame]:
        for i in range(max(0, seq + 1 - self._first), len(self._kept)):
            yield self._kept[i]


def _numbered(event: AnyEvent | WireFrame, seq: int) -> AnyEvent | WireFrame:
    if isinstance(event, WireFrame):
        return replace(event, seq=seq)
    return event.model_copy(update={"seq": seq})


def _size(event: AnyEvent | WireFrame) -> int:
    return len(event.payload) if isinstance(event, WireFrame) else 200
