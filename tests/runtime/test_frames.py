"""The frame table: slots belong to requests, codes to positions."""

from __future__ import annotations

import pytest
import torch

from omni_speak.runtime.frames import NO_CODE, FrameTable


def table(slots: int = 2) -> FrameTable:
    return FrameTable(slots, 6, 3, torch.device("cpu"))


def test_codes_come_back_where_they_were_written() -> None:
    frames = table()
    frames.take("a"), frames.take("b")
    slots = frames.slots(["b", "a"])
    frames.write(slots, torch.tensor([2, 5]), torch.tensor([[1, 2, 3], [4, 5, 6]]))
    read = frames.read(frames.slots(["a", "b", "b"]), torch.tensor([5, 2, 1]))
    assert read.tolist() == [[4, 5, 6], [1, 2, 3], [NO_CODE] * 3]


def test_a_released_slot_is_clean_and_used_again() -> None:
    frames = table(slots=1)
    slot = frames.take("a")
    frames.write(frames.slots(["a"]), torch.tensor([1]), torch.tensor([[7, 7, 7]]))
    frames.release("a")
    frames.release("never seen")
    assert "a" not in frames and frames.take("b") == slot
    assert (frames.read(frames.slots(["b"]).repeat(6), torch.arange(6)) == NO_CODE).all()


def test_no_slot_left_names_the_request() -> None:
    frames = table(slots=1)
    frames.take("a")
    with pytest.raises(RuntimeError, match="request b: 1 are taken"):
        frames.take("b")
