"""Codec, stage 2: codes → waveform. Spectral losses first, discriminators later."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from omni_speak.models.wren.codec import Codec, Vocoder
from omni_speak.models.wren.config import WrenConfig
from omni_speak.models.wren.source import BREATHS

from . import export as files
from .clips import Clip, Codes, pcm_to_float
from .data import FRAME
from .mel_stage import load_codec
from .pitch import track
from .progress import Averages, Checkpoint, Schedule, set_rate
from .settings import WaveSettings
from .spectral import Discriminators, SpectralLoss

log = logging.getLogger(__name__)
AVERAGE_DECAY = 0.995
RELOAD_STEPS = 500
NEAR = 0.15  # of a pitch to another: less than a tone and a half


class Trainer:
    def __init__(
        self,
        work: Path,
        config: WrenConfig,
        own: WaveSettings,
        checkpoint_minutes: float,
        begin: Path | None,
    ) -> None:
        torch.manual_seed(own.seed)
        self.work, self.config, self.settings = work, config, own
        self.rng = random.Random(own.seed)
        self.codec = load_codec(work, config) if begin is None else files.load(begin)[3]
        self.vocoder = self.codec.vocoder.train()
        if begin is None:
            self._start_from_mel_decoder()
        self.average = AveragedModel(self.vocoder, multi_avg_fn=get_ema_multi_avg_fn(AVERAGE_DECAY))
        self.judges, self.spectral = Discriminators(), SpectralLoss(config.sample_rate)
        self.optimizer = torch.optim.AdamW(
            self.vocoder.parameters(), own.rate, (0.8, 0.98), weight_decay=0.01, fused=True
        )
        self.judges_optimizer = torch.optim.AdamW(
            self.judges.parameters(), own.discriminator_rate, (0.8, 0.99)
        )
        self.checkpoint = Checkpoint(work / "wave.pt", checkpoint_minutes)
        self.step, spent = 0, 0.0
        if state := self.checkpoint.load():
            for name, part in self._parts().items():
                part.load_state_dict(state[name])
            self.step, spent = state["step"], state["spent"]
        self.schedule = Schedule(own.minutes, spent)

    def run(self) -> None:
        """Writes `WORK/wave.pt`; its `average` is what to export."""
        own, averages = self.settings, Averages()
        while not self.schedule.over:
            if self.step % RELOAD_STEPS == 0 or not averages.values:
                self._reload()
            set_rate(self.optimizer, own.rate * self.schedule.rate(self.step, 60, 0.08))
            averages.add(**self._update())
            self.step += 1
            if self.step % 50 == 0:
                log.info("wave %d: %.1f min, %s", self.step, self.schedule.spent, averages)
            if self.schedule.over or self.checkpoint.due:
                parts: dict[str, Any] = {k: v.state_dict() for k, v in self._parts().items()}
                self.checkpoint.save(**parts, step=self.step, spent=self.schedule.spent)

    def _update(self) -> dict[str, float]:
        own = self.settings
        truth, codes, counted = self._batch()
        guess, astray = self._guess(truth, codes)
        guess = torch.where(counted, guess, truth)
        loss, mel = self.spectral(guess, truth)
        loss = loss + own.pitch_weight * astray
        report = {"loss": loss.item(), "mel": mel.item(), "pitch": astray.item()}
        judged = self.schedule.share - own.discriminators_from
        if judged >= 0:
            window = own.discriminator_frames * FRAME
            last = own.segment_frames - own.discriminator_frames
            begin = self.rng.randint(own.context_frames, last) * FRAME
            guess, truth = guess[:, begin : begin + window], truth[:, begin : begin + window]
            own_loss = self.judges.own_loss(guess, truth)
            self.judges_optimizer.zero_grad()
            own_loss.backward()
            self.judges_optimizer.step()
            adversarial, distance = self.judges.vocoder_loss(guess, truth)
            loss = loss + min(1.0, judged / 0.02) * (0.5 * adversarial + 0.7 * distance)
            report |= {"judges": own_loss.item(), "distance": distance.item()}
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.vocoder.parameters(), 5.0)
        self.optimizer.step()
        self.average.update_parameters(self.vocoder)
        return report

    def _guess(self, truth: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """pcm [B, N] as the vocoder has it, and how far its pitch is from the teacher's (log).

        Where the two are near, the teacher's is rendered: then harmonics lie where they should and
        what is compared is their levels.
        """
        codec, state = self.config.codec, self.vocoder.initial_state(len(codes))
        *trunk, last, turns, used, overlap = state
        features, _ = self.vocoder.trunk(self.codec.rvq.decode(codes), trunk)
        pitch = self.vocoder.hear(features)
        taught, voiced = track(truth, self.config.sample_rate, codec.window, codec.hop)
        distance = (pitch / taught).log().abs()
        astray = (distance * voiced).sum() / voiced.sum().clamp(min=1)
        near = voiced & (distance < NEAR)
        rendered = torch.where(near, taught, pitch).detach()
        turns, used = torch.rand_like(turns), (torch.rand_like(used) * BREATHS).floor()
        guess, _ = self.vocoder.render(features, rendered, [last, turns, used, overlap])
        return guess, astray

    def _batch(self) -> tuple[Tensor, Tensor, Tensor]:
        """truth [B, N] float32, delayed as the vocoder is; codes [B, T, Q]; counted [B, N] bool.

        A segment from inside a clip begins with context frames that only fill the state.
        """
        own, delay = self.settings, self.config.codec_delay
        truth, codes, counted = [], [], []
        size = own.segment_frames * FRAME
        for _ in range(own.batch):
            clip, found = self._pick()
            begin = self.rng.randint(0, len(found) - own.segment_frames)
            begin = 0 if self.rng.random() < 0.1 else begin
            first = begin * FRAME
            audio = pcm_to_float(clip.audio[max(0, first - delay) : first - delay + size])
            truth.append(F.pad(audio, (size - len(audio), 0)))
            codes.append(
                torch.from_numpy(found[begin : begin + own.segment_frames].astype(np.int64))
            )
            skipped = own.context_frames * FRAME if begin else 0
            counted.append(torch.arange(size) >= skipped)
        return torch.stack(truth), torch.stack(codes), torch.stack(counted)

    def _pick(self) -> tuple[Clip, NDArray[np.uint16]]:
        at = np.searchsorted(self._ends, self.rng.random() * self._ends[-1])
        return self._pairs[int(at)]

    def _reload(self) -> None:
        """The talker stage may still be adding codes."""
        codes = Codes(self.work / "data", "train", self.config.codec.codebooks)
        self._pairs = [
            pair for pair in codes.load() if len(pair[1]) >= self.settings.segment_frames
        ]
        self._ends = np.cumsum([len(found) for _, found in self._pairs])

    def _start_from_mel_decoder(self) -> None:
        decoder = torch.load(self.work / "mel.pt", weights_only=True)["decoder"]
        prefix = "trunk."
        trunk = {k[len(prefix) :]: v for k, v in decoder.items() if k.startswith(prefix)}
        self.vocoder.trunk.load_state_dict(trunk, strict=False)

    def _parts(self) -> dict[str, Any]:
        return {
            "vocoder": self.vocoder,
            "average": self.average,
            "judges": self.judges,
            "optimizer": self.optimizer,
            "judges_optimizer": self.judges_optimizer,
        }


def load_vocoder(work: Path, codec: Codec) -> Codec:
    """Gives the codec the averaged vocoder of the last checkpoint."""
    vocoder = AveragedModel(Vocoder(codec.config))
    vocoder.load_state_dict(torch.load(work / "wave.pt", weights_only=True)["average"])
    codec.vocoder.load_state_dict(vocoder.module.state_dict())
    return codec.eval()
