"""What a step does between stages: inputs in, keys and values out, in the contract's order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from vllm.v1.core.sched.output import SchedulerOutput

from omni_speak.runtime.connectors.base import Message
from omni_speak.runtime.connectors.in_process import InProcessConnector
from omni_speak.runtime.connectors.kv_transfer import kv_message, place_kv
from omni_speak.runtime.connectors.stage_inputs import StageInputs
from omni_speak.runtime.errors import ModelFault
from omni_speak.runtime.runner import SpeechRunnerOutput, Transfers
from tests.runtime.conftest import SteppedCore

Stepped = Callable[..., SteppedCore]


def connect(core: SteppedCore) -> InProcessConnector:
    before = InProcessConnector()
    core.runner.inputs = StageInputs(before, core.runner.update_intermediate_buffer)
    return before


def test_chunks_reach_the_requests_state(stepped: Stepped) -> None:
    core = stepped(tiny={"never_ends": True})
    before = connect(core)
    req_id = core.add("hello", max_frames=5)
    core.step()
    before.send([Message(req_id, "chunk", {"n": torch.tensor(1)})])
    before.send([Message(req_id, "chunk", {"n": torch.tensor(2), "m": torch.tensor(3)})])
    core.step()
    entry = core.runner.model_intermediate_buffer[req_id]
    assert (entry["n"], entry["m"]) == (2, 3)
    core.run()


def test_a_full_payload_waits_for_its_request(stepped: Stepped) -> None:
    core = stepped(tiny={"never_ends": True})
    before = connect(core)
    other = core.add("hello", max_frames=9)
    req_id = core.add("later", max_frames=5)
    core.runner.inputs.expect(req_id)
    before.send([Message(req_id, "full", {"n": torch.tensor(1)})])
    core.step()
    assert core.runner.model_intermediate_buffer[req_id]["n"] == 1
    assert "n" not in core.runner.model_intermediate_buffer[other]
    core.run()


def test_R3_payloads_of_finished_and_unknown_requests_are_flushed() -> None:
    before, delivered = InProcessConnector(), []
    inputs = StageInputs(before, lambda req_id, payload: delivered.append(req_id))
    inputs.expect("later")
    inputs.register(["now"])
    before.send([Message(r, "full", {}) for r in ("now", "later", "unknown")])
    inputs.receive()
    inputs.flush([])
    assert inputs.deliver() == {"now"} and delivered == ["now"]
    assert set(inputs._waiting) == {"later"}
    inputs.flush(["later", "now"])
    assert not inputs._waiting and not inputs._expected and not inputs._running


def test_R1_R2_transfers_come_back_without_tokens(stepped: Stepped) -> None:
    """A step without tokens still returns finished-KV ids, and vLLM's shared empty output is not
    touched."""
    core = stepped(tiny={"talker": "SendsKV", "never_ends": True})
    core.runner.kv_sender = InProcessConnector()
    req_id = core.add("hello", max_frames=1, kv_transfer={})
    core.step()
    output = replace(
        SchedulerOutput.make_empty(), finished_req_ids={req_id}, total_num_scheduled_tokens=0
    )
    result = core.runner.execute_model(output)
    assert isinstance(result, SpeechRunnerOutput) and result.req_ids == []
    assert result.transfers == Transfers(kv_sent=frozenset({req_id}))
    again = core.runner.execute_model(SchedulerOutput.make_empty())
    assert not isinstance(again, SpeechRunnerOutput)
    core.run()


def test_R1_sample_tokens_with_nothing_pending_returns_only_transfers(stepped: Stepped) -> None:
    core = stepped(tiny={"never_ends": True})
    core.runner._transfers = Transfers(received=frozenset({"x"}))
    output = core.runner.sample_tokens(None)
    assert output.transfers == Transfers(received=frozenset({"x"}))
    assert output.req_ids == [] and output.sampled_token_ids == []


def test_R3_finished_requests_kv_is_handed_over_before_states_forget_them(
    stepped: Stepped,
) -> None:
    core = stepped(tiny={"talker": "SendsKV", "never_ends": True})
    after = InProcessConnector()
    core.runner.kv_sender = after
    req_id = core.add("hello", max_frames=4, kv_transfer={"to": 3, "why": "words"})
    for _ in range(4):
        core.step()
    blocks = core.runner.requests[req_id].block_ids[0]
    expected = [cache[blocks].clone() for cache in core.runner.kv_caches]
    core.add("another one takes the blocks in the same step", max_frames=1)
    core.run()
    (sent,) = after.receive()
    assert (sent.req_id, sent.kind) == (req_id, "kv")
    for layer, cache in enumerate(expected):
        torch.testing.assert_close(sent.payload[f"kv.{layer}"], cache)
    # R33: the request's own metadata and the model's, merged; what is no tensor is dropped.
    meta = {k: int(v) for k, v in sent.payload.items() if not k.startswith("kv.")}
    assert meta == {"to": 3, "layers": 2, "num_tokens": 8}


def test_R33_the_requests_own_metadata_is_not_written_to(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "SendsKV", "never_ends": True})
    core.runner.kv_sender = InProcessConnector()
    own = {"to": 3}
    core.add("hello", max_frames=1, kv_transfer=own)
    core.run()
    assert own == {"to": 3}


def test_R33_a_failing_metadata_hook_fails_the_step(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "SendsKV", "never_ends": True, "breaks_kv": True})
    after = InProcessConnector()
    core.runner.kv_sender = after
    core.add("hello", max_frames=1, kv_transfer={})
    core.step()
    with pytest.raises(ModelFault, match=r"kv_transfer_metadata failed .* no metadata"):
        core.step()
    assert after.receive() == []  # no KV without its metadata
    core.run()


def test_kv_of_requests_that_did_not_ask_stays(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "SendsKV"})
    after = InProcessConnector()
    core.runner.kv_sender = after
    core.add("hello")
    core.run()
    assert after.receive() == []


def test_kv_can_be_placed_in_another_pool(stepped: Stepped) -> None:
    core = stepped(tiny={"never_ends": True})
    core.add("hello", max_frames=2)
    core.run()
    caches, count = core.runner.kv_caches, core.runner.kv_cache_config.num_blocks
    sent = kv_message("a", caches, [1, 2], count, {})
    there = [torch.zeros_like(cache) for cache in caches]
    place_kv(sent, there, [5, 3], count)
    for cache, other in zip(caches, there, strict=True):
        torch.testing.assert_close(other[5], cache[1])
        torch.testing.assert_close(other[3], cache[2])
    with pytest.raises(ValueError, match="not laid out by block"):
        kv_message("a", caches, [1], count + 1, {})


def test_R3_the_order_before_the_forward(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "CachedOutputs", "never_ends": True})
    order: list[str] = []

    def note(owner: Any, name: str) -> None:
        call = getattr(owner, name)
        setattr(owner, name, lambda *a, **k: order.append(name) or call(*a, **k))

    core.add("ends", max_frames=1)
    core.add("goes on", max_frames=5)
    connect(core)
    core.runner.kv_sender = InProcessConnector()
    core.step()
    runner = core.runner
    for owner, names in (
        (runner.output_cache, ("apply_finished_writes", "end")),
        (runner, ("_send_kv",)),
        (runner.inputs, ("register", "receive", "flush", "deliver")),
        (runner.input_batch, ("remove_request",)),
        (runner.talker, ("forward",)),
    ):
        for name in names:
            note(owner, name)
    runner.hooks = replace(runner.hooks, hears_finished=True)
    runner.talker.on_requests_finished = lambda ids: order.append("on_requests_finished")
    core.step()
    assert order == [
        "apply_finished_writes",
        "_send_kv",
        "register",
        "receive",
        "flush",
        "end",
        "remove_request",
        "on_requests_finished",
        "deliver",
        "forward",
    ]
    core.run()
