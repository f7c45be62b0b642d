"""IPA as people write it → IPA as the voice reads it.

The voice knows few sounds and has the stress mark before the vowel: /ˈwɜːd/ becomes wˈɜːd. Sounds
of other accents and languages become the nearest it has.
"""

from __future__ import annotations

import re
import unicodedata

from omni_speak.models.wren.config import MODIFIERS, PHONEMES, STRESS

DIPHTHONGS = ("eɪ", "aɪ", "oʊ", "aʊ", "ɔɪ", "dʒ", "tʃ")

SOUNDS = sorted({token.lstrip(STRESS) for token in PHONEMES if token.strip("^$ !,.:;?")})
"""What the voice knows, without stress."""

# The second column is what it becomes under stress.
_STRESSED = {sound: sound for sound in SOUNDS if f"ˈ{sound}" in PHONEMES} | {
    "ə": "ʌ",
    "ɐ": "ʌ",
    "ɚ": "ɜː",
    "ᵻ": "ɪ",
}
VOWELS = tuple(_STRESSED)

# fmt: off
_NEAREST = {
    **dict.fromkeys(("r", "ɻ", "ʁ", "ʀ"), "ɹ"), "g": "ɡ", "ɣ": "ɡ", "ɫ": "l", "ɭ": "l", "ʍ": "w",
    "ʧ": "tʃ", "ʤ": "dʒ", "ɲ": "nj", "ʎ": "lj", "x": "k", "χ": "k", "q": "k", "c": "k", "ɸ": "f",
    **dict.fromkeys(("ç", "ɕ", "ʂ"), "ʃ"), **dict.fromkeys(("ʑ", "ʐ"), "ʒ"), "β": "v", "ʋ": "v",
    "ɱ": "m", "ɳ": "n", "ʈ": "t", "ɖ": "d", "ɦ": "h", "ħ": "h", "ɥ": "j", "l̩": "əl", "n̩": "ən",
    "m̩": "əm",
    "a": "ɑː", "aː": "ɑː", "ɑ": "ɑː", "ɒ": "ɑː", "ɔ": "ɔː", "e": "ɛ", "eː": "eɪ", "o": "oʊ",
    "əʊ": "oʊ", "ai": "aɪ", "au": "aʊ", "ei": "eɪ", "oi": "ɔɪ", "ou": "oʊ", "u": "uː", "ʉ": "uː",
    "ɯ": "uː", "y": "uː", "ɪː": "iː", "ɝ": "ɜː", "ɜ": "ɜː", "ɜ˞": "ɜː", "ə˞": "ɚ", "əː": "ɜː",
    "ø": "ɜː", "œ": "ɜː", "ɵ": "ʊ", "ɤ": "ʌ", "ɨ": "ᵻ",
}
# fmt: on
_SOUND_OF = {sound: sound for sound in SOUNDS} | _NEAREST
_SOUND = re.compile("|".join(sorted(map(re.escape, _SOUND_OF), key=len, reverse=True)))
# Syllable breaks, ties, lengths that make no difference here, nasal vowels, aspiration.
_SILENT = "." + "\u0361\u035c\u203f\u0303\u032f\u0329\u02b0\u02b2ːˑ"
_SAME = str.maketrans({"'": "ˈ", "’": "ˈ", ":": "ː"})

ALLOWED = f"{' '.join(SOUNDS)}, and ˈ or ˌ before a stressed syllable"


def read_ipa(written: str) -> str:
    """IPA of one or more words → the same in the voice's sounds, stress marks before vowels.

    Raises ValueError that names what is no sound of the voice, and what is allowed.
    """
    text = unicodedata.normalize("NFC", written.strip()).translate(_SAME)
    read, stress, at = "", "", 0
    while at < len(text):
        sound = _SOUND.match(text, at)
        char = text[at]
        at = sound.end() if sound else at + 1
        if sound:
            plain = _SOUND_OF[sound[0]]
            vowel = next((v for v in (plain, plain[:1]) if v in _STRESSED), None)
            if stress and vowel is not None:
                plain = stress + _STRESSED[vowel] + plain[len(vowel) :]
                stress = ""
            read += plain
        elif char in STRESS:
            if stress:
                raise ValueError(f"in {written!r} two stress marks have no vowel between them")
            stress = char
        elif char.isspace():
            read = read.rstrip() + " "
        elif char not in _SILENT:
            raise ValueError(f"{char!r} in {written!r} is no sound of this voice; it has {ALLOWED}")
    if stress:
        raise ValueError(f"in {written!r} no vowel follows the stress mark")
    if not read:
        raise ValueError(f"there is no sound in {written!r}; the voice has {ALLOWED}")
    return read


def split_ipa(ipa: str) -> list[str]:
    """IPA → tokens: stress, base symbol and length travel as one. `"".join(tokens) == ipa`."""
    tokens: list[str] = []
    i = 0
    while i < len(ipa):
        j = i
        while j < len(ipa) and ipa[j] in STRESS:
            j += 1
        j += 2 if ipa[j : j + 2] in DIPHTHONGS else 1
        while j < len(ipa) and ipa[j] in MODIFIERS:
            j += 1
        tokens.append(ipa[i:j])
        i = j
    return tokens
