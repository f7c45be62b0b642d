"""Text read as it stands."""

from __future__ import annotations

import pytest

from omni_speak.models.wren.text.literal import literal


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("**Buy** now", "asterisk asterisk Buy asterisk asterisk now"),
        ("# Title", "hash Title"),
        ("a_b `c` ~d", "a underscore b backtick c backtick tilde d"),
        ("[here](https://x.io/a?b=1)", "here https colon slash slash x dot io slash a"
         " question mark b equals one"),
        ("me@x.com", "me at x dot com"),
        ("Nice 😀!", "Nice grinning face !"),
        ("I ❤\ufe0f it", "I heavy black heart it"),
        ("42 3.14 1,000", "four two three dot one four one comma zero zero zero"),
        ("$5 & 20%", "dollar five and two zero percent"),
        ("Dr. Lee vs. St. Ann", "Dr . Lee vs . St . Ann"),
        ('He said: "No, (never)!" Why?', "He said : No , never ! Why ?"),
        ("It's well-known — so", "It's well-known , so"),
        ("café naïve", "cafe naive"),
        ("β Ж", "beta zhe"),
        ("One\n\nTwo\tthree", "One Two three"),
        ("x² ½", "x caret two one slash two"),
    ],
)  # fmt: skip
def test_it_is_read_as_it_stands(text: str, spoken: str) -> None:
    assert " ".join(span.spoken for span in literal(text)) == spoken


@pytest.mark.parametrize("text", ["", " \n", "?!...", "\u200b\ufeff", "()"])
def test_nothing_to_say(text: str) -> None:
    assert literal(text) == []


def test_each_knows_where_it_was_written() -> None:
    text = "Für 😀 7!"
    assert [text[span.start : span.end] for span in literal(text)] == ["Für", "😀", "7", "!"]
