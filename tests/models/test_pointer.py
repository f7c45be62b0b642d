"""The pointer's rules: speech covers the text once, in order, and always ends."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni_speak.models.wren.config import PointerConfig, WrenConfig
from omni_speak.models.wren.pointer import Allowed, allowed_advances, next_stay

RULES = PointerConfig()
pointer_rules = st.builds(
    PointerConfig,
    max_advance=st.integers(1, 9),
    max_stay=st.integers(1, 12),
    max_tail=st.integers(0, 6),
)


@given(seed=st.integers(), n_tokens=st.integers(1, 60), rules=pointer_rules, lazy=st.floats(0, 1))
def test_any_walk_ends_at_the_end_and_in_time(seed, n_tokens, rules, lazy):
    rng = random.Random(seed)
    pointer = stay = frames = 0
    while True:
        allowed = allowed_advances(pointer, n_tokens, stay, rules)
        choices = list(range(allowed.low, allowed.high + 1))
        assert choices or allowed.end
        if allowed.end and (not choices or rng.random() > lazy):
            break
        advance = choices[0] if rng.random() < lazy else rng.choice(choices)
        pointer, stay, frames = pointer + advance, next_stay(stay, advance), frames + 1
        assert pointer < n_tokens
    assert pointer == n_tokens - 1
    assert frames <= (n_tokens - 1) * (rules.max_stay + 1) + rules.max_tail


@given(n_tokens=st.integers(2, 60), stay=st.integers(0, 30), data=st.data())
def test_end_is_allowed_only_on_the_last_phoneme(n_tokens, stay, data):
    pointer = data.draw(st.integers(0, n_tokens - 1))
    assert allowed_advances(pointer, n_tokens, stay).end == (pointer == n_tokens - 1)


@given(n_tokens=st.integers(1, 60), stay=st.integers(0, 1000), data=st.data())
def test_an_unfinished_text_waits_on_its_last_phoneme(n_tokens, stay, data):
    pointer = data.draw(st.integers(0, n_tokens - 1))
    allowed = allowed_advances(pointer, n_tokens, stay, complete=False)
    assert not allowed.end
    assert allowed.low <= allowed.high
    assert pointer + allowed.high < n_tokens


@pytest.mark.parametrize(
    ("pointer", "stay", "expected"),
    [
        (0, 0, Allowed(0, 9, False)),
        (0, RULES.max_stay - 1, Allowed(0, 9, False)),
        (0, RULES.max_stay, Allowed(1, 9, False)),
        (17, 0, Allowed(0, 2, False)),
        (19, 0, Allowed(0, 0, True)),
        (19, RULES.max_tail, Allowed(1, 0, True)),
    ],
)
def test_the_rules_by_example_with_20_phonemes(pointer, stay, expected):
    assert allowed_advances(pointer, 20, stay) == expected


def test_the_vocabulary_holds_advances_end_and_begin():
    config = WrenConfig()
    assert (config.end_token, config.begin_token, config.vocab_size) == (10, 11, 16)


def test_a_phoneme_never_met_is_tried_without_stress():
    config = WrenConfig()
    known = config.phonemes.index("ɚ")
    assert config.phoneme_ids(["^", "ˈɚ", "☃"]) == [1, known, 0]


def test_a_config_survives_the_disk_and_refuses_unknown_keys(tmp_path):
    path = tmp_path / "config.json"
    WrenConfig(trained=True).save(path)
    assert WrenConfig.load(path) == WrenConfig(trained=True)
    path.write_text(path.read_text().replace('"trained"', '"trainde"'))
    with pytest.raises(ValueError, match="trainde"):
        WrenConfig.load(path)
