"""The runner's spine, clause by clause, through vLLM's own engine core and CPU runner."""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from vllm.compilation.cuda_graph import CUDAGraphWrapper
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

from omni_speak.runtime.frames import NO_CODE
from omni_speak.runtime.output_builder import OutputBuilder
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


def test_R4_the_schedulers_output_is_never_written_to(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "NarrowHead", "never_ends": True})

    def hold(params: Any) -> None:
        params.min_tokens, params._all_stop_token_ids = 2, {16, 150}

    core.add("hello", params=hold, max_frames=2)
    for total in (None, -3):
        output = core.core.scheduler.schedule()
        if total is not None:
            output = replace(output, total_num_scheduled_tokens=total)
        before = copy.deepcopy(vars(output))
        core.runner._unforgotten = {"of a failed step"}
        core.runner.execute_model(output)
        core.runner.sample_tokens(None)
        after = vars(output)
        assert before.keys() == after.keys()
        for field in before:
            assert repr(before[field]) == repr(after[field]), field


def test_R5_warm_up_state_is_cleared_once_before_the_first_real_step(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "Attentive"})
    heard = core.runner.talker.heard
    core.runner.execute_model(SchedulerOutput.make_empty())
    assert [what for what, _ in heard] == []  # no real step yet
    core.add("hello", max_frames=3)
    core.run()
    order = [what for what, _ in heard]
    assert order.count("clear") == 1 and order[0] == "clear"


def test_R3_the_model_is_told_who_finished_before_the_forward(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "Attentive", "never_ends": True})
    first, _ = core.add("hello", max_frames=1), core.add("hello", max_frames=4)
    core.step()
    del core.runner.talker.heard[:]
    core.step()
    assert [what for what, _ in core.runner.talker.heard] == ["finished", "inputs", "forward"]
    assert core.runner.talker.heard[0] == ("finished", [first])


def test_R6_the_model_may_adjust_ids_and_positions(stepped: Stepped) -> None:
    def run(**tiny: Any) -> tuple[SteppedCore, list[str]]:
        core = stepped(tiny={"never_ends": True, **tiny})
        ids = [core.add(text, seed=1, max_frames=4) for text in ("hello", "hello again")]
        core.run()
        return core, ids

    plain, plain_ids = run()
    same, same_ids = run(talker="Attentive")
    moved, moved_ids = run(talker="Attentive", shift=True)
    heard = moved.runner.talker.heard
    positions = [value for what, value in heard if what == "forward"]
    assert positions[0] == [*range(10, 15), *range(10, 21)] and positions[1] == [15, 21]
    assert [value for what, value in heard if what == "inputs"] == [moved_ids] * 4
    assert [same.codes(r) for r in same_ids] == [plain.codes(r) for r in plain_ids]
    assert [moved.codes(r) for r in moved_ids] != [plain.codes(r) for r in plain_ids]


def test_R6_no_request_ids_under_speculative_decoding(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "Attentive"})
    core.add("hello", max_frames=1)
    preprocess = core.runner._preprocess

    def speculating(*args: Any, **kwargs: Any) -> Any:
        core.runner.speculative_config = object()
        try:
            return preprocess(*args, **kwargs)
        finally:
            core.runner.speculative_config = None

    core.runner._preprocess = speculating
    core.step()
    assert ("inputs", None) in core.runner.talker.heard


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


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_R20_a_seed_gives_the_same_codes_alone_in_a_crowd_and_while_others_come_and_go(
    stepped: Stepped, temperature: float
) -> None:
    core = stepped(tiny={"never_ends": True}, max_step_tokens=64)

    def speak() -> str:
        return core.add("the same", seed=7, temperature=temperature, max_frames=12)

    alone = speak()
    core.run()
    crowd = [core.add(f"other {i}", seed=i, max_frames=12) for i in range(3)]
    crowded = speak()
    crowd += [core.add(f"other {i}", seed=i, max_frames=12) for i in range(3, 7)]
    del core.runner.talker.mtp_calls[:]
    core.run()
    assert [len(rows) for rows in core.runner.talker.mtp_calls] == [8] * 12  # once per step
    disturbed = speak()
    for step in range(12):
        other = core.add(LONG if step % 3 else "hello", seed=step, max_frames=2 + step % 4)
        core.step()
        if step % 2:
            core.core.abort_requests([other])
    core.run()
    assert core.codes(alone) == core.codes(crowded) == core.codes(disturbed)
    assert core.codes(crowd[0]) != core.codes(alone)


def test_prefix_caching_on_or_off_gives_the_same_codes(stepped: Stepped) -> None:
    def run(on: bool) -> tuple[list[list[list[int]]], int]:
        core = stepped(tiny={"never_ends": True}, max_step_tokens=256, prefix_caching=on)
        computed: list[int] = []
        embed = core.runner.talker.embed_frames
        core.runner.talker.embed_frames = lambda i, *a: computed.append(len(i)) or embed(i, *a)
        ids = []
        for seed in range(3):
            ids.append(core.add("y" * 140, seed=seed, max_frames=20))
            core.run()
        return [core.codes(r) for r in ids], sum(computed)

    (cached, less), (uncached, more) = run(True), run(False)
    assert cached == uncached and more - less == 2 * 128  # and it really was on, and off


def test_R21_the_model_may_decline_background_building(stepped: Stepped) -> None:
    core = stepped(async_scheduling=True)
    assert core.runner.builder.background
    core.runner.hooks = replace(core.runner.hooks, background_output=False)
    assert not core.runner._may_build_in_background()


def in_background(core: SteppedCore, sink: Callable[[dict[str, RowOutput]], None]) -> None:
    """Build as under async scheduling, in steps that a test can follow."""
    core.runner.builder = OutputBuilder(core.runner.hooks, background=True)
    core.runner.builder.sink = sink


def test_R22_a_late_builder_sees_its_own_step(stepped: Stepped) -> None:
    """The builder is held while the next step runs and the step's tensors are overwritten."""
    core = stepped(tiny={"never_ends": True})
    gate, late = threading.Event(), []

    def slow(payload: dict[str, RowOutput]) -> None:
        gate.wait(10)
        late.append({k: v.codes.tolist() for k, v in payload.items()})

    in_background(core, slow)
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

    in_background(core, broken)
    core.add("hello", max_frames=3)
    core.step()
    with pytest.raises(LookupError) as caught:
        core.step()
    assert caught.value is fault
    core.runner.collect_build()  # raised once, then let go


def test_R23_an_inline_builders_exception_is_raised_in_the_next_step_too(
    stepped: Stepped,
) -> None:
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


def test_R24_one_worker_builds_every_step(stepped: Stepped) -> None:
    core = stepped(tiny={"never_ends": True})
    threads: set[int] = set()
    in_background(core, lambda payload: threads.add(threading.get_ident()))
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
    with pytest.raises(RuntimeError, match="shut down"):
        core.runner.builder.submit(take_snapshot([], [], torch.empty(0), torch.empty(0, 4)))


def test_R35_shutdown_releases_in_order(stepped: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    core = stepped()
    core.add("hello", max_frames=2)
    core.step()
    order: list[str] = []
    runner = core.runner

    def note(owner: Any, name: str, what: str) -> None:
        call = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, **k: order.append(what) or call(*a, **k))

    class Buffer(dict[str, Any]):
        def clear(self) -> None:
            order.append("per-request caches")

    note(gc, "unfreeze", "gc unfrozen")
    note(runner.mtp, "release", "MTP graphs")
    note(runner.builder, "shutdown", "buffers")
    note(CUDAGraphWrapper, "clear_all_graphs", "all CUDA graphs")
    note(CPUModelRunner, "shutdown", "base")
    runner.model_intermediate_buffer = Buffer()
    runner.shutdown()
    assert order == [
        "gc unfrozen",
        "MTP graphs",
        "buffers",
        "per-request caches",
        "all CUDA graphs",
        "base",
    ]
