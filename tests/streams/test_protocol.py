"""The state machine alone: messages in, effects out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni_speak.runtime.errors import EngineDead, NoAudio
from omni_speak.runtime.request import SpeechRequest
from omni_speak.streams.protocol import (
    SERVER_MESSAGE,
    Abort,
    Close,
    ContextDone,
    ContextOpened,
    Effect,
    End,
    ErrorEvent,
    Limits,
    Say,
    Send,
    Session,
    SessionOpened,
    Start,
)
from omni_speak.streams.speaking import SpokenFrame
from omni_speak.streams.wire import Encoding, Flag, WireFrame, decode
from tests.streams.fake_engine import INFO, SAMPLES, frame_of


def new_session(**limits: int) -> Session:
    return Session(INFO, Limits(**limits), session_id="s", draw_seed=lambda: 77)


def opened_session(**options: Any) -> Session:
    session = new_session()
    session.receive(json.dumps({"type": "session.open", **options}))
    return session


def tell(session: Session, type: str, context: str | None = "a", **fields: Any) -> list[Effect]:
    message = {"type": type, **fields} | ({} if context is None else {"context": context})
    return session.receive(json.dumps(message))


def spoken(index: int, segment: int = 0) -> SpokenFrame:
    frame = frame_of(SpeechRequest(text="x"), index)
    return SpokenFrame(index, frame.codes, frame.pcm, frame.pts, frame.token, segment)


def sent(effects: list[Effect]) -> list[Any]:
    """Messages and wire frames among the effects."""
    return [
        SERVER_MESSAGE.validate_json(e.data) if isinstance(e.data, str) else decode(e.data)
        for e in effects
        if isinstance(e, Send)
    ]


def error(effects: list[Effect]) -> ErrorEvent:
    (event,) = sent(effects)
    assert isinstance(event, ErrorEvent)
    assert len(effects) == 1
    return event


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
        1, SpeechRequest(text="", voice="bob", speed=1.5, seed=77, max_lead_ms=2000)
    )


def test_text_becomes_segments_in_order() -> None:
    session = opened_session()
    tell(session, "context.open")
    assert tell(session, "text.append", text="One. Two. Thr") == [Say(1, "One."), Say(1, "Two.")]
    assert tell(session, "text.append", text="ee") == []
    assert tell(session, "text.flush")[0] == Say(1, "Three")
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
    made = [(1, spoken(0)), (2, spoken(0)), (1, spoken(1)), (1, spoken(2, segment=1))]
    frames = [sent(session.frame(handle, frame))[0] for handle, frame in made]
    assert [f.seq for f in frames] == [0, 1, 2, 3]
    assert [f.context for f in frames] == [1, 2, 1, 1]
    assert [f.tick for f in frames] == [0, 0, 1, 2]
    assert [f.pts for f in frames] == [0, 0, SAMPLES, 2 * SAMPLES]
    fresh = Flag.FIRST | Flag.KEY
    assert [f.flags for f in frames] == [fresh, fresh, 0, Flag.KEY]
    (done,) = sent(session.finished(1, "stop", 2))
    assert done == ContextDone(
        context="a", reason="stop", frames=3, samples=3 * SAMPLES, segments=2, complete=True
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


def test_the_largest_message_stays_under_64_kib() -> None:
    session = opened_session(frames_per_message=8, format="pcm_f32le")
    tell(session, "context.open")
    effects = [e for i in range(9) for e in session.frame(1, spoken(i))]
    assert max(len(e.data) for e in effects if isinstance(e, Send)) <= 64 * 1024
    refused = error(tell(new_session(), "session.open", None, frames_per_message=9))
    assert refused.param == "frames_per_message"


def test_after_cancel_nothing_of_the_context_is_sent() -> None:
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
    assert sent(session.frame(2, spoken(0)))[0].seq == 1


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
    assert session.drain() == []
    assert error(tell(session, "context.open", "b")).code == "shutting_down"
    effects = session.finished(1, "stop", 1)
    assert isinstance(effects[-1], Close)
    assert effects[-1].code == 1012


def test_draining_an_idle_session_closes_it() -> None:
    assert [type(e) for e in opened_session().drain()] == [Close]


def test_the_end_of_the_drain_ends_everything() -> None:
    session = opened_session()
    tell(session, "context.open", "a")
    tell(session, "context.open", "b")
    session.drain()
    effects = session.shut_down()
    assert [d.reason for d in sent(effects)] == ["shutdown", "shutdown"]
    assert isinstance(effects[-1], Close)
    assert session.shut_down() == []


@pytest.mark.parametrize(
    ("data", "code", "param"),
    [
        ("{", "invalid_json", None),
        ("[" * 10_000, "invalid_json", None),
        ('{"type":"text.append","context":"\\ud800","text":""}', "invalid_json", None),
        ("[]", "invalid_message", None),
        ("{}", "unknown_type", "type"),
        ('{"type":"interrupt","context":"a"}', "unknown_type", "type"),
        ('{"type":"playback.ack"}', "unknown_type", "type"),
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
        ('{"type":"session.open","resume":"t"}', "unknown_field", "resume"),
        (b"\x16\x01", "unexpected_binary", None),
    ],
)
def test_bad_messages_are_named_and_change_nothing(
    data: str | bytes, code: str, param: str | None
) -> None:
    session = opened_session()
    tell(session, "context.open")
    event = error(session.receive(data))
    assert (event.code, event.param, event.fatal) == (code, param, False)
    assert tell(session, "text.append", text="Fine. ") == []
    assert tell(session, "text.end") == [Say(1, "Fine."), End(1)]


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


# Any sequence of events, against a model of what each context may still do.

NAMES = st.sampled_from(["a", "b", "c"])
HANDLES = st.integers(1, 8)
MESSAGES = st.one_of(
    st.builds(lambda c: {"type": "context.open", "context": c}, NAMES),
    st.builds(lambda c, t: {"type": "text.append", "context": c, "text": t}, NAMES, st.text()),
    st.builds(
        lambda c, t: {"type": t, "context": c}, NAMES, st.sampled_from(["text.end", "cancel"])
    ),
    st.sampled_from([{"type": "session.open"}, {"type": "ping"}, {"type": "text.flush"}]),
)
EVENTS = st.one_of(
    st.tuples(st.just("receive"), MESSAGES),
    st.tuples(st.just("receive"), st.text() | st.binary()),
    st.tuples(st.just("frame"), HANDLES),
    st.tuples(st.just("finished"), HANDLES),
    st.tuples(st.just("failed"), HANDLES),
    st.tuples(st.sampled_from(["drain", "shut_down"]), st.none()),
)


@given(st.lists(EVENTS, max_size=60), st.integers(1, 3))
def test_any_events_give_a_legal_session(events: list[tuple[str, Any]], per_message: int) -> None:
    session = opened_session(frames_per_message=per_message)
    made: dict[int, int] = {}
    names: dict[int, str] = {}
    live: dict[str, int] = {}
    ticks: dict[int, int] = {}
    seq = 0
    closed = False
    for kind, value in events:
        if kind == "receive":
            data = json.dumps(value) if isinstance(value, dict) else value
            effects = session.receive(data)
        elif kind == "frame":
            index = made.get(value, 0)
            made[value] = index + (value in names)
            effects = session.frame(value, spoken(index))
        elif kind == "finished":
            effects = session.finished(value, "stop", 1)
        elif kind == "failed":
            effects = session.failed(value, NoAudio("none"))
        else:
            effects = session.drain() if kind == "drain" else session.shut_down()
        for effect in effects:
            assert not closed, "nothing follows the close"
            closed = isinstance(effect, Close)
        for message in sent(effects):
            match message:
                case ContextOpened():
                    assert message.context not in live
                    live[message.context] = message.handle
                    names[message.handle] = message.context
                case ContextDone():
                    handle = live.pop(message.context)
                    assert message.samples == message.frames * SAMPLES
                    assert message.frames == ticks.get(handle, 0)
                case WireFrame():
                    assert message.seq == seq
                    seq += 1
                    assert live[names[message.context]] == message.context
                    assert message.tick == ticks.get(message.context, 0)
                    assert message.pts == message.tick * SAMPLES
                    assert len(message.payload) % (2 * SAMPLES) == 0
                    ticks[message.context] = message.tick + len(message.payload) // (2 * SAMPLES)
                case _:
                    pass
    if closed:
        assert not live, "every context had its end"
