"""What dialects of other services share: JSON objects in, and the text of a context as its words
are heard."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from omni_speak.streams.messages import Refused, Word


class Foreign(BaseModel):
    """A message of another service. A field the service does not have is refused: it is misspelt.
    Those that only tune a model we do not have are named, and taken without effect."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


M = TypeVar("M", bound=BaseModel)


def parse(kind: type[M], data: str | bytes) -> M:
    """Raises Refused, naming the field and what is wrong with it."""
    if isinstance(data, bytes):
        raise Refused("unexpected_binary", "binary messages are not expected here")
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        first: Any = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        raise Refused("invalid_json", f"this is not JSON: {first['msg']}")
    param = ".".join(str(part)[:64] for part in first["loc"]) or None
    if first["type"] == "extra_forbidden":
        known = ", ".join(kind.model_fields)
        raise Refused("unknown_field", f"no field {param!r}; there are: {known}", param=param)
    raise Refused("invalid_message", f"{param or 'it'}: {first['msg']}", param=param)


def separated(text: str, piece: str) -> str:
    """What comes after `text`, with a space before it where they have none."""
    parted = not text or not piece or text[-1].isspace() or piece[:1].isspace()
    return piece if parted else " " + piece


@dataclass(frozen=True, slots=True)
class Char:
    text: str
    start_ms: float
    end_ms: float


class Transcript:
    """The text of one context, and how far it was heard.

    `chars` gives every character of the
    text once, up to and with the word and what is attached to it, its times without a gap: what
    lies between words takes the time between them.
    """

    def __init__(self) -> None:
        self.text = ""
        self._told = 0
        self._at_ms = 0.0

    def append(self, piece: str) -> None:
        self.text += piece

    def chars(self, words: Iterable[Word]) -> list[Char]:
        chars: list[Char] = []
        for word in words:
            end = word.end_char
            while end < len(self.text) and not self.text[end].isspace():
                end += 1
            if end <= self._told:
                continue
            start = max(word.start_char, self._told)
            chars += self._spread(self.text[self._told : start], max(word.start_ms, self._at_ms))
            chars += self._spread(self.text[start:end], max(word.end_ms, self._at_ms))
            self._told = end
        return chars

    def rest(self) -> list[Char]:
        """What no word was told of: the end of the text, if it is not only space."""
        rest, self._told = self.text[self._told :].rstrip(), len(self.text)
        return self._spread(rest, self._at_ms)

    def _spread(self, text: str, until_ms: float) -> list[Char]:
        if not text:
            return []
        step = (until_ms - self._at_ms) / len(text)
        chars = [
            Char(char, self._at_ms + i * step, self._at_ms + (i + 1) * step)
            for i, char in enumerate(text)
        ]
        self._at_ms = until_ms
        return chars
