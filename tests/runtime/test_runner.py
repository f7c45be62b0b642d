"""The runner's spine, clause by clause, through vLLM's own engine core and CPU runner."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from vllm.v1.core.sched.output import SchedulerOutput

from omni_speak.runtime.frames import NO_CODE
from omni_speak.runtime.payload import RowOutput
from omni_speak.runtime.snapshot import take_snapshot
from tests.runtime.conftest import SteppedCore

Stepped = Callable[..., SteppedCore]
LONG = "a prompt of more than sixty-four tokens, so that its prefill takes several steps: " * 2


def test_R1_execute_model_twice_is_refused(stepped: Stepped) -> None:
    core = stepped()
    core.add("hello")
    output = core.core.scheduler.schedule()
    assert core.runner.execute_model(output) is None
    with pytest.raises(RuntimeError, match="sample_tokens"):
        core.runner.execute_model(output)
    assert core.runner.sample_tokens(None).req_ids == [output.scheduled_new_reqs[0].req_id]
    assert core.runner.execute_model_state is None  # consumed once


def test_R1_sample_tokens_with_nothing_pending_returns_no_tokens(stepped: Stepped) -> None:
    core = stepped()
    core.add("hello")
    core.step()
    output = core.runner.sample_tokens(None)
    assert not output or (not output.req_ids and not output.sampled_token_ids)
    core.runner.collect_build()
    assert len(core.payloads) == 1  # no second hand-off


@pytest.mark.parametrize("total", [0, -1])
def test_R2_no_tokens_no_forward(stepped: Stepped, total: int) -> None:
    core = stepped()
    forwards: list[int] = []
    forward = core.runner.talker.forward
    core.runner.talker.forward = lambda *a, **k: forwards.append(1) or forward(*a, **k)
    output = replace(SchedulerOutput.make_empty(), total_num_scheduled_tokens=total)
    result = core.runner.execute_model(output)
    assert result is not None and result.req_ids == [] and not forwards
    assert output.total_num_scheduled_tokens == total  # R4: not mutated


def test_R7_request_state_is_nested_and_dropped_at_the_end(stepped: Stepped) -> None:
    core = stepped()
    req_id = core.add("hello", max_frames=5)
    core.step()
    buffer = core.runner.model_intermediate_buffer
    core.runner.update_intermediate_buffer(req_id, {"codes": {"other": 1}, "flag": True})
    assert set(buffer[req_id]["codes"]) == {"audio", "other"} and buffer[req_id]["flag"]
    core.run()
    assert not buffer and len(core.runner.frames) == 0


def test_R14_never_for_a_row_whose_prefill_is_unfinished(stepped: Stepped) -> None:
    core = stepped(tiny={"never_ends": True}, max_step_tokens=64)
    short = core.add("hello", max_frames=6)
    core.step()
    long = core.add(LONG, max_frames=3)
    for _ in range(2):
        core.step()
    calls = core.runner.talker.mtp_calls
    assert calls == [[short], [short], [short]]  # batched with `long`'s chunks, without its row
    core.run()
    assert calls[3] == [short, long]  # the last chunk samples
    assert [len(core.codes(r)) for r in (short, long)] == [6, 3]
    assert len(calls) == len(core.payloads)  # once per step


def test_R15_one_sampled_token_per_row(stepped: Stepped) -> None:
    core = stepped()
    req_id = core.add("hello")
    sample = core.runner.sampler.forward

    def two_columns(*args: Any, **kwargs: Any) -> Any:
        output = sample(*args, **kwargs)
        core.runner._bookkeeping_sync = lambda *a, **k: ({}, None, None, [[1]], {}, [], {}, [])
        output.sampled_token_ids = output.sampled_token_ids.repeat(1, 2)
        return output

    core.runner.sampler.forward = two_columns
    with pytest.raises(ValueError, match=rf"\[1, 2\].*{req_id}"):
        core.step()


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("list", TypeError, "must return a tensor, got list"),
        ("float", TypeError, "int64"),
        ("rows", ValueError, r"must return \[1, 4\]"),
    ],
)
def test_R16_a_malformed_result_fails_the_step(
    stepped: Stepped, fault: str, error: type[Exception], words: str
) -> None:
    core = stepped(tiny={"break_mtp": fault})
    core.add("hello")
    with pytest.raises(error, match=words):
        core.step()


def test_R17_rows_without_a_frame_carry_an_empty_tensor(stepped: Stepped) -> None:
    core = stepped(tiny={"never_ends": True}, max_step_tokens=64)
    short, long = core.add("hello", max_frames=4), core.add(LONG, max_frames=2)
    core.run()
    assert [list(p) for p in core.payloads[:3]] == [[short, long]] * 3
    assert [p[long].codes.size for p in core.payloads[:4]] == [0, 0, 4, 4]
    assert all(p[short].codes.shape == (4,) for p in core.payloads[:4])


def test_R17_the_token_that_ends_a_request_is_no_frame(stepped: Stepped) -> None:
    core = stepped(tiny={"ends_at_once": True})
    req_id = core.add("hello")
    core.run()
    assert core.payloads[0][req_id].codes.size == 0 and core.finished[req_id] == "stop"


def test_R18_a_frames_codes_are_the_next_steps_input(stepped: Stepped) -> None:
    core = stepped(tiny={"never_ends": True})
    inputs: list[torch.Tensor] = []
    embed = core.runner.talker.embed_frames

    def spy(ids: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, codes: torch.Tensor):
        inputs.append(codes.clone())
        return embed(ids, positions, slots, codes)

    core.runner.talker.embed_frames = spy
    req_id = core.add("hello", max_frames=5)
    core.run()
    assert (inputs[0] == NO_CODE).all()  # the prompt carries no frame
    assert [i[-1].tolist() for i in inputs[1:]] == core.codes(req_id)[:-1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_codes_do_not_depend_on_chunks_batch_mates_or_preemption(
    stepped: Stepped, temperature: float
) -> None:
    texts = ["hello", LONG, "b" * 63, "c" * 64, "d" * 65, LONG + "e"]

    def codes(core: SteppedCore, *, together: bool) -> list[list[list[int]]]:
        ids = []
        for seed, text in enumerate(texts):
            ids.append(core.add(text, seed=seed, temperature=temperature))
            if not together:
                core.run()
        core.run()
        return [core.codes(r) for r in ids]

    alone = codes(stepped(max_step_tokens=256), together=False)
    assert all(alone) and len({str(c) for c in alone}) == len(texts)
    assert codes(stepped(max_step_tokens=256), together=True) == alone
    assert codes(stepped(max_step_tokens=32), together=True) == alone


def test_preemption_recomputes_the_same_codes_and_sends_nothing_twice(stepped: Stepped) -> None:
    def run(blocks: int | None) -> tuple[list[list[list[int]]], int]:
        core = stepped(tiny={"never_ends": True}, num_kv_blocks=blocks)
        preempted = 0
        reset = core.core.scheduler._preempt_request

        def count(*args: Any, **kwargs: Any) -> Any:
            nonlocal preempted
            preempted += 1
            return reset(*args, **kwargs)

        core.core.scheduler._preempt_request = count
        ids = [core.add("x" * 100, seed=i, max_frames=60) for i in range(4)]
        core.run()
        return [core.codes(r) for r in ids], preempted

    roomy, none = run(None)
    tight, some = run(7)  # 128-token blocks: four requests of 160 tokens want eight
    assert none == 0 and some > 0
    assert tight == roomy and all(len(c) == 60 for c in tight)


def test_prefix_cache_is_salted_by_voice_and_never_shares_frames(stepped: Stepped) -> None:
    prompt = "y" * 140  # more than one 128-token block
    core = stepped(tiny={"never_ends": True}, max_step_tokens=256)
    embedded: list[int] = []
    embed = core.runner.talker.embed_frames
    core.runner.talker.embed_frames = lambda ids, *a: embedded.append(len(ids)) or embed(ids, *a)

    def codes(voice: str) -> list[list[int]]:
        req_id = core.add(prompt, voice=voice, temperature=0.0, max_frames=130)
        core.run()
        return core.codes(req_id)

    first, other, again = codes("one"), codes("two"), codes("one")
    assert [n for n in embedded if n > 1] == [140, 140, 12]  # only the same voice shares a block
    assert again == first  # and sharing it changes nothing
    assert other != first


def test_R21_the_model_may_decline_background_building(stepped: Stepped) -> None:
    core = stepped()
    assert core.runner.builder.background
    core.runner.hooks = replace(core.runner.hooks, background_output=False)
    assert not core.runner._may_build_in_background()


def test_R22_a_late_builder_sees_its_own_step(stepped: Stepped) -> None:
    """The builder is held while the next step runs and the step's tensors are overwritten."""
    core = stepped(tiny={"never_ends": True})
    gate, late = threading.Event(), []

    def slow(payload: dict[str, RowOutput]) -> None:
        gate.wait(10)
        late.append({k: v.codes.tolist() for k, v in payload.items()})

    core.runner.builder.sink = slow
    returned: list[torch.Tensor] = []
    mtp = core.runner.talker.post_sample_talker_mtp
    core.runner.talker.post_sample_talker_mtp = lambda *a: returned.append(mtp(*a)) or returned[-1]
    req_id = core.add("hello", max_frames=3)
    core.step()
    expected = returned[0].tolist()
    with torch.inference_mode():
        returned[0].fill_(9)
        core.runner._sampled.fill_(16)
    gate.set()
    core.run()
    assert late[0] == {req_id: expected[0]}


def test_R23_the_builders_exception_reaches_the_consumer_as_it_was(stepped: Stepped) -> None:
    core = stepped(tiny={"never_ends": True})
    fault = LookupError("broken sink")

    def broken(payload: dict[str, RowOutput]) -> None:
        raise fault

    core.runner.builder.sink = broken
    core.add("hello", max_frames=3)
    core.step()
    with pytest.raises(LookupError) as caught:
        core.step()
    assert caught.value is fault
    core.runner.collect_build()  # raised once, then let go


def test_R24_one_worker_builds_every_step(stepped: Stepped) -> None:
    core = stepped(tiny={"never_ends": True})
    threads: set[int] = set()
    core.runner.builder.sink = lambda payload: threads.add(threading.get_ident())
    core.add("hello", max_frames=12)
    core.run()
    assert len(threads) == 1 and threading.get_ident() not in threads


def test_async_scheduling_gives_the_same_codes(stepped: Stepped) -> None:
    def run(**settings: Any) -> list[list[list[int]]]:
        core = stepped(**settings)
        ids = [core.add(f"hello {i}", seed=i) for i in range(5)]
        core.run()
        core.runner.builder.shutdown()
        return [core.codes(r) for r in ids]

    assert run(async_scheduling=True) == run(async_scheduling=False)


def test_R35_shutdown_twice_is_harmless(stepped: Stepped) -> None:
    core = stepped()
    core.add("hello", max_frames=2)
    core.run()
    core.runner.shutdown()
    core.runner.shutdown()
    assert not core.runner.model_intermediate_buffer
    with pytest.raises(RuntimeError, match="shutdown"):
        core.runner.builder.submit(take_snapshot([], [], torch.empty(0), torch.empty(0, 4)))
