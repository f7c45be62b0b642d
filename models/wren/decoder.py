"""Codes back to sound, where they are listened to: the codec alone, without the talker or vLLM.

decoder = Decoder()
async with DuplexClient(url, codes=True) as client:
    …
    play(decoder.feed(frame.codes, key=frame.key))
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from omni_speak.models.registry import BUNDLED
from omni_speak.models.wren.model import Wren


class Decoder:
    """One stream's decoder, with the state of what it decoded so far. The samples are those that
    the server would send, before they are rounded to 16 bits; to the ear, where only one of the two
    CPUs has bfloat16 (`models.layers.packed`).

    `path` is the model's folder. Raises `ModelNotFound` naming a missing or broken file.
    """

    def __init__(self, path: Path = BUNDLED["wren"]) -> None:
        self._codec = Wren(path).load_codec()
        self._state = self._codec.initial_state(1)

    @torch.inference_mode()
    def feed(self, codes: NDArray[np.uint16], *, key: bool = False) -> NDArray[np.float32]:
        """codes uint16 [frames, codebooks] → samples float32 [frames · samples_per_frame] in -1..1.
        With `key` the stream starts afresh."""
        if key:
            self._state = self._codec.initial_state(1)
        pieces = []
        # One frame at a time, as the server decodes: several at once round the last bit otherwise.
        for frame in codes.astype(np.int64):
            pcm, self._state = self._codec.decode(torch.from_numpy(frame)[None, None], self._state)
            pieces.append(pcm[0].numpy())
        return np.concatenate(pieces) if pieces else np.empty(0, np.float32)
