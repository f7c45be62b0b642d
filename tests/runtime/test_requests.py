"""What any request is promised, on one shared engine (vLLM allows one at a time per process)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from omni_speak.runtime.engine import SpeechEngine
from omni_speak.runtime.errors import (
    InvalidRequest,
    NoAudio,
    NothingToSay,
    TextTooLong,
    UnknownVoice,
)
from omni_speak.runtime.request import SpeechRequest
from tests.runtime.tiny_engine import codes, collect, tiny_engine

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SpeechEngine]:
    """The engine of the tests that leave it as they found it."""
    async with tiny_engine(tmp_path_factory.mktemp("shared")) as engine:
        yield engine


async def test_D05_a_model_that_ends_at_frame_0_is_an_error_of_its_own(
    engine: SpeechEngine,
) -> None:
    alone = [codes((await collect(engine, text=f"hi {i}", seed=i))[1]) for i in range(4)]
    *together, mute = await asyncio.gather(
        *(collect(engine, text=f"hi {i}", seed=i) for i in range(4)),
        collect(engine, text="!mute"),
        return_exceptions=True,
    )
    assert isinstance(mute, NoAudio)
    assert [codes(frames) for _, frames in together] == alone
    assert engine.alive


async def test_D07_seeds_are_honoured_and_reported(engine: SpeechEngine) -> None:
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
        ({"normalise": 1}, InvalidRequest, "normalise must be true or false"),
        ({"voice": ""}, UnknownVoice, "voices: one, two"),
        ({"speed": 9.0}, InvalidRequest, "0.5 to 2.0"),
        ({"speed": float("nan")}, InvalidRequest, "0.5 to 2.0"),
        ({"speed": "fast"}, InvalidRequest, "speed must be a number"),
        ({"seed": -1}, InvalidRequest, "seed must be an integer"),
        ({"seed": 1.5}, InvalidRequest, "seed must be an integer"),
        ({"temperature": 3}, InvalidRequest, "0.0 to 2.0"),
        ({"max_frames": 0}, InvalidRequest, "max_frames"),
        ({"text": 5}, InvalidRequest, "text must be a string, got int"),
        ({"text": "x" * (1 << 20)}, TextTooLong, "at most 10000"),
    ],
)
async def test_D08_bad_requests_never_reach_the_engine(
    engine: SpeechEngine, fields: dict[str, Any], error: type[Exception], words: str
) -> None:
    before = engine.stats().requests_total
    with pytest.raises(error, match=words):
        engine.speak(SpeechRequest(**{"text": "hello", **fields}))
    assert engine.stats().requests_total == before


async def test_D08_a_voices_name_is_matched_in_any_letter_case(engine: SpeechEngine) -> None:
    upper, lower = [
        codes((await collect(engine, text="hello", seed=1, voice=v))[1]) for v in ("TWO", "two")
    ]
    assert upper == lower


async def test_D09_nothing_to_say(engine: SpeechEngine) -> None:
    before = engine.stats().requests_total
    for text in ("", "   \t\n"):
        with pytest.raises(NothingToSay):
            await collect(engine, text=text)
    assert engine.stats().requests_total == before
    assert (await collect(engine, text="hello"))[1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_D21_each_stream_gets_the_audio_it_would_have_had_alone(
    engine: SpeechEngine, temperature: float
) -> None:
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
