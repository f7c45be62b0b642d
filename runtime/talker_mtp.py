"""The post-sample talker MTP: the sampled token becomes this frame's codes, in the same step."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from omni_speak.models.base import SampledRows, Talker


def check_sampled(sampled: torch.Tensor, req_ids: Sequence[str]) -> None:
    """R15: one token per row, one column. Raises `ValueError` naming the requests and the shape."""
    if sampled.ndim != 2 or sampled.shape[1] != 1 or sampled.shape[0] != len(req_ids):
        raise ValueError(
            "post_sample_talker_mtp needs exactly one sampled token per row, "
            f"[{len(req_ids)}, 1]; got {list(sampled.shape)} for requests {list(req_ids)}"
        )


def run_talker_mtp(
    talker: Talker, tokens: torch.Tensor, hidden_states: torch.Tensor, rows: SampledRows
) -> torch.Tensor:
    """Call the hook and hold it to its promise (R16).

    tokens int64 [rows], hidden_states [rows, hidden] → codes int64 [rows, Q]. Raises `TypeError`
    for another type or rank, `ValueError` for another number of rows or codebooks.
    """
    codes = talker.post_sample_talker_mtp(tokens, hidden_states, rows)
    name = f"{type(talker).__name__}.post_sample_talker_mtp"
    if not isinstance(codes, torch.Tensor):
        raise TypeError(f"{name} must return a tensor, got {type(codes).__name__}")
    if codes.dtype != torch.int64 or codes.ndim != 2:
        raise TypeError(
            f"{name} must return int64 [rows, Q], got {codes.dtype} {list(codes.shape)}"
        )
    if codes.shape != (len(rows.req_ids), talker.codebooks):
        raise ValueError(
            f"{name} must return [{len(rows.req_ids)}, {talker.codebooks}] for requests "
            f"{list(rows.req_ids)}, got {list(codes.shape)}"
        )
    return codes
