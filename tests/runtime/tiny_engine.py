"""A SpeechEngine on the tiny model, and how tests listen to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from omni_speak.runtime.engine import EngineConfig, SpeechEngine
from omni_speak.runtime.request import Frame, SpeechRequest, SpeechResult
from tests.models.tiny import make_tiny


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
