"""Interrupts at any moment and readers of every kind, with the real engine and real sockets.

The server has two places: who speaks a third text waits for one.
"""

from __future__ import annotations

import json
import random
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect

from omni_speak.streams.client import DuplexClient
from omni_speak.streams.wire import WireFrame, decode
from tests.e2e.conftest import serving

pytestmark = pytest.mark.anyio

SENTENCE = "Hello! I am speaking to you, one frame at a time. "
LONG = SENTENCE * 12


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving({"max_streams": 2, "queue_timeout_s": 60.0}, send_timeout=10.0) as url:
        yield url


@asynccontextmanager
async def session(
    url: str, opened: dict[str, Any], context: dict[str, Any]
) -> AsyncIterator[ClientConnection]:
    """A session whose socket takes little that its reader has not taken."""
    host, port = url.removeprefix("http://").split(":")
    plug = socket.socket()
    plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    plug.connect((host, int(port)))
    path = f"ws://{host}:{port}/v1/duplex"
    async with connect(path, sock=plug, compression=None, max_queue=2, ping_interval=None) as it:
        await tell(it, type="session.open", **opened)
        await tell(it, type="context.open", context="a", seed=5, **context)
        yield it


async def tell(socket: ClientConnection, **message: Any) -> None:
    await socket.send(json.dumps(message))


async def hear(socket: ClientConnection) -> dict[str, Any] | WireFrame:
    data = await socket.recv()
    return decode(data) if isinstance(data, bytes) else json.loads(data)


async def audio(socket: ClientConnection, sample_bytes: int, pace: float = 0.0) -> bytes:
    """All of it, without a gap, up to the context's end; at most one message in `pace` seconds."""
    payload = b""
    while True:
        event = await hear(socket)
        if isinstance(event, WireFrame):
            assert event.pts * sample_bytes == len(payload)
            payload += event.payload
            await anyio.sleep(pace)
        elif event["type"] == "context.done":
            assert event["complete"], event
            assert event["samples"] * sample_bytes == len(payload)
            return payload


async def interrupt_often(url: str, dice: random.Random, times: int) -> None:
    """At once, a little later, or after some frames: queued, in prefill, before the first packet,
    with frames in flight. Nothing of an epoch comes after the answer to its interrupt, and every
    answer divides the whole text."""
    async with session(url, {}, {}) as socket:
        for epoch in range(times):
            await tell(socket, type="text.append", context="a", text=SENTENCE)
            await tell(socket, type="text.flush", context="a")
            frames = dice.choice((None, 0, 0, 1, 3, dice.randrange(12)))
            if frames == 0:
                await anyio.sleep(dice.random() * 0.1)
            while frames:
                event = await hear(socket)
                if isinstance(event, WireFrame):
                    assert event.epoch == epoch
                    frames -= 1
            await tell(socket, type="interrupt", context="a")
            while isinstance(event := await hear(socket), WireFrame) or (
                event["type"] != "context.interrupted"
            ):
                assert not isinstance(event, WireFrame) or event.epoch == epoch
            assert event["epoch"] == epoch + 1
            assert event["text_spoken"] + event["text_remaining"] == SENTENCE
        await tell(socket, type="text.append", context="a", text="The end.")
        await tell(socket, type="text.end", context="a")
        last = [await hear(socket)]
        while isinstance(last[-1], WireFrame) or last[-1]["type"] != "context.done":
            last.append(await hear(socket))
        assert last[-1]["reason"] == "stop"
        assert {event.epoch for event in last if isinstance(event, WireFrame)} == {times}


async def test_D15_200_interrupts_at_any_moment(url: str) -> None:
    async with anyio.create_task_group() as tasks:
        for seed in range(4):
            tasks.start_soon(interrupt_often, url, random.Random(seed), 50)
    await nothing_is_left(url)


async def nothing_is_left(url: str) -> None:
    names = ("omni_speak_sessions 0.0", "omni_speak_engine_running 0.0")
    with anyio.fail_after(60):
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as http:
            told = ""
            while not all(name in told for name in names):
                await anyio.sleep(0.1)
                told = (await http.get("/metrics")).text


async def test_D17_who_stops_reading_holds_its_own_stream_and_misses_nothing(url: str) -> None:
    opened: dict[str, Any] = {"format": "pcm_f32le", "sample_rate": 48000}
    async with session(url, opened, {"max_lead_ms": None}) as socket:
        await tell(socket, type="text.append", context="a", text=LONG)
        await tell(socket, type="text.end", context="a")
        async with DuplexClient(url) as client:
            # The other is given up after ten seconds only.
            frames = [frame async for frame in client.speak("All is well.")]
        assert frames
        assert await audio(socket, sample_bytes=4)


async def test_D17_a_dead_reader_is_reaped(url: str) -> None:
    opened: dict[str, Any] = {"format": "pcm_f32le", "sample_rate": 48000}
    async with session(url, opened, {"max_lead_ms": None}) as socket:
        await tell(socket, type="text.append", context="a", text=LONG)
        await nothing_is_left(url)
        socket.transport.abort()


async def test_D17_a_reader_of_30_kb_a_second_is_kept_and_served(url: str) -> None:
    """Speech at 48 kB a second, read in 3,840 bytes each 128 ms."""
    async with session(url, {}, {"max_lead_ms": None}) as socket:
        await tell(socket, type="text.append", context="a", text=SENTENCE * 2)
        await tell(socket, type="text.end", context="a")
        slow = await audio(socket, sample_bytes=2, pace=0.128)
    async with DuplexClient(url) as client:
        whole = [frame.pcm.tobytes() async for frame in client.speak(SENTENCE * 2, seed=5)]
    assert slow == b"".join(whole)
