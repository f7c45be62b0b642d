"""The vocoder: batched across streams, each as if alone, never further than its reader has room."""

from __future__ import annotations

import queue
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from omni_speak.models.wren.codec import Codec
from omni_speak.models.wren.config import WrenConfig
from omni_speak.runtime.payload import NO_FRAME, RowOutput
from omni_speak.runtime.request import Frame
from omni_speak.runtime.step_times import StageTimes, StepTime, Stopwatch
from omni_speak.runtime.vocoder import End, Vocoder

SAMPLES = 1920


class Heard:
    """Collects deliveries until every stream has ended."""

    def __init__(self) -> None:
        self.queue: queue.Queue[list[tuple[str, Frame | End]]] = queue.Queue()
        self.failures: queue.Queue[BaseException] = queue.Queue()
        self.items: dict[str, list[Frame | End]] = {}
        self.rounds: list[int] = []

    def take(self) -> list[tuple[str, Frame | End]]:
        batch = self.queue.get(timeout=30)
        self.rounds.append(len({stream for stream, _ in batch}))
        for stream, item in batch:
            self.items.setdefault(stream, []).append(item)
        return batch

    def pcm(self, stream: str) -> np.ndarray:
        return np.concatenate([i.pcm for i in self.items[stream] if isinstance(i, Frame)])


@pytest.fixture(scope="module")
def codec() -> Codec:
    torch.manual_seed(5)
    return Codec(WrenConfig()).eval()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def vocoder(codec: Codec, heard: Heard) -> Iterator[Vocoder]:
    vocoder = Vocoder(
        codec,
        stopwatch=Stopwatch("cpu"),
        times=StageTimes(StepTime(0.004, 0.001, 0.0)),
        samples_per_frame=SAMPLES,
        lead_frames=1000,
        deliver=heard.queue.put,
        on_failure=heard.failures.put,
    )
    yield vocoder
    vocoder.stop()


def random_codes(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 512, (count, 8)).astype(np.uint16)


def row(codes: np.ndarray) -> RowOutput:
    return RowOutput(codes, token=0)


def whole(codec: Codec, codes: np.ndarray) -> np.ndarray:
    pcm, _ = codec.decode(torch.from_numpy(codes.astype(np.int64))[None], codec.initial_state(1))
    return pcm[0].numpy()


def test_D01_streams_decoded_together_equal_each_decoded_whole(
    codec: Codec, vocoder: Vocoder, heard: Heard
) -> None:
    lengths = {"a": 1, "b": 4, "c": 25, "d": 54, "e": 116}
    codes = {s: random_codes(n, n) for s, n in lengths.items()}
    for stream in lengths:
        vocoder.open(stream)
    vocoder.start()
    order, position = random.Random(1), dict.fromkeys(lengths, 0)
    while alive := [s for s in lengths if position[s] < lengths[s]]:
        step = order.sample(alive, order.randint(1, len(alive)))  # streams come and go
        vocoder.push({s: row(codes[s][position[s]]) for s in step})
        for stream in step:
            position[stream] += 1
            if position[stream] == lengths[stream]:
                vocoder.finish(stream, "stop")
    while sum(isinstance(items[-1], End) for items in heard.items.values()) < len(lengths):
        heard.take()
    for stream, length in lengths.items():
        assert heard.items[stream][-1] == End("stop")
        assert heard.pcm(stream).shape == (length * SAMPLES,)
        np.testing.assert_allclose(heard.pcm(stream), whole(codec, codes[stream]), atol=2e-5)
    assert max(heard.rounds) > 1  # really batched
    assert len(vocoder) == 0


def test_an_end_does_not_wait_for_busier_streams(vocoder: Vocoder, heard: Heard) -> None:
    for stream in ("short", "busy"):
        vocoder.open(stream)
    vocoder.push({"short": row(random_codes(1, 0)[0])})
    for codes in random_codes(20, 1):
        vocoder.push({"busy": row(codes)})
    vocoder.finish("short", "stop")
    vocoder.start()
    assert [stream for stream, _ in heard.take()] == ["short", "busy", "short"]
    assert heard.items["short"][-1] == End("stop")


def test_a_dropped_stream_is_heard_no_more(vocoder: Vocoder, heard: Heard) -> None:
    for stream in ("gone", "stays"):
        vocoder.open(stream)
    vocoder.push({"gone": row(random_codes(1, 0)[0]), "stays": row(random_codes(1, 1)[0])})
    vocoder.drop("gone")
    vocoder.push({"gone": row(random_codes(1, 0)[0])})
    vocoder.finish("gone", "stop")
    vocoder.finish("stays", "length")
    vocoder.start()
    while heard.items.get("stays", [None])[-1] != End("length"):
        heard.take()
    assert set(heard.items) == {"stays"}


def test_empty_codes_are_no_frame(vocoder: Vocoder, heard: Heard) -> None:
    vocoder.open("a")
    vocoder.push({"a": NO_FRAME, "unknown": row(random_codes(1, 0)[0])})
    vocoder.finish("a", "stop")
    vocoder.start()
    heard.take()
    assert heard.items == {"a": [End("stop")]}


def test_a_failing_codec_is_reported(codec: Codec, heard: Heard) -> None:
    class Broken:
        def initial_state(self, batch: int) -> list[torch.Tensor]:
            return []

        def decode(self, *args: Any) -> Any:
            raise ValueError("broken")

    vocoder = Vocoder(
        Broken(),
        stopwatch=Stopwatch("cpu"),
        times=StageTimes(StepTime(0.004, 0.001, 0.0)),
        samples_per_frame=SAMPLES,
        lead_frames=1,
        deliver=heard.queue.put,
        on_failure=heard.failures.put,
    )
    vocoder.open("a")
    vocoder.push({"a": row(random_codes(1, 0)[0])})
    vocoder.start()
    assert str(heard.failures.get(timeout=30)) == "broken"
    vocoder.stop()
    vocoder.stop()  # twice is harmless


def test_who_runs_dry_first_is_decoded_first(codec: Codec, heard: Heard) -> None:
    slack = {"relaxed": 1.5, "tight": 0.03, "late": -0.2}
    vocoder = Vocoder(
        codec,
        stopwatch=Stopwatch("cpu"),
        times=StageTimes(StepTime(0.004, 0.001, 0.0)),
        samples_per_frame=SAMPLES,
        lead_frames=10,
        deliver=heard.queue.put,
        on_failure=heard.failures.put,
        slack=slack.__getitem__,
    )
    codes = np.zeros(WrenConfig().codec.codebooks, np.uint16)
    for name in slack:
        vocoder.open(name)
        vocoder.push({name: RowOutput(token=0, codes=codes)})
    assert [name for name, _ in vocoder._due()] == ["late", "tight", "relaxed"]
