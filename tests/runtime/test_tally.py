from __future__ import annotations

from omni_speak.runtime.tally import Tally


def test_values_fall_into_the_first_bucket_that_holds_them() -> None:
    tally = Tally((0.0, 0.5, 1.0))
    for value in (-1.0, 0.0, 0.2, 0.5, 0.7, 9.0):
        tally.add(value)
    assert list(tally.buckets()) == [("0.0", 2), ("0.5", 4), ("1.0", 5), ("+Inf", 6)]
    assert tally.count == 6 and tally.sum == -1.0 + 0.2 + 0.5 + 0.7 + 9.0
