"""How long the front end takes for a sentence: text → phonemes, one core, each sentence once.

    scripts/setup --dev python scripts/bench_text.py [--lexicon FILE] [FILE]

FILE has a sentence on each line (# begins a comment); without it, those that Wren is evaluated on.
Milliseconds: of all sentences the median, the 95th percentile and the longest, with that sentence.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from omni_speak.models.wren.config import PHONEMES
from omni_speak.models.wren.text.front_end import FrontEnd
from omni_speak.models.wren.text.lexicon import read_lexicon

SENTENCES = Path(__file__).parent / "train_wren" / "heldout.txt"


def main(
    file: Annotated[Path, typer.Argument(help="A sentence on each line.")] = SENTENCES,
    lexicon: Annotated[Path | None, typer.Option(help="As of `omni-speak say`.")] = None,
) -> None:
    lines = file.read_text("utf-8").splitlines()
    sentences = [line for line in lines if line and not line.startswith("#")]
    began = time.perf_counter()
    front_end = FrontEnd(PHONEMES, read_lexicon(lexicon) if lexicon else {})
    front_end.warm_up()
    loading = time.perf_counter() - began
    spent = []
    for sentence in sentences:
        began = time.perf_counter()
        front_end(sentence)
        spent.append(1000 * (time.perf_counter() - began))
    report = {
        "sentences": len(sentences),
        "characters": sum(map(len, sentences)),
        "loading_ms": round(1000 * loading),
        "median_ms": round(float(np.median(spent)), 2),
        "p95_ms": round(float(np.percentile(spent, 95)), 2),
        "max_ms": round(max(spent), 2),
        "longest": sentences[int(np.argmax(spent))],
    }
    json.dump(report, sys.stdout, indent=2, ensure_ascii=False)
    print()


if __name__ == "__main__":
    typer.run(main)
