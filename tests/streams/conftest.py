"""Real servers around the fake engine, on free ports and Unix sockets, in the test's own loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from websockets.asyncio.client import connect

from omni_speak.runtime.request import SpeechRequest
from omni_speak.streams.messages import (
    SERVER_MESSAGE,
    AudioFormat,
    ContextDone,
    ContextOpen,
    ErrorEvent,
    SampleRate,
    SessionOpen,
    TextAppend,
    TextEnd,
)
from omni_speak.streams.server import serve
from omni_speak.streams.wire import decode
from tests.streams.fake_engine import FakeEngine


@dataclass
class Running:
    url: str
    engine: FakeEngine
    stop: anyio.Event

    def http(self) -> httpx.AsyncClient:
        if self.url.startswith("unix:"):
            transport = httpx.AsyncHTTPTransport(uds=self.url.removeprefix("unix:"))
            return httpx.AsyncClient(transport=transport, base_url="http://localhost")
        return httpx.AsyncClient(base_url=self.url, trust_env=False)

    @property
    def websocket_url(self) -> str:
        return self.url.replace("http:", "ws:") + "/v1/duplex"


@asynccontextmanager
async def serving(
    engine: FakeEngine | None = None, *, uds: Path | None = None, **options: Any
) -> AsyncIterator[Running]:
    """A ready server; leaving shuts it down."""
    engine = engine or FakeEngine()
    ready, stop = anyio.Event(), anyio.Event()
    urls: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            partial(
                serve,
                lambda: engine,
                port=0,
                uds=uds,
                drain_s=0.1,
                on_listening=urls.append,
                on_ready=ready.set,
                stop=stop,
                **options,
            )
        )
        with anyio.fail_after(10):
            await ready.wait()
        try:
            yield Running(urls[0], engine, stop)
        finally:
            stop.set()


@pytest.fixture
async def server() -> AsyncIterator[Running]:
    async with serving() as running:
        yield running


async def native_audio(
    server: Running,
    request: SpeechRequest,
    format: AudioFormat = "pcm_s16le",
    rate: SampleRate = 24_000,
) -> bytes:
    """What our own protocol says, bytes of `format`, when asked for the same."""
    messages = (
        SessionOpen(format=format, sample_rate=rate),
        ContextOpen(
            context="a",
            voice=request.voice,
            speed=request.speed,
            seed=request.seed,
            max_lead_ms=None,
        ),
        TextAppend(context="a", text=request.text),
        TextEnd(context="a"),
    )
    audio = b""
    async with connect(server.websocket_url, proxy=None) as socket:
        for message in messages:
            await socket.send(message.model_dump_json())
        with anyio.fail_after(10):
            async for data in socket:
                if isinstance(data, bytes):
                    audio += decode(data).payload
                    continue
                event = SERVER_MESSAGE.validate_json(data)
                assert not isinstance(event, ErrorEvent), event
                if isinstance(event, ContextDone):
                    break
    return audio
