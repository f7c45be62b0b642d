"""The pitch of speech, frame by frame, by autocorrelation: the vocoder's learns from it."""

from __future__ import annotations

import torch
from torch import Tensor

LOWEST, HIGHEST = 60.0, 240.0  # Hz, as the teacher speaks
PERIODIC = 0.5  # correlation from which a frame counts as voiced
LOUD = 0.003  # root mean square, of full scale


def track(pcm: Tensor, sample_rate: int, window: int, hop: int) -> tuple[Tensor, Tensor]:
    """pcm [B, N] → pitch [B, N / hop] in Hz, voiced [B, N / hop] bool.

    Row t hears samples t · hop to t · hop + window; where they run out, silence.
    """
    padded = torch.nn.functional.pad(pcm, (0, window - hop))
    frames = padded.unfold(1, window, hop)
    taper = torch.hann_window(window)
    size = 2 * window
    frames = (frames - frames.mean(-1, keepdim=True)) * taper
    found = torch.fft.irfft(torch.fft.rfft(frames, size).abs().square(), size)
    of_taper = torch.fft.irfft(torch.fft.rfft(taper, size).abs().square(), size)
    low, high = int(sample_rate / HIGHEST), int(sample_rate / LOWEST)
    energy = found[..., :1].clamp(min=1e-9)
    shape = found[..., low - 1 : high + 1] / energy * (of_taper[0] / of_taper[low - 1 : high + 1])
    lags = torch.arange(low, high)
    # Half the pitch correlates as well as the pitch does: the shorter lag wins a tie.
    best = (shape[..., 1:-1] - 0.05 * (lags / low).log2()).argmax(-1, keepdim=True)
    left, middle, right = (shape.gather(-1, best + k).squeeze(-1) for k in range(3))
    bend = (left - 2 * middle + right).clamp(max=-1e-6)
    offset = (0.5 * (left - right) / bend).clamp(-0.5, 0.5)
    level = frames.square().mean(-1).sqrt()
    return sample_rate / (lags[best.squeeze(-1)] + offset), (middle > PERIODIC) & (level > LOUD)
