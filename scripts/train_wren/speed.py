"""Stage `speed`: milliseconds of each part of one stream's frame, in plain torch on one core."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from omni_speak.models.wren.text.front_end import FrontEnd

from . import export
from .speak import Speaker, gumbel
from .trunk import Cache

TEXT = "The committee will meet again next month to decide about the new road."
ROUNDS = 300


@torch.inference_mode()
def measure(weights: Path) -> dict[str, float]:
    """Medians: `text` per sentence; `step`, `mtp`, `decode` per frame, the window full."""
    config, nets, trunk, codec = export.load(weights)
    Speaker(config, nets, trunk, codec)  # prepares nets and codec
    front_end = FrontEnd(config.phonemes)
    front_end.warm_up()
    books, window = config.codec.codebooks, config.talker.window
    hidden = torch.randn(1, 1, config.talker.hidden_size)
    cache: Cache = []
    for position in range(window):
        hidden, cache = trunk.step(hidden, position, cache)
    token, temperature = torch.ones(1, dtype=torch.int64), torch.full((1,), 0.5)
    noise = gumbel((1, books, config.codec.codebook_size), torch.Generator().manual_seed(0))
    codes, state = torch.zeros(1, 1, books, dtype=torch.int64), codec.initial_state(1)
    parts: dict[str, Callable[[], object]] = {
        "text": lambda: front_end(TEXT),
        "step": lambda: trunk.step(hidden, window, cache),
        "mtp": lambda: nets.mtp.generate(
            hidden[0], token, temperature, noise, config.sampling.top_k
        ),
        "decode": lambda: codec.decode(codes, state),
    }
    return {name: _median(part) for name, part in parts.items()}


def _median(part: Callable[[], object]) -> float:
    spent = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        part()
        spent.append(time.perf_counter() - began)
    return 1000 * statistics.median(spent[ROUNDS // 10 :])
