"""Whisper base listens to what we say. Its weights come in two packages, joined here once."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import soxr
from faster_whisper import WhisperModel
from numpy.typing import NDArray

from scripts.whisper_base import edits, join_model

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
    return edits(words(reference), words(hypothesis))


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower().replace("’", "'"))


@cache
def _model() -> WhisperModel:
    join_model(FOLDER)
    return WhisperModel(str(FOLDER), device="cpu", compute_type="int8", cpu_threads=2)
