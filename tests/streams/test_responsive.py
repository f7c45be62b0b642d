"""However much audio is encoded at once, the server goes on answering everybody (D18)."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from websockets.asyncio.client import connect

from omni_speak.runtime.request import SpeechRequest
from omni_speak.streams.encoder import (
    OPUS_PACKET_MS,
    EncodedFormat,
    Encoder,
    RawFormat,
    opus_packets,
)
from omni_speak.streams.messages import (
    SERVER_MESSAGE,
    ContextDone,
    ContextOpen,
    SampleRate,
    SessionClose,
    SessionOpen,
    TextAppend,
    TextEnd,
)
from omni_speak.streams.wire import decode
from tests.streams.conftest import Running, serving
from tests.streams.fake_engine import INFO, frame_of

pytestmark = pytest.mark.anyio

FRAMES = 1500  # 120 s
REQUEST = SpeechRequest(text=f"Say #frames={FRAMES}", voice="Ada", seed=3)
WAV_RATES: tuple[SampleRate, ...] = (8000, 16000, 24000, 48000)
WEBSOCKETS: tuple[tuple[RawFormat, SampleRate], ...] = (
    ("pcm_s16le", 48000),
    ("pcm_f32le", 44100),
    ("mulaw", 8000),
    ("opus", 48000),
)
SHORTEST_MS = 20
SAMPLE_BYTES = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1}


@pytest.fixture
def server() -> Iterator[Running]:
    """In a thread of its own, so that its clients answer while it is busy."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serving()) as running,
    ):
        yield running


def audio(format: EncodedFormat, rate: int) -> bytes:
    encoder = Encoder(format, INFO.sample_rate, rate)
    blocks = [encoder.encode(frame_of(REQUEST, index).pcm) for index in range(FRAMES)]
    return b"".join(blocks) + encoder.flush()


def milliseconds(payload: bytes, format: RawFormat, rate: int) -> float:
    if format == "opus":
        return opus_packets(payload) * OPUS_PACKET_MS
    return len(payload) / SAMPLE_BYTES[format] / rate * 1000


async def read_websocket(server: Running, format: RawFormat, rate: SampleRate) -> list[bytes]:
    """The payload of every message. A connection that does not close normally raises."""
    messages = (
        SessionOpen(format=format, sample_rate=rate),
        ContextOpen(context="a", voice=REQUEST.voice, seed=REQUEST.seed, max_lead_ms=None),
        TextAppend(context="a", text=REQUEST.text),
        TextEnd(context="a"),
    )
    payloads = []
    url = server.websocket_url
    async with connect(url, proxy=None, ping_interval=2, ping_timeout=2) as socket:
        for message in messages:
            await socket.send(message.model_dump_json())
        async for data in socket:
            if isinstance(data, bytes):
                payloads.append(decode(data).payload)
                continue
            event = SERVER_MESSAGE.validate_json(data)
            if isinstance(event, ContextDone):
                assert event.complete
                await socket.send(SessionClose().model_dump_json())
    return payloads


async def read_http(server: Running, rate: SampleRate) -> bytes:
    body = {"input": REQUEST.text, "seed": REQUEST.seed, "response_format": "wav"}
    async with server.http() as http:
        response = await http.post("/v1/audio/speech", json=body | {"sample_rate": rate})
    assert response.status_code == 200
    return response.content


async def test_D18_eight_long_streams_leave_the_server_answering(server: Running) -> None:
    wavs: dict[SampleRate, bytes] = {}
    messages: dict[tuple[RawFormat, SampleRate], list[bytes]] = {}
    statuses: list[int] = []

    async def wav(rate: SampleRate) -> None:
        wavs[rate] = await read_http(server, rate)

    async def websocket(format: RawFormat, rate: SampleRate) -> None:
        messages[format, rate] = await read_websocket(server, format, rate)

    async def probe() -> None:
        async with server.http() as http:
            while True:
                statuses.append((await http.get("/healthz")).status_code)
                await anyio.sleep(0.05)

    async with anyio.create_task_group() as probing:
        probing.start_soon(probe)
        async with anyio.create_task_group() as streams:
            for rate in WAV_RATES:
                streams.start_soon(wav, rate)
            for format, rate in WEBSOCKETS:
                streams.start_soon(websocket, format, rate)
        probing.cancel_scope.cancel()

    assert set(statuses) == {200}
    for rate, content in wavs.items():
        assert content == audio("wav", rate), rate
    for (format, rate), payloads in messages.items():
        assert b"".join(payloads) == audio(format, rate), (format, rate)
        shortest = min(milliseconds(payload, format, rate) for payload in payloads[:-1])
        assert shortest >= SHORTEST_MS, (format, rate)
