"""A connector between two threads: a bounded queue of messages."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from omni_speak.runtime.connectors.base import ConsumerGone, Message, ProducerGone


class InProcessConnector:
    """Both ends in one object. Tensors are handed over, not copied.

    `capacity` messages are held at most; a consumer that takes none for `patience_s` is gone.
    """

    def __init__(self, capacity: int = 1024, patience_s: float = 10.0) -> None:
        self._capacity = capacity
        self._patience_s = patience_s
        self._messages: deque[Message] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def send(self, messages: Sequence[Message]) -> None:
        if len(messages) > self._capacity:
            raise ValueError(f"{len(messages)} messages do not fit in {self._capacity}")
        with self._changed:
            room = self._changed.wait_for(
                lambda: self._closed or len(self._messages) + len(messages) <= self._capacity,
                self._patience_s,
            )
            if self._closed or not room:
                why = "is closed" if self._closed else f"took nothing for {self._patience_s} s"
                raise ConsumerGone(f"the connector's consumer {why}")
            self._messages.extend(messages)
            self._changed.notify_all()

    def receive(self, timeout_s: float = 0.0) -> list[Message]:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._messages, timeout_s)
            if self._closed and not self._messages:
                raise ProducerGone("the connector is closed")
            messages = list(self._messages)
            self._messages.clear()
            self._changed.notify_all()
            return messages

    def close(self) -> None:
        """Either end. What was sent can still be received."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
