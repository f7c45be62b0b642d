"""The codes of past frames, by (request slot, position).

A sequence's ids are what the talker sampled; the codes the MTP made of each sample live here. A
preempted request therefore recomputes exactly: its ids come back from the scheduler, its codes
from this table, and nothing is sampled or sent twice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

NO_CODE = -1


class FrameTable:
    """`codes` int32 [slots, max_len, Q]; a slot belongs to one request from its first step to its
    end, preemptions included. Slot `spare` is never taken and never holds a frame."""

    def __init__(self, slots: int, max_len: int, codebooks: int, device: torch.device) -> None:
        # At -1 while free: cleared when a slot is given back, so that taking one costs nothing.
        self._codes = torch.full(
            (slots + 1, max_len, codebooks), NO_CODE, dtype=torch.int32, device=device
        )
        self._free = list(range(slots - 1, -1, -1))
        self._slot: dict[str, int] = {}
        self.spare = slots

    def __len__(self) -> int:
        return len(self._slot)

    def __contains__(self, req_id: str) -> bool:
        return req_id in self._slot

    def take(self, req_id: str) -> int:
        """Raises `RuntimeError` when every slot is taken (the scheduler's `max_num_seqs` bounds
        the requests between their first step and their end, so this is a bug, not load)."""
        if not self._free:
            raise RuntimeError(f"no frame slot left for request {req_id}: {len(self)} are taken")
        slot = self._slot[req_id] = self._free.pop()
        return slot

    def release(self, req_id: str) -> None:
        """Give the request's slot back; unknown ids are ignored (aborted before a first step)."""
        slot = self._slot.pop(req_id, None)
        if slot is not None:
            self._codes[slot].fill_(NO_CODE)
            self._free.append(slot)

    def slots(self, req_ids: Sequence[str], without: Collection[str] = ()) -> torch.Tensor:
        """int64 [len(req_ids)], on the table's device; the spare slot for those in `without`."""
        slots = [self.spare if r in without else self._slot[r] for r in req_ids]
        return torch.tensor(slots, dtype=torch.int64, device=self._codes.device)

    def write(self, slots: torch.Tensor, positions: torch.Tensor, codes: torch.Tensor) -> None:
        """slots, positions int64 [rows]; codes [rows, Q]."""
        self._codes[slots, positions] = codes.to(self._codes.dtype)

    def read(self, slots: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """slots, positions int64 [n] → int64 [n, Q]; -1 where no frame was written."""
        return self._codes[slots, positions].to(torch.int64)
