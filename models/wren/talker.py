"""Wren's talker on vLLM: Qwen3 layers between the frame embedding and the advance head.

The sampled token is the pointer's advance: how many phonemes the pointer moves during the frame.
Everything a request needs to remember is in per-slot tables, so each hook is a handful of tensor
operations whatever the number of streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.model_executor.models.qwen3 import Qwen3Model
from vllm.model_executor.models.utils import maybe_prefix

from omni_speak.models.base import SampledRows
from omni_speak.models.wren.config import WrenConfig
from omni_speak.models.wren.nets import WrenNets
from omni_speak.models.wren.pointer import allowed_advances
from omni_speak.runtime.sampling import gumbel_noise


def forbidden_tokens(config: WrenConfig) -> Tensor:
    """`pointer.allowed_advances` as a table, bool [left, stay, vocab]: True where a token may not
    be sampled, for `left` phonemes after the pointer and `stay` frames in place. The last row of
    either dimension stands for all beyond it."""
    rules = config.pointer
    left, stay = rules.max_advance + 1, max(rules.max_stay, rules.max_tail) + 1
    table = torch.ones(left, stay, config.vocab_size, dtype=torch.bool)
    for i in range(left):
        for j in range(stay):
            low, high, end = allowed_advances(0, i + 1, j, rules)
            table[i, j, low : high + 1] = False
            table[i, j, config.end_token] = not end
    return table


class WrenTalker(nn.Module):
    """See `models.base.Talker` for the hooks."""

    talker_mtp_graph_safe = True

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
        self.last = torch.zeros(slots, dtype=torch.int64, device=device)
        self.left = torch.zeros(slots, dtype=torch.int64, device=device)
        self.stay = torch.zeros(slots, dtype=torch.int64, device=device)
        # Where a walk from each phoneme may lead: the last one of its segment of the text; from
        # that one, of the next segment, if it is known.
        self.reach = torch.zeros(slots, self.config.max_phonemes, dtype=torch.int64, device=device)
        self.open = torch.zeros(slots, dtype=torch.bool, device=device)
        self.known = [0] * slots
        self.pointers = torch.zeros(slots, max_len, dtype=torch.int64, device=device)
        self.forbidden = forbidden_tokens(self.config).to(device)
        self.nets.frame.prepare()
        self.nets.mtp.prepare()

    def begin_request(self, slot: int, conditioning: Mapping[str, Any]) -> None:
        """conditioning: `phonemes` (ids from `^` to `$`), `speed`, `open` (the `$` is not to be
        spoken yet)."""
        self.known[slot] = 0
        self.last[slot] = self.left[slot] = self.reach[slot, 0] = 0
        self.pointers[slot, 0] = self.stay[slot] = 0
        self.open[slot] = conditioning["open"]
        self._learn(slot, conditioning["phonemes"], 0, conditioning["speed"])
        self._reach(slot, len(conditioning["phonemes"]) - conditioning["open"])

    def extend_request(self, slot: int, conditioning: Mapping[str, Any]) -> None:
        """conditioning: as above, `phonemes` beginning with the last `context` of those before;
        none for the text's end, whose `$` is known already."""
        if phonemes := conditioning["phonemes"]:
            context = conditioning["context"]
            self._learn(slot, phonemes, context, conditioning["speed"])
            self._reach(slot, self.known[slot] + len(phonemes) - context - 1)
        else:
            self._reach(slot, self.known[slot] + 1)
            self.open[slot] = False

    def _learn(self, slot: int, phonemes: Sequence[int], context: int, speed: float) -> None:
        """Of text and speed, all that a position will ask for, after what is known."""
        ids = torch.tensor([phonemes], device=self.features.device)
        rate = self.nets.frame.rate(self.features.new_tensor(speed))
        features = self.nets.text(ids)[0, context:] + rate
        self.features[slot, self.known[slot] : self.known[slot] + len(features)] = features

    def _reach(self, slot: int, known: int) -> None:
        """The phonemes up to `known` are one more segment."""
        self.reach[slot, max(self.known[slot] - 1, 0) : known] = known - 1
        self.known[slot] = known
        pointer = self.last[slot] - self.left[slot]
        self.last[slot] = self.reach[slot, pointer]
        self.left[slot] = self.last[slot] - pointer

    def embed_frames(
        self, input_ids: Tensor, positions: Tensor, slots: Tensor, codes: Tensor
    ) -> Tensor:
        past = self.nets.frame.past(codes, input_ids)
        return past + self.features[slots, self.pointers[slots, positions]]

    def constrain_logits(self, logits: Tensor, slots: Tensor) -> Tensor:
        """The rules of `pointer.allowed_advances`, looked up for all rows at once. A row that
        waits for text may only stay: it is held, unless its step was under way already."""
        left = self.left[slots].clamp_(max=len(self.forbidden) - 1)
        waits = self.open[slots] & (left == 0)
        forbidden = self.forbidden[left, self.stay[slots].masked_fill_(waits, 0)]
        forbidden[:, self.config.end_token] |= waits
        return logits.masked_fill(forbidden, -torch.inf)

    def post_sample_talker_mtp(
        self, input_ids: Tensor, hidden_states: Tensor, rows: SampledRows
    ) -> Tensor:
        slots, codec = rows.slots, self.config.codec
        # The pointer after END is never read: such a request has no next step.
        left = (self.left[slots] - input_ids).clamp_(min=0)
        pointers = self.last[slots] - left
        last = self.reach[slots, pointers]
        self.last[slots], self.left[slots] = last, last - pointers
        self.pointers[slots, rows.positions] = pointers
        stay = (self.stay[slots] + 1).clamp_(max=self.forbidden.shape[1] - 1)
        self.stay[slots] = stay * (input_ids == 0)
        codes: Tensor = self.nets.mtp.generate(
            hidden_states,
            input_ids,
            rows.sampling[:, 0],
            gumbel_noise(rows.seeds, codec.codebooks, codec.codebook_size),
            self.config.sampling.top_k,
        )
        return codes
