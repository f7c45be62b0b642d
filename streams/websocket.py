"""A dialect's websocket door: a Starlette websocket as a session sees it, and the session on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import anyio
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from omni_speak.runtime.errors import SpeechError
from omni_speak.runtime.request import EngineInfo
from omni_speak.streams.dialect import Dialect
from omni_speak.streams.errors import TellError
from omni_speak.streams.messages import POLICY_VIOLATION
from omni_speak.streams.service import allowance_of, service_of
from omni_speak.streams.session import Disconnected, DuplexSession

MAX_REASON_BYTES = 123
"""A closing frame holds no more."""


class WebSocketSocket:
    """See `session.Socket`. With `idle_s`, one over which nothing has gone either way for that many
    seconds is closed; while the peer is slow to take what is sent, something goes."""

    def __init__(self, websocket: WebSocket, idle_s: float | None = None) -> None:
        self._websocket = websocket
        self._idle_s = idle_s
        self._used = anyio.current_time()
        self._sending = False

    async def receive(self) -> str | bytes:
        message = await self._next()
        if message["type"] == "websocket.disconnect":
            # Uvicorn has a reason, if an empty one, only where the peer sent a closing frame; its
            # code for a connection that broke is that of a closing frame without a code.
            raise Disconnected(clean="reason" in message)
        self._used = anyio.current_time()
        text: str | None = message.get("text")
        return text if text is not None else message["bytes"]

    async def _next(self) -> Message:
        if self._idle_s is None:
            return await self._websocket.receive()
        while (left := self._idle_s - self._idle_for) > 0:
            with anyio.move_on_after(left):
                return await self._websocket.receive()
        with suppress(Disconnected):
            await self.close(POLICY_VIOLATION, f"nothing was sent for {self._idle_s:g} s")
        raise Disconnected(clean=True)

    @property
    def _idle_for(self) -> float:
        return 0.0 if self._sending else anyio.current_time() - self._used

    async def send(self, data: str | bytes) -> None:
        key = "text" if isinstance(data, str) else "bytes"
        self._sending = True
        try:
            with _told_of_the_end():
                await self._websocket.send({"type": "websocket.send", key: data})
        finally:
            self._sending, self._used = False, anyio.current_time()

    async def close(self, code: int, reason: str) -> None:
        cut = reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
        with _told_of_the_end():
            await self._websocket.close(code, cut)


@contextmanager
def _told_of_the_end() -> Iterator[None]:
    """A RuntimeError is what Starlette and uvicorn raise where the connection was closed before."""
    try:
        yield
    except (WebSocketDisconnect, RuntimeError):
        raise Disconnected from None


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a websocket is for: a session in `dialect`. See `WebSocketSocket` for `idle_s`."""

    dialect: Dialect
    subprotocol: str | None = None
    idle_s: float | None = None


Begin = Callable[[WebSocket, EngineInfo], Conversation]


def conversation(
    begin: Begin, tell_error: TellError, *, name: str
) -> Callable[[WebSocket], Awaitable[None]]:
    """What answers a websocket with the conversation that `begin` finds in its request, counted as
    `name`. A SpeechError that `begin` raises is told by `tell_error` in place of the handshake."""

    async def answer(websocket: WebSocket) -> None:
        service = service_of(websocket)
        try:
            engine = service.ready_engine()
            begun = begin(websocket, engine.info)
        except SpeechError as error:
            await websocket.send_denial_response(tell_error(error))
            return
        await websocket.accept(subprotocol=begun.subprotocol)
        session = DuplexSession(
            WebSocketSocket(websocket, begun.idle_s),
            engine,
            begun.dialect,
            service.limits,
            service.drain,
            allowance=allowance_of(websocket),
            sessions=service.sessions,
            send_timeout=service.send_timeout,
            on_frame=service.metrics.frames.labels(name).inc,
        )
        outcome = "bug"
        with service.metrics.active.labels(name).track_inprogress():
            try:
                await session.run()
                outcome = "closed"
            finally:
                service.metrics.requests.labels(name, outcome).inc()

    return answer
