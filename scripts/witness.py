"""What a client may hold a server of `omni-speak.v1` to, whatever else happens."""

from __future__ import annotations

from dataclasses import dataclass, field

from omni_speak.streams.encoder import OPUS_PACKET_MS, opus_packets
from omni_speak.streams.messages import (
    AnyEvent,
    ContextDone,
    ContextInterrupted,
    ContextOpened,
    Marks,
    ServerMessage,
    SessionOpened,
)
from omni_speak.streams.wire import Encoding, Flag, Kind, WireFrame

_SAMPLE_BYTES = {
    Encoding.PCM_S16LE: 2,
    Encoding.PCM_F32LE: 4,
    Encoding.MULAW: 1,
    Encoding.ALAW: 1,
}


class Contradiction(AssertionError):
    """The server said two things that cannot both be so."""


@dataclass(slots=True)
class _Heard:
    name: str
    epoch: int = 0
    samples: int = 0
    word_end_ms: float = 0.0
    done: bool = False


@dataclass
class Witness:
    """Sees everything that one session is sent, over all its connections, in order.

    Numbers have no gap and never return; a context's media time has none either; audio and marks
    are of the newest epoch; a context ends once, and nothing of it follows but an interrupt's
    answer. Raises Contradiction.
    """

    seq: int | None = None
    opened: SessionOpened | None = None
    _handles: dict[int, _Heard] = field(default_factory=dict)
    _names: dict[str, _Heard] = field(default_factory=dict)

    @property
    def open_contexts(self) -> list[str]:
        return [name for name, heard in self._names.items() if not heard.done]

    def see(self, event: ServerMessage | WireFrame) -> None:
        if isinstance(event, SessionOpened):
            _hold(self.opened is None or event.resumed, "a session opened twice")
            self.opened = event
        if isinstance(event, AnyEvent | WireFrame):
            due = 0 if self.seq is None else self.seq + 1
            _hold(event.seq == due, f"seq {event.seq} came where {due} was due")
            self.seq = event.seq
        match event:
            case ContextOpened():
                _hold(event.context not in self.open_contexts, f"{event.context} opened twice")
                heard = self._handles.get(event.handle)
                _hold(heard is None or heard.done, f"handle {event.handle} was given twice")
                heard = _Heard(event.context)
                self._names[event.context] = self._handles[event.handle] = heard
            case WireFrame():
                self._frame(event)
            case Marks():
                self._marks(event)
            case ContextInterrupted():
                heard = self._names[event.context]
                _hold(event.epoch == heard.epoch + 1 & 0xFFFF, f"epoch {event.epoch} in {heard}")
                heard.epoch = event.epoch
                # Its last word may have been cut: a resampler still held the end of it.
                heard.word_end_ms = 0.0
            case ContextDone():
                heard = self._names[event.context]
                _hold(not heard.done, f"{heard} ended twice")
                _hold(event.samples == heard.samples, f"{event} of {heard}")
                heard.done = True

    def _frame(self, frame: WireFrame) -> None:
        heard, opened = self._handles[frame.context], self.opened
        assert opened is not None
        _hold(not heard.done, f"audio after the end of {heard}")
        _hold(frame.epoch == heard.epoch, f"audio of epoch {frame.epoch} in {heard}")
        _hold(frame.pts == heard.samples, f"pts {frame.pts} in {heard}")
        _hold(frame.tick == frame.pts // opened.samples_per_frame, f"tick {frame.tick} in {heard}")
        _hold(bool(frame.flags & Flag.FIRST) == (frame.pts == 0), f"FIRST at {frame.pts}")
        _hold((frame.kind == Kind.CODES) == (opened.format == "codes_u16"), f"kind {frame.kind}")
        heard.samples += samples_in(frame, opened)

    def _marks(self, marks: Marks) -> None:
        heard = self._names[marks.context]
        _hold(not heard.done and marks.epoch == heard.epoch, f"marks of {marks.epoch} in {heard}")
        for word in marks.words:
            _hold(heard.word_end_ms <= word.start_ms <= word.end_ms, f"{word} in {heard}")
            heard.word_end_ms = word.end_ms


def samples_in(frame: WireFrame, opened: SessionOpened) -> int:
    if frame.encoding == Encoding.CODES_U16:
        return len(frame.payload) // (2 * opened.codebooks) * opened.samples_per_frame
    if frame.encoding == Encoding.OPUS:
        return opus_packets(frame.payload) * opened.sample_rate * OPUS_PACKET_MS // 1000
    return len(frame.payload) // _SAMPLE_BYTES[Encoding(frame.encoding)]


def _hold(true: bool, otherwise: str) -> None:
    if not true:
        raise Contradiction(otherwise)
