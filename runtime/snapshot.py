"""What the output builder may read of a step: copies, taken before the next step changes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

PACK_BYTES = 1 << 20
"""Small tensors of one type travel together up to this size."""


@dataclass(frozen=True, slots=True)
class StepSnapshot:
    """One step's outcome in batch order; every tensor is the snapshot's own, on the host.

    `tokens` int64 [sampled rows] and `codes` int64 [sampled rows, Q] belong to the rows `sampled`
    (places in `req_ids`). `starts` [rows + 1] are the scheduled tokens' offsets, `hidden_length`
    the (padded) number of hidden states, `resent` [rows] how many tokens of each row an earlier
    step sent. `final_stages` is each row's marker, None where it has not arrived. `hidden` is the
    step's hidden states in one piece [n, hidden], or by row [t, hidden] with None for rows that
    ship none. `outputs` is what else the model made.

    On CUDA the copies are in flight until `ready` fires.
    """

    req_ids: tuple[str, ...]
    sampled: tuple[int, ...]
    tokens: torch.Tensor
    codes: torch.Tensor
    starts: tuple[int, ...] = ()
    hidden_length: int = 0
    resent: tuple[int, ...] = ()
    final_stages: tuple[int | None, ...] = ()
    hidden: torch.Tensor | tuple[torch.Tensor | None, ...] | None = None
    outputs: Mapping[str, Any] = field(default_factory=dict)
    ready: torch.cuda.Event | None = None

    def is_ready(self) -> bool:
        """Whether the copies are on the host; never blocks."""
        return self.ready is None or self.ready.query()

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
    *,
    starts: Sequence[int] = (),
    hidden_length: int = 0,
    resent: Sequence[int] = (),
    final_stages: Sequence[int | None] = (),
    hidden: torch.Tensor | tuple[torch.Tensor | None, ...] | None = None,
    outputs: Mapping[str, Any] | None = None,
) -> StepSnapshot:
    """Snapshot a step (R22). Host tensors are cloned; device tensors are copied to pinned memory
    on `copy_stream`, which first waits for the compute stream."""
    tree = (tokens, codes, hidden, outputs or {})
    (tokens, codes, hidden, outputs), ready = copy_to_host(tree, copy_stream)
    return StepSnapshot(
        req_ids=tuple(req_ids),
        sampled=tuple(sampled),
        tokens=tokens,
        codes=codes,
        starts=tuple(starts),
        hidden_length=hidden_length,
        resent=tuple(resent),
        final_stages=tuple(final_stages),
        hidden=hidden,
        outputs=outputs,
        ready=ready,
    )


def copy_to_host(
    tree: Any, copy_stream: torch.cuda.Stream | None
) -> tuple[Any, torch.cuda.Event | None]:
    """A nest of tensors (in tuples, lists and mappings) → the same nest of host copies, and the
    event after which they may be read (None: now).

    Host tensors are cloned. Small device tensors of one type are packed into one transfer.
    """
    leaves: list[torch.Tensor] = []
    _map_tensors(tree, leaves.append)
    if copy_stream is None:
        copies, ready = [leaf.clone() for leaf in leaves], None
    else:
        copies, ready = _copy_on_side_stream(leaves, copy_stream)
    remaining = iter(copies)
    return _map_tensors(tree, lambda leaf: next(remaining)), ready


def _copy_on_side_stream(
    tensors: Sequence[torch.Tensor], copy_stream: torch.cuda.Stream
) -> tuple[list[torch.Tensor], torch.cuda.Event]:
    # Packed or cloned on the compute stream: fresh tensors that the next step cannot write.
    groups = _groups(tensors)
    sources = [torch.cat([tensors[i].reshape(-1) for i in group]) for group in groups]
    copies: dict[int, torch.Tensor] = {}
    ready = torch.cuda.Event(blocking=True)
    copy_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(copy_stream):
        for group, source in zip(groups, sources, strict=True):
            host = source
            if source.is_cuda:
                host = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
                host.copy_(source, non_blocking=True)
            flat = host.reshape(-1).split([tensors[i].numel() for i in group])
            for i, piece in zip(group, flat, strict=True):
                copies[i] = piece.view(tensors[i].shape)
        ready.record()
    for source in sources:
        # The caching allocator must not hand it out again before the side stream has read it.
        if source.is_cuda:
            source.record_stream(copy_stream)
    return [copies[i] for i in range(len(tensors))], ready


def _groups(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Places of the tensors that travel together: same type, same device, small in sum."""
    groups: list[list[int]] = []
    open_groups: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    sizes: dict[tuple[torch.dtype, torch.device], int] = {}
    for i, tensor in enumerate(tensors):
        key = (tensor.dtype, tensor.device)
        sizes[key] = sizes.get(key, 0) + tensor.nbytes
        if key not in open_groups or sizes[key] > PACK_BYTES:
            open_groups[key], sizes[key] = [], tensor.nbytes
            groups.append(open_groups[key])
        open_groups[key].append(i)
    return groups


def _map_tensors(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_map_tensors(item, change) for item in value)
    if isinstance(value, Mapping):
        return {key: _map_tensors(item, change) for key, item in value.items()}
    return value
