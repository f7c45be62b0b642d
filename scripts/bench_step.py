"""Where one step's time goes: ours with the builder inline (as without async scheduling) and in the
background, without per-request seeds, and bare vLLM with the same layers, head and sampling.

One process, one run, the variants by turns, so that the ratios hold on a noisy machine. Every time
is a median per step in microseconds of the engine thread, but for `build`, which is the builder's
and a mean: in the background it need not fall into its own step.

    schedule   vLLM's scheduler, before and after the step
    prepare    input batch, attention metadata
    forward    embedding, layers and head
    sample     constraints, sampler, bookkeeping
    mtp        the frame's codes and its place in the frame table
    snapshot   copies for the builder
    hand-off   giving them to the builder, and waiting for the build before
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from omni_speak.models.registry import MODEL_TYPES, open_model
from omni_speak.runtime import vllm_setup
from omni_speak.runtime.request import SpeechRequest

PARTS = ("schedule", "prepare", "forward", "sample", "mtp", "snapshot", "hand-off", "build")
VARIANTS = ("inline", "background", "unseeded", "bare")
WARM_UP = 15
TEXT = "The weather is going to be sunny tomorrow morning, or so they say. " * 10


@dataclass
class Times:
    """Seconds per step and part, of one variant and batch size."""

    steps: list[float] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


class Stopwatch:
    """Wraps methods so that the time inside them is added to the running step's part."""

    def __init__(self) -> None:
        self.current: dict[str, float] = defaultdict(float)

    def take(self) -> dict[str, float]:
        """The time since the last call, by part: a build that ends between two steps counts too."""
        taken, self.current = self.current, defaultdict(float)
        return taken

    def wrap(self, owner: Any, name: str, part: str) -> None:
        call: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.current[part] += time.perf_counter() - begin

        setattr(owner, name, timed)


class BareModel:
    """The talker's layers and head as vLLM serves any model: its worker, its runner."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._wren = open_model("wren")

    def hf_config(self) -> Any:
        config = self._wren.hf_config()
        config.architectures = ["BareTalker"]
        return config

    def talker_class(self) -> type[torch.nn.Module]:
        from vllm.model_executor.models.qwen3 import Qwen3Model

        class BareTalker(torch.nn.Module):
            def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
                super().__init__()
                config = vllm_config.model_config.hf_config
                self.model = Qwen3Model(vllm_config=vllm_config, prefix=f"{prefix}.model")
                self.head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)

            def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
                return self.model.embed_input_ids(input_ids)

            def forward(
                self,
                input_ids: torch.Tensor,
                positions: torch.Tensor,
                intermediate_tensors: Any = None,
                inputs_embeds: Any = None,
            ) -> torch.Tensor:
                return self.model(input_ids, positions, intermediate_tensors, inputs_embeds)

            def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
                return self.head(hidden_states)

        return BareTalker

    def load_talker(self, talker: torch.nn.Module) -> None:
        for parameter in talker.parameters():
            torch.nn.init.normal_(parameter, std=0.02)


@contextmanager
def engine(variant: str, streams: int, bare_directory: Path) -> Iterator[tuple[Any, Any]]:
    """An engine core and its runner."""
    model: Any = BareModel(bare_directory) if variant == "bare" else open_model("wren")
    config = vllm_setup.vllm_config(
        model,
        device=vllm_setup.pick_device("auto"),
        max_streams=streams,
        max_step_tokens=512,
        kv_cache_bytes=64 << 20,
        async_scheduling=False,
    )
    if variant == "bare":
        from vllm.v1.engine.core import EngineCore
        from vllm.v1.executor.uniproc_executor import UniProcExecutor

        config.parallel_config.worker_cls = (
            "vllm.v1.worker.cpu_worker.CPUWorker"
            if config.device_config.device_type == "cpu"
            else "vllm.v1.worker.gpu_worker.Worker"
        )
        set_num_threads = torch.set_num_threads
        core = EngineCore(config, UniProcExecutor, log_stats=False)
        torch.set_num_threads = set_num_threads  # vLLM's CPU worker makes it a no-op
        runner = core.model_executor.driver_worker.worker.model_runner
    else:
        core, runner = vllm_setup.make_core(config)
    try:
        yield core, runner
    finally:
        core.shutdown()
        gc.collect()


def add_requests(variant: str, core: Any, runner: Any, streams: int) -> None:
    """`streams` requests that outlast the measurement, sampled as Wren's front end asks."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    prompt = open_model("wren").front.prepare(SpeechRequest(TEXT))
    for seed in range(streams):
        req_id = uuid.uuid4().hex
        if variant == "bare":
            request = Request(
                request_id=req_id,
                prompt_token_ids=[0],
                sampling_params=SamplingParams(
                    temperature=prompt.sampling.temperature,
                    seed=seed,
                    max_tokens=2000,
                    ignore_eos=True,
                    detokenize=False,
                ),
                pooling_params=None,
                block_hasher=core.request_block_hasher,
            )
        else:
            request = vllm_setup.make_request(core, runner, req_id, prompt, seed=seed)
            if variant == "unseeded":
                request.sampling_params.seed = None
        core.add_request(request)


def watch(variant: str, core: Any, runner: Any, stopwatch: Stopwatch) -> None:
    """Put the stopwatch at the step's seams."""
    from omni_speak.runtime.output_builder import OutputBuilder

    for name in ("schedule", "update_from_output"):
        stopwatch.wrap(core.scheduler, name, "schedule")
    stopwatch.wrap(runner, "execute_model", "execute")
    stopwatch.wrap(runner, "sample_tokens", "sampling")
    stopwatch.wrap(runner, "_model_forward", "forward")
    stopwatch.wrap(runner.model, "compute_logits", "forward")
    if variant == "bare":
        return
    stopwatch.wrap(runner.talker, "embed_frames", "forward")
    runner.builder = OutputBuilder(runner.hooks, background=variant == "background")
    stopwatch.wrap(runner, "_make_frames", "mtp")
    stopwatch.wrap(runner, "collect_build", "hand-off")
    stopwatch.wrap(runner.builder, "submit", "hand-off")
    stopwatch.wrap(runner.builder, "_build", "build")
    stopwatch.wrap(runner, "_snapshot", "snapshot")


@contextmanager
def without_seeds(runner: Any) -> Iterator[None]:
    """Requests without seeds, the MTP's noise from torch's global generator: what seeds are
    measured against."""
    from omni_speak.models.wren import talker
    from omni_speak.runtime import runner as runner_module

    noise, keyed = talker.gumbel_noise, runner_module.row_seeds
    talker.gumbel_noise = lambda seeds, *shape: (  # type: ignore[assignment]
        -torch.empty(len(seeds), *shape, device=seeds.device).exponential_().log()
    )
    runner_module.row_seeds = lambda seeds, positions: positions  # type: ignore[assignment]
    runner.model_intermediate_buffer = _Seedless()
    try:
        yield
    finally:
        talker.gumbel_noise, runner_module.row_seeds = noise, keyed


def measure(variant: str, streams: int, steps: int, bare_directory: Path, into: Times) -> None:
    stopwatch = Stopwatch()
    with (
        engine(variant, streams, bare_directory) as (core, runner),
        without_seeds(runner) if variant == "unseeded" else nullcontext(),
    ):
        add_requests(variant, core, runner, streams)
        watch(variant, core, runner, stopwatch)
        gc.disable()
        for step in range(WARM_UP + steps):
            begin = time.perf_counter()
            _, executed = core.step_fn()
            elapsed = time.perf_counter() - begin
            if not executed:
                raise RuntimeError(f"{variant}: step {step} ran nothing; its requests have ended")
            inside = stopwatch.take()
            if step >= WARM_UP:
                into.steps.append(elapsed)
                parts = split(inside)
                parts["own"] = elapsed - parts["forward"] - parts["mtp"]
                for part, seconds in parts.items():
                    into.parts[part].append(seconds)
        gc.enable()


class _Seedless(dict[str, Any]):
    """Requests without seeds, where the runner expects one."""

    def __setitem__(self, req_id: str, entry: Any) -> None:
        super().__setitem__(req_id, {**entry, "seed": 0})


def split(inside: dict[str, float]) -> dict[str, float]:
    """Times inside nested methods → times of the parts themselves."""
    handed = inside["hand-off"]
    sampling = inside["sampling"] - inside["mtp"] - inside["snapshot"]
    return {
        "schedule": inside["schedule"],
        "prepare": inside["execute"] - inside["forward"],
        "forward": inside["forward"],
        "sample": sampling - handed,
        "mtp": inside["mtp"],
        "snapshot": inside["snapshot"],
        "hand-off": handed,
        "build": inside["build"],
    }


def main(
    batch: Annotated[list[int], typer.Option(help="requests in the batch")] = [1, 8, 32],  # noqa: B006
    steps: Annotated[int, typer.Option(help="steps measured per round")] = 100,
    rounds: Annotated[int, typer.Option(help="turns of every variant")] = 3,
    output: Annotated[Path | None, typer.Option(help="write the numbers here, as JSON")] = None,
) -> None:
    """Measure a step's parts."""
    MODEL_TYPES["bare"] = "__main__:BareModel"
    with tempfile.TemporaryDirectory() as directory:
        bare = Path(directory)
        (bare / "config.json").write_text('{"model_type": "bare"}')
        results = {(streams, variant): Times() for streams in batch for variant in VARIANTS}
        for _ in range(rounds):
            for (streams, variant), times in results.items():
                measure(variant, streams, steps, bare, times)
    report(results, output)


def report(results: dict[tuple[int, str], Times], output: Path | None) -> None:
    rows: list[dict[str, Any]] = []
    print(f"{'streams':>7} {'variant':<10} {'step':>7} " + " ".join(f"{p:>8}" for p in PARTS))
    for (streams, variant), times in results.items():
        row = {
            "streams": streams,
            "variant": variant,
            "step": statistics.median(times.steps) * 1e6,
            **{part: statistics.median(times.parts[part]) * 1e6 for part in (*PARTS, "own")},
            "build": statistics.mean(times.parts["build"]) * 1e6,
        }
        rows.append(row)
        cells = " ".join(f"{row[part]:8.0f}" for part in PARTS)
        print(f"{streams:7} {variant:<10} {row['step']:7.0f} {cells}")
    print()
    by = {(row["streams"], row["variant"]): row for row in rows}
    for streams in dict.fromkeys(row["streams"] for row in rows):
        ours, bare = by[streams, "inline"], by[streams, "bare"]
        unseeded, background = by[streams, "unseeded"], by[streams, "background"]
        own = ours["own"] - bare["own"]
        print(
            f"{streams} streams: ours without forward and MTP adds {own:.0f} us, "
            f"{own / bare['step']:.1%} of bare vLLM's step; seeds cost "
            f"{ours['step'] / unseeded['step'] - 1:.1%} of a step; in the background, "
            f"{1 - background['hand-off'] / background['build']:.0%} of a build is hidden"
        )
    if output is not None:
        output.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
    if not threads.keys() <= os.environ.keys():  # read when the process starts
        os.execve(sys.executable, [sys.executable, *sys.argv], {**threads, **os.environ})
    typer.run(main)
