"""Causal layers give the same output whole, in chunks, and for streams batched by row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from omni_speak.models.layers.streaming import CausalBlock, CausalConv, CausalDepthwise

LAYERS = [
    pytest.param(lambda: CausalConv(6, 8, 3), id="dense"),
    pytest.param(lambda: CausalDepthwise(6, 7), id="depthwise"),
    pytest.param(lambda: CausalBlock(6, 2, 5), id="block"),
]


def run(layer: nn.Module, x: Tensor, chunks: list[int]) -> Tensor:
    state, parts = layer.initial_state(len(x)), []
    for part in x.split(chunks, 1):
        y, state = layer(part, state)
        parts.append(y)
    return torch.cat(parts, 1)


@pytest.mark.parametrize("make", LAYERS)
@pytest.mark.parametrize("chunks", [[1] * 13, [5, 1, 7], [12, 1]])
def test_streamed_equals_whole(make, chunks):
    layer, x = make(), torch.randn(2, 13, 6)
    torch.testing.assert_close(run(layer, x, chunks), run(layer, x, [13]))


@pytest.mark.parametrize("make", LAYERS)
def test_output_never_depends_on_later_input(make):
    layer, x = make(), torch.randn(1, 10, 6)
    changed = x.clone()
    changed[:, 6:] += 1
    before, after = run(layer, x, [10]), run(layer, changed, [10])
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6], after[:, 6])


@pytest.mark.parametrize("make", LAYERS)
def test_streams_of_different_age_share_a_batch(make):
    layer, x = make(), torch.randn(2, 9, 6)
    old = layer.initial_state(1)
    _, old = layer(x[:1, :4], old)
    state = torch.cat([old, layer.initial_state(1)])
    y, _ = layer(torch.cat([x[:1, 4:], x[1:, :5]]), state)
    torch.testing.assert_close(y[0], run(layer, x[:1], [9])[0, 4:])
    torch.testing.assert_close(y[1], run(layer, x[1:], [9])[0, :5])
