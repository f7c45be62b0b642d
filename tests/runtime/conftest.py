"""The real engine core on the tiny model, stepped by hand."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omni_speak.runtime.payload import RowOutput
from tests.models.tiny import Tiny, make_tiny


class SteppedCore:
    """vLLM's EngineCore and our runner, with every step's payload kept in order."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        from omni_speak.runtime.vllm_setup import make_core, vllm_config

        defaults = {
            "device": "cpu",
            "max_streams": 8,
            "max_step_tokens": 64,
            "kv_cache_bytes": 8 << 20,
            "async_scheduling": False,
        }
        self.model = Tiny(directory)
        self.core, self.runner = make_core(vllm_config(self.model, **{**defaults, **settings}))
        self.payloads: list[dict[str, RowOutput]] = []
        self.finished: dict[str, str] = {}
        self.runner.builder.sink = self.payloads.append

    def add(
        self,
        text: str,
        *,
        seed: int = 0,
        temperature: float = 1.0,
        voice: str = "one",
        max_frames: int = 40,
    ) -> str:
        from omni_speak.runtime.request import SpeechRequest
        from omni_speak.runtime.vllm_setup import make_request

        prompt = self.model.front.prepare(
            SpeechRequest(text=text, temperature=temperature, voice=voice)
        )
        req_id = uuid.uuid4().hex
        self.core.add_request(
            make_request(self.core, self.runner, req_id, prompt, seed=seed, max_frames=max_frames)
        )
        return req_id

    def step(self) -> None:
        outputs, _ = self.core.step_fn()
        for batch in (outputs or {}).values():
            for output in batch.outputs:
                if output.finish_reason is not None:
                    self.finished[output.request_id] = str(output.finish_reason)

    def run(self) -> None:
        while self.core.scheduler.has_requests():
            self.step()
        self.runner.collect_build()

    def codes(self, req_id: str) -> list[list[int]]:
        """All frames a request got, in order."""
        return [
            p[req_id].codes.tolist() for p in self.payloads if req_id in p and p[req_id].codes.size
        ]


@pytest.fixture
def stepped(tmp_path: Path) -> Iterator[Callable[..., SteppedCore]]:
    """`stepped(tiny={...}, **vllm settings)` makes a core; all are shut down after the test."""
    cores: list[SteppedCore] = []

    def make(tiny: dict[str, Any] | None = None, **settings: Any) -> SteppedCore:
        directory = make_tiny(tmp_path / f"tiny{len(cores)}", **(tiny or {}))
        cores.append(SteppedCore(directory, **settings))
        return cores[-1]

    yield make
    for core in cores:
        core.core.shutdown()
