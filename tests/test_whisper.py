from __future__ import annotations

import pytest

from tests.whisper import word_errors


@pytest.mark.parametrize(
    ("reference", "hypothesis", "errors"),
    [
        ("Hello, world!", "hello world", 0),
        ("It's late", "It’s late.", 0),
        ("one two three", "one three", 1),
        ("one two", "one too many", 2),
        ("", "noise", 1),
        ("silence here", "", 2),
    ],
)
def test_word_errors(reference: str, hypothesis: str, errors: int) -> None:
    assert word_errors(reference, hypothesis) == errors
