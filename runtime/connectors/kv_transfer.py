"""Sending a finished request's keys and values to another stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from omni_speak.runtime.connectors.base import Message
from omni_speak.runtime.payload import to_wire


def kv_message(
    req_id: str,
    kv_caches: Sequence[torch.Tensor],
    block_ids: Sequence[int],
    num_blocks: int,
    metadata: Mapping[str, Any],
) -> Message:
    """The blocks of a request as host tensors `kv.<layer>` [blocks, ...], and its metadata.

    Raises `ValueError` for a cache layout whose first dimension is not the pool's blocks.
    """
    payload = to_wire(metadata)
    index = torch.tensor(block_ids, dtype=torch.int64)
    for layer, cache in enumerate(kv_caches):
        _check_layout(cache, num_blocks)
        payload[f"kv.{layer}"] = cache[index.to(cache.device)].to("cpu")
    return Message(req_id, "kv", payload)


def place_kv(
    message: Message,
    kv_caches: Sequence[torch.Tensor],
    block_ids: Sequence[int],
    num_blocks: int,
) -> None:
    """The receiving side: write a message's blocks into this stage's pool at `block_ids`."""
    index = torch.tensor(block_ids, dtype=torch.int64)
    for layer, cache in enumerate(kv_caches):
        _check_layout(cache, num_blocks)
        cache[index.to(cache.device)] = message.payload[f"kv.{layer}"].to(cache.device)


def _check_layout(cache: torch.Tensor, num_blocks: int) -> None:
    if cache.shape[0] != num_blocks:
        raise ValueError(
            f"this attention backend's KV cache {list(cache.shape)} is not laid out by block "
            f"({num_blocks} first); KV transfer needs that"
        )
