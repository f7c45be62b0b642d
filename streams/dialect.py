"""The seam between a session and what its client speaks.

A dialect is a pure translator, one object per session: bytes and text of a websocket on one side,
the typed messages of `messages.py` on the other. It does no I/O, starts no task and keeps no time;
`DuplexSession` runs it:

    socket ─▶ dialect.receive ─▶ Session.handle ─▶ … ─▶ Send(event) ─▶ dialect.send ─▶ socket

`open` is called once, first. Everything a dialect gets to `send` comes in order, from one task.
Messages from `open` and `receive` are handled in order before the next is received, and each is
refused or accepted by itself: a refusal comes back to `send` as an ErrorEvent naming its context.

A resumable session keeps its dialect when its connection changes. What the last connection missed
is given to `send` again, which must then say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from omni_speak.streams.messages import ClientMessage, Close, ServerMessage
from omni_speak.streams.wire import WireFrame


@dataclass(frozen=True, slots=True)
class Reply:
    """Goes straight back to the client, after what was sent before it."""

    data: str | bytes


Texts = Callable[[str], str]
"""The text of the context of this name, as far as the session has accepted it."""


class Dialect(Protocol):
    def open(self, texts: Texts) -> Sequence[ClientMessage | Reply]:
        """What connecting itself means, where path, query or headers say it all: a SessionOpen,
        maybe a ContextOpen. Nothing where the client opens the session with a message.

        `texts` may be asked at any time. In `receive` it knows all that was sent before; in `send`
        it may know more than when the event was made."""

    def receive(self, data: str | bytes) -> Sequence[ClientMessage | Reply]:
        """What one message of the client means. Raises `Refused` (or InvalidRequest) for one that
        cannot be understood; the connection goes on, and `send` gets the ErrorEvent."""

    def send(self, event: ServerMessage | WireFrame) -> Sequence[str | bytes | Close]:
        """How the client is told. A WireFrame's payload is encoded in the session's format; a
        `Close` ends the connection and the session, nothing after it is sent."""
