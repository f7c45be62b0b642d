"""Does the CUDA path work? One command, on a machine with a CUDA GPU and vLLM's CUDA build:

    python scripts/gpu_check.py

1. Wren in float32 without graphs speaks, greedily, the codes it speaks on the CPU: the only
   difference is where the arithmetic runs, so a frame may differ where two codes tie.
2. In bfloat16 with CUDA graphs, MTP graphs and async scheduling, as it is served, it speaks as
   many frames to within a tenth, and the same ones twice.
3. Step times at 1, 8 and 32 streams, by `bench_step.py`.

Exits with 1 and says which failed. The CPU's codes are made in a process of their own, since vLLM
chooses its platform once per process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

TEXTS = (
    "Hello! I am speaking to you, one frame at a time.",
    "Your appointment is confirmed for Tuesday at three.",
    "Please bring your passport and your boarding card.",
)
SAME_FRAMES = 0.98
"""Share of equal leading frames that float32 on both devices must reach: a tie that falls the
other way changes everything after it."""

app = typer.Typer(add_completion=False)


def speak(device: str, *, served: bool) -> list[list[list[int]]]:
    """Each text's greedy codes: `served` as the engine runs on this device, else in float32 without
    graphs."""
    from dataclasses import replace

    import torch

    from omni_speak.models.registry import open_model
    from omni_speak.runtime.request import SpeechRequest
    from omni_speak.runtime.vllm_setup import make_core, make_request, vllm_config

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model = open_model("wren")
    config = vllm_config(
        model,
        device=device,
        max_streams=8,
        max_step_tokens=512,
        kv_cache_bytes=64 << 20,
        async_scheduling=served,
        **({} if served else {"dtype": "float32", "enforce_eager": True}),
    )
    core, runner = make_core(config)
    codes: dict[str, list[list[int]]] = {}
    runner.builder.sink = lambda rows: [
        codes.setdefault(req_id, []).append(row.codes.tolist())
        for req_id, row in rows.items()
        if row.codes.size
    ]
    for i, text in enumerate(TEXTS):
        prompt = model.front.prepare(SpeechRequest(text=text, temperature=0.0))
        prompt = replace(prompt, cache_salt=f"{prompt.cache_salt} {i}")
        core.add_request(make_request(core, runner, str(i), prompt, seed=i))
    while core.scheduler.has_requests():
        core.step_fn()
    runner.collect_build()
    runner.builder.shutdown()
    if served and device == "cuda":
        print(f"MTP graphs captured: {len(runner.mtp)}", file=sys.stderr)
        if not len(runner.mtp):
            raise SystemExit("FAILED: no MTP graph was captured")
    core.shutdown()
    return [codes[str(i)] for i in range(len(TEXTS))]


@app.command(hidden=True)
def codes(device: str, output: Path, served: Annotated[bool, typer.Option()] = False) -> None:
    """Write one process's codes."""
    output.write_text(json.dumps(speak(device, served=served)))


@app.command()
def check(
    device: Annotated[str, typer.Option(help="cuda; cpu only tries this script itself")] = "cuda",
) -> None:
    """Run every check."""
    with tempfile.TemporaryDirectory() as directory:
        cpu = _run(directory, "cpu")
        exact = _run(directory, device)
        served = [_run(directory, device, "--served") for _ in range(2)]
    results = {
        "float32 codes equal the CPU's": _share_equal(cpu, exact) >= SAME_FRAMES,
        "as served, the same codes twice": served[0] == served[1],
        "as served, about as many frames": all(
            abs(len(a) - len(b)) <= 0.1 * len(a) for a, b in zip(cpu, served[0], strict=True)
        ),
    }
    print(f"equal leading frames in float32: {_share_equal(cpu, exact):.1%}")
    for name, passed in results.items():
        print(f"{'ok' if passed else 'FAILED'}: {name}")
    bench = Path(__file__).with_name("bench_step.py")
    subprocess.run([sys.executable, str(bench)], check=True)
    raise typer.Exit(0 if all(results.values()) else 1)


def _run(directory: str, device: str, *options: str) -> list[list[list[int]]]:
    output = Path(directory) / "codes.json"
    subprocess.run(
        [sys.executable, __file__, "codes", device, str(output), *options],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
    )
    result: list[list[list[int]]] = json.loads(output.read_text())
    return result


def _share_equal(one: list[Any], other: list[Any]) -> float:
    """Frames before the first difference, of all frames."""
    equal = total = 0
    for a, b in zip(one, other, strict=True):
        total += max(len(a), len(b))
        for x, y in zip(a, b, strict=False):
            if x != y:
                break
            equal += 1
    return equal / total


if __name__ == "__main__":
    app()
