from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omni_speak.models.wren.text.markup import plain_text
from omni_speak.streams.segmenter import Segment, Segmenter

TEA = "Dr. Ng paid $6.25 at 8 a.m. for 47.2 grams, e.g. tea. Then she left."
TEA_SEGMENTS = [
    "Dr. Ng paid $6.25 at 8 a.m. for 47.2 grams, e.g. tea.",
    "Then she left.",
]


def segments(*pieces: str, max_chars: int = 300) -> list[str]:
    segmenter = Segmenter(max_chars)
    found = [s for piece in pieces for s in segmenter.push(piece)] + segmenter.flush()
    assert all("".join(pieces)[s.start :].startswith(s.text) for s in found)
    return [s.text for s in found]


@pytest.mark.parametrize("pieces", [[TEA], list(TEA), re.findall(r"\S+\s*", TEA)])
def test_the_pieces_do_not_matter(pieces: list[str]) -> None:
    assert segments(*pieces) == TEA_SEGMENTS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello! Are you there? Yes.", ["Hello!", "Are you there?", "Yes."]),
        ('"Stop!" he said. "Go on."', ['"Stop!" he said.', '"Go on."']),
        ("hi there. how are you? fine.", ["hi there.", "how are you?", "fine."]),
        ("We met at 8 a.m. She left at 9 p.m. sharp.", None),
        ("Ask J. R. Smith of the U.S. Army. He knows.", None),
        ("Wait... what? Well... Yes.", ["Wait... what?", "Well...", "Yes."]),
        ("1. First item. 2. Second item.", None),
        ("It was in 2025. It rained.", ["It was in 2025.", "It rained."]),
        ("A heading\n\nThen text", ["A heading", "Then text"]),
        ("A line\nthat goes on", ["A line\nthat goes on"]),
        ("你好。再见！", ["你好。", "再见！"]),
        ("See omni.speak or v2.0.1 now.", ["See omni.speak or v2.0.1 now."]),
        ("It is no. 5 of 7. No. I won't.", ["It is no. 5 of 7.", "No.", "I won't."]),
        ("", []),
        (" \n\t ", []),
        ("?!...", ["?!..."]),
    ],
)
def test_where_sentences_end(text: str, expected: list[str] | None) -> None:
    exceptions = {
        "We met": ["We met at 8 a.m.", "She left at 9 p.m. sharp."],
        "Ask J.": ["Ask J. R. Smith of the U.S. Army.", "He knows."],
        "1. Fir": ["1. First item.", "2. Second item."],
    }
    assert segments(text) == (expected or exceptions.get(text[:6], []))


@pytest.mark.parametrize(
    "sentences",
    [
        ["She has a Ph.D. in physics.", "He does not."],
        ["The U.S. Senate met.", "It did."],
        ["Apple Inc. rose 3.5%.", "Then it fell."],
        ["See Fig. 2 and Sec. 4, pp. 3 to 5.", "They differ."],
        ["Open 9 a.m. to 5 p.m. daily.", "Come in."],
        ["Go to https://example.com/a.b?c=d.", "Then run main.py.", "Stop."],
        ["Use v2.0.1.", "It costs $5.", "Not $5.25."],
        ["Jan. 5 is cold.", "St. Louis is big."],
        ["Prof. Lee et al. wrote it.", "I read it."],
        ["The J. R. R. Tolkien estate.", "It sued."],
        ["I like dogs, cats, etc.", "They are nice."],
        ["Send it to a@b.com.", "Thanks."],
        ["Mt. Everest vs. K2.", "Who wins?"],
        ["(It rained.)", "It hailed (hard).", "We left."],
        ["Call 1-800-555-0100.", "Ask for Jo."],
        ["He is 6 ft. tall.", "She is not."],
        ["What??", "No!!", "And then... nothing.", "Oh."],
        ["Say [read](/ˈɹɛd/. now).", "Then go."],
    ],
)
def test_what_a_full_stop_may_be(sentences: list[str]) -> None:
    text = " ".join(sentences)
    assert segments(text) == segments(*text) == sentences


def test_a_sentence_is_spoken_once_the_next_one_begins() -> None:
    segmenter = Segmenter()
    assert segmenter.push("It rained. ") == []
    assert segmenter.push("T") == [Segment("It rained.", 0)]
    assert segmenter.flush() == [Segment("T", 11)]
    assert segmenter.flush() == []


def test_a_long_sentence_is_cut_at_clauses_then_spaces_then_anywhere() -> None:
    clauses = "one two three four five, " * 20
    assert all(s.endswith("five,") and len(s) <= 100 for s in segments(clauses, max_chars=100))
    assert {len(s) for s in segments("word " * 60, max_chars=50)} == {49}
    assert [len(s) for s in segments("x" * 250, max_chars=100)] == [100, 100, 50]


def test_the_first_segment_may_end_at_a_clause_and_later_ones_do_not() -> None:
    text = (
        "When the long winter was over and the snow had melted at last, they opened the door, "
        "and went out. When the long summer was over and the heat had gone at last, they left."
    )
    assert (
        segments(text)
        == segments(*text)
        == [
            "When the long winter was over and the snow had melted at last,",
            "they opened the door, and went out.",
            "When the long summer was over and the heat had gone at last, they left.",
        ]
    )


MARKED_UP = [
    "See [the site. It is new](https://example.org/a. B), please. Then go.",
    "Run `make it. Now` twice. Then stop.",
    'Use <a title="One. Two">this. Link</a> here. Done.',
    "## Plan\n- **first** item\n1. `code` here\n| a | b |\n[site](https://example.org)\nDone ✅",
]


@pytest.mark.parametrize(
    ("text", "expected"),
    list(
        zip(
            MARKED_UP,
            [
                ["See [the site. It is new](https://example.org/a. B), please.", "Then go."],
                ["Run `make it. Now` twice.", "Then stop."],
                ['Use <a title="One. Two">this.', "Link</a> here.", "Done."],
                [MARKED_UP[3]],
            ],
            strict=True,
        )
    ),
)
def test_markup_is_not_cut(text: str, expected: list[str]) -> None:
    assert segments(text) == segments(*text) == expected


def spoken(pieces: list[str]) -> list[str]:
    return " ".join(plain_text(piece)[0] for piece in pieces).replace(" . ", " ").split()


@pytest.mark.parametrize("text", MARKED_UP)
def test_markup_means_the_same_in_segments_as_in_the_whole(text: str) -> None:
    assert spoken(segments(*text)) == spoken([text])


def test_markup_that_never_closes_ends_with_its_line() -> None:
    assert segments("A [bee. See.\nDee. Eee.") == ["A [bee. See.", "Dee.", "Eee."]


PUNCTUATION = "aAbZ19 ...!?\n,;\"')(…。！—"
MARKUP = ["`", "[", "](", "<a"]
ALPHABET = st.sampled_from([*PUNCTUATION, *MARKUP, "Dr", "e.g", "a.m", "        "])
texts = st.lists(ALPHABET, max_size=80).map("".join)


@given(texts | st.text(max_size=60), st.data(), st.integers(20, 80))
@example("." * 90 + " A", None, 40)
@example("x" * 60 + ", y. [" + "z, " * 40, None, 80)
def test_any_chunking_gives_the_same_segments(
    text: str, data: st.DataObject | None, max_chars: int
) -> None:
    cuts = [] if data is None else sorted(data.draw(st.lists(st.integers(0, len(text)))))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = segments(text, max_chars=max_chars)
    assert segments(*pieces, max_chars=max_chars) == whole
    assert segments(*text, max_chars=max_chars) == whole
    assert "".join("".join(whole).split()) == "".join(text.split())
    assert all(s == s.strip() and 0 < len(s) <= max_chars for s in whole)
