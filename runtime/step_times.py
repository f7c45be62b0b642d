"""How long a step takes: measured, fitted online, predicted. Times in seconds.

Two clocks. *Wall* time is what a stream waits for; it includes what other threads take. *Work* is
what the stage itself costs: the processor time of its thread on a CPU, wall time where a device
works. Plans need wall time, the capacity work: under load wall times already contain the load.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, slots=True)
class StepTime:
    """seconds = fixed + row × rows + token × prefill tokens.

    `seen` is the largest prefill that this was fitted to: attention makes longer ones dearer than
    a line says, so no more than twice that is planned at once.
    """

    fixed: float
    row: float
    token: float
    seen: int = 256

    def __add__(self, other: StepTime) -> StepTime:
        return StepTime(
            self.fixed + other.fixed,
            self.row + other.row,
            self.token + other.token,
            max(self.seen, other.seen),
        )

    def __mul__(self, factor: float) -> StepTime:
        return replace(
            self, fixed=self.fixed * factor, row=self.row * factor, token=self.token * factor
        )

    def predict(self, rows: int, prefill: int = 0) -> float:
        return self.fixed + self.row * rows + self.token * prefill

    def rows_within(self, seconds: float) -> int:
        """How many decode rows fit, at least one."""
        return max(1, _fitting(seconds - self.fixed, self.row))

    def rows_to_keep_up(self, streams: int, period: float) -> int:
        """The fewest rows a step may have while `streams` get a row each every `period`: smaller
        steps spend it on what is fixed. At most `streams`."""
        left = period - self.row * streams
        if left <= self.fixed:
            return streams
        return math.ceil(streams * self.fixed / left)

    def prefill_within(self, seconds: float, rows: int) -> int:
        """How many prompt tokens fit beside `rows` decode rows."""
        return min(max(0, _fitting(seconds - self.predict(rows), self.token)), 2 * self.seen)


def _fitting(seconds: float, each: float) -> int:
    return int(min(seconds / max(each, 1e-9), 1e6))


class TimeFit:
    """A `StepTime` fitted online.

    Least squares with exponential forgetting (the normal equations decay by `1 - 1 / memory` with
    each observation), drawn to the prior where nothing was seen; never negative.

    The fit needs many steps to follow a machine that is suddenly slower. `expected` needs two: it
    is the fit as many times as long as the last steps were longer than fitted.
    """

    def __init__(self, prior: StepTime, memory: int = 200) -> None:
        self.time = prior
        self.error = 0.0
        """Running mean of |predicted - seen| / seen."""
        self._slower = 1.0
        self._prior = np.array([prior.fixed, prior.row, prior.token])
        self._decay = 1 - 1 / memory
        # As if the prior had been seen once, at 8 rows and 64 tokens.
        self._ridge = np.diag([1.0, 8.0**2, 64.0**2])
        self._xx = np.zeros((3, 3))
        self._xy = np.zeros(3)

    @property
    def expected(self) -> StepTime:
        """What the next steps will take; never less than the fit."""
        return self.time * max(self._slower, 1.0)

    def observe(self, rows: int, prefill: int, seconds: float) -> None:
        seen, predicted = max(seconds, 1e-6), max(self.time.predict(rows, prefill), 1e-6)
        self.error += 0.05 * (abs(predicted / seen - 1) - self.error)
        self._slower += 0.5 * (seen / predicted - self._slower)
        x = np.array([1.0, rows, prefill])
        self._xx = self._decay * self._xx + np.outer(x, x)
        self._xy = self._decay * self._xy + x * seconds
        solved = np.linalg.solve(self._xx + self._ridge, self._xy + self._ridge @ self._prior)
        fixed, row, token = solved.clip(min=0.0).tolist()
        self.time = StepTime(fixed, row, token, max(self.time.seen, prefill))


@dataclass(frozen=True, slots=True)
class Spent:
    """What something took, by both clocks."""

    wall: float = 0.0
    work: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.wall + other.wall, self.work + other.work)

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.wall - other.wall, self.work - other.work)


class Stopwatch:
    """Reads both clocks, on the thread that asks; `work` is its processor time or a device's."""

    def __init__(self, device: str) -> None:
        self._work: Callable[[], float] = time.thread_time if device == "cpu" else time.perf_counter

    def __call__(self) -> Spent:
        return Spent(time.perf_counter(), self._work())


class StageTimes:
    """One stage's times: fits of both clocks, and what it took in all."""

    def __init__(self, prior: StepTime) -> None:
        self.wall = TimeFit(prior)
        self.work = TimeFit(prior)
        self.seconds = 0.0

    def observe(self, rows: int, prefill: int, spent: Spent) -> None:
        self.seconds += spent.wall
        self.wall.observe(rows, prefill, spent.wall)
        self.work.observe(rows, prefill, spent.work)
