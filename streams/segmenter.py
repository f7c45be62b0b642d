"""When enough text has arrived to speak: sentences out of text that arrives in any pieces.

The rule looks at most `_LOOKAHEAD` characters past a possible sentence end, and waits for them; so
how the text was cut on its way here never changes the segments. Where a full stop may or may not
end a sentence ("Dr.", "U.S.", "J."), it does not: a segment too long costs a little latency, a
pause in the wrong place is heard.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LOOKAHEAD = 24
_OPENERS = "\"'“‘«([{¿¡"
_BOUNDARY = re.compile(
    r"""(?P<stop>[.!?…]{1,6})(?P<close>["'”’»)\]}]{0,4})(?P<gap>\s{1,8})"""
    r"""|(?P<cjk>[。！？｡]{1,6}["'”’»」』）]{0,4})"""
    r"""|(?P<blank>\s{8}|\n[^\S\n]{0,6}\n)"""
)
# What a boundary may still grow into when it touches the end of the text received so far.
_UNFINISHED = re.compile(
    r"""(?:[.!?…]{1,6}["'”’»)\]}]{0,4}\s{0,8}|[。！？｡]{1,6}["'”’»」』）]{0,4}|\s{1,8})\Z"""
)
_ACRONYM = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]")
_CLAUSE = re.compile(r"[,;:，；：、—]\s|[，；：、—]")
_SPACE = re.compile(r"[ \t\n]")
_SPAN = re.compile(r"""`[^`\n]*`|\[[^\[\]\n]*\](?:\([^()\n]*\)|(?![(]))|<[A-Za-z/!][^<>\n]*>""")
_SPAN_OPEN = re.compile(r"`|\[|\]\(|<[A-Za-z/!]")

# Never the end of a sentence: what they name follows.
_LEADING = frozenset(
    "dr mr mrs ms mx prof st gen col capt lt sgt maj rev hon gov sen rep pres fr mt ft messrs "
    "e.g i.e cf vs viz nos vol fig figs p pp sec ch eq approx ca est".split()
)
# The end of a sentence only where a capital follows.
_TRAILING = frozenset(
    "a.m p.m etc al inc ltd co corp jr sr dept jan feb mar apr jun jul aug sep sept oct nov dec "
    "mon tue wed thu fri sat sun ph.d".split()
)


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a text to be spoken as one, and where in the text it begins."""

    text: str
    start: int


class Segmenter:
    """Feed text with `push`, force what is left out with `flush`. Places count from `start`.

    Segments carry no space at either end and never exceed `max_chars`; a longer sentence is cut
    after its last clause mark, else at its last space.
    """

    def __init__(self, max_chars: int = 300, first_chars: int = 60, *, start: int = 0) -> None:
        self._max_chars = max_chars
        self._first_chars: int | None = first_chars  # None once the first segment is out
        self._buffer = ""
        self._start = start

    def push(self, text: str) -> list[Segment]:
        """The segments that `text` completes."""
        # Space before a segment carries nothing; dropping it at once keeps the buffer small.
        self._buffer += text
        self._drop(0)
        segments = []
        while (cut := self._next_cut()) is not None:
            segments.append(self._take(cut))
        return segments

    def flush(self) -> list[Segment]:
        """What is left, as if the text ended here."""
        segments = []
        while len(self._buffer.rstrip()) > self._max_chars:
            segments.append(self._take(self._long_cut()))
        if self._buffer:
            segments.append(self._take(len(self._buffer)))
        return segments

    def _take(self, cut: int) -> Segment:
        segment = Segment(self._buffer[:cut].rstrip(), self._start)
        self._drop(cut)
        self._first_chars = None
        return segment

    def _drop(self, chars: int) -> None:
        """Forget so many characters, and the space that follows."""
        rest = self._buffer[chars:].lstrip()
        self._start += len(self._buffer) - len(rest)
        self._buffer = rest

    def _next_cut(self) -> int | None:
        """Where the first segment ends, or None while that is not yet certain."""
        text, limit = self._buffer, self._max_chars
        settled = len(text)
        if unfinished := _UNFINISHED.search(text, max(0, len(text) - _LOOKAHEAD)):
            settled = unfinished.start()
        clause = self._first_clause()
        for match in _BOUNDARY.finditer(text):
            if match.start() >= min(settled, limit, clause):
                break
            if match.end() <= limit and _ends_sentence(text, match):
                return match.end()
        if clause < settled:
            return clause
        # Every boundary that could still fall within the limit must have been seen.
        if len(text) > limit + _LOOKAHEAD:
            return self._long_cut()
        return None

    def _first_clause(self) -> int:
        """Where the first segment may end before its sentence does; past all text if nowhere."""
        if self._first_chars is not None:
            for clause in _CLAUSE.finditer(self._buffer, self._first_chars, self._max_chars):
                if not _inside_markup(self._buffer, clause.end()):
                    return clause.end()
        return len(self._buffer)

    def _long_cut(self) -> int:
        window = self._buffer[: self._max_chars]
        floor = self._max_chars // 3
        clauses = [match.end() for match in _CLAUSE.finditer(window, floor)]
        spaces = [match.end() for match in _SPACE.finditer(window, max(floor, 1))]
        for cut in [*reversed(clauses), *reversed(spaces)]:
            if not _inside_markup(window, cut):
                return cut
        return max(clauses, default=max(spaces, default=self._max_chars))


def token_end(text: str, at: int) -> int:
    """Where the word at `at` ends, with what is attached to it."""
    while at < len(text) and not text[at].isspace():
        at += 1
    return at


def _inside_markup(text: str, at: int) -> bool:
    """Whether a link, a code span or a tag is open at `at`; none goes on in another line."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return _SPAN_OPEN.search(_SPAN.sub("", line)) is not None


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    """Whether a boundary, with a character after it in `text`, ends a sentence."""
    stop, close, gap = match["stop"], match["close"], match["gap"]
    if _inside_markup(text, match.end()):
        return False
    if stop is None or gap.count("\n") > 1 or len(gap) == 8:
        return True
    following = text[match.end()]
    if "!" in stop or "?" in stop:
        return not (close and following.islower())  # "Stop!" he said.
    if stop != ".":
        return not following.islower()  # an ellipsis
    word = re.split(r"\s", text[: match.start()])[-1].lstrip(_OPENERS).lower()
    if word in _LEADING or (word == "no" and following.isdigit()):
        return False
    if word in _TRAILING:
        return following.isupper()
    if (len(word) == 1 and word.isalpha()) or _ACRONYM.fullmatch(word):
        return False
    if word.isdigit() and text[: match.start() - len(word)].rstrip(" \t")[-1:] in ("", "\n"):
        return False  # "1. First" counts a list
    return not (close and following.islower())
