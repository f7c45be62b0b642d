"""SpeechEngine on the tiny model: what a caller is promised."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest
import torch

from omni_speak.runtime.engine import EngineConfig, SpeechEngine
from omni_speak.runtime.errors import EngineDead, ModelNotFound, Overloaded
from omni_speak.runtime.frame_clock import FrameClock
from omni_speak.runtime.request import SpeechRequest, SpeechResult
from tests.models.tiny import SAMPLES, TinyCodec
from tests.runtime.tiny_engine import codes, collect, tiny_engine

pytestmark = pytest.mark.anyio


async def held(engine: SpeechEngine) -> dict[str, int]:
    """What the engine holds once it has nothing left to do, asked on its own thread."""
    while True:
        answer: asyncio.Future[dict[str, int] | None] = asyncio.get_running_loop().create_future()

        def ask(answer: asyncio.Future[dict[str, int] | None] = answer) -> None:
            core = engine._core.scheduler
            state = {
                "slots": len(engine._runner.frames),
                "buffers": len(engine._runner.model_intermediate_buffer),
                "requests": len(engine._runner.requests),
                "codec states": len(engine._vocoder),
                "clock": len(engine._clock),
                "free blocks": core.kv_cache_manager.block_pool.get_num_free_blocks(),
            }
            result = None if core.has_requests() else state
            engine._loop.call_soon_threadsafe(answer.set_result, result)

        engine._inbox.put(ask)
        if (state := await answer) is not None:
            return state


async def test_D04_exactly_once_frames_and_one_end(tmp_path: Path) -> None:
    async with tiny_engine(tmp_path, {"never_ends": True}) as engine:
        for count in (1, 4, 25, 50, 54, 79):
            result, frames = await collect(engine, text="hello", seed=3, max_frames=count)
            assert result == SpeechResult("length", count, 3)
            assert [f.index for f in frames] == list(range(count))
            assert [f.pts for f in frames] == [i * SAMPLES for i in range(count)]
            assert all(f.pcm.shape == (SAMPLES,) and f.pcm.dtype == np.float32 for f in frames)
            codec = TinyCodec()
            whole, _ = codec.decode(torch.tensor([codes(frames)]), codec.initial_state(1))
            np.testing.assert_array_equal(np.concatenate([f.pcm for f in frames]), whole[0])


async def test_a_first_frame_that_waits_goes_with_the_second_or_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FrameClock, "opening", lambda clock, stream: 1e6)
    async with tiny_engine(tmp_path, {"never_ends": True}) as engine:
        for count in (1, 2, 30):
            result, frames = await collect(engine, text="hello", seed=3, max_frames=count)
            assert result == SpeechResult("length", count, 3)
            assert [f.index for f in frames] == list(range(count))


async def test_D06_a_model_that_never_ends_spends_its_budget_and_says_so(tmp_path: Path) -> None:
    async with tiny_engine(tmp_path, {"never_ends": True}) as engine:
        before = await held(engine)
        for result, frames in await asyncio.gather(
            *(collect(engine, text=f"on and on {i}", seed=i) for i in range(4))
        ):
            # What the front end gave the text, far under what the model could.
            budget = engine._front.prepare(SpeechRequest("on and on")).max_frames
            assert result == SpeechResult("length", budget, result.seed)
            assert len(frames) == budget < engine._runner.max_model_len
        assert await held(engine) == before


async def test_a_cancelled_request_is_in_no_later_step(tmp_path: Path) -> None:
    async with tiny_engine(tmp_path, {"never_ends": True}) as engine:
        go, steps = threading.Event(), []
        step_fn, schedule = engine._core.step_fn, engine._core.scheduler.schedule

        def recorded(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            steps.append(set(output.num_scheduled_tokens))
            return output

        def gated() -> Any:  # the engine stands after its third step until told to go on
            result = step_fn()
            if len(steps) == 3:
                engine._runner.collect_build()
                go.wait(10)
            return result

        engine._core.scheduler.schedule, engine._core.step_fn = recorded, gated
        stream = engine.speak(SpeechRequest("cancel me"))
        frames = aiter(stream)
        async for frame in frames:
            if frame.index == 2:
                break
        await frames.aclose()  # type: ignore[attr-defined]  # else the loop does, turns later
        go.set()
        await held(engine)
        assert steps[:3] == [{stream.request_id}] * 3
        assert not any(steps[3:])


async def test_cancelling_before_the_first_frame(tmp_path: Path) -> None:
    async with tiny_engine(tmp_path, {"never_ends": True}) as engine:
        before = await held(engine)
        for _ in range(5):
            task = asyncio.create_task(collect(engine, text="x" * 150))
            while not engine.stats().waiting and not engine.stats().running:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await held(engine) == before


async def test_a_request_that_ends_before_the_engine_saw_it_leaves_nothing(tmp_path: Path) -> None:
    async with tiny_engine(tmp_path) as engine:
        before, go = await held(engine), threading.Event()

        def busy() -> None:
            go.wait()

        engine._inbox.put(busy)
        task = asyncio.create_task(collect(engine, text="hello"))
        while not engine._streams:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        assert await held(engine) == before


async def test_a_held_stream_keeps_its_kv_costs_no_step_and_comes_back(tmp_path: Path) -> None:
    """Its listener has heard nothing: five frames are the 400 ms it may be ahead."""
    ask: dict[str, Any] = {"text": "hold me", "seed": 1, "max_frames": 40, "max_lead_ms": 400}
    async with tiny_engine(tmp_path, {"never_ends": True}) as engine:
        alone = codes((await collect(engine, **(ask | {"max_lead_ms": None})))[1])
        schedule, steps = engine._core.scheduler.schedule, []

        def recorded(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            steps.append(set(output.num_scheduled_tokens))
            return output

        engine._core.scheduler.schedule = recorded
        stream = engine.speak(SpeechRequest(**ask))
        frames = aiter(stream)
        first = await anext(frames)
        stream.played(0)
        heard = [first, *[await anext(frames) for _ in range(4)]]
        async with asyncio.timeout(30):
            while not engine.stats().held:
                await asyncio.sleep(0)
        blocks = engine._core.scheduler.kv_cache_manager.get_block_ids(stream.request_id)
        made, kept = engine._clock._streams[stream.request_id].generated, len(steps)
        result, _ = await collect(engine, text="another", seed=2, max_frames=40)
        assert result.frames == 40 and engine.stats().held == 1
        assert not any(stream.request_id in step for step in steps[kept:])
        assert engine._clock._streams[stream.request_id].generated == made
        assert engine._core.scheduler.kv_cache_manager.get_block_ids(stream.request_id) == blocks
        stream.played(40 * SAMPLES)
        heard += [frame async for frame in frames]
        assert codes(heard) == alone


async def test_D17_a_reader_that_stops_is_decoded_no_further(tmp_path: Path) -> None:
    async with tiny_engine(tmp_path, {"never_ends": True}, lead_frames=5) as engine:
        stalled = engine.speak(SpeechRequest(text="slow", seed=1, max_frames=40))
        frames = aiter(stalled)
        await anext(frames)
        result, _ = await collect(engine, text="quick", max_frames=40)
        assert result.frames == 40
        assert engine._vocoder._streams[stalled.request_id].decoded <= 1 + 5
        rest = [frame async for frame in frames]
        assert [f.index for f in rest] == list(range(1, 40))  # nothing was lost


async def test_a_held_stream_goes_on_when_its_listener_says_so(tmp_path: Path) -> None:
    async with tiny_engine(tmp_path, {"never_ends": True}) as engine:
        stream = engine.speak(SpeechRequest(text="hello", max_frames=65, max_lead_ms=800))
        async for frame in stream:
            if frame.index == 0:
                stream.played(0)
            elif frame.index % 10 == 9:
                while not engine.stats().held:
                    await anyio.lowlevel.checkpoint()
                stream.played(frame.pts + SAMPLES)
        assert stream.result == SpeechResult("length", 65, stream.seed)


async def test_overload_is_refused_at_once(tmp_path: Path) -> None:
    async with tiny_engine(tmp_path, {"never_ends": True}, max_streams=1, max_queue=0) as engine:
        frames = aiter(engine.speak(SpeechRequest(text="one")))
        await anext(frames)
        with pytest.raises(Overloaded, match="1 streams run"):
            engine.speak(SpeechRequest(text="two"))
        await frames.aclose()  # type: ignore[attr-defined]
        assert (await collect(engine, text="two"))[1]


async def test_death_reaches_every_stream(tmp_path: Path) -> None:
    async with tiny_engine(tmp_path) as engine:

        def broken(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("the device is gone")

        engine._runner.sampler.forward = broken  # nobody's request, no model's hook
        results = await asyncio.gather(
            *(collect(engine, text=f"hi {i}") for i in range(3)), return_exceptions=True
        )
        assert all(isinstance(r, EngineDead) and "device is gone" in str(r) for r in results)
        assert not engine.alive
        with pytest.raises(EngineDead):
            engine.speak(SpeechRequest(text="hello"))


async def test_a_failing_codec_kills_the_engine_loudly(tmp_path: Path) -> None:
    async with tiny_engine(tmp_path) as engine:

        def broken(*args: Any) -> Any:
            raise ValueError("broken codec")

        engine._vocoder._codec.decode = broken  # type: ignore[method-assign]
        with pytest.raises(EngineDead, match="broken codec"):
            await collect(engine, text="hello")
        assert not engine.alive


async def test_closing_ends_running_streams(tmp_path: Path) -> None:
    async with tiny_engine(tmp_path, {"never_ends": True}, lead_frames=2) as engine:
        frames = aiter(engine.speak(SpeechRequest(text="hello")))
        await anext(frames)
    with pytest.raises(EngineDead):
        async for _ in frames:
            pass
    with pytest.raises(EngineDead):
        engine.speak(SpeechRequest(text="hello"))


async def test_D25_a_missing_model_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"config\.json does not exist"):
        async with SpeechEngine(EngineConfig(model=str(tmp_path / "nowhere"))):
            pass
