"""A TCP connection to a server that can be cut."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Self

import anyio
from anyio.abc import SocketAttribute, SocketStream


class Cable:
    """Listens at `url`; `plugs` counts the connections made. They are all cut by `cut()`, or once
    `bytes_left` have gone through, both ways together; `unplug()` cuts them for good."""

    def __init__(self, server_url: str) -> None:
        self._host, port = server_url.removeprefix("http://").split(":")
        self._port = int(port)
        self._ends: list[SocketStream] = []
        self.url = ""
        self.bytes_left = 1 << 60
        self.plugs = 0
        self._gone = False

    @classmethod
    @asynccontextmanager
    async def to(cls, server_url: str) -> AsyncIterator[Self]:
        cable = cls(server_url)
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as tasks:
            cable.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
            tasks.start_soon(listener.serve, cable._plug)
            yield cable
            tasks.cancel_scope.cancel()

    async def _plug(self, client: SocketStream) -> None:
        if self._gone:
            await client.aclose()
            return
        self.plugs += 1
        async with await anyio.connect_tcp(self._host, self._port) as server, client:
            self._ends += [client, server]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._carry, client, server)
                await self._carry(server, client)
                tasks.cancel_scope.cancel()

    async def _carry(self, source: SocketStream, target: SocketStream) -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            async for data in source:
                self.bytes_left -= len(data)
                if self.bytes_left < 0:
                    self.cut()
                await target.send(data)

    def cut(self) -> None:
        self.bytes_left = 1 << 60
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):  # closed already
                end.extra(SocketAttribute.raw_socket).shutdown(socket.SHUT_RDWR)

    def unplug(self) -> None:
        self._gone = True
        self.cut()
