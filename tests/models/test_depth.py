"""The depth transformer: step by step is teacher-forced, and a row never sees its batch-mates."""

from __future__ import annotations

import pytest
import torch

from omni_speak.models.layers.depth import DepthTransformer, pick

Q, K, D = 5, 32, 24


@pytest.fixture
def depth() -> DepthTransformer:
    torch.manual_seed(0)
    model = DepthTransformer(
        codebooks=Q,
        codebook_size=K,
        tokens=16,
        input_width=D,
        width=32,
        layers=2,
        heads=2,
        intermediate=48,
    ).eval()
    for parameter in model.parameters():
        # Gains other than one, and logits far enough apart that rounding decides nothing.
        torch.nn.init.normal_(parameter, 1.0 if parameter.dim() == 1 else 0.0, 0.5)
    return model


def gumbel(*shape: int) -> torch.Tensor:
    return -torch.empty(shape).exponential_().log()


def inputs(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, D), torch.randint(0, 10, (rows,))


def test_greedy_codes_are_the_argmax_of_the_teacher_forced_logits(depth):
    hidden, token = inputs(8)
    codes = depth.generate(hidden, token, torch.zeros(8), None, 0)
    with torch.inference_mode():
        assert torch.equal(depth(hidden, token, codes).argmax(-1), codes)


def test_sampled_codes_follow_the_teacher_forced_logits(depth):
    hidden, token, noise = *inputs(8), gumbel(8, Q, K)
    codes = depth.generate(hidden, token, torch.full((8,), 0.7), noise, 0)
    with torch.inference_mode():
        assert torch.equal((depth(hidden, token, codes) + 0.7 * noise).argmax(-1), codes)


def test_temperature_zero_ignores_the_noise(depth):
    hidden, token = inputs(4)
    greedy = depth.generate(hidden, token, torch.zeros(4), None, 0)
    assert torch.equal(depth.generate(hidden, token, torch.zeros(4), gumbel(4, Q, K), 8), greedy)


def test_a_row_alone_and_in_a_batch_gives_the_same_codes(depth):
    hidden, token, noise = *inputs(8), gumbel(8, Q, K)
    temperature = torch.linspace(0, 1, 8)
    batched = depth.generate(hidden, token, temperature, noise, 6)
    for row in range(8):
        one = slice(row, row + 1)
        alone = depth.generate(hidden[one], token[one], temperature[one], noise[one], 6)
        assert torch.equal(alone, batched[one])


def test_fewer_codes_give_the_first_logits(depth):
    hidden, token = inputs(3)
    codes = torch.randint(0, K, (3, Q))
    with torch.inference_mode():
        first, whole = depth(hidden, token, codes[:, :2]), depth(hidden, token, codes)
    torch.testing.assert_close(first, whole[:, :2])


def test_code_i_sees_no_later_code(depth):
    hidden, token = inputs(3)
    codes = torch.randint(0, K, (3, Q))
    changed = codes.clone()
    changed[:, 2] = (changed[:, 2] + 1) % K
    with torch.inference_mode():
        before, after = depth(hidden, token, codes), depth(hidden, token, changed)
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3], after[:, 3])


def test_pick_stays_among_the_top_k():
    logits = torch.arange(10.0).expand(500, 10)
    picked = pick(logits, torch.full((500, 1), 100.0), gumbel(500, 10), 3)
    assert picked.unique().tolist() == [7, 8, 9]


def test_pick_samples_the_softmax():
    logits = torch.tensor([0.0, 1.0, 2.0])
    picked = pick(logits.expand(20_000, 3), torch.ones(20_000, 1), gumbel(20_000, 3), 0)
    share = torch.bincount(picked, minlength=3) / 20_000
    torch.testing.assert_close(share, logits.softmax(0), rtol=0, atol=0.02)


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_the_recorded_graph_gives_what_its_function_does(depth, rows):
    hidden, token = inputs(rows)
    noise, heat = gumbel(rows, Q, K), torch.linspace(0.5, 1, rows)
    recorded = depth.generate(hidden, token, heat, noise, 8)
    with torch.inference_mode():
        assert torch.equal(recorded, depth._generate(hidden, token, heat, noise, 8))
    other = depth.generate(hidden, token, heat, gumbel(rows, Q, K), 8)
    assert not torch.equal(recorded, other)  # the noise is no constant of the graph
