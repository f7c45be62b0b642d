"""What reaches clients and the next stage, through the runner and models that ship outputs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

from omni_speak.runtime import runner as runner_module
from tests.models.tiny import HIDDEN
from tests.runtime.conftest import SteppedCore

Stepped = Callable[..., SteppedCore]
LONG = "a prompt of more than sixty-four tokens, so that its prefill takes several steps: " * 2


@pytest.mark.parametrize(
    ("talker", "background"),
    [
        ("Latent", True),
        ("EagerlyPostprocessed", True),
        ("Postprocessed", False),
        ("AtEnd", False),
        ("CachedOutputs", False),
    ],
)
def test_R21_what_builds_in_the_background(stepped: Stepped, talker: str, background: bool) -> None:
    core = stepped(tiny={"talker": talker}, async_scheduling=True)
    assert core.runner.builder.background is background


def test_R21_speculation_and_routed_experts_build_inline(stepped: Stepped) -> None:
    core = stepped(async_scheduling=True)
    assert core.runner._may_build_in_background()
    core.runner.vllm_config.aux_output_config.enable_return_routed_experts = True
    assert not core.runner._may_build_in_background()
    core.runner.vllm_config.aux_output_config.enable_return_routed_experts = False
    core.runner.speculative_config = object()
    assert not core.runner._may_build_in_background()
    core.runner.speculative_config = None
    core.runner.use_async_scheduling = False
    assert not core.runner._may_build_in_background()


@pytest.mark.parametrize("talker", ["EagerlyPostprocessed", "Postprocessed"])
def test_R21_postprocess_updates_the_requests_state(stepped: Stepped, talker: str) -> None:
    core = stepped(tiny={"talker": talker, "never_ends": True})
    ids = [core.add(text, max_frames=3) for text in ("hello", "hello again")]
    core.step()
    core.runner.collect_build()
    posts = [core.runner.model_intermediate_buffer[r]["post"] for r in ids]
    assert [p["tokens"] for p in posts] == [5, 11]
    for post, req_id in zip(posts, ids, strict=True):
        assert float(post["energy"]) == pytest.approx(sum(core.sent(req_id, "energy")[0]), rel=1e-4)
    core.step()
    core.runner.collect_build()
    assert core.runner.model_intermediate_buffer[ids[0]]["post"]["tokens"] == 1
    core.run()


@pytest.mark.parametrize("talker", ["EagerlyPostprocessed", "Postprocessed"])
@pytest.mark.parametrize("option", ["breaks_postprocess", "odd_postprocess"])
def test_a_postprocess_that_fails_ends_its_request_alone(
    stepped: Stepped, talker: str, option: str
) -> None:
    core = stepped(tiny={"talker": talker, "never_ends": True})
    good, bad = core.add("good", max_frames=3), core.add("bad", max_frames=3)
    core.runner.talker.options["breaks_postprocess"] = bad
    if option == "odd_postprocess":
        core.runner.talker.options = {"odd_postprocess": True}
    core.run()
    assert bad in core.failed and "postprocess" in str(core.failed[bad])
    assert bad in str(core.failed[bad])
    if option == "breaks_postprocess":
        assert len(core.tokens(good)) == 3 and list(core.failed) == [bad]


def test_R25_hidden_states_are_shipped_row_by_row(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "Latent", "never_ends": True}, max_step_tokens=64)
    short, long = core.add("hello", max_frames=3), core.add(LONG, max_frames=1)
    core.run()
    lengths = [len(rows) for rows in core.sent(long, "hidden")]
    assert sum(lengths) == len(LONG) and lengths[0] < 64
    hidden = core.sent(short, "hidden")
    assert [len(rows) for rows in hidden] == [5, 1, 1]
    assert len(hidden[0][0]) == HIDDEN
    # And the per-token output beside it is cut at the same places.
    energy = [[sum(x * x for x in row) for row in rows] for rows in hidden]
    for got, expected in zip(core.sent(short, "energy"), energy, strict=True):
        assert got == pytest.approx(expected, rel=1e-3)


def test_R25_one_copy_for_the_batch_or_one_per_row_that_needs_it(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = stepped(tiny={"talker": "Latent", "never_ends": True})
    taken: list[Any] = []
    take = runner_module.take_snapshot
    monkeypatch.setattr(
        runner_module,
        "take_snapshot",
        lambda *a, **k: taken.append(take(*a, **k)) or taken[-1],
    )
    here = core.add("ends here", max_frames=2, final_stage=0)
    core.add("goes on", max_frames=2, final_stage=1)
    core.step()
    first, second = taken[-1].hidden
    assert first is None and second.shape == (7, HIDDEN)
    core.core.abort_requests([here])
    core.step()
    assert isinstance(taken[-1].hidden, torch.Tensor)
    core.run()


def test_R25_hidden_states_stay_home_where_the_model_opts_out(stepped: Stepped) -> None:
    core = stepped(tiny={"never_ends": True})
    req_id = core.add("hello", max_frames=3)
    core.run()
    assert core.sent(req_id, "hidden") == [] and len(core.sent(req_id, "codes.audio")) == 3


def test_R26_only_rows_with_a_stage_beyond_have_a_payload(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "Latent", "never_ends": True})
    here = core.add("hello", max_frames=2, final_stage=0)
    beyond = core.add("hello", max_frames=2, final_stage=1)
    unknown = core.add("hello", max_frames=2)
    core.run()
    assert core.sent(here, "energy") == []
    assert len(core.sent(beyond, "energy")) == len(core.sent(unknown, "energy")) == 2
    assert len(core.tokens(here)) == 2  # the client's tokens all the same
    assert core.runner.builder._router._known == {}


def test_R26_a_text_stage_sends_nothing(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "Stage", "never_ends": True})
    req_id = core.add("hello", max_frames=4)
    core.run()
    assert core.onward == [] and len(core.tokens(req_id)) == 4
    assert core.finished[req_id] == "length"


def test_R28_client_keys_go_to_the_client_and_nowhere_else(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "Latent", "never_ends": True})
    req_id = core.add("hello", max_frames=2)
    core.run()
    assert set(core.payloads[0][req_id].outputs) == {"level"}
    assert all(set(p[req_id]) == {"energy", "rate", "hidden"} for p in core.onward)


def test_R29_what_is_no_tensor_is_dropped_by_name(
    stepped: Stepped, caplog: pytest.LogCaptureFixture
) -> None:
    core = stepped(tiny={"talker": "Latent", "odd_output": True})
    req_id = core.add("hello", max_frames=1)
    with caplog.at_level(logging.WARNING):
        core.run()
    assert "odd" not in core.onward[0][req_id] and core.onward[0][req_id]["rate"] == 2
    assert any("'odd'" in r.getMessage() for r in caplog.records)


def test_R30_one_payload_crosses_when_the_request_ends(stepped: Stepped) -> None:
    texts = ["hello", LONG]

    def run(talker: str) -> tuple[SteppedCore, list[str]]:
        core = stepped(tiny={"talker": talker, "never_ends": True})
        ids = [core.add(text, max_frames=3) for text in texts]
        core.run()
        return core, ids

    stepwise, first = run("Latent")
    at_end, second = run("AtEnd")
    for a, b, text in zip(first, second, texts, strict=True):
        (whole,) = at_end.sent(b, "energy")
        assert whole == pytest.approx([x for rows in stepwise.sent(a, "energy") for x in rows])
        assert len(whole) == len(text) + 2
    assert len(at_end.runner.builder._accumulator) == 0


def test_R30_the_accumulation_never_leaves_before_the_end(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "AtEnd", "never_ends": True})
    core.add("hello", max_frames=3)
    for _ in range(3):
        core.step()
        assert core.onward == []
        assert len(core.runner.builder._accumulator) == 1


def test_a_preempted_request_sends_no_output_twice(stepped: Stepped) -> None:
    def run(blocks: int | None) -> list[list[float]]:
        core = stepped(tiny={"talker": "Latent", "never_ends": True}, num_kv_blocks=blocks)
        ids = [core.add("x" * 100, seed=i, max_frames=60) for i in range(4)]
        core.run()
        return [[x for rows in core.sent(r, "energy") for x in rows] for r in ids]

    roomy, tight = run(None), run(7)
    assert [len(rows) for rows in tight] == [159] * 4
    for a, b in zip(roomy, tight, strict=True):
        assert a == pytest.approx(b, rel=1e-3)
