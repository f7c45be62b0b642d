"""Packed linear layers: nearly the same numbers, and a row never sees its batch-mates."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from omni_speak.models.layers.graph import Graph
from omni_speak.models.layers.packed import PackedLinear, pack, packed_dtype

DTYPES = {torch.float32: 1e-6, torch.bfloat16: 4e-3}
"""What this project packs in, and the error of each in the result's RMS."""


@pytest.fixture
def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(256, 512).requires_grad_(False)


@pytest.mark.parametrize(("dtype", "error"), DTYPES.items())
def test_it_gives_nearly_what_the_layer_does(linear: nn.Linear, dtype, error):
    x = torch.randn(3, 40, 256)
    expected, found = linear(x), PackedLinear(linear, dtype)(x)
    assert found.dtype == torch.float32 and found.shape == expected.shape
    assert (found - expected).square().mean().sqrt() < error * expected.square().mean().sqrt()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_is_the_same_bits_whoever_is_beside_it(linear: nn.Linear, dtype):
    packed, x = PackedLinear(linear, dtype), torch.randn(256, 256)
    batched = packed(x)
    for rows in (1, 2, 3, 7, 8, 16, 33, 64, 200):
        assert torch.equal(packed(x[-rows:]), batched[-rows:])


def test_a_graph_records_it_for_any_number_of_rows(linear: nn.Linear):
    packed = PackedLinear(linear, packed_dtype())
    graph = Graph(packed, packed.forward, torch.zeros(2, 256))
    for rows in (1, 2, 9):
        x = torch.randn(rows, 256)
        assert torch.equal(graph(x), packed(x))


def test_pack_replaces_every_layer_however_deep_and_spares_the_exact_ones():
    exact = nn.Linear(8, 1)
    model = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.SiLU()), exact])
    weight = exact.weight.detach()
    pack(model, exact=[exact])
    assert not any(isinstance(module, nn.Linear) for module in model.modules())
    assert model[0][0].weight.dtype == packed_dtype()
    x = torch.randn(5, 8)
    torch.testing.assert_close(model[1](x), nn.functional.linear(x, weight, exact.bias))
