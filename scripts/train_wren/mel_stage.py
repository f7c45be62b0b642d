"""Codec, stage 1: encoder → residual VQ → causal trunk → log-mel. Fixes the codes for good."""

from __future__ import annotations

import itertools
import logging
import random
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from omni_speak.models.wren.codec import Codec, Trunk
from omni_speak.models.wren.config import WrenConfig

from .clips import Segments
from .data import load_clips
from .progress import Averages, Checkpoint, Schedule, set_rate
from .settings import Settings

log = logging.getLogger(__name__)
BLOCKS = 3  # a shallow decoder suffices for mel; the vocoder's deeper one starts from it
RELOAD_STEPS = 500


class MelDecoder(nn.Module):
    """Latents [B, T, Z] → log-mel [B, 8·T, bands]."""

    def __init__(self, config: WrenConfig) -> None:
        super().__init__()
        self.trunk = Trunk(config, BLOCKS)
        self.head = nn.Linear(config.codec.width, config.codec.mel_bands)

    def forward(self, latents: Tensor) -> Tensor:
        features, _ = self.trunk(latents, self.trunk.initial_state(len(latents)))
        out: Tensor = self.head(features) * 4 - 5
        return out


def train(work: Path, config: WrenConfig, settings: Settings) -> None:
    """Writes `WORK/mel.pt`: encoder, codebooks, mel decoder."""
    own = settings.mel
    torch.manual_seed(own.seed)
    rng = random.Random(own.seed)
    codec, decoder = Codec(config), MelDecoder(config)
    parameters = [*codec.encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.AdamW(parameters, own.rate, (0.9, 0.98), weight_decay=0.01)
    schedule, averages = Schedule(own.minutes), Averages()
    checkpoint = Checkpoint(work / "mel.pt", settings.checkpoint_minutes)
    for step in itertools.count():
        if step % RELOAD_STEPS == 0:  # the data stage may still be adding clips
            segments = Segments(load_clips(work / "data", "train"), rng)
        set_rate(optimizer, own.rate * schedule.rate(step, 100, 0.03))
        with torch.no_grad():
            mel = codec.mel(segments.batch(own.batch, own.segment_frames))
        latents = codec.encoder(mel)
        commitment = latents.new_zeros(())
        if step >= own.warm_steps:
            books = config.codec.codebooks
            used = books if rng.random() < 0.7 else rng.randint(1, books)
            latents, commitment = codec.rvq.train_step(latents, used)
        guess = decoder(latents)
        level = F.l1_loss(guess, mel)
        change = F.l1_loss(guess.diff(dim=1), mel.diff(dim=1))
        optimizer.zero_grad()
        (level + 0.3 * change + 0.25 * commitment).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        averages.add(mel=level.item(), commit=commitment.item())
        if step % 50 == 0:
            log.info("mel %d: %.1f min, %s", step, schedule.spent, averages)
        if schedule.over or checkpoint.due:
            checkpoint.save(codec=codec.state_dict(), decoder=decoder.state_dict())
        if schedule.over:
            return


def load_codec(work: Path, config: WrenConfig) -> Codec:
    """A codec whose encoder and codebooks are trained; its vocoder is not."""
    codec = Codec(config)
    codec.load_state_dict(torch.load(work / "mel.pt", weights_only=True)["codec"])
    return codec.eval()
