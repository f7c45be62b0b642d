"""Who may run, who waits, who is refused: a bounded queue in front of the engine.

Lives on the event loop: no locks. Whoever is let in was promised that its frames come in time, so
the queue moves only when somebody leaves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from omni_speak.runtime.errors import Overloaded


class Admission:
    """`capacity()` streams run, `max_queue` wait for at most `timeout` seconds each."""

    def __init__(self, capacity: Callable[[], int], *, max_queue: int, timeout: float) -> None:
        self._capacity = capacity
        self._max_queue = max_queue
        self._timeout = timeout
        self._queue: deque[anyio.Event] = deque()
        self._stay = 1.0
        self.running = 0
        self.refused = 0

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def check(self) -> None:
        """Raises `Overloaded` if who comes now would be refused."""
        if self._must_wait() and len(self._queue) >= self._max_queue:
            raise self._refusal(f"{self.running} streams run and {self.waiting} wait")

    @asynccontextmanager
    async def place(self, now: Callable[[], float]) -> AsyncIterator[None]:
        """A place among the running. Raises `Overloaded` at once if the queue is full, or when
        the time limit is over."""
        self.check()
        if self._must_wait():
            await self._wait()
        else:
            self.running += 1
        since = now()
        try:
            yield
        finally:
            self._stay += 0.1 * (now() - since - self._stay)
            self.running -= 1
            self._let_in()

    def _must_wait(self) -> bool:
        return bool(self._queue) or self.running >= self._capacity()

    async def _wait(self) -> None:
        turn = anyio.Event()
        self._queue.append(turn)
        try:
            with anyio.move_on_after(self._timeout):
                await turn.wait()
        except BaseException:
            self._give_up(turn)
            raise
        if not turn.is_set():
            self._give_up(turn)
            raise self._refusal(f"no place became free within {self._timeout:g} s")

    def _give_up(self, turn: anyio.Event) -> None:
        if turn.is_set():  # let in meanwhile
            self.running -= 1
            self._let_in()
        else:
            self._queue.remove(turn)

    def _let_in(self) -> None:
        while self._queue and self.running < self._capacity():
            self.running += 1
            self._queue.popleft().set()

    def _refusal(self, why: str) -> Overloaded:
        self.refused += 1
        places = max(self._capacity(), 1)
        wait = max(1.0, self._stay * (len(self._queue) + 1) / places)
        return Overloaded(f"{why}; try again in {wait:.0f} s", retry_after=wait)
