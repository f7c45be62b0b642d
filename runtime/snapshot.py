"""What the output builder may read of a step: copies, taken before the next step changes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class StepSnapshot:
    """One step's outcome in batch order. `tokens` and `codes` are the host's own copies:
    int64 [rows] and [rows, Q] of the rows that sampled, `sampled` their places in `req_ids`.

    On CUDA the copies are in flight until `ready` fires.
    """

    req_ids: tuple[str, ...]
    sampled: tuple[int, ...]
    tokens: torch.Tensor
    codes: torch.Tensor
    ready: torch.cuda.Event | None = None

    def wait(self) -> None:
        """Block until the copies are on the host. A blocking event: no spinning on the driver."""
        if self.ready is not None:
            self.ready.synchronize()


def take_snapshot(
    req_ids: Sequence[str],
    sampled: Sequence[int],
    tokens: torch.Tensor,
    codes: torch.Tensor,
    copy_stream: torch.cuda.Stream | None = None,
) -> StepSnapshot:
    """Snapshot a step (R22). Host tensors are cloned. Device tensors are packed into one copy to
    pinned memory on `copy_stream`, which first waits for the compute stream."""
    if copy_stream is None:
        return StepSnapshot(tuple(req_ids), tuple(sampled), tokens.clone(), codes.clone())
    # Packed on the compute stream: a fresh tensor that the next step cannot write.
    packed = torch.cat((tokens[:, None], codes), dim=1)
    host = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
    ready = torch.cuda.Event(blocking=True)
    copy_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(copy_stream):
        host.copy_(packed, non_blocking=True)
        ready.record()
    # The caching allocator must not hand `packed` out again before the side stream has read it.
    packed.record_stream(copy_stream)
    return StepSnapshot(tuple(req_ids), tuple(sampled), host[:, 0], host[:, 1:], ready)
