"""What one step gives one request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NO_CODES = np.empty(0, dtype=np.uint16)


@dataclass(frozen=True, slots=True, eq=False)
class RowOutput:
    """`codes` uint16 [Q] of this step's frame, empty if the row made none; `token` what the talker
    sampled for it."""

    codes: NDArray[np.uint16]
    token: int


NO_FRAME = RowOutput(NO_CODES, -1)
"""The row of a request that made no frame this step."""
