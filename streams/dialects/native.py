"""Our own protocol, `omni-speak.v1`: JSON messages, and audio in binary frames."""

from __future__ import annotations

from pydantic import ValidationError
from pydantic_core import from_json

from omni_speak.streams.dialect import Reply
from omni_speak.streams.messages import (
    CLIENT_MESSAGE,
    CLIENT_TYPES,
    ClientMessage,
    Refused,
    ServerMessage,
)
from omni_speak.streams.wire import WireFrame, encode

SUBPROTOCOL = "omni-speak.v1"


class NativeDialect:
    """See `dialect.Dialect`."""

    def open(self) -> list[ClientMessage | Reply]:
        return []

    def receive(self, data: str | bytes) -> list[ClientMessage | Reply]:
        if isinstance(data, bytes):
            raise Refused("unexpected_binary", "binary messages are not expected here")
        try:
            return [CLIENT_MESSAGE.validate_json(data)]
        except ValidationError as error:
            raise _refusal(error, _context_in(data)) from None

    def send(self, event: ServerMessage | WireFrame) -> list[str | bytes]:
        return [encode(event) if isinstance(event, WireFrame) else event.model_dump_json()]


def _refusal(error: ValidationError, context: str | None) -> Refused:
    """The first thing wrong with a message, in the words of whoever wrote the message."""
    first = error.errors(include_url=False, include_input=False)[0]
    kind = first["type"]
    if kind == "json_invalid":
        return Refused("invalid_json", f"the message is not JSON: {first['msg']}")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        text = f"type must be one of {CLIENT_TYPES}"
        return Refused("unknown_type", text, param="type", context=context)
    # The first part is the message's type, which the client did not write as a path.
    message_type, *path = (str(part)[:64] for part in first["loc"] or ("",))
    param = ".".join(path) or None
    if kind == "extra_forbidden":
        text = f"{message_type} has no field {param!r}"
        return Refused("unknown_field", text, param=param, context=context)
    text = f"{param or 'the message'}: {first['msg']}"
    return Refused("invalid_message", text, param=param, context=context)


def _context_in(data: str) -> str | None:
    """The context a malformed message names, so that its error reaches who sent it."""
    try:
        message = from_json(data)
    except ValueError:
        return None
    context = message.get("context") if isinstance(message, dict) else None
    return context if isinstance(context, str) and len(context) <= 64 else None
