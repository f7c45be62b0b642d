"""The messages of a session, both directions, typed.

A client of the native protocol writes them as JSON; a dialect makes and reads them from another
service's. Unknown fields are refused; what a field may be is in its type.

Every event but `session.opened`, `pong` and `session.closed` carries `seq`, from the count that the
audio frames share: there are no gaps, and a resumed session goes on after the last one seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from omni_speak.runtime.errors import InvalidRequest
from omni_speak.runtime.request import ACK_TIMEOUT_S, MAX_SEED, MIN_LEAD_MS

MAX_FRAMES_PER_MESSAGE = 8  # with f32 samples at 24 kHz, just under 64 KiB
DEFAULT_LEAD_MS = 2000
DEFAULT_STARVE_MS = 30_000

AudioFormat = Literal["pcm_s16le", "pcm_f32le", "mulaw", "alaw", "opus", "codes_u16"]
"""`codes_u16`: the codec's codes, frame-major, for a client that decodes them itself."""

SampleRate = Literal[8000, 16000, 22050, 24000, 44100, 48000]
SAMPLE_RATES: tuple[int, ...] = get_args(SampleRate)
DoneReason = Literal["stop", "length", "starved", "cancelled", "error", "shutdown"]
HeardBy = Literal["offset", "acks", "clock"]

ContextName = Annotated[str, Field(min_length=1, max_length=64)]

FramesPerMessage = Literal[1, 2, 3, 4, 5, 6, 7, 8, "auto"]
"""The first message of a context carries one frame, so that sound starts at once, the following
ones this many; `auto`: the more, the further the listener is behind. Never more than half of the
lead that a context may have, and what is made does not wait for text that has not come."""


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Refused(InvalidRequest):
    """A message that cannot be understood or is not allowed now. `context` is the one it named, so
    that the error reaches whoever sent it."""

    def __init__(
        self, code: str, message: str, *, param: str | None = None, context: str | None = None
    ) -> None:
        super().__init__(message, param=param)
        self.code = code
        self.context = context


NORMAL_CLOSURE = 1000
POLICY_VIOLATION = 1008
INTERNAL_ERROR = 1011
SERVICE_RESTART = 1012
TRY_AGAIN_LATER = 1013


@dataclass(frozen=True, slots=True)
class Close:
    """The connection ends with this websocket close code and reason."""

    code: int
    reason: str


# -- client → server ---------------------------------------------------------------------------


class Resume(Message):
    """Go on with an earlier session after its event or frame `seq`; null: nothing was received."""

    session: Annotated[str, Field(max_length=64)]
    token: Annotated[str, Field(max_length=256)]
    seq: Annotated[int, Field(ge=0, lt=2**32)] | None = None


class SessionOpen(Message):
    """`voice` is the default of the session's contexts; `sample_rate` null is the model's own.
    A `resumable` session outlives a connection that breaks, by `limits.resume_s`. With `resume` the
    other fields are ignored: the session goes on as it was opened."""

    type: Literal["session.open"] = "session.open"
    voice: str | None = None
    format: AudioFormat = "pcm_s16le"
    sample_rate: SampleRate | None = None
    frames_per_message: FramesPerMessage = 1
    resumable: bool = True
    resume: Resume | None = None


class ContextOpen(Message):
    """`max_lead_ms`: how far generation may run ahead of the listener; null is a file, which nobody
    hears while it is made: it comes as fast as contexts with listeners leave room for.
    `frames_per_message` null is the session's. Without `normalise` text is read as it stands: the
    symbols of Markdown, emoji, digits one by one. A context whose text has not come for
    `starve_timeout_ms` gives its place in the engine back; it may wait for another when its text
    goes on."""

    type: Literal["context.open"] = "context.open"
    context: ContextName
    voice: str | None = None
    speed: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] | None = None
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    max_lead_ms: Annotated[int, Field(ge=MIN_LEAD_MS)] | None = DEFAULT_LEAD_MS
    starve_timeout_ms: Annotated[int, Field(ge=100, le=3_600_000)] = DEFAULT_STARVE_MS
    frames_per_message: FramesPerMessage | None = None
    normalise: bool = True


class TextAppend(Message):
    type: Literal["text.append"] = "text.append"
    context: ContextName
    text: str


class TextFlush(Message):
    """Speak what has arrived without waiting for the end of its sentence."""

    type: Literal["text.flush"] = "text.flush"
    context: ContextName


class TextEnd(Message):
    """No more text comes; `context.done` follows the last of the audio."""

    type: Literal["text.end"] = "text.end"
    context: ContextName


class Interrupt(Message):
    """Stop speaking now and say what was heard; the context stays open for new text, even after
    `text.end`. `played_ms`: how far the listener is in the context's media time; null: by acks,
    else by the wall clock. A context that is done, but may still be playing, can be interrupted."""

    type: Literal["interrupt"] = "interrupt"
    context: ContextName
    played_ms: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class Cancel(Message):
    """End the context now."""

    type: Literal["cancel"] = "cancel"
    context: ContextName


class PlaybackAck(Message):
    """The listener has heard the context up to this sample, counted as `pts` is. From an epoch's
    first ack on, only acks count for its lead, no longer the wall clock: a listener who sends none
    has paused, and generation waits for the next, but no longer than `limits.ack_s`; see there."""

    type: Literal["playback.ack"] = "playback.ack"
    context: ContextName
    samples: Annotated[int, Field(ge=0, lt=2**63)]


class Ping(Message):
    type: Literal["ping"] = "ping"


class SessionClose(Message):
    type: Literal["session.close"] = "session.close"


ContextMessage = ContextOpen | TextAppend | TextFlush | TextEnd | Interrupt | Cancel | PlaybackAck
ClientMessage = SessionOpen | ContextMessage | Ping | SessionClose
CLIENT_KINDS: dict[str, type[ClientMessage]] = {
    kind.model_fields["type"].default: kind for kind in get_args(ClientMessage)
}


# -- server → client ---------------------------------------------------------------------------


class Limits(Message):
    """`message_bytes` per message received, `text_chars` per context in all, `contexts` at once.
    A token, over all its connections, may have `streams` at once (contexts, and HTTP bodies being
    spoken) and send `text_rate` characters a minute; null is no limit. A session without a
    connection is kept for `resume_s`; it can go on if at most `journal_bytes` of what was sent were
    not received. A context that was acked and then is not for `ack_s` goes on by the wall clock,
    until the next ack: nobody keeps a place in the engine by silence. Who pauses for longer repeats
    the last ack."""

    message_bytes: int = 256 * 1024
    text_chars: int = 20_000
    contexts: int = 16
    streams: int | None = None
    text_rate: int | None = None
    resume_s: float = 30.0
    journal_bytes: int = 2 * 1024 * 1024
    ack_s: float = ACK_TIMEOUT_S


class SessionOpened(Message):
    """`sample_rate` is that of the audio sent, `samples_per_frame` at that rate, `speed_range` the
    slowest and the fastest a context may be. `resumed` is true if the session goes on; what was not
    seen follows, flagged REPLAY. `received` is then how many of the client's messages arrived, its
    first `session.open` included: send the rest again."""

    type: Literal["session.opened"] = "session.opened"
    session: str
    resume_token: str
    resumed: bool
    received: int
    model: str
    format: AudioFormat
    frames_per_message: int | Literal["auto"]
    sample_rate: int
    channels: Literal[1] = 1
    frame_rate: float
    samples_per_frame: int
    codebooks: int
    codebook_size: int
    voices: tuple[str, ...]
    voice: str
    speed_range: tuple[float, float]
    limits: Limits


class Event(Message):
    seq: int = 0


class ContextOpened(Event):
    """Everything the context was accepted with, the seed drawn included."""

    type: Literal["context.opened"] = "context.opened"
    context: str
    handle: int
    voice: str
    speed: float
    seed: int
    temperature: float | None
    max_lead_ms: int | None
    starve_timeout_ms: int
    frames_per_message: int | Literal["auto"]
    normalise: bool
    format: AudioFormat
    sample_rate: int
    channels: Literal[1] = 1


class ContextFlushed(Event):
    """Answers `text.flush`: how many segments it sent to be spoken, 0 if nothing was waiting.
    `end_char` characters of the context's text had come by then."""

    type: Literal["context.flushed"] = "context.flushed"
    context: str
    segments: int
    end_char: int


class Word(Message):
    """`text` is `[start_char:end_char]` of all the text appended to the context, as it was sent;
    `start_ms` and `end_ms` are times of the context's audio. What lies between two words belongs
    to neither: the passage from one to the other, a frame or so, or the pause written there."""

    text: str
    start_char: int
    end_char: int
    start_ms: float
    end_ms: float


class Marks(Event):
    """Words that end in the audio frame that follows. `measured`: the times are the model's own, to
    the frame. A model that cannot tell them sends no marks. `text` is what was appended from where
    the marks before left off to the end of these words, with what is attached to it."""

    type: Literal["marks"] = "marks"
    context: str
    epoch: int
    words: tuple[Word, ...]
    text: str
    measured: bool


class ContextInterrupted(Event):
    """Answers `interrupt`: no audio of an older epoch than `epoch` follows. The context's audio was
    heard up to `heard_ms` of its media time, as `heard_by` tells. `text_spoken + text_remaining` is
    the text since the last interrupt as it was sent, split after the last word heard whole."""

    type: Literal["context.interrupted"] = "context.interrupted"
    context: str
    epoch: int
    heard_ms: float
    heard_by: HeardBy
    text_spoken: str
    text_remaining: str


class ContextDone(Event):
    """The one end of a context. `complete` is false if audio of the accepted text is missing. Where
    it was spoken to its end, `text` is what is left of it behind the last marks."""

    type: Literal["context.done"] = "context.done"
    context: str
    reason: DoneReason
    text: str
    frames: int
    samples: int
    segments: int
    complete: bool


class ErrorEvent(Event):
    """`fatal`: the session ends. Otherwise the message at fault changed nothing, or the context of
    that name ends. `retry_after`: seconds, where waiting helps."""

    type: Literal["error"] = "error"
    code: str
    message: str
    param: str | None = None
    context: str | None = None
    fatal: bool = False
    retry_after: float | None = None


class Pong(Message):
    type: Literal["pong"] = "pong"


class SessionClosed(Message):
    type: Literal["session.closed"] = "session.closed"


AnyEvent = ContextOpened | ContextFlushed | Marks | ContextInterrupted | ContextDone | ErrorEvent
ServerMessage = SessionOpened | AnyEvent | Pong | SessionClosed
SERVER_MESSAGE: TypeAdapter[ServerMessage] = TypeAdapter(
    Annotated[ServerMessage, Field(discriminator="type")]
)
