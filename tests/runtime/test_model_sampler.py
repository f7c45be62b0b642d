"""Sampling clauses, through vLLM's own InputBatch, SamplingMetadata and sampler."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from omni_speak.models.base import Sampling
from omni_speak.runtime.errors import MalformedType
from omni_speak.runtime.model_sampler import decoded_history
from tests.models.tiny import END
from tests.runtime.conftest import SteppedCore

Stepped = Callable[..., SteppedCore]


def test_R8_a_models_own_sampler_samples(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "OwnSampler", "never_ends": True})
    req_id = core.add("hello", max_frames=10)
    core.run()
    tokens = core.tokens(req_id)
    assert len(tokens) == 10
    assert all(a != b for a, b in itertools.pairwise(tokens))  # its own rule
    assert next(call[0][0].argmax().item() for call in core.runner.talker.calls) == tokens[0]


def test_R8_none_falls_to_the_default_sampler_and_is_logged_once(
    stepped: Stepped, caplog: pytest.LogCaptureFixture
) -> None:
    def tokens(**tiny: Any) -> list[int]:
        core = stepped(tiny={"never_ends": True, **tiny})
        req_id = core.add("hello", seed=5, max_frames=6)
        core.run()
        return core.tokens(req_id)

    from omni_speak.runtime import runner

    runner._log_default_sampler.cache_clear()
    with caplog.at_level(logging.INFO, runner.log.name):
        # What the model did to its logits before it declined is not seen by the default sampler.
        assert tokens(talker="OwnSampler", declines=True) == tokens()
    assert [r.getMessage() for r in caplog.records].count(
        "OwnSampler.sample left a step to the default sampler"
    ) == 1


def test_R8_a_malformed_sample_fails_the_step(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "OwnSampler", "breaks_sampler": True})
    req_id = core.add("hello")
    with pytest.raises(MalformedType, match=rf"OwnSampler\.sample must .* Tensor .*{req_id}"):
        core.step()


def test_R9_bias_applies_before_a_models_sampler(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "OwnSampler", "ends_at_once": False})

    def bias(params: Any) -> None:
        params.allowed_token_ids = [2, 7, END]
        params.min_tokens = 8

    req_id = core.add("hello", params=bias, max_frames=12)
    core.run()
    tokens = core.tokens(req_id)
    assert len(tokens) >= 8 and set(tokens) == {2, 7}
    seen = core.runner.talker.calls[0][0][0]
    assert torch.isfinite(seen).nonzero().flatten().tolist() == [2, 7]  # END is held back


def test_R9_penalties_are_left_to_the_models_sampler(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "OwnSampler", "never_ends": True})

    def penalise(params: Any) -> None:
        params.repetition_penalty = 5.0

    core.add("hello", max_frames=3)
    core.run()
    plain = core.runner.talker.calls[1][0]
    core.add("hello", params=penalise, max_frames=3)
    core.run()
    logits, metadata = core.runner.talker.calls[4]
    torch.testing.assert_close(logits, plain)
    assert metadata.repetition_penalties.tolist() == [5.0]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_R10_a_model_sampler_sees_all_it_sampled(stepped: Stepped, asynchronous: bool) -> None:
    core = stepped(tiny={"talker": "OwnSampler", "never_ends": True}, async_scheduling=asynchronous)
    seen: list[list[list[int]]] = []
    sample = core.runner.talker.sample

    def spy(logits: torch.Tensor, metadata: Any) -> Any:
        seen.append([list(ids) for ids in metadata.output_token_ids])
        return sample(logits, metadata)

    core.runner.talker.sample = spy
    req_id = core.add("hello", max_frames=6)
    core.run()
    core.runner.builder.shutdown()
    tokens = core.tokens(req_id)
    assert [rows[0] for rows in seen[:6]] == [tokens[:n] for n in range(6)]


def test_R10_history_is_spared_where_the_model_says_so(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "ForgetfulSampler", "never_ends": True})
    core.add("hello", max_frames=4)
    core.run()
    assert [call[1].output_token_ids for call in core.runner.talker.calls] == [[]] * 4
    assert not core.runner.input_batch.logitsprocs_need_output_token_ids


def test_R10_unresolved_tails_are_cut() -> None:
    assert decoded_history([[1, 2, -1], [-1], [], [3], [4, -1, -1]]) == [[1, 2], [], [], [3], [4]]


def test_R11_sampling_fields_reach_the_sampler_row_by_row(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "OwnSampler", "never_ends": True})
    own = [Sampling(0.5, 3, 0.7, 1.5), Sampling(1.5, 9, 0.9, 1.1)]
    for seed, sampling in enumerate(own):
        core.add("hello", seed=seed, change=lambda p, s=sampling: replace(p, sampling=s))
    core.step()
    metadata = core.runner.talker.calls[0][1]
    for name in ("temperature", "top_k", "top_p", "repetition_penalty"):
        field = "repetition_penalties" if name == "repetition_penalty" else name
        got = getattr(metadata, field).tolist()
        assert got == pytest.approx([getattr(s, name) for s in own]), name
    assert sorted(metadata.generators) == [0, 1]  # each row has its seed's own


def test_R11_sampling_fields_reach_the_mtp_where_set(stepped: Stepped) -> None:
    core = stepped(tiny={"never_ends": True})
    seen: list[torch.Tensor] = []
    mtp = core.runner.talker.post_sample_talker_mtp
    core.runner.talker.post_sample_talker_mtp = lambda *a: (
        seen.append(a[2].sampling.clone()) or mtp(*a)
    )
    core.add("hello", change=lambda p: replace(p, mtp=Sampling(0.25, 4, 0.5)))
    core.add("hello", change=lambda p: replace(p, sampling=Sampling(0.75, 6, 0.875)))
    core.step()
    assert seen[0].tolist() == [[0.25, 4, 0.5], [0.75, 6, 0.875]]


def test_R11_every_field_changes_what_is_sampled(stepped: Stepped) -> None:
    core = stepped(tiny={"never_ends": True})

    def tokens(**fields: Any) -> list[int]:
        sampling = Sampling(**{"temperature": 1.0, **fields})
        change = lambda p: replace(p, sampling=sampling, mtp=Sampling(0.0))  # noqa: E731
        req_id = core.add("hello", change=change, max_frames=30)
        core.run()
        return core.tokens(req_id)

    plain = tokens()
    assert tokens() == plain
    assert tokens(top_k=1) == tokens(temperature=0.0) == tokens(top_p=1e-6)
    for fields in ({"top_k": 2}, {"top_p": 0.3}, {"temperature": 0.3}, {"repetition_penalty": 9.0}):
        assert tokens(**fields) != plain, fields


def test_R12_prompt_ids_beyond_the_head_are_the_padding_bin(stepped: Stepped) -> None:
    """The prompt's ids are 32 and more, the head ends at 17: unclamped, penalties index outside
    their bins; clamped one too low, they would penalise END."""
    core = stepped(tiny={"talker": "NarrowHead", "never_ends": True})

    def tokens(penalty: float) -> list[int]:
        sampling = Sampling(0.0, repetition_penalty=penalty)
        req_id = core.add("hello", change=lambda p: replace(p, sampling=sampling), max_frames=1)
        core.run()
        return core.tokens(req_id)

    assert tokens(2.0) == tokens(1.0)  # no prompt id is a code, so nothing is penalised at first
    req_id = core.add("hello", params=lambda p: setattr(p, "repetition_penalty", 2.0))
    core.step()
    ids = core.runner.input_batch.sampling_metadata.prompt_token_ids
    assert ids is not None and set(ids.flatten().tolist()) == {END + 1}
    core.core.abort_requests([req_id])


def test_R12_stop_ids_outside_the_head_are_dropped_once_with_a_warning(
    stepped: Stepped, caplog: pytest.LogCaptureFixture
) -> None:
    core = stepped(tiny={"talker": "NarrowHead", "never_ends": True})

    def hold(params: Any) -> None:
        params.min_tokens = 3
        params.stop_token_ids = [END, 150]
        params._all_stop_token_ids = {END, 150}

    request_params: list[Any] = []
    req_id = core.add("hello", params=lambda p: (hold(p), request_params.append(p)), max_frames=5)
    core.run()
    warnings = [r.getMessage() for r in caplog.records if "outside the head" in r.getMessage()]
    assert len(warnings) == 1 and req_id in warnings[0] and "[150]" in warnings[0]
    assert len(core.tokens(req_id)) == 5
    assert request_params[0].all_stop_token_ids == {END, 150}  # R4: the engine's own is untouched


def test_R13_duplex_rows_are_handed_over_and_reset_once(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "Duplex", "never_ends": True})
    plain = core.add("hello", max_frames=6)
    duplex = core.add("hello", max_frames=3, duplex={"data_plane": True})
    core.run()
    assert core.runner.talker.duplex_calls == [[1], [1], [1], []]
    assert core.tokens(duplex) == [3, 3, 3]
    assert set(core.tokens(plain)) != {3}
