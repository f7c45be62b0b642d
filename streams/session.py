"""One duplex session over one socket: the protocol's state machine between a reader, a writer and
one speaker per context, in a task group.

    socket ─▶ reader ─▶ Session.receive ─▶ effects ─▶ speakers (start, say, end, abort)
                                              │            │ frames, ends
                                              ▼            ▼
                                  outbox, bounded ─▶ writer ─▶ Session.frame ─▶ socket

Back-pressure: a socket that does not take bytes stops the writer, then fills the outbox, then
stops this session's speakers and its reader; the engine holds streams nobody takes frames from.
At most `OUTBOX` items wait here, beside one socket buffer. Other sessions notice nothing. A peer
that takes no byte for `send_timeout` seconds is given up.

When the socket goes away the task group is cancelled, and with it every request in the engine.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal, Protocol

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from omni_speak.runtime.errors import SpeechError
from omni_speak.runtime.request import SpeechRequest
from omni_speak.streams.protocol import (
    Abort,
    Close,
    Effect,
    End,
    Limits,
    Say,
    Send,
    Session,
    Start,
)
from omni_speak.streams.speaking import Engine, SpokenFrame, TextStream

logger = logging.getLogger(__name__)

OUTBOX = 8
"""Messages of one session waiting for its socket."""


class Disconnected(Exception):
    """The peer is gone."""


class Socket(Protocol):
    async def receive(self) -> str | bytes:
        """Raises Disconnected."""

    async def send(self, data: str | bytes) -> None:
        """Returns once the peer's buffer has room. Raises Disconnected."""

    async def close(self, code: int, reason: str) -> None: ...


class Drain:
    """How a shutdown reaches the sessions: first `asked`, and at the limit `over`."""

    def __init__(self) -> None:
        self.asked = anyio.Event()
        self.over = anyio.Event()


@dataclass(frozen=True, slots=True)
class _Frame:
    handle: int
    frame: SpokenFrame


@dataclass(frozen=True, slots=True)
class _Finished:
    handle: int
    reason: Literal["stop", "length"]
    segments: int


@dataclass(frozen=True, slots=True)
class _Failed:
    handle: int
    error: SpeechError


_Outgoing = Send | Close | _Frame | _Finished | _Failed


@dataclass(slots=True)
class _Speaker:
    scope: anyio.CancelScope
    segments: MemoryObjectSendStream[str]


class DuplexSession:
    """Run one session with `await DuplexSession(...).run()`, which returns when it is over."""

    def __init__(
        self,
        socket: Socket,
        engine: Engine,
        limits: Limits,
        drain: Drain,
        *,
        send_timeout: float = 60.0,
        on_frame: Callable[[], None] = lambda: None,
    ) -> None:
        self._socket = socket
        self._engine = engine
        self._limits = limits
        self._drain = drain
        self._send_timeout = send_timeout
        self._on_frame = on_frame
        self._session = Session(engine.info, limits, session_id=uuid.uuid4().hex)
        self._speakers: dict[int, _Speaker] = {}
        self._outbox, self._outgoing = anyio.create_memory_object_stream[_Outgoing](OUTBOX)
        self._tasks: TaskGroup

    async def run(self) -> None:
        with self._outbox, self._outgoing:
            async with anyio.create_task_group() as self._tasks:
                self._tasks.start_soon(self._write)
                self._tasks.start_soon(self._watch_drain)
                await self._read()

    async def _read(self) -> None:
        try:
            while True:
                await self._carry_out(self._session.receive(await self._socket.receive()))
        except Disconnected:
            self._tasks.cancel_scope.cancel()

    async def _write(self) -> None:
        """The only task that sends, so that what is stamped is sent, in that order."""
        try:
            async for item in self._outgoing:
                for effect in self._stamp(item):
                    match effect:
                        case Send(data):
                            with anyio.fail_after(self._send_timeout):
                                await self._socket.send(data)
                        case Close(code, reason):
                            await self._socket.close(code, reason)
                            self._tasks.cancel_scope.cancel()
                        case _:
                            self._instruct(effect)
        except TimeoutError:
            logger.warning("a client took nothing for %g s; given up", self._send_timeout)
            self._tasks.cancel_scope.cancel()
        except Disconnected:
            self._tasks.cancel_scope.cancel()

    def _stamp(self, item: _Outgoing) -> list[Effect]:
        match item:
            case _Frame(handle, frame):
                self._on_frame()
                return self._session.frame(handle, frame)
            case _Finished(handle, reason, segments):
                return self._session.finished(handle, reason, segments)
            case _Failed(handle, error):
                return self._session.failed(handle, error)
            case _:
                return [item]

    async def _watch_drain(self) -> None:
        await self._drain.asked.wait()
        await self._carry_out(self._session.drain())
        await self._drain.over.wait()
        await self._carry_out(self._session.shut_down())

    async def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send | Close):
                await self._outbox.send(effect)
            else:
                self._instruct(effect)

    def _instruct(self, effect: Start | Say | End | Abort | Send | Close) -> None:
        match effect:
            case Start(handle, request):
                # Never full: the limit on a context's characters is one on its segments.
                sender, receiver = anyio.create_memory_object_stream[str](self._limits.text_chars)
                self._speakers[handle] = _Speaker(anyio.CancelScope(), sender)
                self._tasks.start_soon(self._speak, handle, request, receiver)
            case Say(handle, segment):
                if handle in self._speakers:
                    self._speakers[handle].segments.send_nowait(segment)
            case End(handle):
                if handle in self._speakers:
                    self._speakers[handle].segments.close()
            case Abort(handle):
                if handle in self._speakers:
                    self._speakers[handle].scope.cancel()

    async def _speak(
        self, handle: int, request: SpeechRequest, segments: MemoryObjectReceiveStream[str]
    ) -> None:
        speaker = self._speakers[handle]
        try:
            with speaker.scope, segments, speaker.segments:
                stream = TextStream(self._engine, request, segments)
                try:
                    async with aclosing(stream.__aiter__()) as frames:
                        async for frame in frames:
                            await self._outbox.send(_Frame(handle, frame))
                except SpeechError as error:
                    await self._outbox.send(_Failed(handle, error))
                else:
                    assert stream.result is not None  # it ended by itself
                    result = stream.result
                    await self._outbox.send(_Finished(handle, result.reason, result.segments))
        finally:
            del self._speakers[handle]
