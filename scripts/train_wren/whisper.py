"""Whisper base as a judge: word errors of synthesised speech."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import soxr
from faster_whisper import WhisperModel
from numpy.typing import NDArray

from omni_speak.models.wren.text.normalise import normalise, spoken_text
from scripts.whisper_base import join_model

LISTENING_RATE = 16_000
CONTRACTIONS = {"n't": " not", "'m": " am", "'ll": " will", "'re": " are"}


class Judge:
    def __init__(self, folder: Path) -> None:
        """folder: where the model's parts are joined, once."""
        join_model(folder)
        self._model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=1)

    def transcribe(self, pcm: NDArray[np.float32], sample_rate: int) -> str:
        """pcm [N] float32 → what Whisper hears, greedily."""
        padded = np.pad(pcm, (sample_rate // 5, sample_rate * 2 // 5))
        segments, _ = self._model.transcribe(
            soxr.resample(padded, sample_rate, LISTENING_RATE),
            language="en",
            beam_size=1,
            temperature=0.0,
            condition_on_previous_text=False,
            without_timestamps=True,
        )
        return " ".join(segment.text.strip() for segment in segments)


def words(text: str) -> list[str]:
    """What a text says, in lower-case words, so that "$5" and "five dollars" are the same: both
    sides are read by the voice's own normaliser. Spelled letters become one word."""
    text = text.replace("’", "'")
    text = re.sub(r"(?<![\d,.])\d{5,}(?![\d,.]*\d)", lambda run: " ".join(run[0]), text)
    spoken = spoken_text(normalise(text)).lower().replace("-", " ")
    for written, opened in CONTRACTIONS.items():
        spoken = spoken.replace(written, opened)
    spoken = re.sub(r"[^a-z ]", "", spoken)
    return re.sub(r"\b[a-z](?: [a-z])+\b", lambda run: run[0].replace(" ", ""), spoken).split()
