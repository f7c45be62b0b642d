"""Whisper base as a judge: word errors of synthesised speech."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import soxr
from faster_whisper import WhisperModel
from num2words import num2words
from numpy.typing import NDArray

from scripts.whisper_base import join_model

LISTENING_RATE = 16_000
SPELLINGS = {"n't": " not", "'m": " am", "'ll": " will", "'re": " are", "-": " ", "%": " percent"}


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
    """Lower-case words, numbers spelled, contractions opened: the same for both sides."""
    text = text.lower().replace("’", "'")
    text = re.sub(r"(?<=\d)[,:](?=\d)", " ", text)
    text = re.sub(r"\d+", lambda number: f" {num2words(int(number[0]))} ", text)
    for written, spelled in SPELLINGS.items():
        text = text.replace(written, spelled)
    return re.sub(r"[^a-z ]", "", text.replace("-", " ")).split()
