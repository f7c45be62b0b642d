"""Sparse audio on plain values, and through the runner with a model that makes it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from omni_speak.runtime.sparse_audio import LOG_EVERY, SparseAudio
from tests.runtime.conftest import SteppedCore

Stepped = Callable[..., SteppedCore]
BATCH = ["a", "b", "c"]
ONE, TWO = torch.tensor([1]), torch.tensor([2])


def declared(**changes: Any) -> dict[str, Any]:
    return {
        "codes.audio": [ONE, TWO],
        "meta.sparse_audio": True,
        "meta.req_id": ["c", "a"],
        "dense": torch.arange(3),
        **changes,
    }


def test_R27_lists_follow_the_declared_ids() -> None:
    routed = SparseAudio().route(declared(), BATCH)
    assert [t.tolist() for t in routed["codes.audio"]] == [[2], [], [1]]
    assert routed["dense"] is not None and "meta.req_id" not in routed


def test_outputs_without_a_declaration_are_left_alone() -> None:
    outputs = {"codes.audio": [ONE, TWO, ONE]}
    assert SparseAudio().route(outputs, BATCH) is outputs
    assert SparseAudio().route({**outputs, "meta.sparse_audio": False}, BATCH) == outputs


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"meta.req_id": None}, "must be a list of request ids"),
        ({"meta.req_id": ["a", "a"]}, "twice"),
        ({"meta.req_id": ["a", "stranger"]}, "not in the batch.*stranger"),
        ({"meta.req_id": ["a"]}, "2 items for 1 requests"),
        ({"meta.req_id": [1, 2]}, "must be a list of request ids"),
        ({"meta.sparse_audio": "yes"}, "must be true"),
        ({"meta.sparse_audio": False}, "must be true"),
        ({"meta.sparse_audio": None}, "must be true"),
    ],
)
def test_R27_a_malformed_declaration_routes_nothing(
    changes: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    routed = SparseAudio().route(declared(**changes), BATCH)
    assert set(routed) == {"dense"}
    assert any(re.search(words, r.getMessage()) for r in caplog.records)


def test_R27_it_is_logged_at_a_bounded_rate(caplog: pytest.LogCaptureFixture) -> None:
    sparse = SparseAudio()
    with caplog.at_level(logging.ERROR):
        for _ in range(2 * LOG_EVERY):
            sparse.route(declared(**{"meta.req_id": None}), BATCH)
    assert len(caplog.records) == 2


def test_R27_only_the_named_requests_get_frames(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "SparseProducer", "never_ends": True})
    ids = [core.add(f"hello {i}", max_frames=3) for i in range(3)]
    core.runner.talker.speaks = {ids[0], ids[2]}
    core.run()
    assert [core.codes(r) for r in ids] == [[[0] * 4] * 3, [], [[2] * 4] * 3]
    assert all(list(p) == ids for p in core.payloads[:3])


def test_R27_never_another_requests_row(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "SparseProducer", "never_ends": True})
    ids = [core.add(f"hello {i}", max_frames=2) for i in range(2)]
    core.runner.talker.speaks = set(ids)
    core.runner.talker.declare = {"meta.req_id": ["stranger", ids[0]]}
    core.run()
    assert all(core.codes(r) == [] for r in ids)
    assert all(core.finished[r] == "length" for r in ids)
