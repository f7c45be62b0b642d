"""One duplex session: the protocol's state machine between a reader, a writer and one speaker per
context, in a task group.

    socket ─▶ reader ─▶ Dialect.receive ─▶ Session.handle ─▶ effects ─▶ speakers (start, say, …)
                                                    │            │ frames, ends
                                                    ▼            ▼
       socket ◀─ Dialect.send ◀─ Journal ◀─ writer ◀── outbox, bounded

Back-pressure: a socket that does not take bytes stops the writer, then fills the speakers' `OUTBOX`
places, then stops the speakers; the engine holds streams nobody takes frames from. The reader reads
on, so that an interrupt or a cancel acts at once whatever waits to be sent. Other sessions notice
nothing. A peer that takes no byte for `send_timeout` seconds, or leaves `ANSWERS` of what it is
told unread and still sends, is given up.

A connection that breaks, without a closing handshake, leaves its session waiting for another one
(`Sessions`), in the task of the first. Meanwhile speech goes on, at the listener's pace, until half
the journal is unsent. Without a connection for `limits.resume_s` the task group is cancelled, and
with it every request in the engine.
"""

from __future__ import annotations

import logging
import secrets
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Literal, Protocol

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from omni_speak.runtime.errors import InvalidRequest, SpeechError
from omni_speak.runtime.request import SpeechRequest
from omni_speak.streams.allowance import Allowance
from omni_speak.streams.dialect import Dialect, Reply
from omni_speak.streams.messages import (
    AnyEvent,
    ClientMessage,
    Close,
    ErrorEvent,
    Limits,
    Refused,
    Resume,
    ServerMessage,
    SessionOpen,
    SessionOpened,
)
from omni_speak.streams.protocol import (
    Abort,
    Effect,
    End,
    Journal,
    Played,
    Say,
    Send,
    Session,
    Start,
    no_such_session,
)
from omni_speak.streams.segmenter import Segment
from omni_speak.streams.speaking import Engine, SpokenFrame, TextStream
from omni_speak.streams.wire import WireFrame

logger = logging.getLogger(__name__)

OUTBOX = 8
"""What speakers made, of one session, waiting for its socket."""

ANSWERS = 1024
"""What else may wait there: answers to a client that goes on sending and does not read."""

TAKEN_OVER = 4001
TOO_SLOW = 4002
CLOSE_TIMEOUT_S = 1.0


class Disconnected(Exception):
    """The peer is gone; `clean` if it said so."""

    def __init__(self, *, clean: bool = False) -> None:
        super().__init__()
        self.clean = clean


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


class Sessions:
    """A server's sessions that a new connection may take over, by their ids."""

    def __init__(self) -> None:
        self._by_id: dict[str, DuplexSession] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, session: DuplexSession) -> None:
        self._by_id[session.id] = session

    def remove(self, session: DuplexSession) -> None:
        self._by_id.pop(session.id, None)

    def find(self, session_id: str) -> DuplexSession:
        """Raises Refused."""
        session = self._by_id.get(session_id)
        if session is None:
            raise no_such_session()
        return session


@dataclass(slots=True, eq=False)
class _Link:
    """A connection that was sent all up to number `seq`; one that resumes gets `greeting` first. It
    is `lost` when it takes nothing more; `over` is set when nobody will use it any more."""

    socket: Socket
    greeting: SessionOpened | None = None
    seq: int | None = None
    lost: bool = False
    dropped: bool = False
    receiving: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    writing: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    over: anyio.Event = field(default_factory=anyio.Event)

    def drop(self) -> None:
        """Nothing more is read or written here."""
        self.dropped = True
        self.receiving.cancel()
        self.writing.cancel()


@dataclass(frozen=True, slots=True)
class _Frame:
    handle: int
    epoch: int
    frame: SpokenFrame


@dataclass(frozen=True, slots=True)
class _Finished:
    handle: int
    epoch: int
    reason: Literal["stop", "length"]
    segments: int


@dataclass(frozen=True, slots=True)
class _Failed:
    handle: int
    epoch: int
    error: SpeechError


_Made = _Frame | _Finished | _Failed
_Answer = Send | Reply | Close
_Outgoing = _Made | _Answer


@dataclass(slots=True, eq=False)
class _Speaker:
    scope: anyio.CancelScope
    segments: MemoryObjectSendStream[Segment]
    stream: TextStream


class DuplexSession:
    """Run one connection with `await DuplexSession(...).run()`. It returns when the session is
    over, or, where its client resumed another one, when the connection is."""

    def __init__(
        self,
        socket: Socket,
        engine: Engine,
        dialect: Dialect,
        limits: Limits,
        drain: Drain,
        *,
        allowance: Allowance | None = None,
        sessions: Sessions | None = None,
        send_timeout: float = 60.0,
        on_frame: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.id = uuid.uuid4().hex
        self._engine = engine
        self._dialect = dialect
        self._limits = limits
        self._drain = drain
        self._sessions = Sessions() if sessions is None else sessions
        self._send_timeout = send_timeout
        self._on_frame = on_frame
        self._session = Session(
            engine.info,
            limits,
            allowance or Allowance(),
            session_id=self.id,
            resume_token=secrets.token_urlsafe(24),
            clock=clock,
        )
        self._journal = Journal(limits.journal_bytes)
        self._link: _Link | None = _Link(socket)
        self._told = 0
        """The journal from here on was told to no connection, when there is none."""
        self._given: anyio.Event | None = None
        self._linked = anyio.Event()
        self._alone = anyio.CancelScope()
        self._speakers: dict[int, _Speaker] = {}
        self._outbox, self._outgoing = anyio.create_memory_object_stream[_Outgoing](
            OUTBOX + ANSWERS
        )
        self._made_room = anyio.Semaphore(OUTBOX)
        self._answer_room = anyio.Semaphore(ANSWERS)
        self._tasks: TaskGroup

    async def run(self) -> None:
        self._sessions.add(self)
        try:
            with self._outbox, self._outgoing:
                async with anyio.create_task_group() as self._tasks:
                    self._tasks.start_soon(self._write)
                    self._tasks.start_soon(self._watch_drain)
                    await self._read()
                    self._tasks.cancel_scope.cancel()
        finally:
            self._sessions.remove(self)
            self._session.shut_down()  # whatever ended it, its contexts are over
            if self._link is not None:
                self._link.over.set()
            # Cancelled tasks leave cycles behind, and the collector comes late: not with all audio.
            del self._journal, self._session
        if self._given is not None:
            await self._given.wait()

    # -- connections ---------------------------------------------------------------------------

    def attach(self, socket: Socket, resume: Resume) -> anyio.Event:
        """Go on over this connection, in the dialect that knows what was said so far; the event is
        set when the connection is not used any more. One that was in use is told and closed.
        Raises Refused."""
        greeting = self._session.resume(resume.token)
        if self._tasks.cancel_scope.cancel_called:  # it is ending
            raise no_such_session()
        self._journal.replay(resume.seq)
        link = _Link(socket, greeting, resume.seq)
        before, self._link = self._link, link
        self._linked.set()
        self._linked = anyio.Event()
        if before is not None:
            before.drop()
            self._tasks.start_soon(self._dismiss, before)
        self._alone.cancel()
        return link.over

    async def _dismiss(self, link: _Link) -> None:
        text = "another connection took this session over"
        event = ErrorEvent(code="taken_over", message=text, fatal=True)
        try:
            with anyio.move_on_after(CLOSE_TIMEOUT_S), suppress(Disconnected):
                for data in self._dialect.send(event):
                    if not isinstance(data, Close):
                        await link.socket.send(data)
                await link.socket.close(TAKEN_OVER, text)
        finally:
            link.over.set()

    # -- reading -------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Returns when no connection is left, nor expected."""
        link = self._link
        assert link is not None
        for message in self._dialect.open(self._session.text):
            await self._take(link, message)
        while (link := self._link) is not None:
            clean = await self._listen(link)
            if self._given is not None:
                return
            if self._link is not link:
                continue
            self._lose(link)
            self._link = None
            link.drop()
            link.over.set()
            if clean or not self._session.resumable:
                return
            with anyio.move_on_after(self._limits.resume_s):
                await self._linked.wait()

    async def _listen(self, link: _Link) -> bool:
        """Until the connection is gone; whether it closed cleanly. What was received is handled
        whole, or, once another connection was told how much that is, not at all."""
        while not link.dropped and self._given is None:
            data: str | bytes | None = None
            try:
                with anyio.CancelScope() as link.receiving:
                    data = await link.socket.receive()
            except Disconnected as lost:
                return lost.clean
            if data is not None and not link.dropped:
                await self._receive(link, data)
            await checkpoint()  # thousands of messages may be there at once; others want the loop
        return False

    async def _receive(self, link: _Link, data: str | bytes) -> None:
        self._session.received += 1
        try:
            messages = self._dialect.receive(data)
        except InvalidRequest as error:
            await self._carry_out(self._session.refuse(error))
            return
        for message in messages:
            await self._take(link, message)

    async def _take(self, link: _Link, message: ClientMessage | Reply) -> None:
        if isinstance(message, Reply):
            await self._answer(message)
        elif (
            isinstance(message, SessionOpen)
            and message.resume is not None
            and not self._session.is_open
        ):
            await self._give_away(link, message.resume)
        else:
            await self._carry_out(self._session.handle(message))

    async def _give_away(self, link: _Link, resume: Resume) -> None:
        """The connection goes to the session it resumes, and this one ends."""
        try:
            other = self._sessions.find(resume.session)
            self._given = other.attach(link.socket, resume)
        except InvalidRequest as error:
            await self._carry_out(self._session.refuse(error))

    def _lose(self, link: _Link) -> None:
        if not link.lost:
            link.lost, self._told = True, 0 if link.seq is None else link.seq + 1

    # -- writing -------------------------------------------------------------------------------

    async def _write(self) -> None:
        """The only task that sends, so that what is stamped is sent, in that order."""
        while True:
            link = self._link
            if link is None or link.lost:
                with anyio.CancelScope() as self._alone:
                    await self._write_ahead()
                continue
            with link.writing:
                try:
                    await self._write_to(link)
                except TimeoutError:
                    await self._give_up(link, f"nothing was taken for {self._send_timeout:g} s")
                    return
                except Refused as gap:  # forgotten since the connection asked
                    await self._give_up(link, gap.message)
                    return
                except Disconnected:
                    self._lose(link)  # the reader will hear how it ended

    async def _write_to(self, link: _Link) -> None:
        if link.greeting is not None:
            # Not earlier: the last item for the connection before may just have been stamped.
            missed = self._journal.replay(link.seq)
            for event in (link.greeting, *missed):
                await self._tell(link, event)
                await checkpoint()  # a socket that broke takes everything until the loop runs
        while True:
            for told in self._stamp(await self._next()):
                await self._tell(link, told)

    async def _write_ahead(self) -> None:
        """Nobody listens: what is made waits in the journal."""
        if self._journal.size_since(self._told) >= self._limits.journal_bytes // 2:
            await anyio.sleep(self._limits.resume_s)
            self._tasks.cancel_scope.cancel()
        for told in self._stamp(await self._next()):
            if isinstance(told, Close):
                self._tasks.cancel_scope.cancel()

    async def _tell(self, link: _Link, told: ServerMessage | WireFrame | Reply | Close) -> None:
        match told:
            case Close():
                messages: Sequence[str | bytes | Close] = [told]
            case Reply():
                messages = [told.data]
            case _:
                messages = self._dialect.send(told)
        for message in messages:
            if isinstance(message, Close):
                with suppress(Disconnected):  # it closed at the same time
                    await link.socket.close(message.code, message.reason)
                self._tasks.cancel_scope.cancel()
                return
            with anyio.fail_after(self._send_timeout):
                await link.socket.send(message)
        if isinstance(told, AnyEvent | WireFrame):
            link.seq = told.seq

    async def _give_up(self, link: _Link | None, reason: str) -> None:
        logger.warning("a client was given up: %s", reason)
        with anyio.move_on_after(CLOSE_TIMEOUT_S), suppress(Disconnected):
            if link is not None:
                await link.socket.close(TOO_SLOW, reason)
        self._tasks.cancel_scope.cancel()

    def _stamp(self, item: _Outgoing) -> list[ServerMessage | WireFrame | Reply | Close]:
        """What an item means now. All of it is in the journal before any of it is sent."""
        match item:
            case _Frame(handle, epoch, frame):
                self._on_frame()
                effects = self._session.frame(handle, epoch, frame)
            case _Finished(handle, epoch, reason, segments):
                effects = self._session.finished(handle, epoch, reason, segments)
            case _Failed(handle, epoch, error):
                effects = self._session.failed(handle, epoch, error)
            case Send() | Close():
                effects = [item]
            case Reply():
                return [item]
        told: list[ServerMessage | WireFrame | Reply | Close] = []
        for effect in effects:
            match effect:
                case Send(event):
                    if isinstance(event, AnyEvent | WireFrame):
                        event = self._journal.add(event)
                    told.append(event)
                case Close():
                    told.append(effect)
                case _:
                    self._instruct(effect)
        return told

    # -- the outbox ----------------------------------------------------------------------------

    async def _put(self, item: _Made) -> None:
        await self._made_room.acquire()
        self._outbox.send_nowait(item)

    async def _answer(self, item: _Answer) -> None:
        try:
            self._answer_room.acquire_nowait()
        except anyio.WouldBlock:
            await self._give_up(self._link, f"{ANSWERS} answers were not taken")
        else:
            self._outbox.send_nowait(item)

    async def _next(self) -> _Outgoing:
        item = await self._outgoing.receive()
        room = self._made_room if isinstance(item, _Made) else self._answer_room
        room.release()
        return item

    # -- what effects do -----------------------------------------------------------------------

    async def _watch_drain(self) -> None:
        await self._drain.asked.wait()
        await self._carry_out(self._session.drain())
        await self._drain.over.wait()
        await self._carry_out(self._session.shut_down())

    async def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send | Close):
                await self._answer(effect)
            else:
                self._instruct(effect)

    def _instruct(self, effect: Effect) -> None:
        match effect:
            case Start(handle, epoch, request):
                self._start(handle, epoch, request)
            case Say(handle, segment):
                if handle in self._speakers:
                    self._speakers[handle].segments.send_nowait(segment)
            case End(handle):
                if handle in self._speakers:
                    self._speakers[handle].segments.close()
            case Abort(handle):
                if handle in self._speakers:
                    self._speakers.pop(handle).scope.cancel()
            case Played(handle, samples):
                if handle in self._speakers:
                    self._speakers[handle].stream.played(samples)

    def _start(self, handle: int, epoch: int, request: SpeechRequest) -> None:
        # Never full: the limit on a context's characters is one on its segments.
        sender, segments = anyio.create_memory_object_stream[Segment](self._limits.text_chars)
        stream = TextStream(self._engine, request, segments, tasks=self._tasks)
        speaker = self._speakers[handle] = _Speaker(anyio.CancelScope(), sender, stream)
        self._tasks.start_soon(self._speak, handle, epoch, speaker, segments)

    async def _speak(
        self,
        handle: int,
        epoch: int,
        speaker: _Speaker,
        segments: MemoryObjectReceiveStream[Segment],
    ) -> None:
        try:
            with speaker.scope, segments, speaker.segments:
                try:
                    async with aclosing(speaker.stream.__aiter__()) as frames:
                        async for frame in frames:
                            await self._put(_Frame(handle, epoch, frame))
                except SpeechError as error:
                    await self._put(_Failed(handle, epoch, error))
                else:
                    result = speaker.stream.result
                    assert result is not None  # it ended by itself
                    await self._put(_Finished(handle, epoch, result.reason, result.segments))
        finally:
            if self._speakers.get(handle) is speaker:
                del self._speakers[handle]
