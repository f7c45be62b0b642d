"""An event loop whose clock jumps to the next thing that is due, whenever nothing else is to do."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Mapping
from typing import Any


class _Selector(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout if timeout is None else 0)
        if timeout is not None and not ready:
            self.now += max(timeout, 0)
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """For tests without sockets and threads: those take real time."""

    def __init__(self) -> None:
        self._jumping = _Selector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


BACKEND: tuple[str, Mapping[str, Any]] = ("asyncio", {"loop_factory": SimulatedLoop})
"""What a module's fixture `anyio_backend` returns where its tests run in simulated time."""
