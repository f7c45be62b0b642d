"""What a server's endpoints share: the engine as it comes and goes, limits, counts."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import anyio.to_thread
from starlette.requests import HTTPConnection

from omni_speak.runtime.errors import EngineDead
from omni_speak.streams.errors import Unavailable
from omni_speak.streams.messages import Limits
from omni_speak.streams.metrics import Metrics
from omni_speak.streams.session import Drain, Sessions
from omni_speak.streams.speaking import Engine, speak_text

logger = logging.getLogger(__name__)

EngineFactory = Callable[[], AbstractAsyncContextManager[Engine]]

LOOP_PROBE_S = 0.05

WARM_UP_TEXT = "Ready."
WARM_UP_STREAMS = (1, 16)
"""One, so that whatever is made on first use is made; many at once, so that the engine has seen
what a step of many costs before it promises anything."""


class Service:
    """One server's state. `ready` is set after the first utterance, `failed` if none came."""

    def __init__(self, factory: EngineFactory, limits: Limits, send_timeout: float) -> None:
        self.limits = limits
        self.send_timeout = send_timeout
        self.drain = Drain()
        self.sessions = Sessions()
        self.activity = Activity()
        self.engine: Engine | None = None
        self.metrics = Metrics(lambda: self.engine, lambda: len(self.sessions))
        self.failure: Exception | None = None
        self.failed = anyio.Event()
        self.ready = anyio.Event()
        self._factory = factory
        self._stop = anyio.Event()

    @property
    def unready(self) -> str | None:
        """Why no request should be sent here now, or None."""
        if self.drain.asked.is_set():
            return "the server is shutting down"
        if self.failure is not None:
            return "the engine could not start"
        if self.engine is None:
            return "the engine is starting"
        return None if self.engine.alive else "the engine died"

    def ready_engine(self) -> Engine:
        """Raises Unavailable or EngineDead."""
        reason = self.unready
        if self.engine is not None and reason is None:
            return self.engine
        if self.engine is not None and not self.engine.alive:
            raise EngineDead("the engine died; no request can run")
        raise Unavailable(f"{reason}; try again later")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run_engine)
            yield
            # Told, not cancelled, so that the engine can join its threads.
            self._stop.set()

    async def _watch_loop(self) -> None:
        """How late the event loop wakes who asked to be woken: so long every frame waits there."""
        due = anyio.current_time()
        while True:
            due = max(due + LOOP_PROBE_S, anyio.current_time())
            await anyio.sleep_until(due)
            self.metrics.loop_lag.observe(anyio.current_time() - due)

    async def _run_engine(self) -> None:
        try:
            # In a thread: importing torch takes seconds, and /healthz is to answer meanwhile.
            context = await anyio.to_thread.run_sync(self._factory)
            if self._stop.is_set():
                return
            async with context as engine:
                for streams in WARM_UP_STREAMS:
                    async with anyio.create_task_group() as tasks:
                        for _ in range(min(streams, engine.stats().capacity)):
                            tasks.start_soon(_warm_up, engine)
                self.engine = engine
                self.ready.set()
                logger.info("ready: %s", engine.info.model)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._watch_loop)
                    await self._stop.wait()
                    tasks.cancel_scope.cancel()
        except Exception as error:  # noqa: BLE001  whatever kept it from starting is reported
            self.failure = error
            self.failed.set()
            logger.error("the engine stopped: %s: %s", type(error).__name__, error)
        finally:
            self.engine = None


async def _warm_up(engine: Engine) -> None:
    async for _ in speak_text(engine, WARM_UP_TEXT):
        pass


class Activity:
    """Requests and connections in progress; who waits for their end does not poll."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = anyio.Event()

    def __enter__(self) -> None:
        self._change(1)

    def __exit__(self, *_: object) -> None:
        self._change(-1)

    def _change(self, by: int) -> None:
        self.count += by
        self._changed.set()
        self._changed = anyio.Event()

    async def none(self) -> None:
        while self.count:
            await self._changed.wait()

    async def none_for(self, seconds: float) -> None:
        """Returns after `seconds` in a row without any."""
        while True:
            await self.none()
            with anyio.move_on_after(seconds):
                await self._changed.wait()
                continue
            return


def service_of(connection: HTTPConnection) -> Service:
    service: Service = connection.app.state.service
    return service
