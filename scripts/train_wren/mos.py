"""Two predictors of how listeners would rate speech, 1 to 5: DistillMOS, DNSMOS (overall)."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import soxr
import torch
from numpy.typing import NDArray

# distillmos imports torchaudio for its command line only, and torchaudio is not wanted here.
sys.modules.setdefault("torchaudio", ModuleType("torchaudio"))

from distillmos import ConvTransformerSQAModel  # noqa: E402
from speechmos import dnsmos  # noqa: E402

LISTENING_RATE = 16_000


class Raters:
    def __init__(self) -> None:
        self._distilled = ConvTransformerSQAModel().eval()

    @torch.inference_mode()
    def rate(self, pcm: NDArray[np.float32], sample_rate: int) -> tuple[float, float]:
        """pcm [N] float32 → DistillMOS, DNSMOS."""
        heard = soxr.resample(pcm, sample_rate, LISTENING_RATE).clip(-1, 1)
        distilled = self._distilled(torch.from_numpy(heard).unsqueeze(0)).item()
        return distilled, float(dnsmos.run(heard, LISTENING_RATE)["ovrl_mos"])
