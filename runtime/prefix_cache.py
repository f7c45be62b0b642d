"""Prefix-cache hashes that know what shaped a block.

vLLM's hash sees token ids. Ours also sees what conditions them: prompt blocks carry the prompt's
salt (`Request.cache_salt`), so two requests share them only with the same voice and speed; blocks
that hold generated frames carry the request's own id, since equal ids (pointer advances, codebook
0) say nothing of the other codes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm.v1.core.kv_cache_utils import BlockHash
from vllm.v1.request import Request

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
