"""Words read as a file says: one a line, the word, a tab, its IPA.

    # what begins like this line is a comment
    Nguyen	ˈwɪn
    k8s	kjuːbɚˈnɛtiːz

A word written in lower case stands for every case, one with capitals for itself alone. Both stand
for their possessive, too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from omni_speak.models.wren.text.ipa import read_ipa
from omni_speak.models.wren.text.markup import plain_character
from omni_speak.runtime.errors import InvalidRequest

Lexicon = Mapping[str, str]
"""Words as they are written, without accents → their IPA as the voice reads it."""

_ACCENTED = re.compile(r"[^\W\d_][\w\u0300-\u036f]*(?:['’‐-][\w\u0300-\u036f]+)*")

_HISSES, _VOICELESS = ("s", "z", "ʃ", "ʒ"), ("p", "t", "k", "f", "θ")


@lru_cache(maxsize=1)
def bundled() -> Lexicon:
    """The words that come with the voice."""
    return read_lexicon(Path(__file__).with_name("words.tsv"))


@lru_cache(maxsize=1)
def _accented() -> Lexicon:
    """Words whose accents tell how they are read."""
    return read_lexicon(Path(__file__).with_name("accented.tsv"), keep_accents=True)


def accented_words(text: str) -> Iterator[tuple[int, int, str]]:
    """Where words stand whose accents tell how they are read, and their IPA."""
    for match in () if text.isascii() else _ACCENTED.finditer(text):
        if not match[0].isascii():
            word = unicodedata.normalize("NFC", match[0]).replace("’", "'").replace("‐", "-")
            ipa = look_up(word, [_accented()])
            if ipa is None and word.endswith("s"):  # the plural sounds like the possessive
                ipa = look_up(f"{word[:-1]}'s", [_accented()])
            if ipa is not None:
                yield *match.span(), ipa


def read_lexicon(path: Path, *, keep_accents: bool = False) -> Lexicon:
    """A lexicon file, UTF-8. Raises InvalidRequest that names the file, the line and what is wrong
    there."""

    def wrong(what: str, number: int | None = None) -> InvalidRequest:
        line = "" if number is None else f" line {number}"
        return InvalidRequest(f"lexicon {path}{line}: {what}", param="lexicon")

    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except OSError as error:
        raise wrong(error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise wrong(f"byte {error.start} is not UTF-8") from None
    lexicon: dict[str, str] = {}
    lines_of: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        written, tab, ipa = line.partition("\t")
        word = written if keep_accents else "".join(map(plain_character, written))
        word = word.strip()
        if not tab:
            raise wrong(f"no tab in {line!r}; expected a word, a tab and its IPA", number)
        if " " in word or not any(char.isalnum() for char in word):
            raise wrong(f"{written!r} is not one word of letters or digits", number)
        if word in lexicon:
            raise wrong(f"{written!r} is on line {lines_of[word]} already", number)
        try:
            lexicon[word] = read_ipa(ipa.strip().strip("/"))
        except ValueError as error:
            raise wrong(str(error), number) from None
        lines_of[word] = number
    return lexicon


def look_up(word: str, lexicons: Sequence[Lexicon]) -> str | None:
    """The IPA of a word, from the first lexicon that has it as written, in lower case, or without
    its 's; None if none has."""
    for lexicon in lexicons:
        for form in (word, word.lower()):
            if form in lexicon:
                return lexicon[form]
        if word[-2:] in ("'s", "'S"):
            owner = look_up(word[:-2], [lexicon])
            if owner is not None:
                return owner + _possessive(owner)
    return None


def _possessive(ipa: str) -> str:
    if ipa.endswith(_HISSES):
        return "ᵻz"
    return "s" if ipa.endswith(_VOICELESS) else "z"
