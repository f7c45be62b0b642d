"""A connector between two processes: tensors in shared memory, everything else over a socket.

The sender writes tensors into a ring and sends one small header per batch over a socket pair; the
receiver copies them out and answers with one byte. The socket orders the memory, wakes the
reader, holds back the writer, and ends with either process, however it dies.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import msgspec
import torch

from omni_speak.runtime.connectors.base import ConsumerGone, Kind, Message, ProducerGone

ALIGN = 16
"""Tensors start at multiples of this many bytes."""
MAX_UNREAD = 64
"""Batches on their way at most, so that the socket never fills."""

_TensorHeader = tuple[str, str, list[int], int]  # key, dtype, shape, offset in the ring
_Header = tuple[str, Kind, list[_TensorHeader]]  # request, kind, tensors
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Header]).decode


def shared_memory_connector(
    capacity_bytes: int = 16 << 20, patience_s: float = 10.0
) -> tuple[SharedMemorySender, SharedMemoryReceiver]:
    """Both ends. Give the receiver to a process started with the "spawn" context and then `close`
    it here, so that the process's end is the receiver's end."""
    ours, theirs = get_context("spawn").Pipe(duplex=True)
    memory = SharedMemory(create=True, size=capacity_bytes)
    return (
        SharedMemorySender(memory, capacity_bytes, ours, patience_s),
        SharedMemoryReceiver(SharedMemory(memory.name), theirs),
    )


class SharedMemorySender:
    """The producer's end; owns the memory. A consumer that frees nothing for `patience_s` while
    the ring is full is gone."""

    def __init__(
        self, memory: SharedMemory, capacity: int, socket: Connection, patience_s: float
    ) -> None:
        self._memory = memory
        self._capacity = capacity
        self._socket = socket
        self._patience_s = patience_s
        self._head = 0  # bytes ever given out
        self._tail = 0  # bytes ever given back
        self._unread: deque[int] = deque()  # each batch's end

    def send(self, messages: Sequence[Message]) -> None:
        start, size = self._reserve(messages)
        offset, headers = start, []
        for message in messages:
            tensors: list[_TensorHeader] = []
            for key, value in message.payload.items():
                shape = list(value.shape)
                self._write(offset, value)
                tensors.append((key, str(value.dtype).removeprefix("torch."), shape, offset))
                offset += _room(value)
            headers.append((message.req_id, message.kind, tensors))
        try:
            self._socket.send_bytes(_encode(headers))
        except OSError as error:
            raise ConsumerGone("the connector's consumer has died") from error
        self._head += size
        self._unread.append(self._head)

    def _reserve(self, messages: Sequence[Message]) -> tuple[int, int]:
        """A stretch of the ring in one piece for a batch's tensors: its offset, and how many
        bytes to give out (those skipped at the ring's end included)."""
        need = sum(_room(value) for message in messages for value in message.payload.values())
        if need > self._capacity:
            raise ValueError(f"a batch of {need} bytes does not fit in {self._capacity}")
        start = self._head % self._capacity
        skip = self._capacity - start if start + need > self._capacity else 0
        self._collect(0.0)
        while (
            self._head + skip + need - self._tail > self._capacity
            or len(self._unread) >= MAX_UNREAD
        ):
            if not self._collect(self._patience_s):
                raise ConsumerGone(
                    f"the connector's consumer read nothing for {self._patience_s} s"
                )
        return (0 if skip else start), skip + need

    def _collect(self, timeout_s: float) -> bool:
        """Take back what was read; whether anything was."""
        collected = False
        try:
            while self._socket.poll(0.0 if collected else timeout_s):
                self._socket.recv_bytes()
                self._tail = self._unread.popleft()
                collected = True
        except (EOFError, OSError) as error:
            raise ConsumerGone("the connector's consumer has died") from error
        return collected

    def _write(self, offset: int, value: torch.Tensor) -> None:
        if value.numel():
            _view(self._memory, offset, value.dtype, list(value.shape)).copy_(value)

    def close(self) -> None:
        """Wait until what was sent is read (or the consumer is gone). Twice is harmless."""
        if self._socket.closed:
            return
        with suppress(ConsumerGone):
            while self._unread and self._collect(self._patience_s):
                pass
        self._socket.close()
        self._memory.close()
        self._memory.unlink()


class SharedMemoryReceiver:
    """The consumer's end, to be pickled into its process."""

    def __init__(self, memory: SharedMemory, socket: Connection) -> None:
        self._memory = memory
        self._socket = socket

    def receive(self, timeout_s: float = 0.0) -> list[Message]:
        messages: list[Message] = []
        try:
            while self._socket.poll(0.0 if messages else timeout_s):
                headers = _decode(self._socket.recv_bytes())
                messages += [self._read(*header) for header in headers]
                self._socket.send_bytes(b"r")
        except (EOFError, OSError) as error:
            if not messages:
                raise ProducerGone("the connector's producer is gone") from error
        return messages

    def _read(self, req_id: str, kind: Kind, tensors: list[_TensorHeader]) -> Message:
        payload = {}
        for key, dtype, shape, offset in tensors:
            if math.prod(shape):
                payload[key] = _view(self._memory, offset, getattr(torch, dtype), shape).clone()
            else:
                payload[key] = torch.empty(shape, dtype=getattr(torch, dtype))
        return Message(req_id, kind, payload)

    def close(self) -> None:
        if not self._socket.closed:
            self._socket.close()
            self._memory.close()


def _room(value: torch.Tensor) -> int:
    return -(-value.nbytes // ALIGN) * ALIGN


def _view(memory: SharedMemory, offset: int, dtype: torch.dtype, shape: list[int]) -> Any:
    """A tensor in the ring; gone before the next statement, or the memory could not close."""
    return torch.frombuffer(memory.buf, dtype=dtype, count=math.prod(shape), offset=offset).view(
        shape
    )
