"""Stage `data`: teacher speech with phoneme times.

One utterance is one line of `NAME.jsonl` (text, tokens, starts in seconds, speed, place in the
PCM file) and its samples in `NAME.s16` (24 kHz mono, padded to whole frames).
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from omni_speak.models.wren.config import PHONEMES
from omni_speak.models.wren.text.front_end import FrontEnd

from .settings import DataSettings
from .texts import Corpus, held_out

if TYPE_CHECKING:
    from .teacher import Teacher

SAMPLE_RATE = 24_000
FRAME = 1_920
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Record:
    """One stored utterance. starts in seconds; offset and samples count samples."""

    index: int
    text: str
    tokens: list[str]
    starts: list[float]
    speed: float
    offset: int
    samples: int


@dataclass(frozen=True)
class Clip:
    record: Record
    audio: NDArray[np.int16]


def load_clips(folder: Path, name: str) -> list[Clip]:
    """Every whole utterance on disk, also while the `data` stage is still writing."""
    records = _records(folder / f"{name}.jsonl")
    if not records:
        return []
    audio = np.memmap(folder / f"{name}.s16", np.int16, "r")
    return [
        Clip(record, audio[record.offset : record.offset + record.samples])
        for record in records
        if record.offset + record.samples <= len(audio)
    ]


def generate(folder: Path, wordnet: Path, settings: DataSettings) -> None:
    """Speak the held-out sentences, then the training corpus; continues where it was stopped."""
    from .teacher import Teacher  # clips are read without it

    folder.mkdir(parents=True, exist_ok=True)
    writer = _Writer(folder, Teacher(SAMPLE_RATE), settings)
    sentences = [text for kind in held_out().values() for text in kind]
    writer.write("heldout", ((text, 1.0) for text in sentences))
    corpus = Corpus(wordnet, set(sentences), settings.seed)
    pairs = ((corpus.sentence(i), _length_scale(i, settings)) for i in itertools.count())
    writer.write("train", pairs)


@dataclass(frozen=True)
class Spoken:
    """tokens with their starts in seconds; audio float32 [N] in -1..1."""

    tokens: list[str]
    audio: NDArray[np.float32]
    starts: NDArray[np.float64]


class _Writer:
    def __init__(self, folder: Path, teacher: Teacher, settings: DataSettings) -> None:
        self.folder, self.teacher, self.settings = folder, teacher, settings
        self.front_end = FrontEnd(PHONEMES)

    def write(self, name: str, texts: Iterable[tuple[str, float]]) -> None:
        """Speak (text, length scale) pairs, from the first that is not on disk yet."""
        meta_path, pcm_path = self.folder / f"{name}.jsonl", self.folder / f"{name}.s16"
        records = _records(meta_path)
        done = records[-1].index + 1 if records else 0
        offset = records[-1].offset + records[-1].samples if records else 0
        meta_path.write_text("".join(_line(record) for record in records))
        with meta_path.open("a") as meta, pcm_path.open("ab") as pcm:
            pcm.truncate(2 * offset)
            for index, (text, scale) in enumerate(texts):
                if offset >= self.settings.hours * 3600 * SAMPLE_RATE:
                    break
                spoken = self._speak(text, scale) if index >= done else None
                if spoken is None:
                    continue
                samples = (np.clip(spoken.audio, -1, 1) * 32767).astype("<i2")
                starts = [round(float(start), 4) for start in spoken.starts]
                speed = round(1 / scale, 4)
                record = Record(index, text, spoken.tokens, starts, speed, offset, len(samples))
                # Samples first: a record on disk is then always whole.
                pcm.write(samples.tobytes())
                pcm.flush()
                meta.write(_line(record))
                meta.flush()
                offset += len(samples)
                if index % 200 == 0:
                    log.info("%s %d: %.3f h", name, index, offset / SAMPLE_RATE / 3600)

    def _speak(self, text: str, scale: float) -> Spoken | None:
        """Silence trimmed to a fixed lead-in and tail, padded to whole frames. None if unusable."""
        own = self.settings
        # What the runtime's front end reads, so that student and teacher read the same.
        tokens = [PHONEMES[token] for token in self.front_end(text).tokens]
        raw = self.teacher.speak(tokens, scale, own.noise_scale, own.noise_width)
        loud = np.flatnonzero(np.abs(raw.audio) > own.silence_level)
        if len(loud) < SAMPLE_RATE // 12:
            return None
        begin = max(0, loud[0] - round(own.lead_in * SAMPLE_RATE))
        end = min(len(raw.audio), loud[-1] + round(own.tail * SAMPLE_RATE))
        audio = raw.audio[begin:end]
        if len(audio) > own.max_seconds * SAMPLE_RATE:
            return None
        audio = np.pad(audio, (0, -len(audio) % FRAME))
        return Spoken(tokens, audio, np.maximum(raw.starts - begin / SAMPLE_RATE, 0))


def _length_scale(index: int, settings: DataSettings) -> float:
    rng = random.Random(index * 104_729 + settings.seed)
    if rng.random() < settings.plain_share:
        return 1.0
    low, high = math.log(settings.min_length_scale), math.log(settings.max_length_scale)
    return math.exp(rng.uniform(low, high))


def _records(path: Path) -> list[Record]:
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [Record(**json.loads(line)) for line in lines if line.endswith("\n")]


def _line(record: Record) -> str:
    return json.dumps(record.__dict__, ensure_ascii=False) + "\n"
