"""Text → the words to say, read as it stands: nothing is markup, nothing is an abbreviation.

Words are words, digits are read one by one, symbols and emoji by their names. Punctuation is a
pause where a sentence has it, and read inside of other things.

    "See **42** @ x.io." → See · asterisk · asterisk · four · two · … · at · x · dot · io · .
"""

from __future__ import annotations

import re
import unicodedata

from omni_speak.models.wren.text.markup import LINE_BREAKS, plain_character
from omni_speak.models.wren.text.normalise import Span, add_span
from omni_speak.models.wren.text.numbers import digits
from omni_speak.models.wren.text.saying import say_letter_name, say_word
from omni_speak.models.wren.text.tables import ADDRESS_MARKS

NAMES = ADDRESS_MARKS | {
    "*": "asterisk",
    "#": "hash",
    "`": "backtick",
    "^": "caret",
    "|": "pipe",
    "<": "less than",
    ">": "greater than",
    "$": "dollar",
    "€": "euro",
    "£": "pound",
    "¥": "yen",
    "°": "degree",
    ",": "comma",
    ";": "semicolon",
    "!": "exclamation mark",
    "?": "question mark",
}
_TOKEN = re.compile(
    r"(?P<word>[A-Za-z]++(?:['-][A-Za-z]++)*+)"
    r"|(?P<digit>\d)"
    r"|(?P<pause>[,;:.!?])(?=[,;:.!?\"')\]}]*(?:\s|\Z))"
    r"|(?P<dash>(?<=\s)[-–—]++(?=\s)|[–—])"
    r"|(?P<quiet>[\s\"'()\[\]{}])"
    r"|(?P<letter>[\u0370-\u03ff\u0400-\u045f])"
    r"|(?P<symbol>.)",
    re.ASCII | re.DOTALL,
)


def literal(text: str) -> list[Span]:
    """The words and pauses of a text, in order; empty if there is nothing to say."""
    plain, offsets = _plain(text)
    spans: list[Span] = []
    for match in _TOKEN.finditer(plain):
        spoken = _say(match.lastgroup, match[0])
        if spoken:
            first, last = offsets[match.start()], offsets[match.end() - 1]
            add_span(spans, Span(spoken, first, last + 1))
    return spans


def _say(kind: str | None, written: str) -> str:
    match kind:
        case "word":
            return say_word(written)
        case "digit":
            return digits(written)
        case "pause":
            return written
        case "dash":
            return ","
        case "letter":
            return say_letter_name(written)
        case "symbol":
            return NAMES.get(written) or _name(written)
        case _:
            return ""


def _name(symbol: str) -> str:
    """As Unicode calls it: 😀 → grinning face."""
    if unicodedata.category(symbol) not in ("Sc", "Sm", "So"):
        return ""
    return " ".join(re.findall(r"[a-z]+", unicodedata.name(symbol, "").lower()))


def _plain(text: str) -> tuple[str, list[int]]:
    """The text in ASCII as far as a reader would write it so, symbols as they are, and for each
    character the offset it was written at."""
    chars: list[str] = []
    offsets: list[int] = []
    for offset, char in enumerate(text):
        symbol = char in NAMES or unicodedata.category(char) in ("Sc", "Sm", "So")
        for plain in char if symbol else "\n" if char in LINE_BREAKS else plain_character(char):
            chars.append(plain)
            offsets.append(offset)
    return "".join(chars), offsets
