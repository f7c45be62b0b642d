"""Sparse audio: a model's list of outputs for some of the batch's requests, in an order of its own.

A model that makes audio for a few rows of a step says so with `meta.sparse_audio` and names the
requests in `meta.req_id`; every list among its outputs then follows that order. A declaration that
is present but malformed routes nothing this step: better silence than another request's audio.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

log = logging.getLogger(__name__)

FLAG, IDS = "meta.sparse_audio", "meta.req_id"
LOG_EVERY = 100
"""Malformed declarations are logged once in so many."""


class SparseAudio:
    """Puts sparse lists in batch order (R27)."""

    def __init__(self) -> None:
        self._malformed = 0

    def route(self, outputs: Mapping[str, Any], req_ids: Sequence[str]) -> Mapping[str, Any]:
        """`outputs` of a step → the same with every sparse list dense: one item per request in
        batch order, an empty tensor for requests it does not name. Not sparse: unchanged."""
        if not outputs or (FLAG not in outputs and IDS not in outputs):
            return outputs
        flag, ids = outputs.get(FLAG), outputs.get(IDS)
        dense = {key: value for key, value in outputs.items() if key not in (FLAG, IDS)}
        if flag is not None and _is_false(flag) and ids is None:
            return dense
        lists = {key: value for key, value in dense.items() if isinstance(value, (list, tuple))}
        fault = _fault(flag, ids, lists, req_ids)
        if fault is not None:
            if self._malformed % LOG_EVERY == 0:
                log.error(
                    "sparse audio is malformed, none is routed (time %d): %s",
                    self._malformed + 1,
                    fault,
                )
            self._malformed += 1
            return {key: value for key, value in dense.items() if key not in lists}
        assert ids is not None  # _fault would have said so
        nothing = torch.empty(0)
        for key, value in lists.items():
            by_id = dict(zip(ids, value, strict=True))
            dense[key] = [by_id.get(req_id, nothing) for req_id in req_ids]
        return dense


def _is_false(flag: Any) -> bool:
    return flag is False or (isinstance(flag, torch.Tensor) and flag.numel() == 1 and not flag)


def _fault(
    flag: Any, ids: Any, lists: Mapping[str, Sequence[Any]], req_ids: Sequence[str]
) -> str | None:
    """What is wrong with the declaration, or None."""
    true = flag is True or (isinstance(flag, torch.Tensor) and flag.numel() == 1 and bool(flag))
    if not true:
        return f"{FLAG} must be true, got {flag!r}"
    if not isinstance(ids, (list, tuple)) or not all(isinstance(i, str) for i in ids):
        return f"{IDS} must be a list of request ids, got {ids!r}"
    if len(set(ids)) != len(ids):
        return f"{IDS} names a request twice: {ids!r}"
    if unknown := set(ids) - set(req_ids):
        return f"{IDS} names requests that are not in the batch: {sorted(unknown)}"
    for key, value in lists.items():
        if len(value) != len(ids):
            return f"{key} has {len(value)} items for {len(ids)} requests"
    return None
