"""Four streams speak, then three prompts of 8,000 tokens arrive: does anybody run dry?

On the tests' tiny talker, whose prompt is its text, because Wren's prompt is one token. Readers
play in real time; the frame clock and vLLM's own order, one after the other in processes of their
own. `scripts/setup --dev python scripts/bench_prefill.py`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import anyio
import typer

from omni_speak.runtime.engine import EngineConfig, SpeechEngine
from omni_speak.runtime.request import SpeechRequest

STREAMS, PROMPTS, PROMPT_TOKENS = 4, 3, 8000
FRAMES, NEWCOMER_FRAMES, LEAD_S = 200, 25, 3.0


async def play(engine: SpeechEngine, text: str, frames: int, first: list[float]) -> int:
    """Play a stream in real time; its underruns."""
    period, start = 1 / engine.info.frame_rate, time.perf_counter()
    until, underruns = 0.0, 0
    request = SpeechRequest(text, max_frames=frames, max_lead_ms=1000)
    async for frame in engine.speak(request):
        now = time.perf_counter()
        if frame.index == 0:
            first.append(now - start)
            until = now
        elif now > until:
            underruns += 1
            until = now
        until += period
    return underruns


async def measure(ordering: str) -> None:
    # Only development has the tests' models on its path.
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.models.tiny import make_tiny

    underruns = 0
    first: list[float] = []
    newcomers: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        model = make_tiny(Path(directory) / "tiny", never_ends=True, max_len=PROMPT_TOKENS + 256)
        config = EngineConfig(
            model=str(model),
            max_streams=16,
            max_step_tokens=8192,
            kv_cache_mib=256,
            ordering=ordering,  # type: ignore[arg-type]
        )
        async with SpeechEngine(config) as engine:

            async def count(text: str, frames: int, firsts: list[float]) -> None:
                nonlocal underruns
                late = await play(engine, text, frames, firsts)
                underruns += late

            # The time model sees prompts, as it has in a server that runs for a while.
            for tokens in (100, 400, 800):
                await play(engine, "w" * tokens, 2, [])
            async with anyio.create_task_group() as tasks:
                for i in range(STREAMS):
                    tasks.start_soon(count, f"stream {i}", FRAMES, first)
                await anyio.sleep(LEAD_S)
                for i in range(PROMPTS):
                    prompt = chr(ord("a") + i) * PROMPT_TOKENS
                    tasks.start_soon(count, prompt, NEWCOMER_FRAMES, newcomers)
    print(
        f"{ordering:>8}: {underruns} underruns; first audio of the prompts "
        f"{', '.join(f'{value:.2f}' for value in sorted(newcomers))} s",
        flush=True,
    )


def main(ordering: Annotated[str, typer.Option(help="clock, arrival, or both")] = "both") -> None:
    """Measure one ordering here, or both in processes of their own."""
    if ordering != "both":
        anyio.run(measure, ordering)
        return
    for each in ("clock", "arrival"):
        subprocess.run([sys.executable, __file__, "--ordering", each], check=True)


if __name__ == "__main__":
    typer.run(main)
