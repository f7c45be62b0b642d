"""Sessions over a socket that the test holds in its hand, and raw websockets."""

from __future__ import annotations

import asyncio
import gc
import json
import random
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame as WebSocketFrame
from websockets.frames import Opcode
from websockets.typing import Subprotocol

from omni_speak.runtime.request import Frame, SpeechRequest, check_request
from omni_speak.streams.client import DuplexClient
from omni_speak.streams.dialects.native import SUBPROTOCOL
from omni_speak.streams.messages import Limits
from omni_speak.streams.service import WARM_UP_STREAMS
from omni_speak.streams.session import ANSWERS, OUTBOX, Disconnected
from omni_speak.streams.speaking import SpokenFrame
from omni_speak.streams.wire import Flag, WireFrame, decode
from tests.streams.conftest import Running, serving
from tests.streams.fake_engine import SAMPLES, FakeEngine, FakeStream
from tests.streams.held import OPEN, HeldSocket, House, Link, resume, seq_of, session_on, speech

pytestmark = pytest.mark.anyio


async def test_D17_a_slow_reader_holds_only_its_own_stream() -> None:
    engine = FakeEngine()
    slow = HeldSocket(OPEN, *speech("#endless"))
    fast = HeldSocket(OPEN, *speech("#frames=100"), {"type": "ping"})
    fast.flowing.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session_on(slow, engine).run)
        await anyio.wait_all_tasks_blocked()
        made = engine.frames
        assert made <= OUTBOX + 2  # the outbox, one at the socket, one on its way
        tasks.start_soon(session_on(fast, engine).run)
        await anyio.wait_all_tasks_blocked()
        assert engine.frames == made + 100
        assert sum(isinstance(data, bytes) for data in fast.sent) == 100
        slow.vanish()
        fast.vanish()
    assert not engine.running


async def test_a_reader_that_catches_up_misses_nothing() -> None:
    engine, socket = FakeEngine(), HeldSocket(OPEN, *speech("#frames=60"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session_on(socket, engine).run)
        await anyio.wait_all_tasks_blocked()
        socket.flowing.set()
        await anyio.wait_all_tasks_blocked()
        socket.vanish()
    frames = [decode(data) for data in socket.sent if isinstance(data, bytes)]
    assert [f.tick for f in frames] == list(range(60))
    assert json.loads(socket.sent[-1])["type"] == "context.done"


async def test_D15_cancel_while_the_socket_is_stuck_stops_the_engine_at_once() -> None:
    engine, socket = FakeEngine(), HeldSocket(OPEN, *speech("#endless"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session_on(socket, engine).run)
        await anyio.wait_all_tasks_blocked()
        socket.put({"type": "cancel", "context": "a"})
        await anyio.wait_all_tasks_blocked()
        assert not engine.running
        socket.flowing.set()
        await anyio.wait_all_tasks_blocked()
        socket.vanish()
    sent = [decode(d).tick if isinstance(d, bytes) else json.loads(d) for d in socket.sent]
    done = sent[-1]
    assert isinstance(done, dict)
    assert done["reason"] == "cancelled"
    assert done["frames"] == sum(isinstance(item, int) for item in sent)


async def test_a_good_bye_that_the_writer_meets_first_still_is_one() -> None:
    engine, socket = FakeEngine(), HeldSocket(OPEN, *speech("#endless"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session_on(socket, engine).run)
        await anyio.wait_all_tasks_blocked()
        socket.gone = True
        socket.flowing.set()
        await checkpoint()
        socket.vanish()
        with anyio.fail_after(5):
            while engine.running:
                await checkpoint()
    assert not socket.sent


@pytest.mark.parametrize("stop", ["cancel", "interrupt"])
async def test_D15_answers_that_nobody_reads_do_not_keep_a_stop_from_the_engine(stop: str) -> None:
    engine, socket = FakeEngine(), HeldSocket(OPEN, *speech("#endless")[:2])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session_on(socket, engine).run)
        for _ in range(5 * OUTBOX):
            socket.put({"type": "text.flush", "context": "a"})
        await anyio.wait_all_tasks_blocked()
        assert engine.running
        socket.put({"type": stop, "context": "a"})
        await anyio.wait_all_tasks_blocked()
        assert not engine.running
        socket.flowing.set()
        await anyio.wait_all_tasks_blocked()
        socket.vanish()
    assert not any(isinstance(data, bytes) for data in socket.sent)


class Asking(HeldSocket):
    """Asks without an end, and never waits for anything."""

    asked = 0

    async def receive(self) -> str:
        self.asked += 1
        return json.dumps({"type": "ping"})


async def test_D17_who_asks_and_reads_no_answers_is_given_up_alone() -> None:
    engine, asking, other = FakeEngine(), Asking(), HeldSocket(OPEN, *speech("#frames=100"))
    other.flowing.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session_on(other, engine).run)
        with anyio.fail_after(10):
            await session_on(asking, engine).run()
        assert asking.closed == (4002, f"{ANSWERS} answers were not taken")
        assert ANSWERS < asking.asked <= ANSWERS + 2
        await anyio.wait_all_tasks_blocked()
        assert sum(isinstance(data, bytes) for data in other.sent) == 100
        assert other.closed is None
        other.vanish()


async def test_D17_who_asks_without_an_end_and_reads_leaves_the_loop_to_the_others() -> None:
    engine, asking, other = FakeEngine(), Asking(), HeldSocket(OPEN, *speech("#frames=100"))
    asking.flowing.set()
    other.flowing.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session_on(asking, engine).run)
        await checkpoint()
        tasks.start_soon(session_on(other, engine).run)
        with anyio.fail_after(10):
            while "context.done" not in str(other.sent[-1:]):
                await checkpoint()
        assert asking.closed is None and asking.asked > 100
        tasks.cancel_scope.cancel()


async def test_a_bug_in_a_speaker_ends_its_session_and_frees_the_engine() -> None:
    engine, socket = FakeEngine(), HeldSocket(OPEN, *speech("#endless"))

    async def broken(data: str | bytes) -> None:
        raise ZeroDivisionError

    socket.send = broken  # type: ignore[method-assign]
    with pytest.raises(BaseExceptionGroup):
        await session_on(socket, engine).run()
    assert not engine.running


# Raw websockets


def raw(server: Running, **options: Any) -> connect:
    return connect(server.websocket_url, subprotocols=[Subprotocol(SUBPROTOCOL)], **options)


async def tell(socket: ClientConnection, *messages: dict[str, Any]) -> None:
    for message in messages:
        await socket.send(json.dumps(message))


async def answer(socket: ClientConnection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(await socket.recv())
    return message


async def test_D19_bad_messages_are_answered_and_the_connection_goes_on(server: Running) -> None:
    async with raw(server) as socket:
        for data, code in [
            ("{", "invalid_json"),
            ('{"type":"text.append","context":"a","text":"early"}', "session_not_open"),
            ('{"type":"session.open","voice":7}', "invalid_message"),
            (b"\x16\x01", "unexpected_binary"),
        ]:
            await socket.send(data)
            assert (await answer(socket))["code"] == code
        await tell(socket, OPEN, *speech("Now it works."))
        kinds = [type(await socket.recv()) for _ in range(9)]
        assert kinds == [str, str, str, bytes, str, bytes, str, bytes, str]
    assert server.engine.requests == sum(WARM_UP_STREAMS) + 1  # the one good context


async def test_D19_an_oversize_message_closes_with_a_reason(server: Running) -> None:
    async with raw(server) as socket:
        await tell(socket, OPEN)
        limit = (await answer(socket))["limits"]["message_bytes"]
        await socket.send("x" * 3 * 1024 * 1024)
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009
    assert str(limit) in closed.value.rcvd.reason


async def test_D19_text_that_is_not_utf8_closes_with_1007(server: Running) -> None:
    async with raw(server) as socket:
        await tell(socket, OPEN)
        await answer(socket)
        await socket.send(b"\xff\xfe", text=True)
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1007


async def test_subprotocols(server: Running) -> None:
    async with connect(server.websocket_url) as socket:
        await tell(socket, OPEN)
        assert (await answer(socket))["type"] == "session.opened"
    with pytest.raises(InvalidStatus) as refused:
        async with connect(server.websocket_url, subprotocols=[Subprotocol("other")]):
            pass
    assert refused.value.response.status_code == 400


async def test_session_close_says_goodbye(server: Running) -> None:
    async with raw(server) as socket:
        await tell(socket, OPEN, {"type": "session.close"})
        assert [(await answer(socket))["type"] for _ in range(2)] == [
            "session.opened",
            "session.closed",
        ]
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1000


async def test_D17_what_is_in_flight_to_a_reader_that_stops_is_seconds_not_minutes(
    server: Running,
) -> None:
    endless = [OPEN, speech("#endless")[0] | {"max_lead_ms": None}, *speech("#endless")[1:]]
    async with raw(server) as socket:
        await tell(socket, *endless)
        made = -1
        while made != server.engine.frames:
            made = server.engine.frames
            await anyio.sleep(0.2)
        # In the buffers of the two sockets, of uvicorn and of the client's library.
        assert made * SAMPLES * 2 < 2_000_000
        socket.transport.abort()


def masked(message: dict[str, Any]) -> bytes:
    return WebSocketFrame(Opcode.TEXT, json.dumps(message).encode()).serialize(mask=True)


@pytest.mark.parametrize("stop", ["cancel", "interrupt"])
async def test_D15_a_stop_behind_a_flood_of_text_acts_though_nothing_is_read(
    server: Running, stop: str
) -> None:
    """All the text a context may have, a character at a time, and more; in one go."""
    flood = [
        {"type": "text.append", "context": "a", "text": char} for char in "words, or so. " * 1428
    ]
    flood[:: len(flood) // 200] = [{"type": "text.flush", "context": "a"}] * len(flood[::99])
    async with raw(server) as socket:
        await tell(socket, OPEN, *speech("#endless")[:2], {"type": "text.flush", "context": "a"})
        while not server.engine.running:
            await anyio.sleep(0.01)
        data = b"".join(map(masked, [*flood, {"type": stop, "context": "a"}]))
        socket.transport.write(data)
        with anyio.fail_after(30):
            while server.engine.running:
                await anyio.sleep(0.01)
        events, stopped = [], False
        await tell(socket, {"type": "session.close"})
        async for received in socket:
            if isinstance(received, bytes):
                assert not stopped, "a frame after the answer to the stop"
            else:
                events.append(json.loads(received))
                stopped |= events[-1]["type"] in ("context.done", "context.interrupted")
    ends = [event["type"] for event in events if event["type"] == "context.done"]
    assert (stopped, len(ends)) == (True, 1)


async def test_D18_a_flood_of_messages_leaves_the_loop_to_the_others(server: Running) -> None:
    turns = 0

    async def spin() -> None:
        nonlocal turns
        while True:
            await checkpoint()
            turns += 1

    async with raw(server) as socket, anyio.create_task_group() as tasks:
        await tell(socket, OPEN, speech("")[0])
        await answer(socket)
        await answer(socket)
        tasks.start_soon(spin)
        text = {"type": "text.append", "context": "a", "text": " "}
        data = b"".join(map(masked, [*[text] * 2000, {"type": "ping"}]))
        before, _ = turns, socket.transport.write(data)
        assert (await answer(socket))["type"] == "pong"
        assert turns - before > 2000
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_clients_that_go_away_anyhow_leave_nothing_behind(seed: int) -> None:
    async with serving(limits=Limits(resume_s=0.05)) as server:
        await go_away_anyhow(server, random.Random(seed))


async def go_away_anyhow(server: Running, choices: random.Random) -> None:
    async def go_away(how: str, after: int) -> None:
        with anyio.CancelScope() as scope:
            async with raw(server) as socket:
                await tell(socket, OPEN, *speech("#endless", "a"), *speech("#endless", "b"))
                for _ in range(after):
                    await socket.recv()
                if how == "reset":
                    socket.transport.abort()
                elif how == "cancel":
                    scope.cancel()
                    await checkpoint()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                how = choices.choice(["close", "reset", "cancel"])
                tasks.start_soon(go_away, how, choices.randrange(12))
        while server.engine.running:
            await checkpoint()
    async with DuplexClient(server.url) as client:
        assert len([frame async for frame in client.speak("All is well.")]) == 3
    async with server.http() as http:
        lines = (await http.get("/metrics")).text.splitlines()
    assert 'omni_speak_active{door="duplex"} 0.0' in lines


# Sessions that outlive a connection


class Breaking(Link):
    """Breaks at the first message, and tells as asyncio does: when the loop comes round."""

    async def send(self, data: str | bytes) -> None:
        if self.broken:
            raise Disconnected
        self.sent.append(data)
        asyncio.get_running_loop().call_soon(self.breaks)


async def undisturbed(text: str, **options: Any) -> list[Any]:
    async with anyio.create_task_group() as tasks:
        link = await House(tasks).connect(OPEN | options, *seeded(text))
        link.vanish()
    return link.numbered()


def seeded(text: str) -> list[dict[str, Any]]:
    opened, *rest = speech(text)
    return [opened | {"seed": 5}, *rest]


def same(items: list[Any]) -> list[Any]:
    """Without what may differ between two runs: the REPLAY flag."""
    return [i if isinstance(i, dict) else replace(i, flags=i.flags & ~Flag.REPLAY) for i in items]


@pytest.mark.parametrize("at", [0, 1, 2, 3, 20, 39])
async def test_a_resumed_session_goes_on_byte_for_byte(at: int) -> None:
    whole = await undisturbed("Word #frames=40")
    async with anyio.create_task_group() as tasks:
        house = House(tasks)
        first = await house.connect(OPEN, *seeded("Word #frames=40"))
        seen = first.numbered()[:at]
        first.breaks()
        await anyio.wait_all_tasks_blocked()
        assert len(house.sessions) == 1
        second = await house.connect(resume(first.greeting, seen[-1].seq if at > 1 else None))
        second.vanish()
    assert second.greeting["resumed"]
    assert same((seen if at > 1 else []) + second.numbered()) == same(whole)
    assert len(house.sessions) == 0


@pytest.mark.parametrize(
    ("format", "rate"),
    [
        ("pcm_f32le", 44_100),
        ("mulaw", 8000),
        ("alaw", 16_000),
        ("opus", 48_000),
        ("codes_u16", None),
    ],
)
async def test_it_is_byte_for_byte_in_any_format(format: str, rate: int | None) -> None:
    options = {"format": format, "sample_rate": rate, "frames_per_message": "auto"}
    whole = await undisturbed("Word #frames=40", **options)
    async with anyio.create_task_group() as tasks:
        house = House(tasks)
        link = await house.connect(OPEN | options, *seeded("Word #frames=40"), room=12)
        greeting, heard = link.greeting, link.numbered()
        for room in (8, 8, 1000):  # it breaks again and again
            link.breaks()
            await anyio.wait_all_tasks_blocked()
            link = await house.connect(resume(greeting, seq_of(heard[-1])), room=room)
            heard += link.numbered()
        link.vanish()
    assert same(heard) == same(whole)


async def test_speech_goes_on_without_a_connection_but_not_for_ever() -> None:
    whole = await undisturbed("Word #frames=500")
    async with anyio.create_task_group() as tasks:
        house = House(tasks, journal_bytes=100 * 3840)
        first = await house.connect(OPEN, {"type": "context.open", "context": "a", "seed": 5})
        first.breaks()
        await anyio.wait_all_tasks_blocked()
        second = await house.connect(resume(first.greeting, 0))
        for message in seeded("Word #frames=500")[1:]:
            second.put(message)
        second.room, second.flowing = 1, anyio.Event()  # stuck from here on
        await anyio.wait_all_tasks_blocked()
        second.breaks()
        await anyio.wait_all_tasks_blocked()
        made = house.engine.frames
        assert 50 <= made <= 50 + 2 * OUTBOX  # half the journal, and what waits behind it
        third = await house.connect(resume(first.greeting, 0))
        third.vanish()
    assert same(third.numbered()) == same(whole[1:])


async def test_what_a_cut_replay_did_not_tell_is_told_again() -> None:
    whole = await undisturbed("Word #frames=500")
    async with anyio.create_task_group() as tasks:
        house = House(tasks, journal_bytes=100 * 3840)
        link = await house.connect(OPEN, *seeded("Word #frames=500"), room=12)
        greeting, heard = link.greeting, link.numbered()
        for room in (1, 1, 20, 1000):  # the greeting alone, and then some of the replay
            link.breaks()
            await anyio.wait_all_tasks_blocked()
            unheard = house.engine.frames - sum(isinstance(i, WireFrame) for i in heard)
            assert unheard <= 50 + 2 * OUTBOX  # half the journal, however often it breaks
            link = await house.connect(resume(greeting, seq_of(heard[-1])), room=room)
            heard += link.numbered()
        link.vanish()
    assert same(heard) == same(whole)


class LeavingEngine(FakeEngine):
    """Its streams take until `left` to close."""

    def __init__(self) -> None:
        super().__init__()
        self.left = anyio.Event()

    def speak(self, request: SpeechRequest, *, open_text: bool = False) -> FakeStream:
        return LeavingStream(self, check_request(request, self.info), open_text)


class LeavingStream(FakeStream):
    _engine: LeavingEngine

    async def __aiter__(self) -> AsyncGenerator[Frame]:
        try:
            async for frame in super().__aiter__():
                yield frame
        finally:
            with anyio.CancelScope(shield=True):
                await self._engine.left.wait()


@pytest.mark.parametrize("end", ["good-bye", "given up"])
async def test_a_session_that_is_ending_is_not_resumed(end: str) -> None:
    async with anyio.create_task_group() as tasks:
        house = House(tasks)
        house.engine = engine = LeavingEngine()
        first = await house.connect(OPEN, *speech("#endless"), room=5)  # and then stuck
        if end == "good-bye":
            first.vanish()
        else:
            first.receive = Asking().receive  # type: ignore[method-assign]
            first.put({"type": "ping"})
        await anyio.wait_all_tasks_blocked()
        try:
            assert len(house.sessions) == 1
            second = await house.connect(resume(first.greeting, 0))
            assert second.read[-1]["code"] == "resume_refused"
            second.vanish()
        finally:
            engine.left.set()
    assert len(house.sessions) == 0


async def test_another_connection_takes_over_and_the_first_is_told() -> None:
    async with anyio.create_task_group() as tasks:
        house = House(tasks)
        first = await house.connect(OPEN, *speech("#endless"), room=5)  # and then stuck
        second = await house.connect(resume(first.greeting, 0), room=50)
        first.take(10)
        await anyio.wait_all_tasks_blocked()
        last = first.read[-1]
        assert (last["code"], last["fatal"]) == ("taken_over", True)
        assert first.closed is not None and first.closed[0] == 4001
        first.put({"type": "cancel", "context": "a"})  # nobody hears it
        await anyio.wait_all_tasks_blocked()
        assert house.engine.running
        second.put({"type": "cancel", "context": "a"})
        second.take(50)
        await anyio.wait_all_tasks_blocked()
        assert second.read[-1]["reason"] == "cancelled"
        numbers = [seq_of(item) for item in second.numbered()]
        assert numbers == list(range(1, len(numbers) + 1))
        second.vanish()


async def test_what_cannot_be_resumed_is_refused_and_nothing_changes() -> None:
    async with anyio.create_task_group() as tasks:
        house = House(tasks, journal_bytes=20 * 3840)
        first = await house.connect(OPEN, *speech("#frames=40"))
        good = resume(first.greeting, 40)
        attempts = [
            ({"token": "x" * 32}, "resume_refused"),
            ({"session": "0" * 32}, "resume_refused"),
            ({"seq": 4000}, "resume_gap"),
            ({"seq": 3}, "resume_gap"),
        ]
        for change, code in attempts:
            other = await house.connect(good | {"resume": good["resume"] | change})
            assert other.read[-1]["code"] == code
            other.put(OPEN)  # a fresh one is welcome on the same connection
            await anyio.wait_all_tasks_blocked()
            assert not other.read[-1]["resumed"]
            other.vanish()
        first.put({"type": "ping"})
        await anyio.wait_all_tasks_blocked()
        assert first.read[-1]["type"] == "pong"
        first.vanish()
        await anyio.wait_all_tasks_blocked()
        late = await house.connect(good)
        assert late.read[-1]["code"] == "resume_refused"
        late.vanish()


@pytest.mark.parametrize("resumable", [True, False])
@pytest.mark.parametrize("journal_bytes", [20 * 3840, 1_000_000])
async def test_a_break_is_noticed_while_answers_wait(resumable: bool, journal_bytes: int) -> None:
    async with anyio.create_task_group() as tasks:
        house = House(tasks, resume_s=0.05, journal_bytes=journal_bytes)
        opened = OPEN | {"resumable": resumable}
        link = await house.connect(opened, *speech("#endless"), room=5)
        for _ in range(3):
            link.put({"type": "ping"})
        await anyio.wait_all_tasks_blocked()
        link.breaks()
        link.take(1)
        with anyio.fail_after(10):
            while len(house.sessions):
                await anyio.sleep(0.01)
    assert not house.engine.running


async def test_a_break_is_noticed_while_what_was_missed_is_sent_again() -> None:
    async with anyio.create_task_group() as tasks:
        house = House(tasks)
        first = await house.connect(OPEN, *seeded("Word #frames=40"))
        first.breaks()
        await anyio.wait_all_tasks_blocked()
        second = await house.welcome(Breaking(resume(first.greeting, None)))
        assert len(second.sent) < 5
        third = await house.connect(resume(first.greeting, None))
        assert same(third.numbered()) == same(first.numbered())
        third.vanish()


async def test_a_session_that_ended_leaves_little_audio_to_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        async with anyio.create_task_group() as tasks:
            link = await House(tasks).connect(OPEN, *speech("#frames=40"), *speech("#endless", "b"))
            link.vanish()
        assert len(link.numbered()) > 40
        del link
        left = [item for item in gc.get_objects() if isinstance(item, WireFrame | SpokenFrame)]
        assert len(left) <= OUTBOX + 4  # it, and what the cancelled tasks held; not the journal
    finally:
        gc.enable()


# Interrupts


@pytest.mark.parametrize("seed", range(10))
async def test_D15_after_an_interrupt_no_frame_of_the_old_epoch(seed: int) -> None:
    """200 in all: with nothing said yet, queued, before the first packet, frames in flight."""
    choices = random.Random(seed)
    async with anyio.create_task_group() as tasks:
        house = House(tasks)
        link = await house.connect(OPEN, {"type": "context.open", "context": "a"}, room=9)
        sent = ""
        for number in range(20):
            text = (
                f"Turn {number} {choices.choice(['#endless', '#frames=9', 'is short.'])} and on. "
            )
            link.put({"type": "text.append", "context": "a", "text": text})
            sent += text
            if choices.random() < 0.8:
                link.put({"type": "text.flush", "context": "a"})
            if "#endless" in text and choices.random() < 0.3:
                link.put({"type": "text.end", "context": "a"})
            for _ in range(choices.randrange(60)):
                await checkpoint()
            link.put({"type": "interrupt", "context": "a"})
            link.take(choices.randrange(30))
            if choices.random() < 0.2:
                await anyio.wait_all_tasks_blocked()
        link.take(1000)
        await anyio.wait_all_tasks_blocked()
        link.put({"type": "text.append", "context": "a", "text": "The end."})
        link.put({"type": "text.end", "context": "a"})
        await anyio.wait_all_tasks_blocked()
        link.vanish()
    epoch, text, tick = 0, "", 0
    for item in link.numbered():
        if not isinstance(item, dict):
            assert (item.epoch, item.tick) == (epoch, tick)
            tick += 1
        elif item["type"] == "context.interrupted":
            epoch += 1
            assert item["epoch"] == epoch
            text += item["text_spoken"] + item["text_remaining"]
        elif item["type"] == "marks":
            assert item["epoch"] == epoch
    assert epoch == 20
    assert text == sent
    assert link.read[-1]["type"] == "context.done"
    assert not house.engine.running
