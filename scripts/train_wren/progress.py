"""What every stage shares: a schedule by wall-clock, checkpoints that survive a kill, averages."""

from __future__ import annotations

import logging
import math
import os
import time
from pathlib import Path
from typing import Any

import torch

log = logging.getLogger(__name__)


class Schedule:
    """A budget of wall-clock minutes, counted over restarts."""

    def __init__(self, minutes: float, spent: float = 0.0) -> None:
        self.minutes = minutes
        self._began = time.monotonic() - 60 * spent

    @property
    def spent(self) -> float:
        """Minutes used so far."""
        return (time.monotonic() - self._began) / 60

    @property
    def share(self) -> float:
        """0 at the start, 1 at the end."""
        return min(1.0, self.spent / self.minutes)

    @property
    def over(self) -> bool:
        return self.spent >= self.minutes

    def rate(self, step: int, warmup: int, floor: float) -> float:
        """Learning-rate factor: linear warm-up by step, then a cosine by time down to `floor`."""
        cosine = 0.5 * (1 + math.cos(math.pi * self.share))
        return min(1.0, (step + 1) / warmup) * (floor + (1 - floor) * cosine)


class Averages:
    """Running means of losses, for the log."""

    def __init__(self, keep: float = 0.97) -> None:
        self.keep = keep
        self.values: dict[str, float] = {}

    def add(self, **values: float) -> None:
        for name, value in values.items():
            old = self.values.get(name, value)
            self.values[name] = self.keep * old + (1 - self.keep) * value

    def __str__(self) -> str:
        return " ".join(f"{name} {value:.3f}" for name, value in self.values.items())


class Checkpoint:
    """One file, replaced atomically, at most every `minutes`."""

    def __init__(self, path: Path, minutes: float) -> None:
        self.path = path
        self._every = 60 * minutes
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        return time.monotonic() - self._last >= self._every

    def load(self) -> dict[str, Any] | None:
        if not self.path.exists():
            return None
        log.info("continuing from %s", self.path)
        state: dict[str, Any] = torch.load(self.path, weights_only=True)
        return state

    def save(self, **state: Any) -> None:
        partial = self.path.with_suffix(".part")
        torch.save(state, partial)
        os.replace(partial, self.path)
        self._last = time.monotonic()


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
