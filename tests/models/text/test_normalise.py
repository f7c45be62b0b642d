"""Cases D12 (numbers, money, time, units), D13 (markdown, emoji) and the text of D14."""

import time
from itertools import pairwise

import pytest

from omni_speak.models.wren.text.normalise import PAUSES, normalise, spoken_text

from .readings import READINGS


@pytest.mark.parametrize(
    ("written", "spoken"),
    READINGS,
)
def test_table(written: str, spoken: str) -> None:
    assert spoken_text(normalise(written)) == spoken


@pytest.mark.parametrize("written", [written for written, _ in READINGS])
def test_spans_follow_each_other_inside_the_text(written: str) -> None:
    end = 0
    for span in normalise(written):
        assert end <= span.start < span.end <= len(written)
        if not span.is_pause:  # which may be a line break
            assert written[span.start : span.end].strip() == written[span.start : span.end]
        end = span.end


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("It cost $8.75 million.", ["It", "cost", "$8.75 million", "."]),
        ("From 7:45PM, 65%", ["From", "7:45PM", ",", "65%"]),
        ("15-20 C or 3 km/h", ["15", "-", "20 C", "or", "3 km/h"]),
        ("Call +1 555 0100 (now)", ["Call", "+1 555 0100", "(", "now"]),
        ("on **May 1–3**, 2024", ["on", "May 1–3**, 2024"]),
        ("a $50 million deal", ["a", "$50 million", "deal"]),
        ("5€, USD 20/x", ["5€", ",", "USD 20", "x"]),
        ("see [the docs](http://x.org/a) at b@c.org", ["see", "the", "docs", "at", "b@c.org"]),
        ("<b>Louis XIV</b> 10²³, ½", ["Louis XIV", "10", "²³", ",", "½"]),
        ("Henry VIII's wives, U.K.'s", ["Henry VIII's", "wives", ",", "U.K.'s"]),
        ("€5,50, 12 in. x", ["€5,50", ",", "12 in.", "x"]),
        ("Python 3.11 &amp; v2.0.1", ["Python 3.11", "&", "v2.0.1"]),
    ],
)
def test_spans_are_what_was_written(text: str, pieces: list[str]) -> None:
    assert [text[span.start : span.end] for span in normalise(text)] == pieces


def test_sentence_of_case_d14() -> None:
    text = "Dr. Ng paid $6.25 at 8 a.m. for 47.2 grams, e.g. tea. Then she left."
    spans = normalise(text)
    assert spoken_text(spans) == (
        "Doctor Ng paid six dollars and twenty five cents at eight a.m. "
        "for forty seven point two grams, for example tea. Then she left."
    )
    assert [text[span.start : span.end] for span in spans] == [
        *["Dr.", "Ng", "paid", "$6.25", "at", "8 a.m.", "for", "47.2", "grams", ",", "e.g."],
        *["tea", ".", "Then", "she", "left", "."],
    ]


def test_spans_hold_no_space_at_their_ends() -> None:
    text = "3 * 4, 10 a.m. – 4 p.m., 10 - 5"
    words = [text[s.start : s.end] for s in normalise(text) if not s.is_pause]
    assert words == ["3", "*", "4", "10 a.m.", "–", "4 p.m.", "10", "-", "5"]


def test_spans_hold_through_markup_and_folding() -> None:
    text = "## Der **Straßen**bau\u200b, [ein](http://x.org) ﬁne café ½"
    words = [text[s.start : s.end] for s in normalise(text) if not s.is_pause]
    assert words == ["Der", "Straßen**bau", "ein", "ﬁne", "café", "½"]


@pytest.mark.parametrize("text", ["", " \t\n", "?!...", "😀", "**", "\u200b\u200d", "%", "---"])
def test_nothing_to_say(text: str) -> None:
    assert normalise(text) == []


def test_pauses_never_lead_and_never_pile_up() -> None:
    spans = normalise('...(well), [no] -- yes?!, "so": end...')
    assert not spans[0].is_pause
    assert not any(a.is_pause and b.is_pause for a, b in pairwise(spans))
    assert all(span.spoken in PAUSES for span in spans if span.is_pause)


HOSTILE = [
    "1", "1,", "1.", "1/", "1:", "1-", "1 ", "1e", "+1 ", "$1", "v1.", "a", "A", "a-", "a.", "a@",
    "a.com/", "/a", "http://", "~/", "(", "()", "[", "[x](", "[x]((b)", "[^", "<a ", "<!--", "_",
    "a_", "*", "5*", "-", "- ", "=-", "| ", "x\n-", "\n", "```\n", ":a", "&", ".", "'", " ", "é",
    "😀", "\u0301", "Jan 1 ", "1 Jan ", "Henry V", "US ", "St. ", "I", "\u00bd", "#", ">", "\\",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
@pytest.mark.parametrize("frame", ["{}", "5{}y\n"])
def test_no_slow_input(unit: str, frame: str) -> None:
    text = frame.format((unit * 10_000)[:10_000])

    def seconds() -> float:
        start = time.process_time()
        normalise(text)
        return time.process_time() - start

    # 10,000 words to say take 50 ms on a quiet core; what is quadratic takes seconds.
    assert any(seconds() < 0.4 for _ in range(3))


@pytest.mark.parametrize(
    ("written", "spoken"),
    [("so ⒈ x", "so one x"), ("what‼ yes⁉", "what! yes?")],
)
def test_what_one_character_brings_is_one_span(written: str, spoken: str) -> None:
    ends = [(span.start, span.end) for span in normalise(written)]
    assert all(a[1] <= b[0] for a, b in pairwise(ends))
    assert spoken_text(normalise(written)) == spoken
