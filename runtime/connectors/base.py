"""What a connector carries, and what both of its ends promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from omni_speak.runtime.errors import SpeechError
from omni_speak.runtime.payload import Payload

Kind = Literal["chunk", "full", "kv"]
"""A step's payload, the whole of a request's payload, or its keys and values."""


@dataclass(frozen=True, slots=True)
class Message:
    """One request's payload on its way."""

    req_id: str
    kind: Kind
    payload: Payload


class ConsumerGone(SpeechError):
    """The other end was closed, died, or has stopped reading."""

    code = "consumer_gone"


class ProducerGone(SpeechError):
    """The other end was closed or died, and all it had sent was read."""

    code = "producer_gone"


class Sender(Protocol):
    def send(self, messages: Sequence[Message]) -> None:
        """In order, all or none. Waits while the connector is full; raises `ConsumerGone`."""
        ...

    def close(self) -> None: ...


class Receiver(Protocol):
    def receive(self, timeout_s: float = 0.0) -> list[Message]:
        """What has arrived, in order; waits up to `timeout_s` for the first. Raises
        `ProducerGone`."""
        ...

    def close(self) -> None: ...
