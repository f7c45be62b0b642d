"""Reference synthesis in plain torch, many texts at once: what the engine must match."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from omni_speak.models.wren.codec import Codec
from omni_speak.models.wren.config import WrenConfig
from omni_speak.models.wren.nets import WrenNets
from omni_speak.models.wren.pointer import allowed_advances, next_stay

from .trunk import Cache, TalkerTrunk


@dataclass
class Spoken:
    """codes: one list of Q per frame; pointer: where each frame begins, and the end."""

    codes: list[list[int]]
    pointer: list[int]
    ended: bool = False


class Speaker:
    def __init__(
        self, config: WrenConfig, nets: WrenNets, trunk: TalkerTrunk, codec: Codec
    ) -> None:
        self.config, self.nets, self.trunk, self.codec = config, nets, trunk, codec
        nets.mtp.prepare()
        codec.prepare()

    @torch.inference_mode()
    def speak(
        self,
        texts: list[list[int]],
        generator: torch.Generator,
        speed: float = 1.0,
        max_frames: int = 1500,
    ) -> list[Spoken]:
        """Phoneme ids of each text → its frames, at the configured temperatures."""
        config, own = self.config, self.config.sampling
        rows, books = len(texts), config.codec.codebooks
        features = [self.nets.text(torch.tensor([ids]))[0] for ids in texts]
        spoken = [Spoken([], [0]) for _ in texts]
        stays = [0] * rows
        speeds = torch.full((rows,), speed)
        temperature = torch.full((rows,), own.code_temperature)
        codes = torch.full((rows, books), self.nets.frame.begin_code)
        advance = torch.full((rows,), config.begin_token)
        cache: Cache = []
        for position in range(max_frames):
            text = torch.stack([f[s.pointer[-1]] for f, s in zip(features, spoken, strict=True)])
            x = self.nets.frame(codes, advance, text, speeds).unsqueeze(1)
            hidden, cache = self.trunk.step(x, position, cache)
            hidden = hidden.squeeze(1)
            mask = torch.stack(
                [self._mask(s, len(t), k) for s, t, k in zip(spoken, texts, stays, strict=True)]
            )
            noise = gumbel((rows, config.vocab_size), generator)
            scores = self.nets.head(hidden) + own.advance_temperature * noise
            advance = (scores + mask).argmax(-1)
            noise = gumbel((rows, books, config.codec.codebook_size), generator)
            codes = self.nets.mtp.generate(hidden, advance, temperature, noise, own.top_k)
            chosen = zip(spoken, advance.tolist(), codes.tolist(), strict=True)
            for row, (one, move, frame) in enumerate(chosen):
                if move == config.end_token:
                    one.ended = True
                if not one.ended:
                    stays[row] = next_stay(stays[row], move)
                    one.codes.append(frame)
                    one.pointer.append(one.pointer[-1] + move)
            if all(one.ended for one in spoken):
                break
        return spoken

    def waveform(self, codes: list[list[int]]) -> Tensor:
        """Frames → pcm [N] float32."""
        batch = torch.tensor(codes).view(1, -1, self.config.codec.codebooks)
        return self.codec.decode(batch, self.codec.initial_state(1))[0][0]

    def _mask(self, one: Spoken, n_tokens: int, stay: int) -> Tensor:
        """0 for what may be sampled, else -inf: [vocab_size]."""
        allowed = allowed_advances(one.pointer[-1], n_tokens, stay, self.config.pointer)
        mask = torch.full((self.config.vocab_size,), float("-inf"))
        mask[allowed.low : allowed.high + 1] = 0.0
        if allowed.end:
            mask[self.config.end_token] = 0.0
        return mask


def gumbel(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Standard Gumbel noise: argmax of logits / T plus it is a sample of the softmax."""
    return -torch.empty(shape).exponential_(generator=generator).log()
