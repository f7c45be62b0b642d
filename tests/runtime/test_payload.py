"""Payload clauses on plain values."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from omni_speak.models.base import resolve_hooks
from omni_speak.runtime.payload import Accumulator, Router, partition, split_rows, to_wire


def test_R25_rows_split_by_scheduled_tokens_or_hidden_length() -> None:
    starts = [0, 2, 3, 6]
    scheduled, padded = torch.arange(6), torch.arange(8)
    assert [r.tolist() for r in split_rows(scheduled, starts, 8)] == [[0, 1], [2], [3, 4, 5]]
    assert [r.tolist() for r in split_rows(padded, starts, 8)] == [[0, 1], [2], [3, 4, 5]]
    whole = torch.arange(5)
    assert split_rows(whole, starts, 8) == [whole] * 3
    assert split_rows(["a", "b", "c"], starts, 8) == ["a", "b", "c"]
    assert split_rows(7, starts, 8) == [7, 7, 7]


def test_split_rows_leaves_out_what_was_sent_before() -> None:
    rows = split_rows(torch.arange(6), [0, 2, 3, 6], 6, resent=[0, 1, 2])
    assert [r.tolist() for r in rows] == [[0, 1], [], [5]]


@pytest.mark.parametrize("marker", [None, 0, 9])
def test_R26_an_audio_stage_sends_every_row_a_text_stage_none(marker: int | None) -> None:
    assert Router("audio", 1).wants("a", marker)
    assert not Router("text", 1).wants("a", marker)


def test_R26_other_stages_send_rows_whose_final_stage_is_beyond() -> None:
    router = Router("latent", 1)
    assert [router.wants(str(stage), stage) for stage in (0, 1, 2)] == [False, False, True]


def test_R26_a_row_without_marker_is_not_remembered() -> None:
    router = Router("latent", 1)
    assert router.wants("a", None)
    assert not router.wants("a", 1)  # the marker decides when it arrives
    assert not router.wants("a", None)  # and is remembered
    router.forget("a")
    assert router.wants("a", None)


def test_R28_client_and_stage_keys_are_partitioned() -> None:
    payload = {key: torch.tensor(0) for key in ("a", "b", "c")}
    client, onward = partition(payload, frozenset({"b", "z"}))
    assert set(client) == {"b"} and set(onward) == {"a", "c"}


@pytest.mark.parametrize("keys", [["a"], ("a", "a"), ("a", ""), ("a", 1), "a"])
def test_R28_a_malformed_client_key_list_is_refused(keys: Any) -> None:
    class Talker:
        end_token_ids = frozenset({1})
        omni_client_multimodal_output_keys = keys

        def allocate(self) -> None: ...

        def begin_request(self) -> None: ...

    with pytest.raises(ValueError, match="tuple of unique, non-empty strings"):
        resolve_hooks(Talker(), 10)


def test_R29_the_wire_carries_tensors_only(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        payload = to_wire(
            {
                "t": torch.ones(2),
                "n": 3,
                "f": 0.5,
                "l": [1, 2],
                "s": "words",
                "d": {"a": 1},
                "o": None,
            }
        )
    assert {key: value.tolist() for key, value in payload.items()} == {
        "t": [1, 1],
        "n": 3,
        "f": 0.5,
        "l": [1, 2],
    }
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 3
    assert all(any(f"'{key}'" in m for m in messages) for key in ("s", "d", "o"))


def test_R30_payloads_accumulate_until_the_request_ends() -> None:
    kept = Accumulator()
    for step in range(3):
        kept.add("a", {"rows": torch.full((2, 1), step), "last": torch.tensor(step)})
    kept.add("b", {"rows": torch.zeros(1)})
    whole = kept.take("a")
    assert whole["rows"].tolist() == [[0], [0], [1], [1], [2], [2]] and whole["last"] == 2
    assert kept.take("a") == {} and len(kept) == 1
