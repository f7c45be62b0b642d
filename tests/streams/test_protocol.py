"""The state machine alone: messages in, effects out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from omni_speak.runtime.errors import EngineDead, NoAudio, SpeechError
from omni_speak.runtime.request import SpeechRequest
from omni_speak.streams.allowance import Allowance
from omni_speak.streams.dialects.native import NativeDialect
from omni_speak.streams.encoder import OPUS_RATES, Encoder, opus_packets
from omni_speak.streams.messages import (
    SAMPLE_RATES,
    SERVER_MESSAGE,
    AnyEvent,
    Close,
    ContextDone,
    ContextInterrupted,
    ContextOpened,
    ErrorEvent,
    FramesPerMessage,
    Limits,
    Marks,
    Refused,
    SessionOpened,
)
from omni_speak.streams.protocol import (
    Abort,
    Effect,
    End,
    Journal,
    Played,
    Say,
    Send,
    Session,
    Start,
)
from omni_speak.streams.segmenter import Segment
from omni_speak.streams.speaking import SpokenFrame, SpokenWord
from omni_speak.streams.wire import Encoding, Flag, Kind, WireFrame, decode, encode
from tests.streams.fake_engine import INFO, SAMPLES, frame_of


class Peer:
    """A session and its journal, talked to in the native dialect."""

    def __init__(self, allowance: Allowance | None = None, **limits: int) -> None:
        self.now = 0.0
        self.session = Session(
            INFO,
            Limits(**limits),
            allowance or Allowance(),
            session_id="s",
            resume_token="t",
            clock=lambda: self.now,
            draw_seed=lambda: 77,
        )
        self.dialect = NativeDialect()

    def receive(self, data: str | bytes) -> list[Effect]:
        try:
            (message,) = self.dialect.receive(data)
        except Refused as error:
            return self.session.refuse(error)
        return self.session.handle(message)

    def frame(self, handle: int, frame: SpokenFrame, epoch: int = 0) -> list[Effect]:
        return self.session.frame(handle, epoch, frame)

    def finished(self, handle: int, reason: Any, segments: int, epoch: int = 0) -> list[Effect]:
        return self.session.finished(handle, epoch, reason, segments)

    def failed(self, handle: int, error: SpeechError, epoch: int = 0) -> list[Effect]:
        return self.session.failed(handle, epoch, error)


def sent(effects: list[Effect], journal: Journal | None = None) -> list[Any]:
    """What the client reads of these effects."""
    dialect, read = NativeDialect(), []
    for event in [effect.event for effect in effects if isinstance(effect, Send)]:
        if journal is not None and isinstance(event, AnyEvent | WireFrame):
            event = journal.add(event)
        for data in dialect.send(event):
            read.append(
                SERVER_MESSAGE.validate_json(data) if isinstance(data, str) else decode(data)
            )
    return read


def error(effects: list[Effect]) -> ErrorEvent:
    (event,) = sent(effects)
    assert isinstance(event, ErrorEvent)
    assert len(effects) == 1
    return event


def new_session(**limits: int) -> Peer:
    return Peer(**limits)


def opened_session(**options: Any) -> Peer:
    peer = new_session()
    peer.receive(json.dumps({"type": "session.open", **options}))
    return peer


def tell(peer: Peer, type: str, context: str | None = "a", **fields: Any) -> list[Effect]:
    message = {"type": type, **fields} | ({} if context is None else {"context": context})
    return peer.receive(json.dumps(message))


def spoken(index: int, segment: int = 0, *words: SpokenWord) -> SpokenFrame:
    frame = frame_of(SpeechRequest(text="x"), index)
    key = index == 0
    return SpokenFrame(
        index, frame.codes, frame.pcm, frame.pts, frame.token, segment, key, tuple(words)
    )


def test_opening_declares_the_engine_and_the_limits() -> None:
    (opened,) = sent(tell(new_session(), "session.open", None, voice="BOB"))
    assert isinstance(opened, SessionOpened)
    assert (opened.voice, opened.voices) == ("bob", ("Ada", "bob"))
    assert (opened.sample_rate, opened.frame_rate, opened.samples_per_frame) == (24000, 12.5, 1920)
    assert opened.limits == Limits()


def test_a_context_echoes_what_it_was_accepted_with() -> None:
    session = opened_session(voice="bob")
    effects = tell(session, "context.open", speed=1.5)
    (opened,) = sent(effects)
    assert isinstance(opened, ContextOpened)
    assert (opened.voice, opened.speed, opened.seed, opened.handle) == ("bob", 1.5, 77, 1)
    assert effects[1] == Start(
        1, 0, SpeechRequest(text="", voice="bob", speed=1.5, seed=77, max_lead_ms=2000)
    )


def test_text_becomes_segments_in_order() -> None:
    session = opened_session()
    tell(session, "context.open")
    assert tell(session, "text.append", text="One. Two. Thr") == [
        Say(1, Segment("One.", 0)),
        Say(1, Segment("Two.", 5)),
    ]
    assert tell(session, "text.append", text="ee") == []
    assert tell(session, "text.flush")[0] == Say(1, Segment("Three", 10))
    assert tell(session, "text.end") == [End(1)]
    assert error(tell(session, "text.append", text="x")).code == "text_ended"
    assert error(tell(session, "text.end")).code == "text_ended"


def test_a_flush_with_nothing_waiting_says_so() -> None:
    session = opened_session()
    tell(session, "context.open")
    tell(session, "text.append", text=" \n ")
    (flushed,) = sent(tell(session, "text.flush"))
    assert flushed.segments == 0


def test_frames_are_numbered_per_session_and_per_context() -> None:
    session = opened_session()
    tell(session, "context.open", "a")
    tell(session, "context.open", "b")
    journal = Journal(1 << 20)
    made = [(1, spoken(0)), (2, spoken(0)), (1, spoken(1)), (1, replace(spoken(2, 1), key=True))]
    frames = [sent(session.frame(handle, frame), journal)[0] for handle, frame in made]
    assert [f.seq for f in frames] == [0, 1, 2, 3]
    assert [f.context for f in frames] == [1, 2, 1, 1]
    assert [f.tick for f in frames] == [0, 0, 1, 2]
    assert [f.pts for f in frames] == [0, 0, SAMPLES, 2 * SAMPLES]
    fresh = Flag.FIRST | Flag.KEY
    assert [f.flags for f in frames] == [fresh, fresh, 0, Flag.KEY]
    (done,) = sent(session.finished(1, "stop", 2))
    assert done == ContextDone(
        context="a",
        reason="stop",
        text="",
        frames=3,
        samples=3 * SAMPLES,
        segments=2,
        complete=True,
    )


def test_messages_of_several_frames() -> None:
    session = opened_session(frames_per_message=3, format="pcm_f32le")
    tell(session, "context.open")
    messages = [sent(session.frame(1, spoken(i))) for i in range(6)]
    messages.append(sent(session.finished(1, "length", 1)))
    frames = [m for batch in messages for m in batch if isinstance(m, WireFrame)]
    assert [f.tick for f in frames] == [0, 1, 4]
    assert [len(f.payload) // 4 // SAMPLES for f in frames] == [1, 3, 2]
    assert {f.encoding for f in frames} == {Encoding.PCM_F32LE}
    done = messages[-1][-1]
    assert (done.reason, done.frames, done.complete) == ("length", 6, False)


@pytest.mark.parametrize("rate", SAMPLE_RATES)
@pytest.mark.parametrize("count", range(9, 17))
def test_D19_the_largest_message_stays_under_64_kib(rate: int, count: int) -> None:
    session = opened_session(frames_per_message=8, format="pcm_f32le", sample_rate=rate)
    tell(session, "context.open")
    effects = [effect for i in range(count) for effect in session.frame(1, spoken(i))]
    effects += session.finished(1, "stop", 1)  # with what the resampler held back
    messages = [encode(message) for message in sent(effects) if isinstance(message, WireFrame)]
    assert max(map(len, messages)) <= 64 * 1024


def test_more_frames_than_fit_a_message_are_refused() -> None:
    refused = error(tell(new_session(), "session.open", None, frames_per_message=9))
    assert refused.param == "frames_per_message"


def test_D15_after_cancel_nothing_of_the_context_is_sent() -> None:
    session = opened_session()
    tell(session, "context.open")
    session.frame(1, spoken(0))
    effects = tell(session, "cancel")
    assert effects[0] == Abort(1)
    (done,) = sent(effects)
    assert (done.reason, done.frames, done.complete) == ("cancelled", 1, False)
    tell(session, "context.open")  # the name is free again, the old handle is not heard
    assert session.frame(1, spoken(1)) == []
    assert session.finished(1, "stop", 1) == []
    assert session.failed(1, NoAudio("x")) == []
    assert sent(session.frame(2, spoken(0)))[0].context == 2


def test_an_error_of_one_context_leaves_the_others_alone() -> None:
    session = opened_session()
    tell(session, "context.open", "a")
    tell(session, "context.open", "b")
    event, done = sent(session.failed(1, NoAudio("nothing came")))
    assert (event.code, event.context, event.fatal) == ("no_audio", "a", False)
    assert (done.context, done.reason) == ("a", "error")
    assert sent(session.frame(2, spoken(0)))


def test_a_dead_engine_ends_every_context_once_and_the_session() -> None:
    session = opened_session()
    tell(session, "context.open", "a")
    tell(session, "context.open", "b")
    effects = session.failed(1, EngineDead("gone"))
    event, *dones = sent(effects)
    assert event.fatal
    assert [(d.context, d.reason) for d in dones] == [("a", "error"), ("b", "error")]
    assert isinstance(effects[-1], Close)
    assert session.failed(2, EngineDead("gone")) == []


def test_closing() -> None:
    session = opened_session()
    tell(session, "context.open")
    effects = tell(session, "session.close", None)
    assert [m.type for m in sent(effects)] == ["context.done", "session.closed"]
    assert effects[-1] == Close(1000, "")
    assert tell(session, "ping", None) == []


def test_draining_lets_contexts_finish_and_opens_none() -> None:
    session = opened_session()
    tell(session, "context.open")
    assert session.session.drain() == []
    assert error(tell(session, "context.open", "b")).code == "shutting_down"
    effects = session.finished(1, "stop", 1)
    assert isinstance(effects[-1], Close)
    assert effects[-1].code == 1012


def test_draining_an_idle_session_closes_it() -> None:
    assert [type(e) for e in opened_session().session.drain()] == [Close]


def test_the_end_of_the_drain_ends_everything() -> None:
    session = opened_session()
    tell(session, "context.open", "a")
    tell(session, "context.open", "b")
    session.session.drain()
    effects = session.session.shut_down()
    assert [d.reason for d in sent(effects)] == ["shutdown", "shutdown"]
    assert isinstance(effects[-1], Close)
    assert session.session.shut_down() == []


@pytest.mark.parametrize(
    ("data", "code", "param"),
    [
        ("{", "invalid_json", None),
        ("[" * 10_000, "invalid_json", None),
        ('{"type":"text.append","context":"\\ud800","text":""}', "invalid_json", None),
        ("[]", "invalid_message", None),
        ("{}", "unknown_type", "type"),
        ('{"type":"interrupt","context":"zz"}', "unknown_context", "context"),
        ('{"type":"interrupt","context":"a","played_ms":-1}', "invalid_message", "played_ms"),
        ('{"type":"playback.ack"}', "invalid_message", "context"),
        ('{"type":"text.append","context":"a","text":5}', "invalid_message", "text"),
        ('{"type":"text.append","context":"a"}', "invalid_message", "text"),
        ('{"type":"text.append","context":"a","text":"","x":1}', "unknown_field", "x"),
        ('{"type":"text.append","context":"zz","text":""}', "unknown_context", "context"),
        ('{"type":"context.open","context":""}', "invalid_message", "context"),
        ('{"type":"context.open","context":"b","seed":"1"}', "invalid_message", "seed"),
        ('{"type":"context.open","context":"b","seed":-1}', "invalid_message", "seed"),
        ('{"type":"context.open","context":"b","speed":9}', "invalid_request", "speed"),
        ('{"type":"context.open","context":"b","voice":"zoe"}', "unknown_voice", "voice"),
        ('{"type":"context.open","context":"b","voice":""}', "unknown_voice", "voice"),
        ('{"type":"context.open","context":"a"}', "context_exists", "context"),
        ('{"type":"session.open"}', "session_already_open", None),
        ('{"type":"session.open","format":"mp3"}', "invalid_message", "format"),
        ('{"type":"session.open","format":"opus"}', "session_already_open", None),
        ('{"type":"session.open","resume":{"session":"s"}}', "invalid_message", "resume.token"),
        (b"\x16\x01", "unexpected_binary", None),
    ],
)
def test_D19_bad_messages_are_named_and_change_nothing(
    data: str | bytes, code: str, param: str | None
) -> None:
    session = opened_session()
    tell(session, "context.open")
    event = error(session.receive(data))
    assert (event.code, event.param, event.fatal) == (code, param, False)
    assert tell(session, "text.append", text="Fine. ") == []
    assert tell(session, "text.end") == [Say(1, Segment("Fine.", 0)), End(1)]


def test_nothing_but_ping_goes_before_session_open() -> None:
    session = new_session()
    event = error(tell(session, "text.append", text="hi"))
    assert (event.code, event.context) == ("session_not_open", "a")
    assert sent(tell(session, "ping", None))[0].type == "pong"


def test_an_error_is_addressed_to_the_context_its_message_named() -> None:
    event = error(tell(opened_session(), "context.open", "b", voice="zoe"))
    assert event.context == "b"
    assert "Ada, bob" in event.message
    assert error(tell(opened_session(), "text.append", "b", text=5)).context == "b"


def test_limits() -> None:
    session = new_session(text_chars=10, contexts=1)
    tell(session, "session.open", None)
    tell(session, "context.open")
    assert error(tell(session, "context.open", "b")).code == "too_many_contexts"
    tell(session, "text.append", text="12345678")
    event = error(tell(session, "text.append", text="901"))
    assert (event.code, event.context) == ("text_too_long", "a")
    assert "at most 10" in event.message
    assert tell(session, "text.append", text="90") == []


# Words, and what was heard of them


def word(start: int, end: int, from_frame: float, to_frame: float) -> SpokenWord:
    return SpokenWord(start, end, from_frame * SAMPLES, to_frame * SAMPLES)


TEXT = " Hello  there, friend.  "
HELLO, THERE, FRIEND = word(1, 6, 0, 1.5), word(8, 14, 1.5, 3), word(15, 22, 3, 4.5)


def speaking(**options: Any) -> Peer:
    """Five frames sent of TEXT, one every 80 ms, at time 0.32 s."""
    peer = opened_session(**options)
    tell(peer, "context.open")
    tell(peer, "text.append", text=TEXT)
    words = {1: HELLO, 2: THERE, 4: FRIEND}
    for i in range(5):
        peer.now = i * 0.08
        peer.frame(1, spoken(i, 0, *([words[i]] if i in words else [])))
    return peer


def interrupted(effects: list[Effect]) -> ContextInterrupted:
    abort, _, start = effects
    assert abort == Abort(1)
    assert isinstance(start, Start) and (start.handle, start.epoch) == (1, 1)
    (event,) = sent(effects)
    assert isinstance(event, ContextInterrupted)
    return event


def test_marks_come_with_the_frame_their_words_end_in_and_cite_the_original() -> None:
    session = opened_session()
    tell(session, "context.open")
    for character in TEXT:
        tell(session, "text.append", text=character)
    marks, frame = sent(session.frame(1, spoken(0, 0, HELLO, THERE)))
    assert isinstance(marks, Marks) and isinstance(frame, WireFrame)
    assert [(w.text, w.start_ms, w.end_ms) for w in marks.words] == [
        ("Hello", 0, 120),
        ("there,", 120, 240),
    ]
    assert [TEXT[w.start_char : w.end_char] for w in marks.words] == ["Hello", "there,"]


@pytest.mark.parametrize(
    ("played_ms", "heard_ms", "said"),
    [
        (0, 0, ""),
        (119.9, 119.9, ""),
        (120, 120, " Hello"),
        (300, 300, " Hello  there,"),
        (9e9, 400, " Hello  there, friend."),
    ],
)
def test_an_interrupt_splits_the_text_after_the_last_word_heard(
    played_ms: float, heard_ms: float, said: str
) -> None:
    event = interrupted(tell(speaking(), "interrupt", played_ms=played_ms))
    assert (event.heard_ms, event.heard_by, event.epoch) == (heard_ms, "offset", 1)
    assert event.text_spoken == said
    assert event.text_spoken + event.text_remaining == TEXT


def test_without_an_offset_acks_tell_what_was_heard() -> None:
    session = speaking()
    assert tell(session, "playback.ack", samples=3 * SAMPLES) == [Played(1, 3 * SAMPLES)]
    event = interrupted(tell(session, "interrupt"))
    assert (event.heard_ms, event.heard_by) == (240, "acks")
    assert event.text_spoken == " Hello  there,"


def test_without_acks_the_clock_tells_what_was_heard() -> None:
    session = speaking()
    event = interrupted(tell(session, "interrupt"))
    assert (event.heard_ms, event.heard_by) == (320, "clock")
    session = speaking()
    session.now = 60.0  # it played all it had, and then waited
    session.frame(1, spoken(5))
    session.now = 60.02
    assert interrupted(tell(session, "interrupt")).heard_ms == 420


def test_a_context_goes_on_in_a_new_epoch() -> None:
    session = speaking()
    tell(session, "text.end")
    tell(session, "interrupt", played_ms=120)
    assert session.frame(1, spoken(5)) == []  # the old epoch's, on its way meanwhile
    assert session.finished(1, "stop", 1) == []
    assert tell(session, "text.append", text="No. ") == []
    assert tell(session, "text.flush")[0] == Say(1, Segment("No.", len(TEXT)))
    marks, frame = sent(session.frame(1, spoken(0, 0, word(24, 27, 0, 0.5)), epoch=1))
    assert (frame.epoch, frame.tick, frame.pts) == (1, 5, 5 * SAMPLES)
    assert frame.flags == Flag.KEY
    assert (marks.epoch, marks.words[0].text, marks.words[0].start_ms) == (1, "No.", 400)
    tell(session, "playback.ack", samples=4 * SAMPLES)  # of the old epoch: no word of this one
    (again,) = sent(tell(session, "interrupt"))
    assert again.heard_by == "clock"
    (done,) = sent(tell(session, "cancel"))
    assert (done.frames, done.complete) == (6, False)


def test_what_is_done_may_still_be_playing_and_be_interrupted() -> None:
    session = speaking()
    tell(session, "text.end")
    session.finished(1, "stop", 1)
    (event,) = sent(tell(session, "interrupt", played_ms=250))
    assert event.text_spoken == " Hello  there,"
    assert error(tell(session, "text.append", text="x")).code == "unknown_context"
    assert tell(session, "context.open")


def test_frames_per_message_grow_with_the_lead() -> None:
    session = opened_session(frames_per_message="auto")
    tell(session, "context.open", max_lead_ms=None)
    sizes = [
        len(f.payload) // 2 // SAMPLES for i in range(60) for f in sent(session.frame(1, spoken(i)))
    ]
    assert sizes[:4] == [1, 1, 1, 1]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 8


def test_frames_per_message_may_differ_by_context() -> None:
    session = opened_session(frames_per_message=2)
    for name, asked in [("a", None), ("b", 3), ("c", "auto")]:
        (opened,) = sent(tell(session, "context.open", name, frames_per_message=asked))
        assert opened.frames_per_message == (asked or 2)
    ticks = {
        handle: [f.tick for i in range(7) for f in sent(session.frame(handle, spoken(i)))]
        for handle in (1, 2, 3)
    }
    assert ticks == {1: [0, 1, 3, 5], 2: [0, 1, 4], 3: [0, 1, 2, 3, 4]}
    refused = error(tell(session, "context.open", "d", frames_per_message=0))
    assert (refused.context, refused.param) == ("d", "frames_per_message")


def test_frames_that_wait_for_their_message_are_at_most_half_of_the_lead() -> None:
    """Or a stream held at its bound and a listener whose acks would move it wait for each other."""
    session = opened_session()
    for lead_ms, frames in [(200, 1), (800, 5), (2000, 8), (None, 8)]:
        name = str(lead_ms)
        effects = tell(session, "context.open", name, frames_per_message=8, max_lead_ms=lead_ms)
        assert sent(effects)[0].frames_per_message == frames


@pytest.mark.parametrize("asked", [8, "auto"])
def test_what_is_made_does_not_wait_for_text_that_has_not_come(asked: FramesPerMessage) -> None:
    session = opened_session(frames_per_message=asked)
    tell(session, "context.open", max_lead_ms=None)
    frames = [f for i in range(38) for f in sent(session.frame(1, spoken(i)))]
    assert session.frame(1, spoken(38)) == []
    frames += sent(session.frame(1, replace(spoken(39), dry=True)))
    assert sum(len(f.payload) for f in frames) == 40 * SAMPLES * 2


def test_who_acknowledges_all_it_got_is_sent_every_frame_at_once() -> None:
    session = opened_session(frames_per_message="auto")
    tell(session, "context.open")
    for index in range(30):
        (frame,) = sent(session.frame(1, spoken(index)))
        assert tell(session, "playback.ack", samples=frame.pts + SAMPLES)


@pytest.mark.parametrize("per_message", [8, "auto"])
def test_frames_that_wait_for_their_message_are_fewer_than_bring_a_held_stream_back(
    per_message: FramesPerMessage,
) -> None:
    session = opened_session(frames_per_message=per_message)
    tell(session, "context.open", max_lead_ms=500)  # held at 6 frames, it comes back below 3.1
    messages = [sent(session.frame(1, spoken(index))) for index in range(30)]
    sizes = [len(frame.payload) // 2 // SAMPLES for told in messages for frame in told]
    assert max(sizes) == 3


@pytest.mark.parametrize("format", ["pcm_s16le", "pcm_f32le", "mulaw", "alaw", "opus"])
@pytest.mark.parametrize("rate", [8000, 16000, 22050, 24000, 44100, 48000])
def test_formats_are_the_whole_conversion_in_pieces(format: Any, rate: int) -> None:
    session = new_session()
    effects = tell(session, "session.open", None, format=format, sample_rate=rate)
    if format == "opus" and rate not in OPUS_RATES:
        refused = error(effects)
        assert (refused.param, "8000, 16000" in refused.message) == ("sample_rate", True)
        return
    (opened,) = sent(effects)
    assert (opened.sample_rate, opened.samples_per_frame) == (rate, rate * 2 // 25)
    tell(session, "context.open")
    events = [e for i in range(30) for e in sent(session.frame(1, spoken(i)))]
    *tail, done = sent(session.finished(1, "stop", 1))
    frames = events + tail
    encoder = Encoder(format, INFO.sample_rate, rate)
    whole = encoder.encode(np.concatenate([spoken(i).pcm for i in range(30)])) + encoder.flush()
    assert b"".join(f.payload for f in frames) == whole
    samples = 0
    for frame in frames:
        assert frame.pts == samples
        assert frame.tick == samples // opened.samples_per_frame
        samples += samples_in(frame.payload, format, rate)
    assert done.samples == samples
    assert done.frames == 30
    assert abs(samples - 30 * opened.samples_per_frame) <= rate // 50  # opus fills its last packet


def samples_in(payload: bytes, format: str, rate: int) -> int:
    if format == "opus":
        return opus_packets(payload) * rate // 50
    return len(payload) // {"pcm_s16le": 2, "pcm_f32le": 4}.get(format, 1)


@pytest.mark.parametrize("rate", [8000, 48000])
def test_media_time_is_the_same_at_any_rate(rate: int) -> None:
    session = speaking(sample_rate=rate)
    tell(session, "playback.ack", samples=rate * 6 // 25)
    event = interrupted(tell(session, "interrupt"))
    assert (event.heard_ms, event.text_spoken) == (240, " Hello  there,")
    frames = [f for i in range(5) for f in sent(session.frame(1, spoken(i), epoch=1))]
    assert frames[0].pts > rate // 3


def test_codes_instead_of_samples() -> None:
    session = opened_session(format="codes_u16", frames_per_message=2)
    tell(session, "context.open")
    (frame,) = sent(session.frame(1, spoken(0)))
    assert (frame.kind, frame.encoding) == (Kind.CODES, Encoding.CODES_U16)
    assert frame.payload == spoken(0).codes.tobytes()


# The journal


def numbers(events: list[Any]) -> list[int]:
    return [event.seq for event in events]


def test_the_journal_replays_what_was_not_seen() -> None:
    journal, session = Journal(1 << 20), opened_session()
    first = sent(tell(session, "context.open"), journal)
    frames = [f for i in range(4) for f in sent(session.frame(1, spoken(i)), journal)]
    assert numbers(first + frames) == [0, 1, 2, 3, 4]
    replayed = journal.replay(2)
    assert numbers(replayed) == [3, 4]
    assert [f.payload for f in replayed] == [f.payload for f in frames[2:]]
    assert all(f.flags & Flag.REPLAY for f in replayed)
    assert numbers(journal.replay(None)) == [0, 1, 2, 3, 4]
    assert journal.replay(4) == []
    with pytest.raises(Refused, match="not known here"):
        journal.replay(5)


def test_the_journal_forgets_the_oldest() -> None:
    journal, session = Journal(3 * SAMPLES * 2), opened_session()
    tell(session, "context.open")
    for i in range(9):
        sent(session.frame(1, spoken(i)), journal)
    assert numbers(journal.replay(5)) == [6, 7, 8]
    with pytest.raises(Refused, match="not known here"):
        journal.replay(4)


def test_only_the_right_token_resumes() -> None:
    session = opened_session()
    assert session.session.resume("t").resumed
    for token in ("", "T", "tt", "é"):
        with pytest.raises(Refused, match="no such session"):
            session.session.resume(token)
    tell(session, "session.close", None)
    with pytest.raises(Refused):
        session.session.resume("t")
