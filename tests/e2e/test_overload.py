"""More offered than the machine may take: who is refused is told so, who is not hears it all (D20),
and the metrics tell what happened."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.e2e.conftest import serving

pytestmark = pytest.mark.anyio

PLACES, QUEUE, OFFERED = 4, 4, 32
SENTENCE = "Hello! I am speaking to you, one frame at a time. "


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving({"max_streams": PLACES, "max_queue": QUEUE, "queue_timeout_s": 60.0}) as url:
        yield url


def client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, trust_env=False, timeout=60)


def body(seed: int) -> dict[str, Any]:
    return {"input": SENTENCE, "seed": seed, "response_format": "pcm"}


def samples(answer: httpx.Response) -> NDArray[np.int16]:
    assert answer.status_code == 200
    assert len(answer.content) > 0
    return np.frombuffer(answer.content, np.int16)


async def counted(url: str) -> dict[str, float]:
    async with client(url) as http:
        lines = (await http.get("/metrics")).text.splitlines()
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")
    }


async def test_D20_32_calls_at_once_are_8_whole_answers_and_24_refusals(url: str) -> None:
    before = await counted(url)
    answers: list[tuple[int, httpx.Response]] = []

    async def call(seed: int) -> None:
        async with client(url) as http:
            answers.append((seed, await http.post("/v1/audio/speech", json=body(seed))))

    async with anyio.create_task_group() as tasks:
        for seed in range(OFFERED):
            tasks.start_soon(call, seed)
    assert Counter(answer.status_code for _, answer in answers) == {200: 8, 503: 24}
    # Nobody who is refused waits for somebody who speaks.
    assert [answer.status_code for _, answer in answers[:24]] == [503] * 24
    for _, refused in answers[:24]:
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "overloaded"
    after = await counted(url)
    refusals = "omni_speak_engine_refusals_total"
    assert after[refusals] - before[refusals] == 24
    underruns = "omni_speak_engine_stream_underruns_count"
    assert after[underruns] - before[underruns] == 8
    for seed, answer in answers[24:]:
        async with client(url) as http:
            alone = await http.post("/v1/audio/speech", json=body(seed))
        assert answer.headers["x-seed"] == str(seed)
        # Batched arithmetic may round the last bit of a sample the other way.
        np.testing.assert_allclose(samples(answer), samples(alone), atol=2, rtol=0)


async def test_D20_a_websocket_is_told_when_to_come_back_or_closed_with_1013(url: str) -> None:
    async with anyio.create_task_group() as tasks:
        for seed in range(PLACES + QUEUE):
            tasks.start_soon(hold, url, seed)
        with anyio.fail_after(30):
            while (await counted(url))["omni_speak_engine_waiting"] < QUEUE:
                await anyio.sleep(0.02)
        address = url.replace("http", "ws")
        async with connect(f"{address}/v1/duplex", proxy=None) as socket:
            for message in (
                {"type": "session.open"},
                {"type": "context.open", "context": "a"},
                {"type": "text.append", "context": "a", "text": SENTENCE},
                {"type": "text.end", "context": "a"},
            ):
                await socket.send(json.dumps(message))
            events = [json.loads(await socket.recv()) for _ in range(4)]
            assert [event["type"] for event in events[2:]] == ["error", "context.done"]
            assert (events[2]["code"], events[2]["fatal"]) == ("overloaded", False)
            assert events[2]["retry_after"] >= 1
        async with connect(f"{address}/v1/speak?encoding=linear16", proxy=None) as socket:
            await socket.send(json.dumps({"type": "Speak", "text": SENTENCE}))
            await socket.send(json.dumps({"type": "Flush"}))
            with pytest.raises(ConnectionClosed):
                await listen(socket)
            assert socket.close_code == 1013
        tasks.cancel_scope.cancel()


async def hold(url: str, seed: int) -> None:
    """A place, or a place in the queue, until cancelled: a text whose end does not come."""
    async with connect(f"{url.replace('http', 'ws')}/v1/duplex", proxy=None) as socket:
        for message in (
            {"type": "session.open"},
            {"type": "context.open", "context": "a", "seed": seed},
            {"type": "text.append", "context": "a", "text": SENTENCE},
            {"type": "text.flush", "context": "a"},
        ):
            await socket.send(json.dumps(message))
        await listen(socket)


async def listen(socket: ClientConnection) -> None:
    async for _ in socket:
        pass


PREFIX = "omni_speak_engine_"
MAY_BE_ZERO = {"underruns_total", "stream_underruns_count", "held", "waiting", "refusals_total"}
STAGES = ("forward", "mtp", "vocoder")
NOT_ZERO = {
    *(
        f'{name}{{stage="{stage}"}}'
        for name in ("stage_seconds_total", "time_model_error")
        for stage in STAGES
    ),
    *('lead_seconds{of="least"}', 'lead_seconds{of="mean"}'),
    # No count of a histogram with negative bounds: Prometheus has none.
    *("first_audio_seconds_count", 'frame_lateness_seconds_bucket{le="+Inf"}'),
    *("running", "capacity", "kv_use"),
    *("requests_total", "steps_total", "tokens_total", "frames_total"),
}


async def test_the_metrics_tell_what_the_clock_does(url: str) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold, url, 1)
        missing = NOT_ZERO
        with anyio.move_on_after(30):
            while missing:
                await anyio.sleep(0.02)
                told = await counted(url)
                missing = {name for name in NOT_ZERO if not told.get(PREFIX + name)}
        tasks.cancel_scope.cancel()
    assert missing == set()
    assert {name for name in MAY_BE_ZERO if PREFIX + name not in told} == set()
