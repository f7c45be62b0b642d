"""What surrounds the talker's trunk: text features, the frame embedding, the heads.

Training and the runtime share this file; only the trunk differs (plain torch in
`scripts/train_wren/trunk.py`, vLLM's Qwen3 layers in the engine).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from omni_speak.models.layers.depth import DepthTransformer
from omni_speak.models.layers.streaming import CenteredBlock
from omni_speak.models.wren.config import WrenConfig


class TextEncoder(nn.Module):
    """Phoneme ids [B, n] int64 → features [B, n, hidden]; each sees `reach` phonemes either way."""

    def __init__(self, config: WrenConfig) -> None:
        super().__init__()
        talker = config.talker
        self.embedding = nn.Embedding(len(config.phonemes), talker.hidden_size)
        self.blocks = nn.ModuleList(
            CenteredBlock(talker.hidden_size, 2, talker.text_kernel)
            for _ in range(talker.text_layers)
        )
        self.norm = nn.LayerNorm(talker.hidden_size)
        self.reach = talker.text_layers * (talker.text_kernel // 2)

    def forward(self, ids: Tensor, present: Tensor | None = None) -> Tensor:
        """present [B, n] float, 0 where a row of the batch is padding."""
        x = self.embedding(ids)
        for block in self.blocks:
            if present is not None:
                x = x * present.unsqueeze(-1)
            x = block(x)
        out: Tensor = self.norm(x)
        return out


class FrameEmbedding(nn.Module):
    """The trunk's input at one position: last frame's codes and advance, text, speaking rate."""

    codes_offset: Tensor

    def __init__(self, config: WrenConfig) -> None:
        super().__init__()
        codec, hidden = config.codec, config.talker.hidden_size
        self.begin_code = codec.codebook_size
        self.begin_token = config.begin_token
        rows = codec.codebook_size + 1
        # All codebooks in one table, so that a frame is one lookup and one sum.
        self.codes = nn.Embedding(codec.codebooks * rows, hidden)
        self.advance = nn.Embedding(config.vocab_size, hidden)
        self.speed = nn.Parameter(torch.zeros(hidden))
        self.register_buffer("codes_offset", torch.arange(codec.codebooks) * rows, False)

    def forward(self, codes: Tensor, advance: Tensor, text: Tensor, speed: Tensor) -> Tensor:
        """Shapes with any leading dimensions.

        Args:
            codes: [..., Q] int64, the previous frame; `begin_code` everywhere at position 0.
            advance: [...] int64, the previous advance; `begin_token` at position 0.
            text: [..., hidden], the text feature at the pointer.
            speed: [...] float, speaking rate, 1 is the teacher's own.

        Returns:
            [..., hidden].
        """
        past = self.codes(codes + self.codes_offset).sum(-2) + self.advance(advance)
        out: Tensor = past + text + self.rate(speed)
        return out

    def rate(self, speed: Tensor) -> Tensor:
        """speed [...] float → [..., hidden], what a speaking rate adds to every position."""
        return speed.log2().unsqueeze(-1) * self.speed

    def prepare(self) -> None:
        """Fold both tables into one for `past`; call it after loading. Training afterwards is not
        seen."""
        codebooks, hidden = len(self.codes_offset), self.codes.weight.shape[1]
        codes = self.codes.weight.detach().view(codebooks, -1, hidden)
        # The begin code first: then code -1 ("no frame") is its row.
        codes = codes.roll(1, dims=1).reshape(-1, hidden)
        self._table = torch.cat([codes, self.advance.weight.detach()])
        self._rows = torch.cat([self.codes_offset + 1, self.codes_offset.new_tensor([len(codes)])])

    def past(self, codes: Tensor, advance: Tensor) -> Tensor:
        """`forward` without text and speed: codes [n, Q] int64, -1 everywhere at position 0;
        advance [n] int64 → [n, hidden]."""
        rows = torch.cat([codes, advance.unsqueeze(1)], 1) + self._rows
        return F.embedding_bag(rows, self._table, mode="sum")


class WrenNets(nn.Module):
    """Everything of the talker that is not its trunk."""

    def __init__(self, config: WrenConfig) -> None:
        super().__init__()
        codec, talker, mtp = config.codec, config.talker, config.mtp
        self.text = TextEncoder(config)
        self.frame = FrameEmbedding(config)
        self.head = nn.Linear(talker.hidden_size, config.vocab_size, bias=False)
        self.mtp = DepthTransformer(
            codebooks=codec.codebooks,
            codebook_size=codec.codebook_size,
            tokens=config.vocab_size,
            input_width=talker.hidden_size,
            width=mtp.hidden_size,
            layers=mtp.num_layers,
            heads=mtp.num_heads,
            intermediate=mtp.intermediate_size,
            rope_theta=mtp.rope_theta,
            eps=mtp.rms_norm_eps,
        )
