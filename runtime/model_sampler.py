"""What comes between logits and vLLM's sampler: clamps, bias, duplex rows, and a model's own
sampler."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from vllm.v1.core.sched.output import NewRequestData
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.sampler import Sampler

from omni_speak.runtime.errors import MalformedType

log = logging.getLogger(__name__)


def within_head(new: NewRequestData, head_size: int) -> NewRequestData:
    """A request without stop ids that the head cannot sample (R12): with `min_tokens`, vLLM would
    write to their logits. Copied where it must change (R4)."""
    params = new.sampling_params
    if params is None or not params.min_tokens:
        return new
    foreign = {token for token in params.all_stop_token_ids if token >= head_size}
    if not foreign:
        return new
    log.warning(
        "request %s: stop ids %s are outside the head of %d and are not held back by min_tokens",
        new.req_id,
        sorted(foreign),
        head_size,
    )
    params = params.clone()
    params._all_stop_token_ids = params.all_stop_token_ids - foreign
    return replace(new, sampling_params=params)


def clamp_prompt_ids(metadata: SamplingMetadata, head_size: int) -> SamplingMetadata:
    """Prompt ids beyond the head → the padding bin of penalties, which is `head_size` itself: one
    less would penalise a real token (R12)."""
    if metadata.prompt_token_ids is None:
        return metadata
    return replace(metadata, prompt_token_ids=metadata.prompt_token_ids.clamp(max=head_size))


def decoded_history(history: Sequence[Sequence[int]]) -> list[list[int]]:
    """Each row's sampled ids, up to the first that is still in flight (-1) (R10)."""
    return [list(ids) if -1 not in ids[-2:] else list(ids[: _resolved(ids)]) for ids in history]


def _resolved(ids: Sequence[int]) -> int:
    count = len(ids)
    while count and ids[count - 1] == -1:
        count -= 1
    return count


def sample_by_model(
    talker: Any,
    sampler: Sampler,
    logits: torch.Tensor,
    metadata: SamplingMetadata,
    req_ids: Sequence[str],
) -> SamplerOutput | None:
    """The model's own sample of biased logits (R8, R9), or None where it leaves this step to the
    default sampler. Raises `MalformedType`, `MalformedShape` for another result."""
    biased = sampler.apply_logits_processors(
        logits.to(torch.float32, copy=True), replace(metadata, no_penalties=True), False
    )
    history = decoded_history(metadata.output_token_ids)
    output = talker.sample(biased, replace(metadata, output_token_ids=history))
    if output is None or isinstance(output, SamplerOutput):
        return output
    raise MalformedType(
        f"{type(talker).__name__}.sample must return a SamplerOutput or None, "
        f"got {type(output).__name__} for requests {list(req_ids)}",
        req_ids,
    )


class DuplexRows:
    """Which rows are duplex, and the one call after the last of them went away (R13)."""

    def __init__(self) -> None:
        self._active = False

    def prepare(
        self,
        talker: Any,
        logits: torch.Tensor,
        metadata: SamplingMetadata,
        infos: Sequence[Mapping[str, Any]],
    ) -> None:
        rows = [
            row
            for row, info in enumerate(infos)
            if info["conditioning"].get("duplex", {}).get("data_plane")
        ]
        if rows or self._active:
            talker.prepare_duplex_sampling(logits, metadata, rows)
        self._active = bool(rows)
