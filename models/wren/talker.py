"""Wren's talker on vLLM: Qwen3 layers between the frame embedding and the advance head.

The sampled token is the pointer's advance: how many phonemes the pointer moves during the frame.
Everything a request needs to remember is in per-slot tables, so each hook is a handful of tensor
operations whatever the number of streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.model_executor.models.qwen3 import Qwen3Model
from vllm.model_executor.models.utils import maybe_prefix

from omni_speak.models.base import SampledRows
from omni_speak.models.wren.config import WrenConfig
from omni_speak.models.wren.nets import WrenNets
from omni_speak.runtime.sampling import gumbel_noise


class WrenTalker(nn.Module):
    """See `models.base.Talker` for the hooks."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        self.config: WrenConfig = vllm_config.model_config.hf_config.wren
        self.model = Qwen3Model(vllm_config=vllm_config, prefix=maybe_prefix(prefix, "model"))
        self.nets = WrenNets(self.config)
        self.codebooks = self.config.codec.codebooks
        self.end_token_ids = frozenset({self.config.end_token})

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """vLLM asks every model for this; ours embeds frames (`embed_frames`) instead."""
        embeds: Tensor = self.nets.frame.advance(input_ids)
        return embeds

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        hidden: Tensor = self.model(input_ids, positions, intermediate_tensors, inputs_embeds)
        return hidden

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        logits: Tensor = self.nets.head(hidden_states)
        return logits

    # -- hooks -------------------------------------------------------------------------------

    def allocate(self, slots: int, max_len: int) -> None:
        weight = self.nets.head.weight
        device, hidden = weight.device, self.config.talker.hidden_size
        # Touched page by page: a slot costs the memory of the longest text it held.
        self.features = weight.new_empty(slots, self.config.max_phonemes, hidden)
        self.phonemes = torch.ones(slots, dtype=torch.int64, device=device)
        self.speed = weight.new_ones(slots)
        self.temperature = weight.new_zeros(slots)
        self.pointers = torch.zeros(slots, max_len, dtype=torch.int64, device=device)
        self.pointer = torch.zeros(slots, dtype=torch.int64, device=device)
        self.stay = torch.zeros(slots, dtype=torch.int64, device=device)
        self.tokens = torch.arange(self.config.vocab_size, device=device)
        self.nets.mtp.prepare()

    def begin_request(self, slot: int, conditioning: Mapping[str, Any]) -> None:
        """conditioning: `phonemes` (ids from `^` to `$`), `speed`, `temperature` of the codes."""
        ids = torch.tensor([conditioning["phonemes"]], device=self.features.device)
        count = ids.shape[1]
        self.features[slot, :count] = self.nets.text(ids)[0]
        self.phonemes[slot] = count
        self.speed[slot] = conditioning["speed"]
        self.temperature[slot] = conditioning["temperature"]
        self.pointers[slot, 0] = self.pointer[slot] = self.stay[slot] = 0

    def embed_frames(
        self, input_ids: Tensor, positions: Tensor, slots: Tensor, codes: Tensor
    ) -> Tensor:
        frame = self.nets.frame
        codes = torch.where(codes < 0, frame.begin_code, codes)
        text = self.features[slots, self.pointers[slots, positions]]
        embeds: Tensor = frame(codes, input_ids, text, self.speed[slots])
        return embeds

    def constrain_logits(self, logits: Tensor, slots: Tensor) -> Tensor:
        """The rules of `pointer.allowed_advances`, for all rows at once."""
        rules, token = self.config.pointer, self.tokens
        left = (self.phonemes[slots] - 1 - self.pointer[slots])[:, None]
        stay = self.stay[slots][:, None]
        low = torch.where(left > 0, stay >= rules.max_stay, stay >= rules.max_tail)
        advance = (token >= low) & (token <= left.clamp(max=rules.max_advance))
        end = (token == self.config.end_token) & (left == 0)
        return logits.masked_fill(~(advance | end), -torch.inf)

    def post_sample_talker_mtp(
        self, input_ids: Tensor, hidden_states: Tensor, rows: SampledRows
    ) -> Tensor:
        slots, codec = rows.slots, self.config.codec
        # The pointer after END is never read: such a request has no next step.
        pointer = torch.minimum(self.pointer[slots] + input_ids, self.phonemes[slots] - 1)
        self.pointer[slots] = self.pointers[slots, rows.positions] = pointer
        self.stay[slots] = torch.where(input_ids == 0, self.stay[slots] + 1, 0)
        codes: Tensor = self.nets.mtp.generate(
            hidden_states,
            input_ids,
            self.temperature[slots],
            gumbel_noise(rows.seeds, codec.codebooks, codec.codebook_size),
            self.config.sampling.top_k,
        )
        return codes
