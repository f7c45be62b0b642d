"""What is wrong at a door, and the status of every error, whichever dialect tells it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from starlette.responses import JSONResponse, Response

from omni_speak.runtime.errors import (
    EngineDead,
    InvalidRequest,
    LimitReached,
    ModelFault,
    ModelNotFound,
    NoAudio,
    Overloaded,
    RequestFault,
    SpeechError,
    UnknownVoice,
)
from omni_speak.streams.messages import (
    INTERNAL_ERROR,
    POLICY_VIOLATION,
    TRY_AGAIN_LATER,
    ErrorEvent,
)


class Unavailable(SpeechError):
    """The server cannot take this request now: starting, or shutting down."""

    code = "unavailable"


class BodyTooLarge(InvalidRequest):
    """The request's body is over the limit."""

    code = "body_too_large"


class Incomplete(SpeechError):
    """Speech ended before its text."""

    code = "incomplete"


class Unauthorized(SpeechError):
    """A token is needed, and none that is known came."""

    code = "unauthorized"


class OriginNotAllowed(SpeechError):
    """A page of another site may not use this server."""

    code = "origin_not_allowed"


class UnsupportedEncoding(SpeechError):
    """The body is compressed."""

    code = "unsupported_encoding"


_STATUS: dict[type[SpeechError], int] = {
    BodyTooLarge: 413,
    UnknownVoice: 404,
    LimitReached: 429,
    InvalidRequest: 400,
    ModelNotFound: 404,
    Unauthorized: 401,
    OriginNotAllowed: 403,
    UnsupportedEncoding: 415,
    Overloaded: 503,
    Unavailable: 503,
    EngineDead: 503,
    NoAudio: 500,
    ModelFault: 500,
    RequestFault: 500,
}
_STATUS_OF_CODE = {kind.code: status for kind, status in _STATUS.items()} | {
    "too_many_contexts": 429,
    "shutting_down": 503,
}


def status_of(error: SpeechError) -> int:
    """The HTTP status."""
    return next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)


def status_of_event(event: ErrorEvent) -> int:
    """The same for an error that a session tells; what else it refuses is a 400."""
    return _STATUS_OF_CODE.get(event.code, 500 if event.fatal else 400)


def close_code_of(event: ErrorEvent) -> int:
    """What a websocket is closed with, in a dialect whose connection ends with such an error."""
    status = status_of_event(event)
    if event.fatal or status == 500:
        return INTERNAL_ERROR
    if status == 503 or event.retry_after is not None:
        return TRY_AGAIN_LATER
    return POLICY_VIOLATION


TellError = Callable[[SpeechError], Response]
"""How a dialect tells an error, in a body that its clients know."""


def error_json(error: SpeechError, content: dict[str, Any]) -> Response:
    """The error, told by `content` in the words of its service."""
    status = status_of(error)
    headers = {}
    if status in (429, 503):
        headers["retry-after"] = f"{math.ceil(error.retry_after or 1.0)}"
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(content, status_code=status, headers=headers)
