"""SpeechEngine on the tiny model: what a caller is promised."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from omni_speak.runtime.engine import EngineConfig, SpeechEngine
from omni_speak.runtime.errors import (
    EngineDead,
    InvalidRequest,
    ModelNotFound,
    NoAudio,
    NothingToSay,
    Overloaded,
    TextTooLong,
    UnknownVoice,
)
from omni_speak.runtime.request import Frame, SpeechRequest, SpeechResult
from tests.models.tiny import SAMPLES, TinyCodec, make_tiny

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def tiny_engine(
    path: Path, tiny: dict[str, Any] | None = None, **config: Any
) -> AsyncIterator[SpeechEngine]:
    directory = make_tiny(path / "tiny", **(tiny or {}))
    settings = {"max_streams": 8, "max_step_tokens": 64, "kv_cache_mib": 8, **config}
    async with SpeechEngine(EngineConfig(model=str(directory), **settings)) as engine:
        yield engine


async def collect(engine: SpeechEngine, **fields: Any) -> tuple[SpeechResult, list[Frame]]:
    stream = engine.speak(SpeechRequest(**fields))
    frames = [frame async for frame in stream]
    assert stream.result is not None
    return stream.result, frames


def codes(frames: list[Frame]) -> list[list[int]]:
    return [frame.codes.tolist() for frame in frames]


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


async def test_D05_a_model_that_ends_at_frame_0_is_an_error_of_its_own(tmp_path: Path) -> None:
    async with tiny_engine(tmp_path) as engine:
        alone = [codes((await collect(engine, text=f"hi {i}", seed=i))[1]) for i in range(4)]
        *together, mute = await asyncio.gather(
            *(collect(engine, text=f"hi {i}", seed=i) for i in range(4)),
            collect(engine, text="!mute"),
            return_exceptions=True,
        )
        assert isinstance(mute, NoAudio)
        assert [codes(frames) for _, frames in together] == alone
        assert engine.alive


async def test_D07_seeds_are_honoured_and_reported(tmp_path: Path) -> None:
    async with tiny_engine(tmp_path) as engine:
        first, again, other = [
            codes((await collect(engine, text="hello", seed=seed))[1]) for seed in (11, 11, 12)
        ]
        assert first == again != other
        result, frames = await collect(engine, text="hello")
        assert codes((await collect(engine, text="hello", seed=result.seed))[1]) == codes(frames)


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"voice": "nosuchvoice"}, UnknownVoice, "voices: one, two"),
        ({"voice": ""}, UnknownVoice, "voices: one, two"),
        ({"speed": 9.0}, InvalidRequest, "0.5 to 2.0"),
        ({"speed": float("nan")}, InvalidRequest, "0.5 to 2.0"),
        ({"speed": "fast"}, InvalidRequest, "speed must be a number"),
        ({"seed": -1}, InvalidRequest, "seed must be an integer"),
        ({"seed": 1.5}, InvalidRequest, "seed must be an integer"),
        ({"temperature": 3}, InvalidRequest, "0.0 to 2.0"),
        ({"max_frames": 0}, InvalidRequest, "max_frames"),
        ({"text": 5}, InvalidRequest, "text must be a string, got int"),
        ({"text": "x" * (1 << 20)}, TextTooLong, "at most 2000"),
    ],
)
async def test_D08_bad_requests_never_reach_the_engine(
    tmp_path: Path, fields: dict[str, Any], error: type[Exception], words: str
) -> None:
    async with tiny_engine(tmp_path) as engine:
        with pytest.raises(error, match=words):
            engine.speak(SpeechRequest(**{"text": "hello", **fields}))
        assert engine.stats().requests_total == 0
        upper, lower = [
            codes((await collect(engine, text="hello", seed=1, voice=v))[1]) for v in ("TWO", "two")
        ]
        assert upper == lower


async def test_D09_nothing_to_say(tmp_path: Path) -> None:
    async with tiny_engine(tmp_path) as engine:
        for text in ("", "   \t\n"):
            with pytest.raises(NothingToSay):
                await collect(engine, text=text)
        assert engine.stats().requests_total == 0
        assert (await collect(engine, text="hello"))[1]


async def test_D16_random_endings_leave_nothing_behind(tmp_path: Path) -> None:
    async with tiny_engine(tmp_path, {"never_ends": True}) as engine:
        await collect(engine, text="warm")
        before, random_ = await held(engine), random.Random(4)

        async def end_at(count: int, how: str) -> None:
            stream = engine.speak(SpeechRequest(text="x" * random_.randint(1, 150)))
            async for frame in stream:
                if frame.index == count:
                    if how == "cancel":
                        task = asyncio.current_task()
                        assert task is not None
                        task.cancel()
                        await asyncio.Event().wait()
                    break

        tasks = [
            asyncio.create_task(end_at(random_.randrange(30), random_.choice(["break", "cancel"])))
            for _ in range(200)
        ]
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(t.cancelled() or t.exception() is None for t in tasks)
        state = await held(engine)
        assert state == before and state["slots"] == state["codec states"] == 0
        assert (await collect(engine, text="hello"))[0].frames == 40


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


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_D21_each_stream_gets_the_audio_it_would_have_had_alone(
    tmp_path: Path, temperature: float
) -> None:
    async with tiny_engine(tmp_path) as engine:
        asks = [
            {
                "text": "marker " * (i + 1),
                "seed": i,
                "voice": ("one", "two")[i % 2],
                "temperature": temperature,
            }
            for i in range(8)
        ]
        alone = [codes((await collect(engine, **ask))[1]) for ask in asks]

        async def late(delay: int, ask: dict[str, Any]) -> list[list[int]]:
            for _ in range(delay * 5):
                await asyncio.sleep(0)
            return codes((await collect(engine, **ask))[1])

        together = await asyncio.gather(*(late(i, ask) for i, ask in enumerate(asks)))
        assert together == alone and len({str(c) for c in alone}) == 8


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


async def test_overload_is_refused_at_once(tmp_path: Path) -> None:
    async with tiny_engine(tmp_path, {"never_ends": True}, max_requests=1) as engine:
        frames = aiter(engine.speak(SpeechRequest(text="one")))
        await anext(frames)
        with pytest.raises(Overloaded, match="at most 1"):
            engine.speak(SpeechRequest(text="two"))
        await frames.aclose()  # type: ignore[attr-defined]
        assert (await collect(engine, text="two"))[1]


async def test_death_reaches_every_stream(tmp_path: Path) -> None:
    async with tiny_engine(tmp_path, {"break_mtp": "float"}) as engine:
        results = await asyncio.gather(
            *(collect(engine, text=f"hi {i}") for i in range(3)), return_exceptions=True
        )
        assert all(isinstance(r, EngineDead) and "int64" in str(r) for r in results)
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
