"""Residual VQ: decoding sums the chosen vectors, encoding undoes it, training lowers the error."""

from __future__ import annotations

import torch

from omni_speak.models.layers.rvq import ResidualVQ


def test_decode_sums_one_vector_of_each_codebook():
    rvq = ResidualVQ(3, 5, 4)
    codes = torch.tensor([[[1, 4, 0], [2, 2, 3]]])
    books = rvq.codebooks
    expected = torch.stack(
        [books[0, 1] + books[1, 4] + books[2, 0], books[0, 2] + books[1, 2] + books[2, 3]]
    )
    torch.testing.assert_close(rvq.decode(codes)[0], expected)


def test_fewer_codes_decode_with_the_first_codebooks():
    rvq = ResidualVQ(3, 5, 4)
    torch.testing.assert_close(rvq.decode(torch.tensor([[[1]]]))[0, 0], rvq.codebooks[0, 1])


def test_encode_finds_the_codes_of_well_separated_codebooks():
    rvq = ResidualVQ(3, 8, 16)
    rvq.codebooks *= torch.tensor([1000.0, 10.0, 0.1]).view(3, 1, 1)
    codes = torch.randint(0, 8, (2, 7, 3))
    assert torch.equal(rvq.encode(rvq.decode(codes)), codes)


def test_training_lowers_the_error_and_uses_every_code():
    torch.manual_seed(0)
    rvq, data = ResidualVQ(2, 16, 4), torch.randn(8, 64, 4)
    before = (rvq.decode(rvq.encode(data)) - data).square().mean()
    for _ in range(60):
        rvq.train_step(data, used=2)
    codes = rvq.encode(data)
    after = (rvq.decode(codes) - data).square().mean()
    assert after < 0.3 * before
    assert codes[..., 0].unique().numel() == 16


def test_straight_through_passes_the_gradient_unchanged():
    rvq, data = ResidualVQ(2, 8, 4), torch.randn(1, 32, 4, requires_grad=True)
    quantised, commitment = rvq.train_step(data, used=1)
    quantised.sum().backward()
    torch.testing.assert_close(data.grad, torch.ones_like(data))
    assert commitment.item() > 0


def test_a_dead_code_restarts_in_the_data():
    torch.manual_seed(0)
    rvq, data = ResidualVQ(1, 4, 2), torch.randn(1, 256, 2)
    rvq.train_step(data, used=1)
    rvq.sums[0, 3] = rvq.codebooks[0, 3] = 1e6
    rvq.counts[0, 3] = 0.0
    rvq.train_step(data, used=1)
    assert rvq.codebooks[0, 3].abs().max() < 10
