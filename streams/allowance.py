"""How much one token may have at the same time, and a minute, over all its connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from omni_speak.runtime.errors import LimitReached

STREAM_RETRY_S = 1.0
"""When one who has too many streams may try again: nobody knows when the first of them ends."""


class TokenBucket:
    """Fills by `rate` a second, up to `size`; full at first. `clock` in seconds, monotonic."""

    def __init__(self, rate: float, size: float, clock: Callable[[], float]) -> None:
        self._rate, self._size, self._clock = rate, size, clock
        self._left, self._at = size, clock()

    def take(self, amount: float) -> float:
        """Take it and return 0, or take nothing and return the seconds until it can be had. More
        than the bucket holds is had when it is full, and the rest of it owed."""
        now = self._clock()
        self._left = min(self._size, self._left + (now - self._at) * self._rate)
        self._at = now
        missing = min(amount, self._size) - self._left
        if missing > 0:
            return missing / self._rate
        self._left -= amount
        return 0.0


class Allowance:
    """`streams`: contexts that are open, and HTTP bodies being spoken. `text_rate`: characters a
    minute, of which a minute's may come at once. None: without limit."""

    def __init__(
        self,
        streams: int | None = None,
        text_rate: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.streams = streams
        self.text_rate = text_rate
        self._open = 0
        self._text = None if text_rate is None else TokenBucket(text_rate / 60, text_rate, clock)

    def open_stream(self) -> None:
        """Until `close_stream`. Raises LimitReached."""
        if self.streams is not None and self._open >= self.streams:
            raise LimitReached(
                f"a token may have {self.streams} streams at the same time, and all are open",
                param="context",
                retry_after=STREAM_RETRY_S,
            )
        self._open += 1

    def close_stream(self) -> None:
        self._open -= 1

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Raises LimitReached."""
        self.open_stream()
        try:
            yield
        finally:
            self.close_stream()

    def take_text(self, chars: int) -> None:
        """Raises LimitReached; the text then does not count."""
        wait = self._text.take(chars) if self._text is not None else 0.0
        if wait:
            raise LimitReached(
                f"a token may send {self.text_rate} characters a minute; "
                f"these {chars} may come in {wait:.1f} s",
                param="text",
                retry_after=wait,
            )
