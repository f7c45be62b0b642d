"""Stage `talker`: text encoder, trunk and depth transformer, learned together from the codes."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from omni_speak.models.wren.codec import Codec
from omni_speak.models.wren.config import WrenConfig
from omni_speak.models.wren.nets import WrenNets

from . import export
from .clips import Codes
from .examples import IGNORE, Batch, Example, collate, group, join, make_example
from .mel_stage import load_codec
from .progress import Averages, Checkpoint, Schedule, set_rate
from .settings import TalkerSettings
from .trunk import TalkerTrunk

log = logging.getLogger(__name__)
AVERAGE_DECAY = 0.995
# Twice as fast with the instructions, six times slower without.
HAS_BFLOAT16 = bool(torch.cpu.get_capabilities().get("avx512_bf16"))


class Talker(nn.Module):
    """Nets and trunk, and a training-only regression of the frame's latent from the state."""

    def __init__(self, config: WrenConfig, dropout: float) -> None:
        super().__init__()
        self.nets = WrenNets(config)
        self.trunk = TalkerTrunk(config.talker, dropout)
        self.latent = nn.Linear(config.talker.hidden_size, config.codec.latent)

    def states(self, batch: Batch) -> Tensor:
        """Hidden states [B, T, hidden]."""
        text = self.nets.text(batch.ids, batch.present)
        index = batch.pointer.unsqueeze(-1).expand(-1, -1, text.shape[-1])
        speed = batch.speed.unsqueeze(1).expand(batch.pointer.shape)
        x = self.nets.frame(batch.codes, batch.advance, text.gather(1, index), speed)
        out: Tensor = self.trunk(x)
        return out


class Losses(NamedTuple):
    """advance, latent: scalars. codes [Q]. In nats and squared standard deviations."""

    advance: Tensor
    codes: Tensor
    latent: Tensor


class Trainer:
    def __init__(
        self,
        work: Path,
        config: WrenConfig,
        own: TalkerSettings,
        checkpoint_minutes: float,
        weights: Path | None = None,
    ) -> None:
        """weights: exported files to go on from, and whose codec is kept; None begins anew with
        the codec of the stages before."""
        torch.manual_seed(own.seed)
        self.config, self.settings = config, own
        self.rng = random.Random(own.seed)
        self.talker = Talker(config, own.dropout)
        if weights is None:
            self.codec = load_codec(work, config)
            initialise(self.talker, self.codec, config)
        else:
            _, nets, trunk, self.codec = export.load(weights)
            self.talker.nets.load_state_dict(nets.state_dict())
            self.talker.trunk.load_state_dict(trunk.state_dict())
        self.average = AveragedModel(self.talker, multi_avg_fn=get_ema_multi_avg_fn(AVERAGE_DECAY))
        self.optimizer = torch.optim.AdamW(
            self.talker.parameters(),
            own.rate,
            (0.9, 0.98),
            weight_decay=own.weight_decay,
            fused=True,
        )
        self.checkpoint = Checkpoint(work / "talker.pt", checkpoint_minutes)
        self.step, spent = 0, 0.0
        if state := self.checkpoint.load():
            self.talker.load_state_dict(state["talker"])
            self.average.load_state_dict(state["average"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step, spent = state["step"], state["spent"]
        self.schedule = Schedule(own.minutes, spent)
        self.train_codes = Codes(work / "data", "train", config.codec.codebooks)
        self.held_codes = Codes(work / "data", "heldout", config.codec.codebooks)

    def run(self) -> None:
        """Writes `WORK/talker.pt`; its `average` is what to export."""
        self.held_codes.extend(self.codec)
        held = self._examples(self.held_codes)
        averages = Averages()
        self._validate(held)
        while not self.schedule.over:
            self.train_codes.extend(self.codec)  # the data stage may still be adding clips
            examples = self._examples(self.train_codes)
            if self.schedule.share >= self.settings.joined_from:
                space = self.config.phonemes.index(" ")
                examples = join(examples, space, self.settings, self.rng)
            log.info("%d texts, %d frames", len(examples), sum(len(e.codes) for e in examples))
            for chosen in group(examples, self.settings.batch_positions, self.rng):
                self._update(chosen, averages)
                if self.schedule.over or self.checkpoint.due:
                    self._save()
                    self._validate(held)
                if self.schedule.over:
                    break

    def _update(self, chosen: list[Example], averages: Averages) -> None:
        own = self.settings
        set_rate(self.optimizer, own.rate * self.schedule.rate(self.step, 150, 0.03))
        self.talker.train()
        with torch.autocast("cpu", torch.bfloat16, enabled=HAS_BFLOAT16):
            losses = self.losses(self.talker, collate(chosen, self.config, own), own.depth_share)
        weights = torch.tensor(own.code_weights)
        total = losses.advance + (losses.codes * weights).sum() + own.latent_weight * losses.latent
        self.optimizer.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(self.talker.parameters(), 1.0)
        self.optimizer.step()
        self.average.update_parameters(self.talker)
        self.step += 1
        averages.add(
            advance=losses.advance.item(),
            c0=losses.codes[0].item(),
            fine=losses.codes[1:].mean().item(),
            latent=losses.latent.item(),
        )
        if self.step % 50 == 0:
            log.info("talker %d: %.1f min, %s", self.step, self.schedule.spent, averages)

    def losses(self, talker: Talker, batch: Batch, depth_share: float) -> Losses:
        """Code 0 is learned on every frame, the finer codes on a random share of the frames."""
        states = talker.states(batch)
        advance = F.cross_entropy(
            talker.nets.head(states).flatten(0, 1),
            batch.next_advance.flatten(),
            ignore_index=IGNORE,
        )
        hidden, codes = states[batch.framed], batch.next_codes[batch.framed]
        token = batch.next_advance[batch.framed]
        latents = self.codec.rvq.decode(codes) / self.codec.rvq.codebooks[0].std()
        latent = F.mse_loss(talker.latent(hidden), latents)
        order = torch.randperm(len(hidden))
        deep, shallow = order.split([n := int(depth_share * len(hidden)), len(hidden) - n])
        logits = talker.nets.mtp(hidden[deep], token[deep], codes[deep])
        by_code = F.cross_entropy(logits.transpose(1, 2), codes[deep], reduction="none").mean(0)
        if len(shallow):
            first = talker.nets.mtp(hidden[shallow], token[shallow], codes[shallow, :1])[:, 0]
            rest = F.cross_entropy(first, codes[shallow, 0])
            coarse = depth_share * by_code[:1] + (1 - depth_share) * rest
            by_code = torch.cat([coarse, by_code[1:]])
        return Losses(advance, by_code, latent)

    @torch.no_grad()
    def _validate(self, held: list[Example]) -> None:
        talker = self.average.module.eval()
        sums: list[Losses] = []
        for chosen in group(held, self.settings.batch_positions, random.Random(0)):
            sums.append(self.losses(talker, collate(chosen, self.config, None), 1.0))
        codes = torch.stack([losses.codes for losses in sums]).mean(0)
        log.info(
            "held out at %d (%.1f min): advance %.3f, codes %s, latent %.3f",
            self.step,
            self.schedule.spent,
            torch.stack([losses.advance for losses in sums]).mean(),
            " ".join(f"{loss:.2f}" for loss in codes.tolist()),
            torch.stack([losses.latent for losses in sums]).mean(),
        )

    def _save(self) -> None:
        self.checkpoint.save(
            talker=self.talker.state_dict(),
            average=self.average.state_dict(),
            optimizer=self.optimizer.state_dict(),
            step=self.step,
            spent=self.schedule.spent,
        )

    def _examples(self, codes: Codes) -> list[Example]:
        made = [make_example(clip, found, self.config) for clip, found in codes.load()]
        return [example for example in made if example is not None]


@torch.no_grad()
def initialise(talker: Talker, codec: Codec, config: WrenConfig) -> None:
    """Code embeddings and heads start as random projections of the codebooks.

    The sum of a frame's embeddings is then a projection of its latent, so that frames that sound
    alike look alike from the first step.
    """
    for module in talker.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
    nets, books = talker.nets, codec.rvq.codebooks
    hidden, width = config.talker.hidden_size, config.mtp.hidden_size
    latent, rows = config.codec.latent, config.codec.codebook_size + 1
    nn.init.normal_(nets.text.embedding.weight, std=0.5)
    nn.init.normal_(nets.frame.advance.weight, std=0.3)
    nn.init.normal_(nets.mtp.token.weight, std=0.3)
    projection = torch.randn(latent, hidden) / latent**0.5
    depth_projection = torch.randn(latent, width) / latent**0.5
    for index, book in enumerate(books):
        first = index * rows
        nets.frame.codes.weight[first : first + rows - 1] = book / books[0].std() @ projection
        unit = book / book.std()
        if index < len(nets.mtp.codes):
            nets.mtp.codes[index].weight.copy_(0.3 * unit @ depth_projection)
        own = torch.randn(latent, width) / latent**0.5
        nets.mtp.heads[index].weight.copy_(0.1 * unit @ own)


def load_talker(work: Path, config: WrenConfig) -> Talker:
    """The averaged weights of the last checkpoint."""
    talker = Talker(config, 0.0)
    state = torch.load(work / "talker.pt", weights_only=True)["average"]
    prefix = "module."
    talker.load_state_dict({k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)})
    return talker.eval()
