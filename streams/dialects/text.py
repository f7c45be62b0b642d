"""What dialects of other services share: JSON objects in, and the text of a context as its words
are heard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from omni_speak.streams.messages import Refused, Word
from omni_speak.streams.segmenter import token_end


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
    param = _path(from_json(data), first["loc"], missing=first["type"] == "missing")
    if first["type"] == "extra_forbidden":
        known = ", ".join(kind.model_fields)
        raise Refused("unknown_field", f"no field {param!r}; there are: {known}", param=param)
    raise Refused("invalid_message", f"{param or 'JSON'}: {first['msg']}", param=param)


def _path(at: Any, loc: Sequence[str | int], *, missing: bool) -> str | None:
    """Where that is in the message; `loc` also names the kinds that a field may be of."""
    path = []
    for i, part in enumerate(loc):
        if isinstance(part, int) or (isinstance(at, dict) and part in at):
            at = at[part]
        elif not (missing and i == len(loc) - 1):
            continue
        path.append(str(part)[:64])
    return ".".join(path) or None


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

    `chars` and `tokens` give all of the text once, up to and with the word and what is attached to
    it. The times of `chars` have no gaps: what lies between words takes the time between them.
    """

    def __init__(self, text: str = "") -> None:
        self.text = text
        self._told = 0
        self._at_ms = 0.0

    def append(self, piece: str) -> None:
        self.text += piece

    def chars(self, words: Iterable[Word]) -> list[Char]:
        chars: list[Char] = []
        for word, told, end in self._advance(words):
            start = max(word.start_char, told)
            chars += self._spread(self.text[told:start], max(word.start_ms, self._at_ms))
            chars += self._spread(self.text[start:end], max(word.end_ms, self._at_ms))
        return chars

    def tokens(self, words: Iterable[Word]) -> list[Word]:
        """The words, each with what lies before it and is attached to it."""
        tokens: list[Word] = []
        for word, told, end in self._advance(words):
            self._at_ms = word.end_ms
            tokens.append(_lengthened(word, self.text, told, end))
        return tokens

    def rest(self) -> list[Char]:
        """What no word was told of: the end of the text, if it is not only space."""
        return self._spread(self._remaining(), self._at_ms)

    def rest_token(self) -> list[Word]:
        """The same, as one token, if any."""
        start, rest = self._told, self._remaining()
        if not rest:
            return []
        at = self._at_ms
        word = Word(text="", start_char=start, end_char=start, start_ms=at, end_ms=at)
        return [_lengthened(word, self.text, start, start + len(rest))]

    def _advance(self, words: Iterable[Word]) -> Iterator[tuple[Word, int, int]]:
        """Each word that tells something new, where its news begin and where they end."""
        for word in words:
            end = token_end(self.text, word.end_char)
            if end > self._told:
                told, self._told = self._told, end
                yield word, told, end

    def _remaining(self) -> str:
        rest, self._told = self.text[self._told :].rstrip(), len(self.text)
        return rest

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


def _lengthened(word: Word, text: str, start: int, end: int) -> Word:
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    return word.model_copy(
        update={"text": piece.strip(), "start_char": start, "end_char": start + len(piece.strip())}
    )
