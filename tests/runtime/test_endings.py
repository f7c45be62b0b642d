"""However a stream ends, nothing of it stays (D16)."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import anyio
import anyio.lowlevel
import numpy as np
import psutil
import pytest

from omni_speak.runtime.engine import SpeechEngine
from omni_speak.runtime.request import SpeechRequest
from tests.runtime.tiny_engine import codes, collect, tiny_engine

pytestmark = pytest.mark.anyio
ENDINGS = 200
ABORTS = 1000
ABORT_BYTES = 2048
"""What one may leave in the process's memory."""


async def end_somehow(engine: SpeechEngine, dice: random.Random, seed: int) -> None:
    """Speak, and stop: before the first frame, in mid-stream, by closing the iterator, by
    cancelling the task, with the text still open, or at the end."""
    stream = engine.speak(
        SpeechRequest("words " * dice.randint(1, 40), seed=seed, max_frames=dice.randint(1, 30))
    )
    wanted, cancels = dice.randint(0, 12), dice.random() < 0.5
    with anyio.CancelScope() as scope:
        if cancels and wanted == 0:
            scope.cancel()
        frames = aiter(stream)
        try:
            for _ in range(wanted):
                if await anext(frames, None) is None:
                    break
            if cancels:
                scope.cancel()
                await anyio.lowlevel.checkpoint()
        finally:
            await frames.aclose()  # type: ignore[attr-defined]


async def settled(engine: SpeechEngine) -> None:
    """Until the engine thread has done what the loop asked for: the next request is behind it."""
    await collect(engine, text="settle", max_frames=1)


async def test_D16_200_random_endings_leave_nothing_behind(tmp_path: Path) -> None:
    dice = random.Random(16)
    async with tiny_engine(tmp_path, {"never_ends": True}) as engine:
        _, before = await collect(engine, text="the same as ever", seed=5, max_frames=8)
        pool = engine._core.scheduler.kv_cache_manager.block_pool
        free = pool.get_num_free_blocks()
        for first in range(0, ENDINGS, 8):
            async with anyio.create_task_group() as tasks:
                for seed in range(first, first + 8):
                    tasks.start_soon(end_somehow, engine, dice, seed)
        await settled(engine)
        _, after = await collect(engine, text="the same as ever", seed=5, max_frames=8)
        await settled(engine)
        runner, stats = engine._runner, engine.stats()
        assert codes(after) == codes(before)
        assert (stats.running, stats.waiting, stats.held, stats.kv_use) == (0, 0, 0, 0.0)
        assert pool.get_num_free_blocks() == free
        assert not engine._streams and len(engine._vocoder) == 0
        # The runner hears of the last end at the next step; of all others it has heard.
        assert len(runner.frames) <= 1 and len(runner.model_intermediate_buffer) <= 1
        with anyio.fail_after(10):
            while runner._unforgotten:  # that step may be under way
                await anyio.sleep(0.01)
        assert not runner._failed
        assert len(runner.builder._ended) <= 1
        assert len(engine._clock) == 0


async def abort(engine: SpeechEngine, seed: int) -> None:
    frames = aiter(engine.speak(SpeechRequest("abort", seed=seed)))
    for _ in range(1 + seed % 3):
        await anext(frames)
    await frames.aclose()  # type: ignore[attr-defined]


async def test_D16_memory_is_flat_over_1000_aborts(tmp_path: Path) -> None:
    """By how much it grows with most hundreds of them: allocators take more now and then."""
    resident = []
    async with tiny_engine(tmp_path, {"never_ends": True}) as engine:
        for _ in range(ABORTS // 100):
            for first in range(0, 100, 5):
                async with anyio.create_task_group() as tasks:
                    for seed in range(first, first + 5):
                        tasks.start_soon(abort, engine, seed)
            await settled(engine)
            gc.collect()
            resident.append(psutil.Process().memory_info().rss)
    grown = np.diff(resident)
    assert np.median(grown) < 100 * ABORT_BYTES, grown
