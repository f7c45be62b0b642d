"""The plain trunk: step by step with a window's cache equals whole sequences; Qwen3's names."""

from __future__ import annotations

import torch

from omni_speak.models.wren.config import TalkerConfig
from scripts.train_wren.trunk import Cache, TalkerTrunk, window_mask

CONFIG = TalkerConfig(hidden_size=32, num_layers=2, head_dim=16, intermediate_size=48, window=6)


@torch.inference_mode()
def test_cached_steps_equal_the_whole_sequence_beyond_the_window():
    torch.manual_seed(0)
    trunk, x = TalkerTrunk(CONFIG).eval(), torch.randn(3, 20, 32)
    cache: Cache = []
    steps = []
    for position in range(20):
        hidden, cache = trunk.step(x[:, position : position + 1], position, cache)
        steps.append(hidden)
    torch.testing.assert_close(torch.cat(steps, 1), trunk(x), rtol=1e-4, atol=1e-5)


def test_a_position_sees_its_window_and_no_more():
    seen = window_mask(10, 4) == 0
    assert seen.sum(1).tolist() == [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]
    assert seen[9].nonzero().flatten().tolist() == [6, 7, 8, 9]


def test_tensors_have_the_names_of_qwen3():
    names = {name for name in TalkerTrunk(CONFIG).state_dict() if not name.startswith("layers.1")}
    layer = "layers.0."
    attention = {f"self_attn.{part}" for part in ("q_proj", "k_proj", "v_proj", "o_proj")}
    attention |= {"self_attn.q_norm", "self_attn.k_norm"}
    mlp = {f"mlp.{part}_proj" for part in ("gate", "up", "down")}
    norms = {"input_layernorm", "post_attention_layernorm"}
    assert names == {"norm.weight"} | {f"{layer}{p}.weight" for p in attention | mlp | norms}
