"""The pointer's rules: which advances the talker may sample. Pure arithmetic, no torch.

The pointer is the phoneme being spoken when a frame begins. Phonemes run from 0 (`^`) to
n_tokens - 1 (`$`). Sampling an advance k makes a frame during which the pointer moves k phonemes;
sampling END makes no frame.
"""

from __future__ import annotations

from typing import NamedTuple

from omni_speak.models.wren.config import PointerConfig

DEFAULT_RULES = PointerConfig()


class Allowed(NamedTuple):
    """Advances low..high, both included (none if low > high), and END if `end`."""

    low: int
    high: int
    end: bool


def allowed_advances(
    pointer: int,
    n_tokens: int,
    stay: int,
    rules: PointerConfig = DEFAULT_RULES,
    complete: bool = True,
) -> Allowed:
    """What may be sampled next.

    Args:
        pointer: phoneme the next frame begins on, 0 <= pointer < n_tokens.
        n_tokens: phonemes known so far, `^` included, and `$` where the text is complete.
        stay: frames in a row that left the pointer where it is.
        rules: bounds on stay, tail and advance.
        complete: False while more text may come; the pointer then waits on the last phoneme.

    Before the last phoneme END is never allowed, and after `max_stay` frames on one phoneme the
    pointer must move. On the last one only a frame that stays or END may follow, and after
    `max_tail` such frames only END.
    """
    left = n_tokens - 1 - pointer
    if left > 0:
        return Allowed(int(stay >= rules.max_stay), min(rules.max_advance, left), False)
    if complete and stay >= rules.max_tail:
        return Allowed(1, 0, True)
    return Allowed(0, 0, complete)


def next_stay(stay: int, advance: int) -> int:
    """Frames in a row that left the pointer in place, after one more frame."""
    return 0 if advance else stay + 1
