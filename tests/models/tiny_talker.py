"""The tiny model's vLLM module (apart, so that `tiny` imports without vLLM)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from vllm.config import VllmConfig
from vllm.model_executor.models.qwen3 import Qwen3Model
from vllm.model_executor.models.utils import maybe_prefix

from omni_speak.models.base import SampledRows
from tests.models.tiny import CODEBOOKS, CODES, END, HIDDEN, VOCAB, tiny_codes


class TinyTalker(nn.Module):
    codebooks = CODEBOOKS
    end_token_ids = frozenset({END})

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        self.options = vllm_config.model_config.hf_config.tiny
        self.model = Qwen3Model(vllm_config=vllm_config, prefix=maybe_prefix(prefix, "model"))
        self.code = nn.Parameter(torch.empty(CODEBOOKS * CODES, HIDDEN), requires_grad=False)
        self.voice = nn.Parameter(torch.empty(2, HIDDEN), requires_grad=False)
        self.head = nn.Parameter(torch.empty(HIDDEN, VOCAB), requires_grad=False)
        self.depth = nn.Parameter(torch.empty(HIDDEN, CODEBOOKS * CODES), requires_grad=False)
        self.mtp_calls: list[list[str]] = []

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model.embed_input_ids(input_ids)

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        return self.model(input_ids, positions, intermediate_tensors, inputs_embeds)

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        logits = hidden_states @ self.head
        logits[:, END + 1 :] = -torch.inf
        if self.options.get("never_ends"):
            logits[:, END] = -torch.inf
        if self.options.get("ends_at_once"):
            logits[:, :END] = -torch.inf
        return logits

    # -- hooks -------------------------------------------------------------------------------

    def allocate(self, slots: int, max_len: int) -> None:
        self.voices = torch.zeros(slots, dtype=torch.int64)
        self.mute = torch.zeros(slots, dtype=torch.bool)

    def begin_request(self, slot: int, conditioning: Mapping[str, Any]) -> None:
        self.voices[slot] = conditioning["voice"]
        self.mute[slot] = conditioning["mute"]

    def constrain_logits(self, logits: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        not_end = torch.arange(VOCAB) != END
        return logits.masked_fill(self.mute[slots][:, None] & not_end, -torch.inf)

    def embed_frames(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        codes: torch.Tensor,
    ) -> torch.Tensor:
        offsets = torch.arange(CODEBOOKS) * CODES
        frames = self.code[(codes.clamp(min=0) + offsets)].sum(1) * (codes[:, :1] >= 0)
        return self.embed_input_ids(input_ids) + frames + self.voice[self.voices[slots]]

    def post_sample_talker_mtp(
        self, input_ids: torch.Tensor, hidden_states: torch.Tensor, rows: SampledRows
    ) -> torch.Tensor:
        self.mtp_calls.append(list(rows.req_ids))
        match self.options.get("break_mtp"):
            case "list":
                return [[0] * CODEBOOKS]  # type: ignore[return-value]
            case "float":
                return torch.zeros(len(rows.req_ids), CODEBOOKS)
            case "rows":
                return torch.zeros(len(rows.req_ids) + 1, CODEBOOKS, dtype=torch.int64)
        return tiny_codes(input_ids, hidden_states, self.depth, rows)
