"""Our own protocol, `omni-speak.v1`: JSON messages, and audio in binary frames."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from omni_speak.streams.dialect import Reply, Texts
from omni_speak.streams.dialects.text import parse
from omni_speak.streams.messages import CLIENT_KINDS, ClientMessage, Refused, ServerMessage
from omni_speak.streams.wire import WireFrame, encode

SUBPROTOCOL = "omni-speak.v1"


class Head(BaseModel):
    """What is looked at before it is known what the message is."""

    type: Any = None
    context: Any = None


class NativeDialect:
    """See `dialect.Dialect`."""

    def open(self, texts: Texts) -> list[ClientMessage | Reply]:
        return []

    def receive(self, data: str | bytes) -> list[ClientMessage | Reply]:
        head = parse(Head, data)
        try:
            return [parse(_kind(head.type), data)]
        except Refused as error:
            # A malformed message may still name its context: the error reaches who sent it.
            if isinstance(head.context, str) and len(head.context) <= 64:
                error.context = head.context
            raise

    def send(self, event: ServerMessage | WireFrame) -> list[str | bytes]:
        return [encode(event) if isinstance(event, WireFrame) else event.model_dump_json()]


def _kind(name: Any) -> type[ClientMessage]:
    """Raises Refused."""
    if not isinstance(name, str) or name not in CLIENT_KINDS:
        known = ", ".join(CLIENT_KINDS)
        raise Refused("unknown_type", f"type must be one of {known}", param="type")
    return CLIENT_KINDS[name]
