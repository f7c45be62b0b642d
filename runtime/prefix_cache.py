"""What prefix caching needs to know of speech: block hashes, and the outputs of cached blocks.

vLLM's hash sees token ids. Ours also sees what conditions them: prompt blocks carry the prompt's
salt (`Request.cache_salt`), so two requests share them only with the same voice and speed; blocks
that hold generated frames carry the request's own id, since equal ids (pointer advances, codebook
0) say nothing of the other codes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from vllm.v1.core.kv_cache_utils import BlockHash
from vllm.v1.request import Request

from omni_speak.models.base import Hooks
from omni_speak.runtime.output_builder import HIDDEN, Row
from omni_speak.runtime.payload import is_per_token
from omni_speak.runtime.snapshot import StepSnapshot

BlockHasher = Callable[[Request], list[BlockHash]]


def speech_block_hasher(
    stock: BlockHasher, block_size: int, hash_function: Callable[[Any], bytes]
) -> BlockHasher:
    """vLLM's `stock` hasher, with generated blocks made the request's own. Request ids must be
    unique for all time (uuid): a reused id could hit its predecessor's blocks."""

    def hasher(request: Request) -> list[BlockHash]:
        first = len(request.block_hashes)
        hashes = stock(request)
        for i, block_hash in enumerate(hashes):
            if (first + i + 1) * block_size > request.num_prompt_tokens:
                hashes[i] = BlockHash(hash_function((block_hash, request.request_id)))
        return hashes

    return hasher


@dataclass(frozen=True, slots=True)
class _Write:
    """A step's rows on their way into the cache: `slots` int64 [n], one KV slot per token."""

    snapshot: StepSnapshot
    slots: torch.Tensor


class OutputPrefixCache:
    """The rows a model made for tokens whose keys and values are cached (R31).

    A request that skips the forward for a cached prefix would miss the outputs of that prefix.
    They are kept here by KV slot (block × block size + offset), on the host, and come back in
    front of the request's first rows. Writes wait until their copies have arrived and are drained
    without blocking; rows of deferred keys are held until their request ends, and are void in
    slots that another request has taken since.
    """

    def __init__(self, hooks: Hooks, num_blocks: int, block_size: int) -> None:
        self._hooks = hooks
        self._block_size = block_size
        self._slots = num_blocks * block_size
        self._rows: dict[str, torch.Tensor] = {}
        self._valid: dict[str, torch.Tensor] = {}
        self._writes: deque[_Write] = deque()
        self._deferred: dict[str, list[tuple[str, torch.Tensor, torch.Tensor]]] = {}
        self._prefix: dict[str, torch.Tensor] = {}

    def begin(self, req_id: str, block_ids: Sequence[int], cached_tokens: int) -> None:
        """A request starts behind `cached_tokens` (a whole number of blocks or less)."""
        if cached_tokens:
            self._prefix[req_id] = self._slots_of(block_ids, cached_tokens)

    def write(self, snapshot: StepSnapshot, slots: torch.Tensor) -> None:
        """Take a step's rows, one per scheduled token, for the KV slots they were computed in."""
        self._writes.append(_Write(snapshot, slots.clone()))

    def apply_finished_writes(self) -> None:
        """Apply the writes whose copies have arrived, in order; never waits."""
        while self._writes and self._writes[0].snapshot.is_ready():
            self._apply(self._writes.popleft())

    def merge(self, req_id: str, row: Row) -> Row:
        """A row of a request's first step → the same with its cached prefix in front."""
        slots = self._prefix.pop(req_id, None)
        if slots is None:
            return row
        while self._writes:  # the prefix may be as young as the last step
            self._writes[0].snapshot.wait()
            self._apply(self._writes.popleft())
        hidden, outputs = row
        if hidden is not None and self._hooks.caches_hidden:
            hidden = self._in_front(HIDDEN, slots, hidden)
        return hidden, {key: self._in_front(key, slots, value) for key, value in outputs.items()}

    def end(self, req_ids: Sequence[str]) -> None:
        """Commit the deferred rows of finished requests."""
        for req_id in req_ids:
            self._prefix.pop(req_id, None)
            for key, slots, rows in self._deferred.pop(req_id, ()):
                self._put(key, slots, rows)

    def forget(self, req_ids: Iterable[str]) -> None:
        """Preempted requests' slots are others' now; they compute their deferred rows again."""
        for req_id in req_ids:
            self._deferred.pop(req_id, None)

    def _apply(self, write: _Write) -> None:
        step = write.snapshot
        total = step.starts[-1]
        values: dict[str, Any] = dict(step.outputs)
        if isinstance(step.hidden, torch.Tensor) and self._hooks.caches_hidden:
            values[HIDDEN] = step.hidden
        for valid in self._valid.values():
            valid[write.slots] = False  # the slots are the new tokens' now
        for key, value in values.items():
            if not is_per_token(value, total, step.hidden_length):
                continue
            if key not in self._hooks.deferred_keys:
                self._put(key, write.slots, value[:total])
                continue
            for place, req_id in enumerate(step.req_ids):
                rows = slice(step.starts[place], step.starts[place + 1])
                self._deferred.setdefault(req_id, []).append((key, write.slots[rows], value[rows]))

    def _put(self, key: str, slots: torch.Tensor, rows: torch.Tensor) -> None:
        if key not in self._rows:
            self._rows[key] = torch.empty(self._slots, *rows.shape[1:], dtype=rows.dtype)
            self._valid[key] = torch.zeros(self._slots, dtype=torch.bool)
        self._rows[key][slots] = rows
        self._valid[key][slots] = True

    def _in_front(self, key: str, slots: torch.Tensor, tail: Any) -> Any:
        if key not in self._rows or not bool(self._valid[key][slots].all()):
            return tail
        return torch.cat((self._rows[key][slots], tail))

    def _slots_of(self, block_ids: Sequence[int], tokens: int) -> torch.Tensor:
        positions = torch.arange(tokens)
        return torch.tensor(block_ids)[positions // self._block_size] * self._block_size + (
            positions % self._block_size
        )
