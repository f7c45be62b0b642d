"""What a voice filters: pulses at its pitch, and breath. Spectra of both, frame by frame.

A network that draws phases itself has to learn to keep every harmonic in step from one frame to the
next; here the pulses' phase is summed up, and only what the throat adds to it is left to learn.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

LOWEST, HIGHEST = 50.0, 400.0  # Hz
BREATHS = 509  # frames of noise before it repeats: 5 s, and a prime


class Source(nn.Module):
    """Spectra as a Hann-windowed STFT has them, of `fft` samples every `hop`."""

    window: Tensor
    noise: Tensor
    times: Tensor

    def __init__(self, sample_rate: int, fft: int, hop: int) -> None:
        super().__init__()
        self.sample_rate, self.fft, self.hop = sample_rate, fft, hop
        # A harmonic's peak in the spectrum is then 1.
        self.register_buffer("window", torch.hann_window(fft) * 4 / fft, persistent=False)
        self.register_buffer("times", (torch.arange(fft) - fft / 2) / sample_rate, persistent=False)
        numbers = torch.Generator().manual_seed(0)
        parts = torch.randn(BREATHS, fft // 2 + 1, 2, generator=numbers) * 0.5**0.5
        self.register_buffer("noise", torch.view_as_complex(parts), persistent=False)

    def initial_state(self, batch: int) -> list[Tensor]:
        """Last frame's pitch in Hz (0: there was none), its phase in turns, and frames of noise
        used: [B, 1] each."""
        return [self.times.new_zeros(batch, 1) for _ in range(3)]

    @torch.no_grad()
    def forward(self, pitch: Tensor, state: list[Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
        """pitch [B, S] in Hz → pulses, breath: each [B, S, fft / 2 + 1] complex; state.

        Within a frame the pitch glides as it did since the last one.
        """
        last, turns, used = state
        before = torch.cat([torch.where(last > 0, last, pitch[:, :1]), pitch[:, :-1]], 1)
        # In double, so that summing in pieces is summing at once.
        steps = (0.5 * (before + pitch) * (self.hop / self.sample_rate)).double()
        centre = ((turns.double() + steps.cumsum(1)) % 1.0).float()
        glide = (pitch - before) * (0.5 * self.sample_rate / self.hop)
        phase = torch.addcmul(pitch.unsqueeze(-1), glide.unsqueeze(-1), self.times)
        phase = torch.addcmul(centre.unsqueeze(-1), phase, self.times)
        harmonics = (0.5 * self.sample_rate / pitch).floor().unsqueeze(-1)
        pulses = torch.fft.rfft(pulse_train(phase, harmonics).mul_(self.window))
        count = torch.arange(pitch.shape[1], device=pitch.device)
        breath = self.noise[(used + count).long() % BREATHS]
        used = (used + pitch.shape[1]) % BREATHS
        return pulses, breath, [pitch[:, -1:], centre[:, -1:], used]


def pulse_train(turns: Tensor, harmonics: Tensor) -> Tensor:
    """The sum of cos(2π · k · turns) for k from 1 to `harmonics`, in closed form."""
    # Even in `turns`; its value at 0 is a limit, so 0 is taken for just beside it.
    half = (turns - turns.round()).abs_().clamp_(min=1e-6).mul_(math.pi)
    whole = (half * (2 * harmonics + 1)).sin_()
    return whole.div_(half.sin_()).sub_(1.0).mul_(0.5)
