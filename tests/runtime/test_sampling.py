"""Noise keyed by (seed, position): independent rows, sound statistics."""

from __future__ import annotations

import numpy as np
import torch

from omni_speak.runtime.sampling import gumbel_noise, request_keys, row_seeds


def seeds(*pairs: tuple[int, int]) -> torch.Tensor:
    seed, position = zip(*pairs, strict=True)
    return torch.from_numpy(row_seeds(request_keys(np.array(seed)), np.array(position)))


def test_R20_a_rows_noise_does_not_depend_on_its_batch() -> None:
    batch = gumbel_noise(seeds(*((s, s + 3) for s in range(8))), 8, 512)
    for s in range(8):
        torch.testing.assert_close(
            gumbel_noise(seeds((s, s + 3)), 8, 512)[0], batch[s], rtol=0, atol=0
        )


def test_rows_differ_by_seed_and_by_position() -> None:
    values = seeds(*((s, p) for s in (0, 1, 2, 2**32, 2**53 - 1) for p in range(200)))
    assert len(set(values.tolist())) == len(values)


def test_noise_is_standard_gumbel() -> None:
    noise = gumbel_noise(seeds(*((7, p) for p in range(400))), 8, 512)
    assert torch.isfinite(noise).all()
    # Mean is Euler's constant, variance pi^2 / 6; 1.6 million draws.
    assert abs(noise.mean().item() - 0.57722) < 0.005
    assert abs(noise.var().item() - 1.64493) < 0.01
    flat = noise.view(400, -1)
    neighbours = (flat[:, 1:] - 0.57722) * (flat[:, :-1] - 0.57722)
    assert abs(neighbours.mean().item()) < 0.01
    assert abs(((flat[1:] - 0.57722) * (flat[:-1] - 0.57722)).mean().item()) < 0.01


def test_gumbel_max_samples_the_distribution() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    noise = gumbel_noise(seeds(*((s, 5) for s in range(20_000))), 4)
    counts = torch.bincount((probabilities.log() + noise).argmax(-1), minlength=4)
    torch.testing.assert_close(counts / 20_000, probabilities, atol=0.012, rtol=0)
