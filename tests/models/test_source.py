"""The vocoder's source: pulses at the pitch asked for, in step over frames; and noise."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from omni_speak.models.wren.codec import overlap_add
from omni_speak.models.wren.source import BREATHS, Source, pulse_train

RATE, FFT, HOP = 24_000, 960, 240


@pytest.fixture(scope="module")
def source() -> Source:
    return Source(RATE, FFT, HOP)


def sound(spectra: Tensor) -> Tensor:
    """Spectra [B, S, F] → pcm [B, S · HOP], as the vocoder adds them up."""
    frames = torch.fft.irfft(spectra, FFT) * torch.hann_window(FFT) / 1.5
    return overlap_add(frames, HOP)[:, : spectra.shape[1] * HOP]


def strongest(pcm: Tensor, below: float) -> float:
    """Hz of the highest peak under `below`."""
    spectrum = torch.fft.rfft(pcm * torch.hann_window(len(pcm)), 8 * len(pcm)).abs()
    step = RATE / (8 * len(pcm))
    return spectrum[: int(below / step)].argmax().item() * step


def test_a_pulse_train_is_the_sum_of_its_harmonics():
    turns = torch.tensor([0.0, 1e-6, 0.1, 0.37, 0.5, 0.999, 5.25])
    summed = sum(torch.cos(2 * torch.pi * k * turns) for k in range(1, 21))
    torch.testing.assert_close(pulse_train(turns, torch.tensor(20.0)), summed, atol=2e-3, rtol=0)


@pytest.mark.parametrize("hertz", [70.0, 113.0, 240.0])
def test_pulses_keep_their_pitch_and_step_over_frames(source, hertz):
    pulses, _, _ = source(torch.full((1, 200), hertz), source.initial_state(1))
    heard = sound(pulses)[0, FFT:]
    assert strongest(heard, 1.5 * hertz) == pytest.approx(hertz, abs=0.5)
    # Frames out of step would cancel one another: all the power is in the harmonics' peaks.
    spectrum = torch.fft.rfft(heard * torch.hann_window(len(heard))).abs().square()
    peak = round(10 * hertz * len(heard) / RATE)
    between = round(10.5 * hertz * len(heard) / RATE)
    assert spectrum[peak - 3 : peak + 4].sum() > 1e4 * spectrum[between - 3 : between + 4].sum()


def test_a_glide_stays_in_step_too(source):
    """Rising 100 Hz a second, the tenth harmonic is as strong as at rest."""
    rising = 100.0 + torch.arange(100).float().unsqueeze(0)
    level = [
        sound(source(pitch, source.initial_state(1))[0])[0, FFT:].square().mean()
        for pitch in (rising, torch.full((1, 100), 150.0))
    ]
    assert level[0] / level[1] == pytest.approx(1.0, rel=0.1)


def test_breath_is_noise_as_loud_in_every_bin_and_goes_on_where_it_was(source):
    pitch = torch.full((1, BREATHS + 5), 100.0)
    _, whole, _ = source(pitch, source.initial_state(1))
    assert whole.abs().square().mean() == pytest.approx(1.0, rel=0.01)
    assert whole.abs().square().mean(1).std() < 0.1
    _, _, state = source(pitch[:, :7], source.initial_state(1))
    _, rest, _ = source(pitch[:, 7:], state)
    assert torch.equal(rest, whole[:, 7:])
    assert torch.equal(whole[:, BREATHS:], whole[:, :5])
