"""Wren on vLLM speaks what Wren in plain torch speaks, code for code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from omni_speak.models.base import Sampling
from omni_speak.models.wren.model import Wren
from omni_speak.models.wren.pointer import allowed_advances
from omni_speak.runtime.request import SpeechRequest
from omni_speak.runtime.sampling import gumbel_noise, request_keys, row_seeds
from scripts.train_wren.export import load

WEIGHTS = Path(__file__).parents[2] / "models" / "wren" / "weights"
TEXTS = ("Yes.", "Hello! I am speaking to you.", "It costs $6.25, and the train leaves at 4:30.")


class PlainWren:
    """The training side's plain torch talker, one request at a time."""

    def __init__(self) -> None:
        self.config, self.nets, self.trunk, _ = load(WEIGHTS)

    @torch.inference_mode()
    def speak(self, phonemes: tuple[int, ...], temperature: float, seed: int) -> list[list[int]]:
        config, nets, frames, pointer, stay = self.config, self.nets, [], 0, 0
        features = nets.text(torch.tensor([phonemes]))[0]
        codes = torch.full((1, config.codec.codebooks), nets.frame.begin_code)
        token, cache = torch.tensor([config.begin_token]), []
        while True:
            position = len(frames)
            x = nets.frame(codes, token, features[pointer][None], torch.ones(1))
            hidden, cache = self.trunk.step(x[None], position, cache)
            logits = nets.head(hidden[:, 0])[0]
            low, high, end = allowed_advances(pointer, len(phonemes), stay, config.pointer)
            allowed = [*range(low, high + 1), *([config.end_token] if end else [])]
            token = torch.tensor([max(allowed, key=lambda a: float(logits[a]))])
            if int(token) == config.end_token:
                return frames
            seeds = torch.from_numpy(
                row_seeds(request_keys(np.array([seed])), np.array([position + 1]))
            )
            noise = gumbel_noise(seeds, config.codec.codebooks, config.codec.codebook_size)
            heat = torch.tensor([temperature])
            codes = nets.mtp.generate(hidden[:, 0], token, heat, noise, config.sampling.top_k)
            frames.append(codes[0].tolist())
            stay = 0 if int(token) else stay + 1
            pointer += int(token)


class SteppedWren:
    """The engine core on the bundled weights, advances greedy, codes at `temperature`."""

    def __init__(self) -> None:
        from omni_speak.runtime.vllm_setup import make_core, vllm_config

        self.model = Wren(WEIGHTS)
        self.core, self.runner = make_core(
            vllm_config(
                self.model,
                device="cpu",
                max_streams=8,
                max_step_tokens=64,
                kv_cache_bytes=32 << 20,
                async_scheduling=False,
            )
        )

    def speak(self, texts: tuple[str, ...], temperature: float) -> list[list[list[int]]]:
        from omni_speak.runtime.vllm_setup import make_request

        payloads: list[dict] = []
        self.runner.builder.sink = payloads.append
        for seed, text in enumerate(texts):
            prompt = self.model.front.prepare(SpeechRequest(text=text, temperature=temperature))
            request_id = f"{seed}-{temperature}-{len(texts)}-{text}"
            greedy = replace(prompt, sampling=Sampling(0.0))  # the advances; the codes keep theirs
            self.core.add_request(
                make_request(self.core, self.runner, request_id, greedy, seed=seed)
            )
        while self.core.scheduler.has_requests():
            self.core.step_fn()
        self.runner.collect_build()
        return [
            [
                p[r].codes.tolist()
                for p in payloads
                for r in p
                if r.startswith(f"{s}-") and p[r].codes.size
            ]
            for s in range(len(texts))
        ]


@pytest.fixture(scope="module")
def stepped_wren() -> Iterator[SteppedWren]:
    wren = SteppedWren()
    yield wren
    wren.core.shutdown()


@pytest.mark.parametrize("temperature", [0.0, 0.6])
def test_the_engine_speaks_what_plain_torch_speaks(
    stepped_wren: SteppedWren, temperature: float
) -> None:
    plain, front = PlainWren(), stepped_wren.model.front
    expected = [
        plain.speak(front.prepare(SpeechRequest(text=t)).conditioning["phonemes"], temperature, i)
        for i, t in enumerate(TEXTS)
    ]
    assert all(expected)
    assert stepped_wren.speak(TEXTS, temperature) == expected


@settings(max_examples=200, deadline=None)
@given(
    phonemes=st.integers(2, 60),
    rows=st.lists(st.tuples(st.integers(0, 59), st.integers(0, 20)), min_size=1, max_size=8),
)
def test_batched_constraints_are_the_pointers_rules(
    stepped_wren: SteppedWren, phonemes: int, rows: list[tuple[int, int]]
) -> None:
    talker, config = stepped_wren.runner.talker, stepped_wren.model.config
    rows = [(min(pointer, phonemes - 1), stay) for pointer, stay in rows]
    slots = torch.arange(len(rows))
    talker.open[slots] = False
    talker.left[slots] = torch.tensor([phonemes - 1 - pointer for pointer, _ in rows])
    longest = talker.forbidden.shape[1] - 1
    talker.stay[slots] = torch.tensor([min(stay, longest) for _, stay in rows])
    logits = talker.constrain_logits(torch.zeros(len(rows), config.vocab_size), slots)
    for row, (pointer, stay) in zip(logits, rows, strict=True):
        low, high, end = allowed_advances(pointer, phonemes, stay, config.pointer)
        allowed = {*range(low, high + 1), *([config.end_token] if end else [])}
        assert {i for i, value in enumerate(row.tolist()) if value == 0} == allowed
