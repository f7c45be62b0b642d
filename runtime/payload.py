"""What one step gives one request, and to whom: the client, the next stage, or nobody."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

log = logging.getLogger(__name__)

NO_CODES = np.empty(0, dtype=np.uint16)

Payload = dict[str, torch.Tensor]
"""What crosses a wire: tensors by key, nothing else (R29)."""


@dataclass(slots=True, eq=False)  # not frozen: made for every row of every step
class RowOutput:
    """What the client of a request gets of a step: `codes` uint16 [Q] of its frame, empty if the
    row made none; `token` what the talker sampled for it; `outputs` what else the model makes for
    clients."""

    codes: NDArray[np.uint16]
    token: int
    outputs: Payload = field(default_factory=dict)


NO_FRAME = RowOutput(NO_CODES, -1)
"""The row of a request that made no frame this step."""


def is_per_token(value: Any, tokens: int, hidden_length: int) -> bool:
    """A tensor with one row for each scheduled token, or for each (padded) hidden state."""
    return (
        isinstance(value, torch.Tensor)
        and value.ndim > 0
        and len(value)
        in (
            tokens,
            hidden_length,
        )
    )


def split_rows(
    value: Any, starts: Sequence[int], hidden_length: int, resent: Sequence[int] = ()
) -> list[Any]:
    """One model output, by request in batch order (R25).

    `starts` [rows + 1] are the scheduled tokens' offsets. A tensor whose first dimension is the
    scheduled tokens' or the (padded) hidden states' number is cut at them; a list has one item per
    request; anything else belongs to every request whole. The first `resent` [rows] tokens of
    each row were sent before (a preemption recomputed them) and are left out.
    """
    rows = len(starts) - 1
    if is_per_token(value, starts[-1], hidden_length):
        skip = resent or [0] * rows
        return [value[starts[i] + skip[i] : starts[i + 1]] for i in range(rows)]
    if isinstance(value, (list, tuple)) and len(value) == rows:
        return list(value)
    return [value] * rows


def to_wire(values: Mapping[str, Any]) -> Payload:
    """Numbers and lists become tensors; what cannot is dropped with a warning naming its key."""
    payload: Payload = {}
    for key, value in values.items():
        if isinstance(value, torch.Tensor):
            payload[key] = value
            continue
        try:
            payload[key] = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError):
            log.warning("output %r is no tensor but %s: dropped", key, type(value).__name__)
    return payload


def partition(payload: Payload, client_keys: frozenset[str]) -> tuple[Payload, Payload]:
    """What the client gets and what the next stage gets: no key is in both (R28)."""
    client = {key: value for key, value in payload.items() if key in client_keys}
    onward = {key: value for key, value in payload.items() if key not in client_keys}
    return client, onward


class Router:
    """Which rows have a payload at all (R26).

    An audio stage's every row; a text stage's none; of other stages those whose final stage is
    beyond this one. A row whose marker has not arrived keeps its payload and is not remembered.
    """

    def __init__(self, stage_output: str, stage_id: int) -> None:
        self._all = {"audio": True, "text": False}.get(stage_output)
        self._stage = stage_id
        self._known: dict[str, bool] = {}

    def wants(self, req_id: str, final_stage: int | None) -> bool:
        if self._all is not None:
            return self._all
        if req_id not in self._known:
            if final_stage is None:
                return True
            self._known[req_id] = final_stage > self._stage
        return self._known[req_id]

    def forget(self, req_id: str) -> None:
        self._known.pop(req_id, None)


class Accumulator:
    """Full-payload mode (R30): a request's payloads, kept here until it ends. Tensors of one key
    are joined along their first dimension; scalars keep the last value."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[str, list[torch.Tensor]]] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def add(self, req_id: str, payload: Payload) -> None:
        parts = self._parts.setdefault(req_id, {})
        for key, value in payload.items():
            parts.setdefault(key, []).append(value)

    def take(self, req_id: str) -> Payload:
        """The whole payload; the request is forgotten."""
        parts = self._parts.pop(req_id, {})
        return {
            key: torch.cat(values) if values[0].ndim else values[-1]
            for key, values in parts.items()
        }
