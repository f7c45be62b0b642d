"""Sockets that a test holds in its hand, and sessions over them."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

from omni_speak.streams.dialects.native import NativeDialect
from omni_speak.streams.messages import Limits
from omni_speak.streams.session import Disconnected, Drain, DuplexSession, Sessions
from omni_speak.streams.wire import decode
from tests.streams.fake_engine import FakeEngine


class HeldSocket:
    """Takes messages only while `flowing` is set, and none once it is `gone`."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.flowing = anyio.Event()
        self.gone = False
        self.sent: list[str | bytes] = []
        self.closed: tuple[int, str] | None = None
        self._send, self._receive = anyio.create_memory_object_stream[str](100)
        for message in messages:
            self.put(message)

    def put(self, message: dict[str, Any]) -> None:
        self._send.send_nowait(json.dumps(message))

    def vanish(self) -> None:
        self._send.close()

    async def receive(self) -> str:
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            raise Disconnected(clean=True) from None

    async def send(self, data: str | bytes) -> None:
        await self.flowing.wait()
        if self.gone:
            raise Disconnected
        self.sent.append(data)

    async def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)


OPEN = {"type": "session.open"}


def speech(text: str, context: str = "a") -> list[dict[str, Any]]:
    return [
        {"type": "context.open", "context": context},
        {"type": "text.append", "context": context, "text": text},
        {"type": "text.end", "context": context},
    ]


class Link(HeldSocket):
    """A held socket that takes `room` messages, breaks instead of closing, and reads what came."""

    def __init__(self, *messages: dict[str, Any], room: int = 1000) -> None:
        super().__init__(*messages)
        self.room = room
        self.flowing.set()
        self.broken = False

    def take(self, room: int) -> None:
        self.room += room
        self.flowing.set()

    async def receive(self) -> str:
        try:
            return await super().receive()
        except Disconnected:
            raise Disconnected(clean=not self.broken) from None

    async def send(self, data: str | bytes) -> None:
        if self.broken:
            raise Disconnected
        await super().send(data)
        self.room -= 1
        if self.room <= 0:
            self.flowing = anyio.Event()

    def breaks(self) -> None:
        self.broken = True
        self.vanish()

    @property
    def read(self) -> list[Any]:
        return [json.loads(d) if isinstance(d, str) else decode(d) for d in self.sent]

    @property
    def greeting(self) -> dict[str, Any]:
        greeting = self.read[0]
        assert isinstance(greeting, dict)
        return greeting

    def numbered(self) -> list[Any]:
        return [item for item in self.read if seq_of(item) is not None]


L = TypeVar("L", bound=Link)


def session_on(socket: HeldSocket, engine: FakeEngine, **options: Any) -> DuplexSession:
    return DuplexSession(socket, engine, NativeDialect(), Limits(), Drain(), **options)


def seq_of(item: Any) -> int | None:
    seq: int | None = item.get("seq") if isinstance(item, dict) else item.seq
    return seq


def resume(greeting: dict[str, Any], seq: int | None) -> dict[str, Any]:
    token = {"session": greeting["session"], "token": greeting["resume_token"], "seq": seq}
    return {"type": "session.open", "resume": token}


class House:
    """Sessions of one server, over sockets held in the hand."""

    def __init__(self, tasks: TaskGroup, **limits: Any) -> None:
        self.engine: FakeEngine = FakeEngine()
        self.sessions = Sessions()
        self._tasks = tasks
        self._limits = Limits(**limits)

    async def connect(self, *messages: dict[str, Any], room: int = 1000) -> Link:
        return await self.welcome(Link(*messages, room=room))

    async def welcome(self, link: L) -> L:
        session = DuplexSession(
            link,
            self.engine,
            NativeDialect(),
            self._limits,
            Drain(),
            sessions=self.sessions,
            clock=lambda: 0.0,  # so that messages are as long in every run
        )
        self._tasks.start_soon(session.run)
        await anyio.wait_all_tasks_blocked()
        return link
