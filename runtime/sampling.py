"""Randomness that belongs to a request and a position, not to a batch or a history.

Noise is a pure function of (seed, position, ...). A request therefore samples the same alone, in
any batch, with its prefill in any number of chunks, and after a preemption; and no state has to be
saved, restored or rewound.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

# Odd 31-bit multipliers of a 32-bit finaliser with low bias ("lowbias32", Chris Wellons, public
# domain: x ^= x >> 16; x *= 0x7feb352d; x ^= x >> 15; x *= 0x846ca68b; x ^= x >> 16).
_M1, _M2, _MASK = 0x7FEB352D, 0x846CA68B, 0xFFFFFFFF
_GOLDEN = 0x9E3779B9  # 2^32 / golden ratio: spreads consecutive indices


Ints = TypeVar("Ints", torch.Tensor, NDArray[np.int64])


def _mix(x: Ints) -> Ints:
    """32-bit hash of each int64 entry (only its low 32 bits count)."""
    x = x & _MASK
    x = ((x ^ (x >> 16)) * _M1) & _MASK
    x = ((x ^ (x >> 15)) * _M2) & _MASK
    return x ^ (x >> 16)


def request_keys(seeds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Requests' seeds [rows] → the 32-bit keys that `row_seeds` wants."""
    return _mix(_mix(seeds) ^ (seeds >> 32))


def row_seeds(keys: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """keys, positions [rows] → one 32-bit seed per request and position. On the host, where a
    handful of numbers costs a tenth of what it costs as tensors."""
    return _mix(keys + positions * _GOLDEN)


def gumbel_noise(seeds: torch.Tensor, *shape: int) -> torch.Tensor:
    """seeds int64 [rows] (of `row_seeds`) → standard Gumbel noise, float32 [rows, *shape]."""
    count = 1
    for size in shape:
        count *= size
    index = torch.arange(1, count + 1, dtype=torch.int64, device=seeds.device) * _GOLDEN
    bits = _mix(seeds[:, None] + index)
    # The middle of one of 2^24 equal cells of (0, 1): never 0 or 1, so both logs are finite.
    uniform = ((bits >> 8).to(torch.float32) + 0.5) * 2.0**-24
    return -torch.log(-torch.log(uniform)).view(seeds.shape[0], *shape)
