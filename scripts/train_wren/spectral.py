"""Losses on waveforms: spectra at three resolutions, and the discriminators that judge them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from omni_speak.models.wren.codec import magnitude, mel_bank

RESOLUTIONS = ((512, 128, 40), (1024, 256, 80), (2048, 512, 128))  # FFT, hop, mel bands


class SpectralLoss(nn.Module):
    """Spectral convergence, log magnitude and log-mel distances, summed over resolutions."""

    def __init__(self, sample_rate: int) -> None:
        super().__init__()
        for fft, _, bands in RESOLUTIONS:
            self.register_buffer(f"window{fft}", torch.hann_window(fft))
            self.register_buffer(f"bank{fft}", mel_bank(sample_rate, fft, bands))

    def forward(self, guess: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
        """pcm [B, N] twice → loss to minimise, mean log-mel distance (for the log)."""
        linear, mel = guess.new_zeros(()), guess.new_zeros(())
        for fft, hop, _ in RESOLUTIONS:
            window, bank = getattr(self, f"window{fft}"), getattr(self, f"bank{fft}")
            mine = magnitude(torch.stft(guess, fft, hop, window=window, return_complex=True))
            with torch.no_grad():
                real = magnitude(torch.stft(truth, fft, hop, window=window, return_complex=True))
                real_log, real_mel = (real + 1e-3).log(), log_mel(bank, real)
            convergence = (real - mine).norm() / (real.norm() + 1e-6)
            linear = linear + 0.5 * convergence + 0.5 * F.l1_loss((mine + 1e-3).log(), real_log)
            mel = mel + F.l1_loss(log_mel(bank, mine), real_mel)
        return linear + 3.0 * mel, mel.detach() / len(RESOLUTIONS)


def log_mel(bank: Tensor, spectrum: Tensor) -> Tensor:
    return (bank @ spectrum).clamp(min=1e-5).log()


class Discriminator(nn.Module):
    """One small 2-D convolutional judge of a compressed complex spectrogram."""

    window: Tensor

    def __init__(self, fft: int, hop: int, width: int = 16) -> None:
        super().__init__()
        self.fft, self.hop = fft, hop
        self.register_buffer("window", torch.hann_window(fft), persistent=False)
        self.layers = nn.ModuleList(
            [
                weight_norm(nn.Conv2d(2, width, (7, 3), (2, 1), (3, 1))),
                weight_norm(nn.Conv2d(width, width, (5, 3), (2, 1), (2, 1))),
                weight_norm(nn.Conv2d(width, 2 * width, (5, 3), (2, 2), (2, 1))),
                weight_norm(nn.Conv2d(2 * width, 2 * width, (3, 3), (2, 1), (1, 1))),
            ]
        )
        self.verdict = weight_norm(nn.Conv2d(2 * width, 1, (3, 3), padding=1))

    def forward(self, pcm: Tensor) -> tuple[Tensor, list[Tensor]]:
        """pcm [B, N] → scores (real above zero), and each layer's features."""
        spectrum = torch.stft(pcm, self.fft, self.hop, window=self.window, return_complex=True)
        # Magnitude to the power 0.4: quiet bands count too.
        squeezed = spectrum * magnitude(spectrum, 1e-8) ** -0.6
        h = torch.view_as_real(squeezed).permute(0, 3, 1, 2)
        h = h.contiguous(memory_format=torch.channels_last)
        features = []
        for layer in self.layers:
            h = F.leaky_relu(layer(h), 0.1)
            features.append(h)
        return self.verdict(h), features


class Discriminators(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.judges = nn.ModuleList(Discriminator(fft, hop) for fft, hop, _ in RESOLUTIONS)

    def forward(self, pcm: Tensor) -> list[tuple[Tensor, list[Tensor]]]:
        return [judge(pcm) for judge in self.judges]

    def own_loss(self, guess: Tensor, truth: Tensor) -> Tensor:
        """Hinge loss of telling truth from guess."""
        pairs = zip(self(truth), self(guess.detach()), strict=True)
        losses = [
            F.relu(1 - real).mean() + F.relu(1 + fake).mean() for (real, _), (fake, _) in pairs
        ]
        return torch.stack(losses).mean()

    def vocoder_loss(self, guess: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
        """What the vocoder minimises: adversarial loss, feature distance."""
        self.requires_grad_(False)
        with torch.no_grad():
            real = self(truth)
        fake = self(guess)
        self.requires_grad_(True)
        adversarial = torch.stack([-score.mean() for score, _ in fake]).mean()
        distances = [
            F.l1_loss(mine, theirs) / (theirs.abs().mean() + 1e-3)
            for (_, many), (_, others) in zip(fake, real, strict=True)
            for mine, theirs in zip(many, others, strict=True)
        ]
        return adversarial, torch.stack(distances).sum() / len(self.judges)
