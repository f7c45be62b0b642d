"""The depth transformer: a frame's codes one after another, given the talker's hidden state.

Position i sees the projected hidden state plus the embedding of what came before it (the sampled
token for i = 0, else code i-1) and predicts code i. Layers are Qwen3's: RMSNorm, QK-norm, rotary
positions (adjacent pairs), SwiGLU, no biases.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from omni_speak.models.layers.graph import Graph


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class DepthLayer(nn.Module):
    """x [N, P, C] → [N, P, C], causal over positions."""

    def __init__(self, width: int, heads: int, intermediate: int, eps: float) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.attention_norm = RMSNorm(width, eps)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.q_norm = RMSNorm(self.head_dim, eps)
        self.k_norm = RMSNorm(self.head_dim, eps)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp_norm = RMSNorm(width, eps)
        self.gate_up = nn.Linear(width, 2 * intermediate, bias=False)
        self.down = nn.Linear(intermediate, width, bias=False)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        """turns [P, head_dim / 2] complex64: the rotation of each position."""
        batch, steps, width = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(batch, steps, 3, self.heads, -1).unbind(2)
        q = rotate(self.q_norm(q), turns[:, None]).transpose(1, 2)
        k = rotate(self.k_norm(k), turns[:, None]).transpose(1, 2)
        scores = (q * self.head_dim**-0.5) @ k.transpose(2, 3)
        hidden = torch.ones(steps, steps, dtype=torch.bool, device=x.device).triu(1)
        weights = F.softmax(scores.masked_fill(hidden, float("-inf")), -1)
        mixed = (weights @ v.transpose(1, 2)).transpose(1, 2).reshape(batch, steps, width)
        x = x + self.out(mixed)
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        out: Tensor = x + self.down(F.silu(gate) * up)
        return out


class DepthTransformer(nn.Module):
    """codes: Q codebooks of K entries; tokens: size of the sampled token's vocabulary."""

    turns: Tensor

    def __init__(
        self,
        *,
        codebooks: int,
        codebook_size: int,
        tokens: int,
        input_width: int,
        width: int,
        layers: int,
        heads: int,
        intermediate: int,
        rope_theta: float = 10_000.0,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        self.codebooks, self.codebook_size = codebooks, codebook_size
        self.width, self.eps = width, eps
        self.project = nn.Linear(input_width, width, bias=False)
        self.token = nn.Embedding(tokens, width)
        self.codes = nn.ModuleList(nn.Embedding(codebook_size, width) for _ in range(codebooks - 1))
        self.layers = nn.ModuleList(
            DepthLayer(width, heads, intermediate, eps) for _ in range(layers)
        )
        self.norm = RMSNorm(width, eps)
        self.heads = nn.ModuleList(
            nn.Linear(width, codebook_size, bias=False) for _ in range(codebooks)
        )
        head_dim = width // heads
        angles = torch.outer(
            torch.arange(codebooks).float(),
            rope_theta ** -(torch.arange(0, head_dim, 2).float() / head_dim),
        )
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), False)
        self._plan: _Plan | None = None
        self._graphs: dict[int, Graph] = {}

    def forward(self, hidden: Tensor, token: Tensor, codes: Tensor) -> Tensor:
        """Teacher-forced, the first P <= Q codes.

        hidden [N, D], token [N], codes [N, P] → logits [N, P, K].
        """
        depth = codes.shape[1]
        before = [self.token(token)]
        before += [self.codes[i](codes[:, i]) for i in range(depth - 1)]
        x = torch.stack(before, 1) + self.project(hidden).unsqueeze(1)
        for layer in self.layers:
            x = layer(x, self.turns[:depth])
        x = self.norm(x)
        return torch.stack([self.heads[i](x[:, i]) for i in range(depth)], 1)

    def prepare(self) -> None:
        """Fold weights for `generate`; call it after loading. Training afterwards is not seen."""
        self._plan = _Plan(self)
        self._graphs.clear()

    @torch.inference_mode()
    def generate(
        self,
        hidden: Tensor,
        token: Tensor,
        temperature: Tensor,
        noise: Tensor | None,
        top_k: int,
    ) -> Tensor:
        """Sample one frame's codes for each row.

        Args:
            hidden: [B, D] float, the talker's state.
            token: [B] int64, what the talker sampled.
            temperature: [B] float; 0 is greedy.
            noise: [B, Q, K] standard Gumbel noise, or None for greedy rows only. It is passed in
                so that a row's codes depend on its own seed, never on its batch-mates.
            top_k: entries to sample among, the same for all rows; 0 is all of them.

        Returns:
            codes [B, Q] int64.
        """
        if self._plan is None:
            self.prepare()
        if noise is None or hidden.device.type != "cpu":
            return self._generate(hidden, token, temperature, noise, top_k)
        if top_k not in self._graphs:
            self._graphs[top_k] = self._graph(top_k)
        codes: Tensor = self._graphs[top_k](hidden, token, temperature, noise)
        return codes

    def _graph(self, top_k: int) -> Graph:
        weight, rows = self.project.weight, 2
        return Graph(
            self,
            partial(self._generate, top_k=top_k),
            weight.new_zeros(rows, self.project.in_features),
            torch.zeros(rows, dtype=torch.int64),
            weight.new_ones(rows),
            weight.new_zeros(rows, self.codebooks, self.codebook_size),
        )

    def _generate(
        self,
        hidden: Tensor,
        token: Tensor,
        temperature: Tensor,
        noise: Tensor | None,
        top_k: int,
    ) -> Tensor:
        plan = self._plan
        assert plan is not None
        rows = hidden.shape[0]
        context = F.linear(hidden, plan.project)
        x = context + F.embedding(token, plan.token)
        caches = [layer.cache(rows, self.codebooks, x) for layer in plan.layers]
        picked = torch.empty(rows, self.codebooks, dtype=torch.int64, device=hidden.device)
        scale = temperature.to(x.dtype).unsqueeze(1)
        for position in range(self.codebooks):
            for layer, (keys, values) in zip(plan.layers, caches, strict=True):
                x = layer.step(x, position, keys, values)
            logits = torch.mm(unit(x), plan.heads[position])
            gumbel = None if noise is None else noise[:, position]
            code = pick(logits, scale, gumbel, top_k)
            picked[:, position] = code
            if position + 1 < self.codebooks:
                x = F.embedding(code, plan.codes[position]) + context
        return picked


class _Plan:
    """The weights as `generate` wants them: transposed, and with the norm before each folded in."""

    def __init__(self, model: DepthTransformer) -> None:
        gain = model.norm.weight * model.width**0.5
        layers = cast(Iterable[DepthLayer], model.layers)
        heads = cast(Iterable[nn.Linear], model.heads)
        tables = cast(Iterable[nn.Embedding], model.codes)
        self.project, self.token = model.project.weight.detach(), model.token.weight.detach()
        self.layers = [_PlanLayer(layer, model.turns) for layer in layers]
        self.heads = [_transposed(head.weight * gain) for head in heads]
        self.codes = [table.weight.detach() for table in tables]


class _PlanLayer:
    def __init__(self, layer: DepthLayer, turns: Tensor) -> None:
        width = layer.out.in_features
        self.heads, self.head_dim = layer.heads, layer.head_dim
        self.qkv = _transposed(layer.qkv.weight * (layer.attention_norm.weight * width**0.5))
        self.out = _transposed(layer.out.weight)
        self.gate_up = _transposed(layer.gate_up.weight * (layer.mlp_norm.weight * width**0.5))
        self.down = _transposed(layer.down.weight)
        # One factor per head of [q, k]. Of the two head_dim ** 0.5 that the norms ask for, the
        # one of q cancels the scale of the scores.
        q = layer.q_norm.weight.expand(self.heads, -1)
        k = layer.k_norm.weight.expand(self.heads, -1) * layer.head_dim**0.5
        self.qk = torch.cat([q, k]).detach()
        self.turns = list(turns.unbind(0))

    def cache(self, rows: int, positions: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values: [rows · heads, positions, head_dim] each."""
        shape = (rows * self.heads, positions, self.head_dim)
        return like.new_empty(shape), like.new_empty(shape)

    def step(self, x: Tensor, position: int, keys: Tensor, values: Tensor) -> Tensor:
        """x [B, C] → [B, C]; writes this position's keys and values."""
        rows, width = x.shape
        heads, head_dim = self.heads, self.head_dim
        qkv = torch.mm(unit(x), self.qkv).view(rows, 3 * heads, head_dim)
        qk = rotate(unit(qkv[:, : 2 * heads]) * self.qk, self.turns[position])
        value = qkv[:, 2 * heads :].reshape(-1, head_dim)
        keys.select(1, position).copy_(qk[:, heads:].reshape(-1, head_dim))
        values.select(1, position).copy_(value)
        if position > 0:  # the first position sees only itself
            q = qk[:, :heads].reshape(-1, 1, head_dim)
            seen = keys.narrow(1, 0, position + 1).transpose(1, 2)
            value = torch.bmm(torch.bmm(q, seen).softmax(-1), values.narrow(1, 0, position + 1))
        x = torch.addmm(x, value.view(rows, width), self.out)
        gate, up = torch.mm(unit(x), self.gate_up).chunk(2, -1)
        return torch.addmm(x, F.silu(gate).mul_(up), self.down)


def _transposed(weight: Tensor) -> Tensor:
    """[out, in] → [in, out], laid out so: the faster side of a small product on a CPU."""
    return weight.detach().t().contiguous()


def unit(x: Tensor) -> Tensor:
    """Rows of length 1: RMSNorm without its gain, which is folded into the next matrix."""
    lengths: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / lengths


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Rotary positions: adjacent pairs of x [..., head_dim] as complex numbers times `turns`."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2)


def pick(logits: Tensor, temperature: Tensor, noise: Tensor | None, top_k: int) -> Tensor:
    """Gumbel-max over the top_k logits. logits, noise [B, K], temperature [B, 1] → [B] int64."""
    if noise is None:
        return logits.argmax(-1)
    if 0 < top_k < logits.shape[-1]:
        best, index = logits.topk(top_k, sorted=False)
        winner = torch.addcmul(best, temperature, noise.gather(1, index)).argmax(-1, keepdim=True)
        return index.gather(1, winner).squeeze(1)
    return torch.addcmul(logits, temperature, noise).argmax(-1)
