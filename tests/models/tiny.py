"""A tiny talker for tests: real vLLM layers, random weights, a prompt that is prefilled.

Its text prompt makes it the model for chunked prefill, prefix caching and preemption; its tokens
are codebook 0, its MTP a small function of token, hidden state and noise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Qwen3Config

from omni_speak.models.base import Prompt, SampledRows, Sampling
from omni_speak.models.registry import MODEL_TYPES
from omni_speak.runtime.errors import NothingToSay
from omni_speak.runtime.request import EngineInfo, SpeechRequest
from omni_speak.runtime.sampling import gumbel_noise

HIDDEN, CODEBOOKS, CODES, END, SAMPLES = 64, 4, 16, 16, 40
VOCAB = 160  # codes 0..15, END, then text bytes from 32 on


def make_tiny(directory: Path, **config: Any) -> Path:
    """Write a tiny model directory and register its type. `config`: `never_ends` (no END),
    `ends_at_once` (END first), `break_mtp` (a malformed hook result), `talker` (a class of
    `tiny_stages`) and its options, `max_len` of a sequence in tokens (512)."""
    MODEL_TYPES["tiny"] = "tests.models.tiny:Tiny"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps({"model_type": "tiny", **config}))
    return directory


class TinyFront:
    info = EngineInfo(
        model="tiny",
        voices=("one", "two"),
        default_voice="one",
        sample_rate=500,
        frame_rate=12.5,
        samples_per_frame=SAMPLES,
        codebooks=CODEBOOKS,
        codebook_size=CODES,
        max_text_chars=10_000,
        speed_range=(0.5, 2.0),
    )

    def prepare(self, request: SpeechRequest) -> Prompt:
        if not request.text.strip():
            raise NothingToSay("the text is empty", param="text")
        temperature = 1.0 if request.temperature is None else request.temperature
        return Prompt(
            token_ids=[32 + ord(c) % 96 for c in request.text],
            conditioning={
                "voice": self.info.voices.index(request.voice or "one"),
                "mute": request.text.startswith("!"),  # the model ends at frame 0
            },
            cache_salt=f"{request.voice}",
            max_frames=40,
            sampling=Sampling(temperature),
        )


class TinyCodec:
    """pcm of a frame = its codes and, through the state, a trace of all before it."""

    def initial_state(self, batch: int) -> list[torch.Tensor]:
        return [torch.zeros(batch, 1)]

    def decode(
        self, codes: torch.Tensor, state: list[torch.Tensor]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        trace, frames = state[0], []
        for t in range(codes.shape[1]):
            trace = trace * 0.5 + codes[:, t].float().sum(1, keepdim=True)
            frames.append(trace.expand(-1, SAMPLES) / 1000)
        return torch.cat(frames, dim=1), [trace]


class Tiny:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = json.loads((path / "config.json").read_text())
        self.front = TinyFront()

    def hf_config(self) -> Qwen3Config:
        config = Qwen3Config(
            vocab_size=VOCAB,
            hidden_size=HIDDEN,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=self.config.get("max_len", 512),
            architectures=[self.talker_class().__name__],
        )
        config.tiny = self.config
        return config

    def talker_class(self) -> type[nn.Module]:
        from tests.models import tiny_stages, tiny_talker

        name = self.config.get("talker")
        talker: type[nn.Module] = (
            getattr(tiny_stages, name) if name is not None else tiny_talker.TinyTalker
        )
        return talker

    def load_talker(self, talker: nn.Module) -> None:
        own = {n: p for n, p in talker.named_parameters() if not n.startswith("model.")}
        shapes = {**trunk_shapes(self.hf_config()), **{n: p.shape for n, p in own.items()}}
        weights = random_weights(shapes)
        # vLLM's own loading cuts the trunk into what this rank of several holds.
        talker.model.load_weights([(n, weights[n]) for n in shapes if n not in own])
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(weights[name])

    def load_codec(self) -> TinyCodec:
        return TinyCodec()


def trunk_shapes(config: Qwen3Config) -> dict[str, tuple[int, ...]]:
    """Qwen3's tensors by name, whole."""
    hidden, inner = config.hidden_size, config.intermediate_size
    heads, kv = config.num_attention_heads * 32, config.num_key_value_heads * 32
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (VOCAB, hidden)}
    for layer in range(config.num_hidden_layers):
        for name, shape in {
            "self_attn.q_proj": (heads, hidden),
            "self_attn.k_proj": (kv, hidden),
            "self_attn.v_proj": (kv, hidden),
            "self_attn.o_proj": (hidden, heads),
            "self_attn.q_norm": (32,),
            "self_attn.k_norm": (32,),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
        }.items():
            shapes[f"layers.{layer}.{name}.weight"] = shape
    return {**shapes, "norm.weight": (hidden,)}


def random_weights(shapes: Mapping[str, Sequence[int]]) -> dict[str, torch.Tensor]:
    """Deterministic random weights, strong enough that inputs matter."""
    generator = torch.Generator().manual_seed(7)
    return {
        name: torch.ones(*shape)
        if "norm" in name
        else torch.randn(*shape, generator=generator) * (3.0 / shape[-1] ** 0.5)
        for name, shape in sorted(shapes.items())
    }


def tiny_codes(
    tokens: torch.Tensor,
    hidden: torch.Tensor,
    table: torch.Tensor,
    rows: SampledRows,
) -> torch.Tensor:
    """tokens [rows], hidden [rows, HIDDEN] → codes int64 [rows, CODEBOOKS]."""
    logits = (hidden @ table).view(len(tokens), CODEBOOKS, CODES)
    logits = logits + torch.nn.functional.one_hot(tokens.clamp(max=CODES - 1), CODES)[:, None]
    heat = rows.sampling[:, :1, None]
    return (logits + heat * gumbel_noise(rows.seeds, CODEBOOKS, CODES)).argmax(-1)
