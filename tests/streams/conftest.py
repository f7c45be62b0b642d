"""Real servers around the fake engine, on free ports and Unix sockets, in the test's own loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from omni_speak.streams.server import create_app, serve_app
from tests.streams.fake_engine import FakeEngine


@dataclass
class Running:
    url: str
    engine: FakeEngine

    def http(self) -> httpx.AsyncClient:
        if self.url.startswith("unix:"):
            transport = httpx.AsyncHTTPTransport(uds=self.url.removeprefix("unix:"))
            return httpx.AsyncClient(transport=transport, base_url="http://localhost")
        return httpx.AsyncClient(base_url=self.url, trust_env=False)

    @property
    def websocket_url(self) -> str:
        return self.url.replace("http:", "ws:") + "/v1/duplex"


Serving = Callable[..., AbstractAsyncContextManager[Running]]


@asynccontextmanager
async def serving(
    engine: FakeEngine | None = None, *, uds: Path | None = None, **options: Any
) -> AsyncIterator[Running]:
    """A ready server; leaving shuts it down."""
    engine = engine or FakeEngine()
    app = create_app(lambda: engine, **options)
    async with anyio.create_task_group() as tasks:
        listening = anyio.Event()
        urls: list[str] = []

        def on_listening(url: str) -> None:
            urls.append(url)
            listening.set()

        scope = anyio.CancelScope()

        async def run() -> None:
            with scope:
                await serve_app(app, port=0, uds=uds, drain_s=0.1, on_listening=on_listening)

        tasks.start_soon(run)
        with anyio.fail_after(10):
            await listening.wait()
            await app.state.service.ready.wait()
        yield Running(urls[0], engine)
        app.state.service.stop.set()


@pytest.fixture
async def server() -> AsyncIterator[Running]:
    async with serving() as running:
        yield running
