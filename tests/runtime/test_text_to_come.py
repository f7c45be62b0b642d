"""Text that waits to be learned: by need, in each stream's own order."""

from __future__ import annotations

import math

from omni_speak.runtime.text_to_come import TextToCome


def test_who_has_least_left_comes_first_and_each_stream_keeps_its_order():
    left = {"long": 90.0, "short": 5.0}
    text: TextToCome[str] = TextToCome()
    for piece in "abc":
        text.add("long", piece)
    text.add("short", "x")
    text.add("short", "y")
    taken = [text.take(left.__getitem__)]
    left["short"] = 200.0  # it learned a long piece
    while (piece := text.take(left.__getitem__)) is not None:
        taken.append(piece)
    assert taken == ["x", "a", "b", "c", "y"]


def test_a_stream_that_cannot_take_more_keeps_its_text():
    text: TextToCome[str] = TextToCome()
    text.add("later", "a")
    assert text.take(lambda _: math.inf) is None
    assert text.take(lambda _: 3.0) == "a"
    assert text.take(lambda _: 3.0) is None


def test_a_stream_that_is_over_learns_nothing_more():
    text: TextToCome[str] = TextToCome()
    text.add("gone", "a")
    text.add("here", "b")
    text.drop("gone")
    text.drop("gone")
    assert text.take(lambda _: 0.0) == "b"
    assert text.take(lambda _: 0.0) is None
