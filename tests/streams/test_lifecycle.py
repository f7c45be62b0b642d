"""Starting, becoming ready, idling out, and shutting down."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Self

import anyio
import httpx
import pytest

from omni_speak.runtime.errors import InvalidRequest, ModelNotFound
from omni_speak.streams.client import ConnectionLost, DuplexClient, ServerError
from omni_speak.streams.server import engine_factory, serve
from omni_speak.streams.service import WARM_UP_STREAMS
from tests.streams.conftest import Running, serving
from tests.streams.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


class SlowEngine(FakeEngine):
    """Starts once `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = anyio.Event()

    async def __aenter__(self) -> Self:
        await self.go.wait()
        return await super().__aenter__()


async def test_D23_alive_while_starting_ready_after_the_warm_up() -> None:
    engine, stop, ready, listening = SlowEngine(), anyio.Event(), anyio.Event(), anyio.Event()
    urls: list[str] = []

    def on_listening(url: str) -> None:
        urls.append(url)
        listening.set()

    async with anyio.create_task_group() as tasks:
        start = partial(
            serve,
            lambda: engine,
            port=0,
            on_listening=on_listening,
            on_ready=ready.set,
            stop=stop,
        )
        tasks.start_soon(start)
        await listening.wait()
        async with httpx.AsyncClient(base_url=urls[0], trust_env=False) as http:
            assert (await http.get("/healthz")).status_code == 200
            unready = await http.get("/readyz")
            assert (unready.status_code, unready.json()["reason"]) == (
                503,
                "the engine is starting",
            )
            refused = await http.post("/v1/audio/speech", json={"input": "Hello."})
            assert refused.status_code == 503
            assert refused.headers["retry-after"]
            with pytest.raises(ServerError, match="starting"):
                async with DuplexClient(urls[0]):
                    pass
            engine.go.set()
            await ready.wait()
            assert (await http.get("/readyz")).status_code == 200
            assert engine.requests == sum(WARM_UP_STREAMS)
            engine.alive = False
            dead = await http.get("/readyz")
            assert (dead.status_code, dead.json()["reason"]) == (503, "the engine died")
            assert (await http.get("/healthz")).status_code == 200
        stop.set()


async def test_an_engine_that_cannot_start_ends_the_server_with_its_error() -> None:
    def factory() -> FakeEngine:
        raise ModelNotFound("no file talker.safetensors in /models/x", param="model")

    with pytest.raises(ModelNotFound, match=r"talker\.safetensors"), anyio.fail_after(5):
        await serve(factory, port=0)


async def test_a_taken_address_is_an_os_error(server: Running) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    with pytest.raises(OSError, match="in use"):
        await serve(FakeEngine, port=port)


async def test_a_socket_left_by_a_killed_server_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(os.fspath(path))
    assert path.is_socket()
    async with serving(uds=path) as server, DuplexClient(server.url):
        with pytest.raises(OSError, match="in use"):
            await serve(FakeEngine, uds=path)
        assert path.is_socket(), "a living server's socket is not replaced"


async def test_a_file_in_the_place_of_a_socket_is_left_alone(tmp_path: Path) -> None:
    (path := tmp_path / "s.sock").write_text("mine")
    with pytest.raises(OSError, match="in use"):
        await serve(FakeEngine, uds=path)
    assert path.read_text() == "mine"


async def test_a_client_that_answers_no_ping_is_given_up() -> None:
    async with serving(send_timeout=0.3) as server:
        host, port = server.url.removeprefix("http://").split(":")
        async with await anyio.connect_tcp(host, int(port)) as mute:
            await mute.send(
                b"GET /v1/duplex HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\n"
                b"upgrade: websocket\r\nsec-websocket-version: 13\r\n"
                b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            with anyio.fail_after(10), suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    await mute.receive()


async def test_it_ends_itself_when_idle_but_not_before(tmp_path: Path) -> None:
    stopped = anyio.Event()

    class Noticed(FakeEngine):
        async def __aexit__(self, *_: object) -> None:
            stopped.set()

    async with serving(Noticed(), uds=tmp_path / "s.sock", idle_timeout_s=0.3) as server:
        async with DuplexClient(server.url):
            with anyio.move_on_after(0.6):
                await stopped.wait()
            assert not stopped.is_set(), "a connection is not idleness"
        with anyio.fail_after(5):
            await stopped.wait()
    assert not (tmp_path / "s.sock").exists()


SERVE = """
import anyio, sys
from functools import partial
from omni_speak.streams.server import engine_factory, serve
from tests.streams.fake_engine import FakeEngine

anyio.run(partial(
    serve, FakeEngine, port=0, drain_s=float(sys.argv[1]),
    on_listening=lambda url: print(url, flush=True), on_ready=lambda: print("ready", flush=True),
))
"""


@contextmanager
def server_process(drain_s: float) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(drain_s)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert process.stdout.readline().strip() == "ready"
        yield process, url
    finally:
        process.kill()
        process.communicate()


async def ended(process: subprocess.Popen[str]) -> int:
    with anyio.fail_after(10):
        return await anyio.to_thread.run_sync(process.wait, abandon_on_cancel=True)


async def exhaust(items: AsyncIterator[object]) -> None:
    async for _ in items:
        pass


async def until_draining(url: str) -> None:
    """Until the listener is closed, which is the first thing a drain does."""
    with anyio.fail_after(5):
        while True:
            try:
                async with DuplexClient(url):
                    pass
            except ConnectionLost:
                return
            except ServerError:
                continue


async def test_D22_sigterm_lets_live_streams_finish() -> None:
    with server_process(drain_s=10) as (process, url):
        async with DuplexClient(url) as client:
            speech = client.speak("#frames=400")
            frames = speech.__aiter__()
            await anext(frames)
            process.send_signal(signal.SIGTERM)
            rest = [frame async for frame in frames]
        assert len(rest) == 399
        assert speech.result is not None
        assert speech.result.complete
        assert await ended(process) == 0


async def test_D22_sigterm_ends_endless_streams_at_the_limit_with_a_reason() -> None:
    with server_process(drain_s=0.3) as (process, url):
        async with (
            DuplexClient(url) as client,
            httpx.AsyncClient(base_url=url, trust_env=False) as http,
            http.stream("POST", "/v1/audio/speech", json={"input": "#endless"}) as response,
        ):
            blocks = response.aiter_raw()
            await anext(blocks)
            speech = client.speak("#endless")
            frames = speech.__aiter__()
            await anext(frames)
            process.send_signal(signal.SIGTERM)
            with pytest.raises(ConnectionLost, match="shut down"):
                await exhaust(frames)
            assert speech.result is not None
            assert speech.result.reason == "shutdown"
            with pytest.raises(httpx.RemoteProtocolError):
                await exhaust(blocks)
            with pytest.raises(ConnectionLost):
                async with DuplexClient(url):
                    pass
        assert await ended(process) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


async def test_D22_an_idle_connection_does_not_hold_up_the_end() -> None:
    with server_process(drain_s=10) as (process, url):
        async with DuplexClient(url):
            process.send_signal(signal.SIGINT)
            assert await ended(process) == 0


async def test_D22_a_second_signal_ends_it_at_once() -> None:
    with server_process(drain_s=60) as (process, url):
        async with DuplexClient(url) as client:
            frames = client.speak("#endless").__aiter__()
            await anext(frames)
            process.send_signal(signal.SIGTERM)
            await until_draining(url)
            process.send_signal(signal.SIGINT)
            assert await ended(process) == 128 + signal.SIGINT


def test_a_server_s_engine_that_cannot_be_is_bad_input() -> None:
    with pytest.raises(InvalidRequest, match="must be at least max_streams"):
        engine_factory(max_streams=9999)()
    with pytest.raises(InvalidRequest, match=r"max_queue: .* greater than or equal to 0"):
        engine_factory(max_queue=-1)()
