"""Clips → what the talker learns from: phoneme ids, codes, and the pointer's walk."""

from __future__ import annotations

import bisect
import random
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from omni_speak.models.wren.config import WrenConfig
from omni_speak.models.wren.pointer import allowed_advances, next_stay

from .clips import Clip
from .settings import TalkerSettings

IGNORE = -100


@dataclass(frozen=True)
class Example:
    """ids [n] int64, codes [T, Q] int64, pointer [T+1] int64: where each frame begins and ends."""

    ids: Tensor
    codes: Tensor
    pointer: Tensor
    speed: float


@dataclass(frozen=True)
class Batch:
    """B utterances, padded to n phonemes and T positions (frames + the end).

    Inputs: ids [B, n], present [B, n], codes [B, T, Q], advance [B, T], pointer [B, T], speed [B].
    Targets: next_advance [B, T] with END and IGNORE, next_codes [B, T, Q], framed [B, T] bool.
    """

    ids: Tensor
    present: Tensor
    codes: Tensor
    advance: Tensor
    pointer: Tensor
    speed: Tensor
    next_advance: Tensor
    next_codes: Tensor
    framed: Tensor


def make_example(clip: Clip, codes: NDArray[np.uint16], config: WrenConfig) -> Example | None:
    """None where the teacher's times break the pointer's rules."""
    pointer = walk(clip.record.starts, len(codes), config)
    if pointer is None:
        return None
    return Example(
        torch.tensor(config.phoneme_ids(clip.record.tokens)),
        torch.from_numpy(codes.astype(np.int64)),
        torch.tensor(pointer),
        clip.record.speed,
    )


def walk(starts: list[float], frames: int, config: WrenConfig) -> list[int] | None:
    """The pointer at each frame's begin and at the end; starts in seconds, one per phoneme.

    It follows the teacher's times as closely as the rules allow, and the last frame carries it to
    the last phoneme, so that END always comes there.
    """
    last, stay, pointer = len(starts) - 1, 0, [0]
    for frame in range(1, frames + 1):
        now = pointer[-1]
        wanted = (
            last if frame == frames else bisect.bisect_right(starts, frame / config.frame_rate) - 1
        )
        allowed = allowed_advances(now, len(starts), stay, config.pointer)
        if allowed.low > allowed.high:
            return None
        advance = min(max(wanted - now, allowed.low), allowed.high)
        stay = next_stay(stay, advance)
        pointer.append(now + advance)
    return pointer if pointer[-1] == last else None


def join(
    examples: list[Example], space: int, settings: TalkerSettings, rng: random.Random
) -> list[Example]:
    """A share of the utterances in runs of 2 to `most_joined`, as the engine goes on with a text
    that comes in segments: a space stands for the `$` of one and the `^` of the next.

    Only utterances at the teacher's own rate are joined: a run has one speed.
    """
    alone = [e for e in examples if e.speed != 1.0 or rng.random() >= settings.joined_share]
    kept = set(map(id, alone))
    rest = [e for e in examples if id(e) not in kept]
    rng.shuffle(rest)
    runs = []
    while rest:
        size = rng.randint(2, settings.most_joined)
        runs.append(_run(rest[-size:], space))
        del rest[-size:]
    return alone + runs


def _run(parts: list[Example], space: int) -> Example:
    ids, pointer = parts[0].ids, parts[0].pointer
    for part in parts[1:]:
        # The space takes the place of `$`, where the pointer was when the part ended.
        begin = len(ids) - 1
        ids = torch.cat([ids[:-1], torch.tensor([space]), part.ids[1:]])
        pointer = torch.cat([pointer, part.pointer[1:] + begin])
    return Example(ids, torch.cat([part.codes for part in parts]), pointer, parts[0].speed)


def group(examples: list[Example], positions: int, rng: random.Random) -> list[list[Example]]:
    """Batches of similar length, at most `positions` padded positions each, in random order."""
    ordered = sorted(examples, key=lambda example: len(example.codes) + 12 * rng.random())
    groups: list[list[Example]] = [[]]
    longest = 0
    for example in ordered:
        length = len(example.codes) + 1
        longest = max(longest, length)
        if groups[-1] and longest * (len(groups[-1]) + 1) > positions:
            groups.append([])
            longest = length
        groups[-1].append(example)
    rng.shuffle(groups)
    return groups


def collate(examples: list[Example], config: WrenConfig, settings: TalkerSettings | None) -> Batch:
    """settings: how to disturb the inputs in training; None for evaluation."""
    rows = len(examples)
    steps = max(len(example.codes) for example in examples) + 1
    phonemes = max(len(example.ids) for example in examples)
    books, begin = config.codec.codebooks, config.codec.codebook_size
    batch = Batch(
        ids=torch.zeros(rows, phonemes, dtype=torch.int64),
        present=torch.zeros(rows, phonemes),
        codes=torch.full((rows, steps, books), begin),
        advance=torch.full((rows, steps), config.begin_token),
        pointer=torch.zeros(rows, steps, dtype=torch.int64),
        speed=torch.tensor([example.speed for example in examples]),
        next_advance=torch.full((rows, steps), IGNORE),
        next_codes=torch.zeros(rows, steps, books, dtype=torch.int64),
        framed=torch.zeros(rows, steps, dtype=torch.bool),
    )
    for row, example in enumerate(examples):
        frames, size = len(example.codes), len(example.ids)
        entered = example.pointer if settings is None else _jitter(example.pointer, settings)
        highest = config.pointer.max_advance
        batch.ids[row, :size] = example.ids
        batch.present[row, :size] = 1.0
        batch.codes[row, 1 : frames + 1] = example.codes
        batch.advance[row, 1 : frames + 1] = entered.diff().clamp(0, highest)
        batch.pointer[row, : frames + 1] = entered
        # From wherever the pointer was put, the advance leads back to where it should be.
        batch.next_advance[row, :frames] = (example.pointer[1:] - entered[:-1]).clamp(0, highest)
        batch.next_advance[row, frames] = config.end_token
        batch.next_codes[row, :frames] = example.codes
        batch.framed[row, :frames] = True
    if settings is not None:
        _corrupt(batch.codes, begin, settings)
    return batch


def _jitter(pointer: Tensor, settings: TalkerSettings) -> Tensor:
    """Some frames are entered one phoneme early or late, as sampling will do."""
    chance = torch.rand(len(pointer))
    shift = (chance > 1 - settings.jitter).long() - (chance < settings.jitter).long()
    shift[0] = shift[-1] = 0
    return (pointer + shift).clamp(0, int(pointer[-1]))


def _corrupt(codes: Tensor, begin: int, settings: TalkerSettings) -> None:
    """Replace past codes at random, in place: the finer, the more often; some frames heavily.

    Fine codes identify the training utterance; a talker that trusts them learns it by heart.
    """
    share = torch.tensor(settings.corruption).expand(codes.shape)
    heavy = torch.rand(*codes.shape[:2], 1) < settings.heavy_share
    share = torch.where(heavy, (share + settings.heavy_extra).clamp(max=0.8), share)
    hit = (torch.rand(codes.shape) < share) & (codes < begin)
    codes[hit] = torch.randint(0, begin, (int(hit.sum()),))
