"""What the stages before this one send it: chunks while a request runs, full payloads at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from omni_speak.runtime.connectors.base import Message, Receiver
from omni_speak.runtime.payload import Payload

Deliver = Callable[[str, Payload], None]
"""Puts a payload where the request's model state is."""


class StageInputs:
    """Messages of one receiver, for the requests that expect them.

    A request is expected from when the engine announces it until it ends. What arrives before its
    first step waits; what arrives for a request nobody expects is dropped.
    """

    def __init__(self, receiver: Receiver, deliver: Deliver) -> None:
        self._receiver = receiver
        self._deliver = deliver
        self._expected: set[str] = set()
        self._running: set[str] = set()
        self._waiting: dict[str, list[Message]] = {}

    def expect(self, req_id: str) -> None:
        """The engine has accepted a request."""
        self._expected.add(req_id)

    def register(self, req_ids: Iterable[str]) -> None:
        """These requests start now: chunks go straight to them."""
        self._running.update(req_ids)
        self._expected.update(self._running)

    def receive(self) -> None:
        """Take what has arrived; never waits."""
        for message in self._receiver.receive():
            self._waiting.setdefault(message.req_id, []).append(message)

    def flush(self, finished: Iterable[str]) -> None:
        """Drop what finished or unknown requests left."""
        for req_id in finished:
            self._expected.discard(req_id)
            self._running.discard(req_id)
        for req_id in self._waiting.keys() - self._expected:
            del self._waiting[req_id]

    def deliver(self) -> set[str]:
        """Hand running requests what waits for them, oldest first; whose it was."""
        ready = self._waiting.keys() & self._running
        for req_id in ready:
            for message in self._waiting.pop(req_id):
                self._deliver(req_id, message.payload)
        return ready
