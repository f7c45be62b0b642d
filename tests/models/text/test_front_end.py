"""Case D09 (nothing to say), word spans, and that no text whatsoever breaks the front end."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from omni_speak.models.wren.text.front_end import FrontEnd
from omni_speak.runtime.errors import NothingToSay

from .alphabet import ALPHABET


def symbols(tokens: Sequence[int]) -> str:
    return "".join(ALPHABET[token] for token in tokens)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Hello! I am speaking.", "^həlˈoʊ! ˌaɪ ɐm spˈiːkɪŋ.$"),
        ("Is it?", "^ˌɪz ɪt?$"),
        ("no full stop", "^nˈoʊ fˈʊl stˈɑːp.$"),
        ("at 7 p.m.", "^æt sˈɛvən pˌiːˈɛm.$"),
        ("and so,", "^ænd sˌoʊ,$"),
        ("June 2, 2030", "^dʒˈuːn sˈɛkənd, twˈɛnti θˈɜːɾi.$"),
    ],
)
def test_tokens(front_end: FrontEnd, text: str, tokens: str) -> None:
    assert symbols(front_end(text).tokens) == tokens


@pytest.mark.parametrize(
    "text", ["", "   \t\n", "?!...", "😀", "**", "\u200b\u200c\ufeff", "---", "&%@", "🇬🇧 👩‍👩‍👧"]
)
def test_nothing_to_say(front_end: FrontEnd, text: str) -> None:
    with pytest.raises(NothingToSay) as caught:
        front_end(text)
    assert caught.value.param == "text"


def test_words_know_their_text_and_their_tokens(front_end: FrontEnd) -> None:
    text = "Dr. **Lee** paid $8.75 million, at 8 a.m.!"
    utterance = front_end(text)
    assert [word.text for word in utterance.words] == [
        *["Dr.", "Lee", "paid", "$8.75 million", "at", "8 a.m."]
    ]
    for word in utterance.words:
        assert text[word.start : word.end] == word.text
    spoken = {
        word.text: symbols(utterance.tokens[word.first_token : word.end_token])
        for word in utterance.words
    }
    assert spoken["Lee"] == "lˈiː"
    assert spoken["$8.75 million"] == "ˈeɪt pˈɔɪnt sˈɛvən fˈaɪv mˈɪljən dˈɑːlɚz"
    assert spoken["8 a.m."] == "ˈeɪt ˌeɪˈɛm"


def test_a_token_the_alphabet_lacks_loses_its_marks_first() -> None:
    small = ["^", "$", " ", ".", "k", "æ", "t", "s", "i"]
    front_end = FrontEnd(small)
    assert "".join(small[i] for i in front_end("cat sea dog").tokens) == "^kæt si .$"


@pytest.mark.parametrize("word", ["x" * 300, "ab" * 5_000, "a-" * 5_000, "Wr'en" * 60, "Q" * 300])
def test_a_word_of_any_length_is_read_in_bounded_time(front_end: FrontEnd, word: str) -> None:
    start = time.process_time()
    assert len(front_end(word).tokens) > 50
    assert time.process_time() - start < 3.0


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=200))
def test_any_text_is_spoken_or_refused(text: str) -> None:
    check(text)


FRAGMENTS = st.sampled_from(
    "1 12 2024 ,000 .5 / : - – — $ £ % ° F km/h am p.m. st th s x × + = # @ & * ** _ ` [ ]( ) ( "
    "http:// www. example .com e.g. Dr. No. St. US A I VIII Henry Jan May 5 ' n't . ... … ? ! ; \n "
    "| é ß 😀 中 ж α [x](/ˈɪŋ/) (/ə/) ½ \u200b \u0301 hello xkcd the".split(" ")
)


@settings(max_examples=300, deadline=None)
@given(parts=st.lists(st.tuples(FRAGMENTS, st.sampled_from(["", " "])), max_size=20))
def test_any_mixture_of_what_rules_know_is_spoken_or_refused(parts: list[tuple[str, str]]) -> None:
    check("".join(fragment + joint for fragment, joint in parts))


def check(text: str) -> None:
    front_end = FrontEnd(ALPHABET)
    try:
        utterance = front_end(text)
    except NothingToSay:
        return
    begin, end = ALPHABET.index("^"), ALPHABET.index("$")
    assert utterance.tokens[0] == begin
    assert utterance.tokens[-1] == end
    assert not {begin, end} & set(utterance.tokens[1:-1])
    assert ALPHABET[utterance.tokens[-2]] in ",;:.!?"
    assert all(0 <= token < len(ALPHABET) for token in utterance.tokens)
    last_char = last_token = 0
    for word in utterance.words:
        assert text[word.start : word.end] == word.text
        assert last_char <= word.end and last_token <= word.first_token < word.end_token
        last_char, last_token = word.start, word.end_token


def test_threads_agree(front_end: FrontEnd) -> None:
    texts = [f"Number {i} is Wrenling{'ab' * (i % 7)}, the {i}th." for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(front_end, texts)) == [front_end(text) for text in texts]


LETTERS = st.characters(categories=["Lu", "Ll", "Lo", "Nd"])
WORDS = st.lists(st.text(LETTERS, min_size=1, max_size=12), min_size=1, max_size=6)


@settings(max_examples=300, deadline=None)
@given(words=WORDS, joint=st.sampled_from([" ", ", ", ". ", "\n"]))
@example(words=["中文"], joint=" ").via("Han")
@example(words=["Привет", "ъ", "и", "ا", "नमस्ते", "한국어", "שלום", "\U00012000"], joint=" ")
def test_no_word_is_silent_in_any_script(words: list[str], joint: str) -> None:
    text = joint.join(words)
    utterance = FrontEnd(ALPHABET)(text)
    spoken = [(word.start, word.end) for word in utterance.words]
    at = 0
    for word in words:
        end = at + len(word)
        assert any(start < end and at < stop for start, stop in spoken), word
        at = end + len(joint)
