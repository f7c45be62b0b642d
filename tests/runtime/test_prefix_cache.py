"""The outputs of cached prefixes, through vLLM's prefix cache and models that need them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from omni_speak.models.base import resolve_hooks
from omni_speak.runtime.prefix_cache import OutputPrefixCache
from omni_speak.runtime.snapshot import StepSnapshot
from tests.runtime.conftest import SteppedCore

Stepped = Callable[..., SteppedCore]
PROMPT = "y" * 140  # more than one 128-token block


def outputs(core: SteppedCore, prompt: str = PROMPT) -> dict[str, list[Any]]:
    """One request's payload of its first step, and how many tokens that step computed."""
    req_id = core.add(prompt, temperature=0.0, max_frames=2)
    before = len(core.onward)
    core.step()
    core.runner.collect_build()
    payload = core.onward[before][req_id]
    result = {key: value.tolist() for key, value in payload.items()}
    core.run()
    return result


def test_R31_rows_of_a_cached_prefix_come_back_merged(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "CachedOutputs", "never_ends": True}, max_step_tokens=256)
    first, again = outputs(core), outputs(core)
    assert len(again["energy"]) == len(again["hidden"]) == 140  # 12 computed, 128 from the cache
    assert again["energy"] == pytest.approx(first["energy"], rel=1e-4)
    torch.testing.assert_close(torch.tensor(again["hidden"]), torch.tensor(first["hidden"]))


def test_R31_without_it_a_cached_prefix_has_no_outputs(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "Latent", "never_ends": True}, max_step_tokens=256)
    first, again = outputs(core), outputs(core)
    assert (len(first["energy"]), len(again["energy"])) == (140, 12)


def test_R31_a_model_that_needs_only_the_tail_gets_only_the_tail(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "CachedTail", "never_ends": True}, max_step_tokens=256)
    first, again = outputs(core), outputs(core)
    assert len(again["hidden"]) == 12 and len(again["energy"]) == 140
    assert again["energy"] == pytest.approx(first["energy"], rel=1e-4)


def test_R31_deferred_keys_are_committed_at_request_end(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "Deferred", "never_ends": True}, max_step_tokens=256)
    running = core.add(PROMPT, temperature=0.0, max_frames=6)
    core.step()
    while_running = core.add(PROMPT, temperature=0.0, max_frames=1)
    core.step()
    core.runner.collect_build()
    # Hidden states of the prefix are there at once, the deferred key's rows are not.
    assert len(core.sent(while_running, "hidden")[0]) == 140
    assert len(core.sent(while_running, "energy")[0]) == 12
    core.run()
    after = outputs(core)
    assert len(after["energy"]) == 140
    assert after["energy"] == pytest.approx(core.sent(running, "energy")[0], rel=1e-4)


def test_R31_a_block_that_changes_hands_takes_its_outputs_along(stepped: Stepped) -> None:
    """A small pool: blocks are evicted and used again, their rows must be the new owner's."""
    core = stepped(
        tiny={"talker": "CachedOutputs", "never_ends": True}, max_step_tokens=512, num_kv_blocks=5
    )
    texts = [c * 140 for c in "abcd"]
    fresh = [outputs(core, text) for text in texts]
    for text, first in zip(texts, fresh, strict=True):
        again = outputs(core, text)
        assert again["energy"] == pytest.approx(first["energy"], rel=1e-4)


class _LateEvent:
    """A copy that arrives when told to."""

    def __init__(self) -> None:
        self.done = self.waited = False

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        self.waited = True


def cache_with_late_write(**flags: Any) -> tuple[OutputPrefixCache, _LateEvent]:
    class Talker:
        end_token_ids = frozenset({1})
        caches_prefix_outputs = True

        def allocate(self) -> None: ...

        def begin_request(self) -> None: ...

    talker = Talker()
    for name, value in flags.items():
        setattr(talker, name, value)
    cache, event = OutputPrefixCache(resolve_hooks(talker, 9), 4, 2), _LateEvent()
    step = StepSnapshot(
        ("a",),
        (),
        torch.empty(0),
        torch.empty(0),
        starts=(0, 2),
        hidden_length=2,
        outputs={"x": torch.tensor([5.0, 6.0])},
        ready=event,  # type: ignore[arg-type]
    )
    cache.write(step, torch.tensor([2, 3]))
    return cache, event


def test_R31_writes_are_drained_without_blocking() -> None:
    cache, event = cache_with_late_write()
    cache.apply_finished_writes()
    assert not event.waited and not cache._rows
    event.done = True
    cache.apply_finished_writes()
    assert not event.waited and cache._rows["x"][2:4].tolist() == [5.0, 6.0]


def test_R31_a_read_waits_for_the_rows_it_needs() -> None:
    cache, event = cache_with_late_write()
    cache.begin("b", [1], 2)
    _, merged = cache.merge("b", (None, {"x": torch.tensor([7.0])}))
    assert event.waited and merged["x"].tolist() == [5.0, 6.0, 7.0]
    _, later = cache.merge("b", (None, {"x": torch.tensor([8.0])}))
    assert later["x"].tolist() == [8.0]  # once


def test_R31_a_preempted_requests_deferred_rows_are_void() -> None:
    cache, event = cache_with_late_write(deferred_prefix_cache_mm_keys=("x",))
    event.done = True
    cache.apply_finished_writes()
    cache.forget(["a"])
    cache.end(["a"])
    cache.begin("b", [1], 2)
    assert cache.merge("b", (None, {"x": torch.tensor([7.0])}))[1]["x"].tolist() == [7.0]


def test_R31_deferred_rows_are_void_once_another_request_has_the_slots() -> None:
    cache, event = cache_with_late_write(deferred_prefix_cache_mm_keys=("x",))
    event.done = True
    cache.apply_finished_writes()
    cache.end(["a"])
    cache.begin("b", [1], 2)
    assert cache.merge("b", (None, {"x": torch.tensor([7.0])}))[1]["x"].tolist() == [5.0, 6.0, 7.0]
    step = replace(cache_with_late_write()[0]._writes[0].snapshot, req_ids=("c",), ready=None)
    cache.write(step, torch.tensor([2, 3]))  # c, which has not ended, computes there now
    cache.apply_finished_writes()
    cache.begin("d", [1], 2)
    assert cache.merge("d", (None, {"x": torch.tensor([8.0])}))[1]["x"].tolist() == [8.0]
