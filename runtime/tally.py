"""Counting values into buckets, as a histogram of Prometheus wants them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence


class Tally:
    """How many values were at most each of `bounds`, and their sum. One writer; readers may be a
    value behind."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.sum = 0.0
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Each bound, `+Inf` last, with the number of values at most that."""
        so_far = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            so_far += count
            yield bound, so_far
