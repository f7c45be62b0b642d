"""Sessions over a socket that the test holds in its hand, and raw websockets."""

from __future__ import annotations

import json
import random
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from omni_speak.streams.client import DuplexClient
from omni_speak.streams.dialects.native import SUBPROTOCOL, NativeDialect
from omni_speak.streams.messages import Limits
from omni_speak.streams.service import WARM_UP_STREAMS
from omni_speak.streams.session import OUTBOX, Disconnected, Drain, DuplexSession
from omni_speak.streams.wire import decode
from tests.streams.conftest import Running, serving
from tests.streams.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio


class HeldSocket:
    """Takes messages only while `flowing` is set."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.flowing = anyio.Event()
        self.sent: list[str | bytes] = []
        self.closed: tuple[int, str] | None = None
        self._send, self._receive = anyio.create_memory_object_stream[str](100)
        for message in messages:
            self.put(message)

    def put(self, message: dict[str, Any]) -> None:
        self._send.send_nowait(json.dumps(message))

    def vanish(self) -> None:
        self._send.close()

    async def receive(self) -> str:
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            raise Disconnected(clean=True) from None

    async def send(self, data: str | bytes) -> None:
        await self.flowing.wait()
        self.sent.append(data)

    async def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)


OPEN = {"type": "session.open"}


def speech(text: str, context: str = "a") -> list[dict[str, Any]]:
    return [
        {"type": "context.open", "context": context},
        {"type": "text.append", "context": context, "text": text},
        {"type": "text.end", "context": context},
    ]


def session_on(socket: HeldSocket, engine: FakeEngine, **options: Any) -> DuplexSession:
    return DuplexSession(socket, engine, NativeDialect(), Limits(), Drain(), **options)


async def test_a_slow_reader_holds_only_its_own_stream() -> None:
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


async def test_a_reader_that_takes_nothing_is_given_up() -> None:
    engine, socket = FakeEngine(), HeldSocket(OPEN, *speech("#endless"))
    with anyio.fail_after(5):
        await session_on(socket, engine, send_timeout=0.01).run()
    assert not engine.running


async def test_cancel_while_the_socket_is_stuck_stops_the_engine_at_once() -> None:
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


async def test_bad_messages_are_answered_and_the_connection_goes_on(server: Running) -> None:
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


async def test_an_oversize_message_closes_with_a_reason(server: Running) -> None:
    async with raw(server) as socket:
        await tell(socket, OPEN)
        limit = (await answer(socket))["limits"]["message_bytes"]
        await socket.send("x" * 3 * 1024 * 1024)
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009
    assert str(limit) in closed.value.rcvd.reason


async def test_text_that_is_not_utf8_closes_with_1007(server: Running) -> None:
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
