"""How long a session waits for its client, in simulated time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from starlette.types import Message
from starlette.websockets import WebSocket

from omni_speak.streams.session import Disconnected
from omni_speak.streams.websocket import WebSocketSocket
from tests import simulated_time
from tests.streams.fake_engine import FakeEngine
from tests.streams.held import OPEN, HeldSocket, House, resume, session_on, speech

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, Mapping[str, Any]]:
    return simulated_time.BACKEND


async def test_D17_a_reader_that_takes_nothing_is_given_up_and_told() -> None:
    engine, socket = FakeEngine(), HeldSocket(OPEN, *speech("#endless"))
    await session_on(socket, engine, send_timeout=60.0).run()
    assert anyio.current_time() == pytest.approx(60.0, abs=1.0)
    assert not engine.running
    assert socket.closed == (4002, "nothing was taken for 60 s")


async def test_D17_a_reader_that_is_only_slow_is_kept_and_served() -> None:
    engine, socket = FakeEngine(), HeldSocket(OPEN, *speech("#frames=60"))
    socket.flowing.set()
    take = socket.send

    async def slowly(data: str | bytes) -> None:
        await anyio.sleep(50.0)
        await take(data)

    socket.send = slowly  # type: ignore[method-assign]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session_on(socket, engine, send_timeout=60.0).run)
        await anyio.sleep(100 * 50.0)
        socket.vanish()
    assert sum(isinstance(data, bytes) for data in socket.sent) == 60
    assert "context.done" in str(socket.sent[-1])
    assert socket.closed is None


async def test_a_session_nobody_comes_back_to_ends() -> None:
    async with anyio.create_task_group() as tasks:
        house = House(tasks, resume_s=30.0)
        link = await house.connect(OPEN, *speech("#endless"), room=5)
        link.breaks()
        await anyio.sleep(29.0)
        assert len(house.sessions) == 1
        await anyio.sleep(2.0)
        assert len(house.sessions) == 0
        late = await house.connect(resume(link.greeting, 3))
        assert late.read[-1]["code"] == "resume_refused"
        late.vanish()
    assert not house.engine.running


# Websockets with a limit on idleness


class Peer:
    """The far end of a websocket: says nothing, and takes `seconds` for what it is sent."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.taken: list[Message] = []

    async def receive(self) -> Message:
        if not self.taken:
            return {"type": "websocket.connect"}
        await anyio.sleep_forever()
        raise AssertionError

    async def send(self, message: Message) -> None:
        if message["type"] == "websocket.send":
            await anyio.sleep(self.seconds)
        self.taken.append(message)

    async def accepted(self) -> WebSocket:
        websocket = WebSocket({"type": "websocket"}, self.receive, self.send)
        await websocket.accept()
        return websocket


async def test_who_is_slow_to_take_what_is_sent_is_not_idle() -> None:
    peer = Peer(seconds=55.0)
    socket = WebSocketSocket(await peer.accepted(), idle_s=20.0)
    begin = anyio.current_time()

    async def send() -> None:
        for _ in range(3):
            await socket.send(b"audio")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        with pytest.raises(Disconnected) as ended:
            await socket.receive()
    assert ended.value.clean
    assert anyio.current_time() - begin == pytest.approx(3 * 55.0 + 20.0, abs=0.1)
    assert [message["type"] for message in peer.taken[1:]] == [
        *["websocket.send"] * 3,
        "websocket.close",
    ]
    assert (peer.taken[-1]["code"], peer.taken[-1]["reason"]) == (
        1008,
        "nothing was sent for 20 s",
    )
