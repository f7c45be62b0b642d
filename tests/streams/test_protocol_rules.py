"""Any conversation with a session: hypothesis plays the client, the speakers and the clock, and a
model of what each context may do tells what must come back."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from omni_speak.runtime.errors import EngineDead, NoAudio
from omni_speak.runtime.request import SpeechRequest
from omni_speak.streams.encoder import opus_packets
from omni_speak.streams.messages import (
    Close,
    ContextDone,
    ContextFlushed,
    ContextInterrupted,
    ContextOpened,
    ErrorEvent,
    Limits,
    Marks,
    Pong,
    SessionClosed,
    SessionOpened,
)
from omni_speak.streams.protocol import Abort, Effect, End, Journal, Played, Say, Send, Start
from omni_speak.streams.segmenter import Segment
from omni_speak.streams.speaking import SpokenFrame, SpokenWord
from omni_speak.streams.wire import Flag, WireFrame
from tests.streams.fake_engine import INFO, SAMPLES, frame_of
from tests.streams.test_protocol import Peer, sent, tell

FRAMES = [frame_of(SpeechRequest(text="x"), index) for index in range(4)]
FORMATS = [
    ("pcm_s16le", 24_000),
    ("pcm_f32le", 48_000),
    ("mulaw", 8_000),
    ("opus", 24_000),
    ("codes_u16", 24_000),
]
NAMES = st.sampled_from("aaaaabbcd")
CONTEXTS, TEXT_CHARS = 3, 200
PIECES = st.lists(
    st.sampled_from(["Hi ", "there ", "you", " ", ". ", "! ", ", ", "Dr. ", "\n\n", "x" * 40]),
    max_size=8,
).map("".join)
PER_MESSAGE = st.sampled_from([None, 1, 2, 5, 8, "auto"])


@dataclass
class Speaker:
    """One epoch's: what it was given to say, word by word, and how far it is."""

    epoch: int
    segments: list[Segment] = field(default_factory=list)
    words: list[tuple[int, int, int]] = field(default_factory=list)  # segment, start, end
    ended: bool = False
    spoken: int = 0
    frames: int = 0

    def say(self, segment: Segment) -> None:
        at = len(self.segments)
        self.segments.append(segment)
        for word in re.finditer(r"\S+", segment.text):
            self.words.append((at, segment.start + word.start(), segment.start + word.end()))


@dataclass
class Known:
    """What the client knows of a context."""

    handle: int
    text: str = ""
    ended: bool = False
    epoch: int = 0
    epoch_ms: float = 0.0
    samples: int = 0
    frames: int = 0
    told: int = 0  # the text of earlier epochs
    pieces: str = ""  # of this one's, that came with marks
    interrupted: bool = False
    marked: list[tuple[int, int]] = field(default_factory=list)
    marked_until: float = 0.0


class Conversation(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.peer = Peer(contexts=CONTEXTS, text_chars=TEXT_CHARS)
        self.journal = Journal(1 << 30)
        self.told: list[Any] = []
        self.open: dict[str, Known] = {}
        self.done: dict[str, Known] = {}
        self.speakers: dict[int, Speaker] = {}
        self.handles: dict[int, str] = {}
        self.closed = self.draining = False
        self.info: SessionOpened

    # -- the client ------------------------------------------------------------------------------

    @initialize(sound=st.sampled_from(FORMATS), per_message=PER_MESSAGE)
    def session_open(self, sound: tuple[str, int], per_message: Any) -> None:
        options = {"format": sound[0], "sample_rate": sound[1]}
        if per_message is not None:
            options["frames_per_message"] = per_message
        (opened,) = self.see(tell(self.peer, "session.open", None, **options))
        assert isinstance(opened, SessionOpened)
        assert opened.limits == Limits(contexts=CONTEXTS, text_chars=TEXT_CHARS)
        self.info = opened
        self.context_open("a", per_message, None)

    @rule(name=NAMES, per_message=PER_MESSAGE, lead=st.sampled_from([None, 200, 2000]))
    def context_open(self, name: str, per_message: Any, lead: int | None) -> None:
        if name in self.open:
            expected = "context_exists"
        elif len(self.open) >= CONTEXTS:
            expected = "too_many_contexts"
        else:
            expected = None
        if self.draining:
            expected = "shutting_down"
        options = {"frames_per_message": per_message, "max_lead_ms": lead}
        events = self.say("context.open", name, expected, **options)
        if events:
            (opened,) = events
            assert isinstance(opened, ContextOpened)
            assert opened.frames_per_message == "auto" or 1 <= opened.frames_per_message <= 8
            assert opened.handle in self.speakers

    @rule(name=NAMES, text=PIECES)
    def append(self, name: str, text: str) -> None:
        known = self.open.get(name)
        expected = self.refusal(name)
        if known is not None and expected is None and len(known.text) + len(text) > TEXT_CHARS:
            expected = "text_too_long"
        if known is not None and expected is None:
            known.text += text
        assert self.say("text.append", name, expected, text=text) == []

    @rule(name=NAMES)
    def flush(self, name: str) -> None:
        expected = None if name in self.open else "unknown_context"
        for event in self.say("text.flush", name, expected):
            assert isinstance(event, ContextFlushed)
            known = self.open[name]
            speaker = self.speakers[known.handle]
            if not known.ended:  # all of it is with the speaker
                written = known.text[known.told :]
                assert "".join(s.text for s in speaker.segments).split() or not written.split()
                said = "".join("".join(s.text.split()) for s in speaker.segments)
                assert said == "".join(written.split())

    @rule(
        name=NAMES,
        texts=st.lists(PIECES, min_size=1, max_size=4),
        data=st.data(),
        stop=st.sampled_from(["", "", "end", "cancel", "interrupt"]),
    )
    def turn(self, name: str, texts: list[str], data: st.DataObject, stop: str) -> None:
        """What most do, so that most of what happens is no error."""
        if name not in self.open:
            self.context_open(name, None, None)
        for text in texts:
            self.append(name, text)
            self.flush(name)
            self.frames(data, 9)
        match stop:
            case "end":
                self.end(name)
                self.frames(data, 99)
                self.finish(data)
            case "cancel":
                self.cancel(name)
            case "interrupt":
                self.interrupt(name, None)

    @rule(name=NAMES)
    def end(self, name: str) -> None:
        expected = self.refusal(name)
        if expected is None:
            self.open[name].ended = True
        assert self.say("text.end", name, expected) == []

    @rule(name=NAMES)
    def cancel(self, name: str) -> None:
        known = self.open.get(name)
        events = self.say("cancel", name, None if known else "unknown_context")
        if known is not None and not self.closed:
            assert [(e.type, e.reason) for e in events] == [("context.done", "cancelled")]

    @rule(name=NAMES, offset=st.none() | st.integers(0, 3000))
    def interrupt(self, name: str, offset: int | None) -> None:
        known = self.open.get(name) or self.done.get(name)
        options = {} if offset is None else {"played_ms": offset}
        before = None if known is None else replace(known)
        events = self.say("interrupt", name, None if known else "unknown_context", **options)
        if not events:
            return
        assert before is not None
        (event,) = events
        assert isinstance(event, ContextInterrupted)
        assert event.epoch == before.epoch + 1
        assert event.text_spoken + event.text_remaining == before.text[before.told :]
        sent_ms = before.samples * 1000 / self.info.sample_rate
        assert 0 <= event.heard_ms <= sent_ms + 0.1
        if offset is not None:
            assert event.heard_by == "offset"
            heard_ms = max(before.epoch_ms, min(offset, sent_ms))
            assert abs(event.heard_ms - heard_ms) < 0.5  # in whole samples, both ways

    @rule(name=NAMES, frames=st.integers(0, 12))
    def ack(self, name: str, frames: int) -> None:
        known = self.open.get(name) or self.done.get(name)
        samples = frames * self.info.samples_per_frame
        expected = None if known else "unknown_context"
        assert self.say("playback.ack", name, expected, samples=samples) == []

    @rule()
    def ping(self) -> None:
        events = self.see(tell(self.peer, "ping", None))
        assert self.closed or [type(event) for event in events] == [Pong]

    @rule(data=st.text(max_size=20) | st.binary(max_size=20) | st.just('{"type":"session.open"}'))
    def nonsense(self, data: str | bytes) -> None:
        events = self.see(self.peer.receive(data))
        assert self.closed or [type(event) for event in events] == [ErrorEvent]

    @precondition(lambda self: len(self.told) > 40)
    @rule()
    def close(self) -> None:
        events = self.see(tell(self.peer, "session.close", None))
        assert isinstance(events[-1], SessionClosed) if events else self.closed or not events

    # -- the speakers and the clock --------------------------------------------------------------

    @precondition(lambda self: self.speakers)
    @rule(data=st.data(), count=st.integers(1, 9))
    def frames(self, data: st.DataObject, count: int) -> None:
        """A word a frame; where there are none left, nothing."""
        if not self.speakers:  # within a turn
            return
        handle = data.draw(st.sampled_from(sorted(self.speakers)))
        speaker = self.speakers[handle]
        for _ in range(count):
            if speaker.spoken == len(speaker.words):
                return
            segment, start, end = speaker.words[speaker.spoken]
            speaker.spoken += 1
            at = speaker.frames * SAMPLES
            word = SpokenWord(start, end, at, at + SAMPLES * 0.75)
            frame = FRAMES[speaker.frames % 4]
            made = SpokenFrame(
                speaker.frames,
                frame.codes,
                frame.pcm,
                at,
                1,
                segment,
                speaker.frames == 0,
                (word,),
                dry=not speaker.ended and speaker.spoken == len(speaker.words),
            )
            speaker.frames += 1
            self.see(self.peer.frame(handle, made, speaker.epoch))
            if made.dry and self.info.format in ("pcm_s16le", "codes_u16"):
                known = self.open[self.handles[handle]]
                assert known.samples % self.info.samples_per_frame == 0
                assert known.marked[-1:] == [(start, end)], "all that was made was sent"

    @precondition(lambda self: self.speakers)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        if not self.speakers:  # within a turn
            return
        handle = data.draw(st.sampled_from(sorted(self.speakers)))
        speaker, name = self.speakers[handle], self.handles[handle]
        if not speaker.ended or speaker.spoken < len(speaker.words):
            return
        known = self.open[name]
        effects = self.peer.finished(handle, "stop", len(speaker.segments), speaker.epoch)
        del self.speakers[handle]
        done = self.see(effects)[-1]
        assert isinstance(done, ContextDone)
        assert (done.context, done.reason, done.complete) == (name, "stop", not known.interrupted)
        if not known.interrupted:
            assert done.segments == len(speaker.segments)
            written = [word.span() for word in re.finditer(r"\S+", known.text)]
            assert [known.text[a:b] for a, b in known.marked] == [
                piece for a, b in written for piece in [known.text[a:b]]
            ] or _cut_words(known), "each word is marked once, in order"

    @precondition(lambda self: self.speakers)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(sorted(self.speakers)))
        speaker, name = self.speakers.pop(handle), self.handles[handle]
        events = self.see(self.peer.failed(handle, NoAudio("none"), speaker.epoch))
        assert [event.type for event in events if not isinstance(event, Marks | WireFrame)] == [
            "error",
            "context.done",
        ]
        assert (events[-1].context, events[-1].reason) == (name, "error")

    @rule(handle=st.integers(1, 12), epoch=st.integers(0, 3))
    def late(self, handle: int, epoch: int) -> None:
        """What a speaker that was stopped had on its way."""
        speaker = self.speakers.get(handle)
        if speaker is not None and speaker.epoch == epoch:
            return
        frame = SpokenFrame(0, FRAMES[0].codes, FRAMES[0].pcm, 0, 1, 0, True, ())
        assert self.peer.frame(handle, frame, epoch) == []
        assert self.peer.finished(handle, "stop", 1, epoch) == []
        assert self.peer.failed(handle, NoAudio("none"), epoch) == []

    @rule(seconds=st.floats(0, 1))
    def wait(self, seconds: float) -> None:
        self.peer.now += seconds

    @precondition(lambda self: len(self.told) > 60)
    @rule(how=st.sampled_from(["drain", "shut_down", "die"]))
    def come_to_an_end(self, how: str) -> None:
        self.draining = self.draining or how != "die"
        if how == "drain":
            self.see(self.peer.session.drain())
        elif how == "shut_down":
            self.see(self.peer.session.shut_down())
            assert not self.open
        elif self.speakers:
            handle = min(self.speakers)
            speaker = self.speakers[handle]
            events = self.see(self.peer.failed(handle, EngineDead("died"), speaker.epoch))
            assert any(isinstance(event, ErrorEvent) and event.fatal for event in events)
            assert self.closed and not self.open

    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        """After any event: what a client is told again is what it missed."""
        seen = data.draw(st.integers(-1, len(self.told) - 1))
        again = self.journal.replay(None if seen < 0 else seen)
        assert len(again) == len(self.told) - seen - 1
        for missed, event in zip(self.told[seen + 1 :], again, strict=True):
            if isinstance(event, WireFrame):
                assert event.flags & Flag.REPLAY
                event = replace(event, flags=event.flags & ~Flag.REPLAY)
            assert event == missed

    # -- what must hold --------------------------------------------------------------------------

    def refusal(self, name: str) -> str | None:
        """Why more text is refused."""
        if name not in self.open:
            return "unknown_context"
        return "text_ended" if self.open[name].ended else None

    def say(self, kind: str, name: str, expected: str | None, **fields: Any) -> list[Any]:
        """What comes back; nothing where it was refused, as it had to be."""
        effects = tell(self.peer, kind, name, **fields)
        events = self.see(effects)
        if expected is None or self.closed:
            assert not any(isinstance(event, ErrorEvent) for event in events)
            return events
        assert len(effects) == 1, "what is refused changes nothing"
        (error,) = events
        assert isinstance(error, ErrorEvent)
        assert (error.code, error.context, error.fatal) == (expected, name, False)
        return []

    def see(self, effects: list[Effect]) -> list[Any]:
        """The events among the effects, each held to what the client may rely on."""
        for effect in effects:
            assert not self.closed, "nothing follows the close"
            match effect:
                case Start(handle, epoch, _):
                    assert handle not in self.speakers
                    self.speakers[handle] = Speaker(epoch)
                case Say(handle, segment):
                    speaker = self.speakers[handle]
                    assert not speaker.ended
                    text = self.open[self.handles[handle]].text
                    assert text[segment.start :].startswith(segment.text)
                    speaker.say(segment)
                case End(handle):
                    self.speakers[handle].ended = True
                case Abort(handle):
                    del self.speakers[handle]
                case Played(handle, samples):
                    assert samples >= 0
                    assert handle in self.handles
                case Close():
                    self.closed = True
                    assert not self.open, "every context had its end"
                case Send(event) if hasattr(event, "seq"):
                    stamped = self.journal.add(event)  # type: ignore[arg-type]
                    assert stamped.seq == len(self.told)
                    self.told.append(stamped)
                    self.check(stamped)
        return sent(effects)

    def check(self, event: Any) -> None:
        match event:
            case ContextOpened():
                assert event.handle not in {known.handle for known in self.open.values()}
                self.open[event.context] = Known(event.handle)
                self.done.pop(event.context, None)
                self.handles[event.handle] = event.context
            case ContextInterrupted():
                known = self.open.get(event.context) or self.done[event.context]
                known.epoch, known.interrupted = event.epoch, True
                known.told, known.pieces, known.marked = len(known.text), "", []
                # What a resampler or a codec still held of the last word is gone.
                sent_ms = known.samples * 1000 / self.info.sample_rate
                known.marked_until = min(known.marked_until, sent_ms - 0.1)
                known.epoch_ms = sent_ms
                known.ended = event.context in self.done
            case ContextDone():
                known = self.open.pop(event.context)
                self.done[event.context] = known
                if len(self.done) > CONTEXTS:
                    del self.done[next(iter(self.done))]
                assert event.samples == known.samples
                if event.reason == "stop":
                    assert known.pieces + event.text == known.text[known.told :]
                else:
                    assert event.text == ""
                assert not event.complete or event.reason == "stop"
                if self.info.format in ("pcm_s16le", "codes_u16"):
                    assert event.samples == event.frames * self.info.samples_per_frame
            case Marks():
                known = self.open[event.context]
                assert event.epoch == known.epoch
                sent_ms = known.samples * 1000 / self.info.sample_rate
                for word in event.words:
                    assert word.text == known.text[word.start_char : word.end_char]
                    assert known.marked_until <= word.start_ms <= word.end_ms
                    # A resampler or a codec holds a little back.
                    assert word.end_ms > sent_ms - 100, "no later than its audio"
                    known.marked_until = word.end_ms - 0.1  # rounded
                    known.marked.append((word.start_char, word.end_char))
                known.pieces += event.text
                assert known.text.startswith(known.pieces, known.told)
                assert known.told + len(known.pieces) >= event.words[-1].end_char
            case WireFrame():
                known = self.open[self.handles[event.context]]
                assert event.epoch == known.epoch
                assert event.pts == known.samples
                assert event.tick == known.samples // self.info.samples_per_frame
                assert bool(event.flags & Flag.FIRST) == (known.samples == 0)
                assert 0 < len(event.payload) <= 63 * 1024
                known.samples += self.samples_in(event.payload)

    def samples_in(self, payload: bytes) -> int:
        match self.info.format:
            case "opus":
                return opus_packets(payload) * self.info.sample_rate // 50
            case "codes_u16":
                return len(payload) // (2 * INFO.codebooks) * self.info.samples_per_frame
            case format:
                return len(payload) // {"pcm_s16le": 2, "pcm_f32le": 4}.get(format, 1)


def _cut_words(known: Known) -> bool:
    """A segment was cut inside of a word: its parts are words of their own."""
    marked = "".join(known.text[a:b] for a, b in known.marked)
    return marked == "".join(known.text.split())


TestConversation = Conversation.TestCase
# Without shrinking, which takes minutes here.
TestConversation.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
