"""The text of a context as it is told with its words' times."""

from __future__ import annotations

import re

import pytest

from omni_speak.streams.dialects.text import Transcript
from omni_speak.streams.messages import Word

TEXTS = [
    'He said: "Well-known, I think — don’t you?" (Yes!) 😀 …',
    "  Mr. O'Neil, 5.5 km",
    "one",
    "?!",
]


def words_of(text: str) -> list[Word]:
    """One for each run of letters and digits, 100 ms long, 100 ms apart."""
    return [
        Word(
            text=match[0],
            start_char=match.start(),
            end_char=match.end(),
            start_ms=200.0 * i,
            end_ms=200.0 * i + 100,
        )
        for i, match in enumerate(re.finditer(r"\w+", text))
    ]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("together", [1, 2, 100])
def test_tokens_are_the_text_whichever_words_come_together(text: str, together: int) -> None:
    transcript, words = Transcript(text), words_of(text)
    tokens = []
    for at in range(0, len(words), together):
        tokens += transcript.tokens(words[at : at + together])
    tokens += transcript.rest_token()
    assert " ".join(token.text for token in tokens).split() == text.split()
    assert all(token.text == text[token.start_char : token.end_char] for token in tokens)
    starts = [token.start_ms for token in tokens]
    assert starts == sorted(starts)
    assert transcript.rest_token() == []


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("together", [1, 2, 100])
def test_chars_are_the_text_and_their_times_have_no_gaps(text: str, together: int) -> None:
    transcript, words = Transcript(), words_of(text)
    transcript.append(text[:5])
    transcript.append(text[5:])
    chars = []
    for at in range(0, len(words), together):
        chars += transcript.chars(words[at : at + together])
    chars += transcript.rest()
    assert "".join(char.text for char in chars) == text.rstrip()
    ends = [0.0, *(char.end_ms for char in chars)]
    assert [char.start_ms for char in chars] == pytest.approx(ends[:-1])
