"""Residual vector quantisation: each codebook codes what the ones before it left over."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ResidualVQ(nn.Module):
    """Q codebooks of K vectors of Z dimensions, in `codebooks` [Q, K, Z].

    Decoding and encoding need only the codebooks. Training moves them by k-means at the first
    batch, then by exponential averages; codes that nobody uses restart at random residuals.
    """

    codebooks: Tensor
    counts: Tensor
    sums: Tensor
    started: Tensor

    def __init__(self, codebooks: int, size: int, latent: int, decay: float = 0.98) -> None:
        super().__init__()
        self.decay = decay
        self.dead_below = 0.03
        self.register_buffer("codebooks", torch.randn(codebooks, size, latent) * 0.1)
        # Averages of the training run; nothing at runtime reads them, so they are not exported.
        self.register_buffer("counts", torch.ones(codebooks, size), persistent=False)
        self.register_buffer("sums", torch.zeros(codebooks, size, latent), persistent=False)
        self.register_buffer("started", torch.zeros((), dtype=torch.bool), persistent=False)

    def decode(self, codes: Tensor) -> Tensor:
        """codes [B, T, Q'] int64, the first Q' <= Q codebooks → latents [B, T, Z]."""
        used = codes.shape[-1]
        _, size, latent = self.codebooks.shape
        table = self.codebooks[:used].reshape(used * size, latent)
        offsets = torch.arange(used, device=codes.device) * size
        return F.embedding(codes + offsets, table).sum(-2)

    @torch.no_grad()
    def encode(self, latents: Tensor) -> Tensor:
        """latents [B, T, Z] → codes [B, T, Q] int64."""
        residual = latents.reshape(-1, latents.shape[-1])
        codes = []
        for book in self.codebooks:
            nearest = _nearest(residual, book)
            residual = residual - book[nearest]
            codes.append(nearest)
        return torch.stack(codes, -1).view(*latents.shape[:-1], -1)

    def train_step(self, latents: Tensor, used: int) -> tuple[Tensor, Tensor]:
        """Quantise with the first `used` codebooks, and move all codebooks towards the data.

        latents [B, T, Z] → straight-through quantised latents [B, T, Z], commitment loss [].
        """
        flat = latents.reshape(-1, latents.shape[-1])
        residual = flat.detach()
        total = torch.zeros_like(residual)
        commitment = flat.new_zeros(())
        quantised = total
        for index in range(len(self.codebooks)):
            if not self.started:
                self._start(index, residual)
            nearest = _nearest(residual, self.codebooks[index])
            chosen = self.codebooks[index][nearest]
            if index < used:
                commitment = commitment + F.mse_loss(flat - total, chosen)
            self._average(index, residual, nearest)
            total = total + chosen
            residual = residual - chosen
            if index == used - 1:
                quantised = total
        self.started.fill_(True)
        straight = flat + (quantised - flat).detach()
        return straight.view_as(latents), commitment / used

    @torch.no_grad()
    def _start(self, index: int, data: Tensor, rounds: int = 8) -> None:
        size = self.codebooks.shape[1]
        picks = torch.randint(0, len(data), (size,))
        picks[: min(size, len(data))] = torch.randperm(len(data))[:size]
        centres = data[picks] + 1e-4 * torch.randn(size, data.shape[1])
        for _ in range(rounds):
            nearest = _nearest(data, centres)
            counts = torch.bincount(nearest, minlength=size).unsqueeze(1)
            sums = torch.zeros_like(centres).index_add_(0, nearest, data)
            centres = torch.where(counts > 0, sums / counts.clamp(min=1), centres)
        self.codebooks[index] = centres
        self.sums[index] = centres
        self.counts[index] = 1.0

    @torch.no_grad()
    def _average(self, index: int, data: Tensor, nearest: Tensor) -> None:
        size = self.codebooks.shape[1]
        counts = torch.bincount(nearest, minlength=size).to(data.dtype)
        sums = torch.zeros_like(self.sums[index]).index_add_(0, nearest, data)
        self.counts[index].lerp_(counts, 1 - self.decay)
        self.sums[index].lerp_(sums, 1 - self.decay)
        dead = self.counts[index] < self.dead_below
        if dead.any():
            picks = data[torch.randint(0, len(data), (int(dead.sum()),))]
            self.sums[index][dead] = picks
            self.counts[index][dead] = 1.0
        self.codebooks[index] = self.sums[index] / self.counts[index].unsqueeze(1)


def _nearest(data: Tensor, book: Tensor) -> Tensor:
    """data [N, Z], book [K, Z] → index of the nearest vector [N] (the data's norm is common)."""
    return torch.addmm(book.square().sum(-1), data, book.t(), alpha=-2.0).argmin(-1)
