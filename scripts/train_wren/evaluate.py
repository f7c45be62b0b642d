"""Stage `evaluate`: word errors on held-out sentences, and utterances that run away."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import numpy as np
import torch

from omni_speak.models.wren.text.front_end import FrontEnd
from scripts.whisper_base import edits

from . import export
from .data import held_out, load_clips
from .speak import Speaker, Spoken
from .texts import TEMPLATES
from .whisper import Judge, words

log = logging.getLogger(__name__)
CONVERSATIONAL = 31  # the first lines of heldout.txt; the others come from WordNet
FRAMES_PER_TOKEN = 0.8  # the teacher's own pace
NONSENSE = ("ba", "gloo", "tri", "sna", "quo", "ving", "zeth", "lop", "mar", "ik", "ump", "ost")


def evaluate(weights: Path, work: Path, seeds: int, hard: int) -> float:
    """The exported weights, spoken by plain torch and judged by Whisper. Returns the WER in %."""
    config, nets, trunk, codec = export.load(weights)
    speaker, front_end = Speaker(config, nets, trunk, codec), FrontEnd(config.phonemes)
    judge = Judge(work / "whisper")
    texts = held_out()
    ids = [list(front_end(text).tokens) for text in texts]
    teacher = [
        clip.record.samples // config.frame_samples for clip in load_clips(work / "data", "heldout")
    ]
    errors = np.zeros((seeds, len(texts)), int)
    counts = np.array([len(words(text)) for text in texts])
    for seed in range(seeds):
        spoken = speaker.speak(ids, torch.Generator().manual_seed(seed))
        ratios = [len(one.codes) / frames for one, frames in zip(spoken, teacher, strict=True)]
        log.info(
            "seed %d: all ended %s, length / teacher's %.3f ± %.3f",
            seed,
            all(one.ended for one in spoken),
            np.mean(ratios),
            np.std(ratios),
        )
        with (work / f"heard_{seed}.txt").open("w") as report:
            for index, (text, one) in enumerate(zip(texts, spoken, strict=True)):
                heard = judge.transcribe(speaker.waveform(one.codes).numpy(), config.sample_rate)
                errors[seed, index] = edits(words(text), words(heard))
                report.write(f"{errors[seed, index]}\t{text}\t{heard}\n")
    easy, rest = slice(0, CONVERSATIONAL), slice(CONVERSATIONAL, None)
    rate = 100 * errors.sum() / (seeds * counts.sum())
    log.info(
        "WER %.2f %% (conversational %.2f %%, WordNet %.2f %%; by seed %s), %d of %d perfect",
        rate,
        100 * errors[:, easy].sum() / (seeds * counts[easy].sum()),
        100 * errors[:, rest].sum() / (seeds * counts[rest].sum()),
        " ".join(f"{100 * row.sum() / counts.sum():.2f}" for row in errors),
        (errors == 0).sum(),
        errors.size,
    )
    if hard:
        _runaways(speaker, front_end, hard)
    return float(rate)


def judge_teacher(work: Path, codec_weights: Path | None) -> None:
    """The floor: word errors of the teacher itself, or of its speech through the codec."""
    judge = Judge(work / "whisper")
    codec = export.load(codec_weights)[3] if codec_weights else None
    errors = count = 0
    for clip in load_clips(work / "data", "heldout"):
        pcm = torch.from_numpy(clip.audio.astype(np.float32) / 32768)
        if codec is not None:
            pcm = codec.decode(codec.encode(pcm.unsqueeze(0)), codec.initial_state(1))[0][0]
        truth = words(clip.record.text)
        errors += edits(truth, words(judge.transcribe(pcm.numpy(), 24_000)))
        count += len(truth)
    log.info("WER of %s: %.2f %%", "the codec" if codec else "the teacher", 100 * errors / count)


def hard_texts(count: int, seed: int) -> list[str]:
    """Very short texts, repeats, nonsense, spelled codes, and long runs of sentences."""
    rng = random.Random(seed)
    plain = [text for text in TEMPLATES if "{" not in text]

    def word() -> str:
        return "".join(rng.choice(NONSENSE) for _ in range(rng.randint(1, 4)))

    kinds = [
        lambda: rng.choice(["Yes.", "No.", "Oh.", "A.", "I", "Hm.", "Go!", "Why?", "1", "Ah, no."]),
        lambda: (
            ", ".join([rng.choice(["no", "very", "go", "four", "ha"])] * rng.randint(3, 20)) + "."
        ),
        lambda: " ".join(word() for _ in range(rng.randint(1, 12))) + ".",
        lambda: " ".join(str(rng.randint(0, 9)) for _ in range(rng.randint(2, 30))),
        lambda: " ".join(rng.choice(plain) for _ in range(rng.randint(4, 10))),
    ]
    return [kinds[index % len(kinds)]() for index in range(count)]


def _runaways(speaker: Speaker, front_end: FrontEnd, count: int) -> None:
    """An utterance runs away if it never ends, or lasts over twice what its text should."""
    ids = [list(front_end(text).tokens) for text in hard_texts(count, seed=11)]
    spoken = speaker.speak(ids, torch.Generator().manual_seed(11))
    bad = sum(_ran_away(one, len(tokens)) for one, tokens in zip(spoken, ids, strict=True))
    log.info("%d of %d hard utterances ran away", bad, count)


def _ran_away(one: Spoken, tokens: int) -> bool:
    return not one.ended or len(one.codes) > 12 + 2 * FRAMES_PER_TOKEN * tokens
