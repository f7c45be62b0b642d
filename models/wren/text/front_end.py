"""Text → phoneme token ids, and which of them speak which word as written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from omni_speak.models.wren.config import nearest_phoneme
from omni_speak.models.wren.text import g2p
from omni_speak.models.wren.text.ipa import split_ipa
from omni_speak.models.wren.text.lexicon import Lexicon
from omni_speak.models.wren.text.normalise import normalise, spoken_text
from omni_speak.runtime.errors import NothingToSay

BEGIN, END, SPACE, COMMA, FULL_STOP = "^", "$", " ", ",", "."


@dataclass(frozen=True, slots=True)
class Word:
    """`text` as written at `[start:end]` of the input; spoken by `tokens[first_token:end_token]`.

    A word is what is written as one: "$8.75 million" is one word, of five spoken ones.
    """

    text: str
    start: int
    end: int
    first_token: int
    end_token: int


@dataclass(frozen=True, slots=True)
class Utterance:
    """What the talker reads: token ids from `^` to `$`, and the words they speak."""

    tokens: tuple[int, ...]
    words: tuple[Word, ...]


class FrontEnd:
    """English for one alphabet of tokens; the id of a token is its place in it. Words of `lexicon`
    are read as it says.

    Raises NothingToSay for a text without a word. Safe to call from several threads.
    """

    def __init__(self, tokens: Sequence[str], lexicon: Lexicon = MappingProxyType({})) -> None:
        self._ids = {token: i for i, token in enumerate(tokens)}
        self.lexicon = lexicon

    def warm_up(self) -> None:
        """Load the lexicon and the model for unknown words (half a second, 70 MB)."""
        self("Hello, Wrenling.")

    def __call__(self, text: str) -> Utterance:
        spans = normalise(text, self.lexicon)
        if not spans:
            raise NothingToSay("there is no word to speak in it", param="text")
        groups = iter(g2p.words_to_ipa(spoken_text(spans), [self.lexicon]))

        ids = [self._ids[BEGIN]]
        words: list[Word] = []
        for span in spans:
            if span.is_pause:
                ids += self._known(span.spoken)
                continue
            if words:
                ids += self._known(SPACE)
            first = len(ids)
            spoken = [next(groups) + COMMA * word.endswith(COMMA) for word in span.spoken.split()]
            for token in split_ipa(SPACE.join(spoken)):
                ids += self._known(token)
            written = text[span.start : span.end]
            words.append(Word(written, span.start, span.end, first, len(ids)))
        if not spans[-1].is_pause:
            ids += self._known(FULL_STOP)
        ids.append(self._ids[END])
        return Utterance(tuple(ids), tuple(words))

    def _known(self, token: str) -> list[int]:
        """The token's id; if the alphabet lacks it, without stress or length mark; else nothing."""
        found = nearest_phoneme(token, self._ids)
        return [] if found is None else [found]
