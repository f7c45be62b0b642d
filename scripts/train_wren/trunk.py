"""The talker's trunk in plain torch: Qwen3's decoder with Qwen3's names, to train and to evaluate.

The engine runs the same weights on vLLM's Qwen3 layers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from omni_speak.models.layers.depth import RMSNorm
from omni_speak.models.wren.config import TalkerConfig

Rotation = tuple[Tensor, Tensor]
Cache = list[tuple[Tensor, Tensor]]


class Attention(nn.Module):
    def __init__(self, config: TalkerConfig) -> None:
        super().__init__()
        hidden, size = config.hidden_size, config.head_dim
        self.heads, self.kv_heads, self.size = config.num_heads, config.num_kv_heads, size
        self.q_proj = nn.Linear(hidden, self.heads * size, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * size, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * size, bias=False)
        self.o_proj = nn.Linear(self.heads * size, hidden, bias=False)
        self.q_norm = RMSNorm(size, config.rms_norm_eps)
        self.k_norm = RMSNorm(size, config.rms_norm_eps)

    def forward(
        self, x: Tensor, rotation: Rotation, mask: Tensor, past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x [B, T, C], mask [T, S] added to scores, past keys and values [B, heads, S-T, size]."""
        batch, steps, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(batch, steps, self.heads, self.size))
        k = self.k_norm(self.k_proj(x).view(batch, steps, self.kv_heads, self.size))
        v = self.v_proj(x).view(batch, steps, self.kv_heads, self.size).transpose(1, 2)
        q, k = rotate_half(q.transpose(1, 2), rotation), rotate_half(k.transpose(1, 2), rotation)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        # Query heads that share keys become more rows of one matrix product.
        shared = (q * self.size**-0.5).reshape(batch, self.kv_heads, -1, self.size)
        scores = (shared @ k.transpose(2, 3)).view(batch, self.heads, steps, -1) + mask
        weights = scores.softmax(-1).view(batch, self.kv_heads, -1, k.shape[2])
        mixed = (weights @ v).view(batch, self.heads, steps, self.size)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, steps, -1))
        return out, (k, v)


class MLP(nn.Module):
    def __init__(self, config: TalkerConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    def __init__(self, config: TalkerConfig, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(
        self, x: Tensor, rotation: Rotation, mask: Tensor, past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        mixed, kept = self.self_attn(self.input_layernorm(x), rotation, mask, past)
        x = x + F.dropout(mixed, self.dropout, self.training)
        h = self.mlp(self.post_attention_layernorm(x))
        return x + F.dropout(h, self.dropout, self.training), kept


class TalkerTrunk(nn.Module):
    """Inputs [B, T, hidden] → hidden states [B, T, hidden]."""

    def __init__(self, config: TalkerConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(Layer(config, dropout) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        """Whole sequences, each position seeing `config.window` positions, itself included."""
        rotation = rotary(0, x.shape[1], self.config)
        mask = window_mask(x.shape[1], self.config.window)
        for layer in self.layers:
            x, _ = layer(x, rotation, mask, None)
        out: Tensor = self.norm(x)
        return out

    def step(self, x: Tensor, position: int, cache: Cache) -> tuple[Tensor, Cache]:
        """One position, x [B, 1, hidden]; an empty cache begins. The cache keeps the window."""
        rotation = rotary(position, 1, self.config)
        kept: Cache = []
        for index, layer in enumerate(self.layers):
            past = cache[index] if cache else None
            x, (k, v) = layer(x, rotation, x.new_zeros(1, 1), past)
            oldest = max(0, k.shape[2] - (self.config.window - 1))
            kept.append((k[:, :, oldest:], v[:, :, oldest:]))
        return self.norm(x), kept


def rotary(first: int, steps: int, config: TalkerConfig) -> Rotation:
    """Cosines and sines [steps, head_dim / 2] of positions first..first+steps-1."""
    half = torch.arange(0, config.head_dim, 2).float() / config.head_dim
    angles = torch.outer(torch.arange(first, first + steps).float(), config.rope_theta**-half)
    return angles.cos(), angles.sin()


def rotate_half(x: Tensor, rotation: Rotation) -> Tensor:
    """Qwen3's rotary: dimension i turns with dimension i + head_dim / 2."""
    cos, sin = rotation
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def window_mask(steps: int, window: int) -> Tensor:
    """[steps, steps], 0 where position i sees j (i - window < j <= i), else -inf."""
    seen = torch.ones(steps, steps, dtype=torch.bool).tril().triu(1 - window)
    return torch.zeros(steps, steps).masked_fill_(~seen, float("-inf"))
