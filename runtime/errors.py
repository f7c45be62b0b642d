"""One tree of errors for the whole project; each door (CLI, HTTP, websocket, dialect) maps it once.

`code` is stable and machine-readable, `param` names the input at fault, the message says what is
wrong with it and what is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence


class SpeechError(Exception):
    """Base of everything the runtime raises on purpose. `retry_after`: seconds, where it is known
    when the same may work."""

    code = "speech_error"

    def __init__(
        self, message: str, *, param: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after


class InvalidRequest(SpeechError):
    """The request is at fault: nothing was started, nothing else is touched."""

    code = "invalid_request"


class NothingToSay(InvalidRequest):
    """The text holds no word, number or letter that can be spoken."""

    code = "nothing_to_say"


class TextTooLong(InvalidRequest):
    """The text is over the declared limit."""

    code = "text_too_long"


class UnknownVoice(InvalidRequest):
    """The voice is not one of the model's."""

    code = "unknown_voice"


class ModelNotFound(SpeechError):
    """The model's name or path, or one file of it, does not exist."""

    code = "model_not_found"


class NoAudio(SpeechError):
    """The model ended the request before its first frame."""

    code = "no_audio"


class EngineDead(SpeechError):
    """The engine stopped; no request can run any more."""

    code = "engine_dead"


class Overloaded(SpeechError):
    """The engine has as many streams as it can serve in time, and as many waiting as it may; try
    again in `retry_after` seconds."""

    code = "overloaded"


class LimitReached(InvalidRequest):
    """A limit on whoever asks is reached; try again in `retry_after` seconds."""

    code = "limit_reached"


class ModelFault(SpeechError):
    """A model hook broke its promise: `requests` were in the step it failed."""

    code = "model_fault"

    def __init__(self, message: str, requests: Sequence[str]) -> None:
        super().__init__(message)
        self.requests = tuple(requests)


class MalformedType(ModelFault, TypeError):
    """A hook returned another type, dtype or rank than it must."""


class MalformedShape(ModelFault, ValueError):
    """A hook returned another number of rows or columns than it must."""


class RequestFault(SpeechError):
    """One request of a step is at fault; it ends alone. Hooks may raise it if they have changed
    nothing."""

    code = "request_fault"

    def __init__(self, message: str, request: str) -> None:
        super().__init__(message)
        self.request = request
