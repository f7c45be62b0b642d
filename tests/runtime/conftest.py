"""The real engine core on the tiny model, stepped by hand."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omni_speak.models.base import Prompt
from omni_speak.runtime.errors import SpeechError
from omni_speak.runtime.payload import Payload, RowOutput
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
        self.onward: list[dict[str, Payload]] = []
        self.failed: dict[str, SpeechError] = {}
        self.finished: dict[str, str] = {}
        self.runner.builder.sink = self.payloads.append
        self.runner.builder.send = self.onward.append
        self.runner.on_request_failed = self.failed.__setitem__

    def add(
        self,
        text: str,
        *,
        seed: int = 0,
        temperature: float = 1.0,
        voice: str = "one",
        max_frames: int = 40,
        change: Callable[[Prompt], Prompt] = lambda prompt: prompt,
        params: Callable[[Any], None] = lambda params: None,
        **conditioning: Any,
    ) -> str:
        """`change` edits the prompt, `params` vLLM's sampling parameters, `conditioning` adds to
        the prompt's."""
        from omni_speak.runtime.request import SpeechRequest
        from omni_speak.runtime.vllm_setup import make_request

        prompt = self.model.front.prepare(
            SpeechRequest(text=text, temperature=temperature, voice=voice)
        )
        prompt = replace(prompt, conditioning={**prompt.conditioning, **conditioning})
        req_id = uuid.uuid4().hex
        request = make_request(
            self.core, self.runner, req_id, change(prompt), seed=seed, max_frames=max_frames
        )
        params(request.sampling_params)
        self.core.add_request(request)
        return req_id

    def step(self) -> None:
        """One step; requests the runner failed leave before it, as the engine would have it."""
        self.core.abort_requests([r for r in self.failed if r in self.core.scheduler.requests])
        outputs, _ = self.core.step_fn()
        for batch in (outputs or {}).values():
            for output in batch.outputs:
                if output.finish_reason is not None:
                    self.finished[output.request_id] = str(output.finish_reason)

    def run(self) -> None:
        while self.core.scheduler.has_requests():
            self.step()
        self.runner.collect_build()

    def tokens(self, req_id: str) -> list[int]:
        """All tokens a request sampled, in order, but for the one that ended it."""
        rows = [p[req_id] for p in self.payloads if req_id in p]
        return [row.token for row in rows if row.token >= 0]

    def sent(self, req_id: str, key: str) -> list[Any]:
        """What the next stage got of a request under a key, step by step."""
        return [p[req_id][key].tolist() for p in self.onward if key in p.get(req_id, {})]

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
