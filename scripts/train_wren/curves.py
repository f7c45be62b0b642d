"""Stage `curves`: `WORK/talker.log` → `WORK/curves.png`."""

from __future__ import annotations

import re
from pathlib import Path

NUMBER = r"(-?[\d.]+)"
TRAINED = re.compile(rf"talker (\d+): .*advance {NUMBER} c0 {NUMBER} fine {NUMBER} latent {NUMBER}")
HELD_OUT = re.compile(rf"held out at (\d+) .*advance {NUMBER}, codes ([\d. ]+), latent {NUMBER}")

Curve = list[tuple[int, float]]
"""(step, loss)."""


def read_log(text: str) -> dict[str, tuple[Curve, Curve]]:
    """Loss → its curve in training and on the held-out sentences.

    A training that was killed repeats the steps since its checkpoint: the later line counts.
    """
    trained: dict[str, dict[int, float]] = {n: {} for n in ("advance", "code 0", "fine", "latent")}
    held: dict[str, dict[int, float]] = {name: {} for name in trained}
    for line in text.splitlines():
        if match := TRAINED.search(line):
            step, *losses = match.groups()
            for name, loss in zip(trained, losses, strict=True):
                trained[name][int(step)] = float(loss)
        elif match := HELD_OUT.search(line):
            step, advance, codes, latent = match.groups()
            first, *fine = map(float, codes.split())
            losses = [advance, first, sum(fine) / len(fine), latent]
            for name, loss in zip(held, losses, strict=True):
                held[name][int(step)] = float(loss)
    return {name: (sorted(trained[name].items()), sorted(held[name].items())) for name in trained}


def draw(work: Path) -> Path:
    from matplotlib.figure import Figure  # reading a log needs no plots

    curves = read_log((work / "talker.log").read_text())
    figure = Figure((10, 7), layout="constrained")
    axes = figure.subplots(2, 2)
    for axis, (name, pair) in zip(axes.flat, curves.items(), strict=True):
        for curve, label in zip(pair, ("training", "held out"), strict=True):
            axis.plot([step for step, _ in curve], [loss for _, loss in curve], label=label)
        axis.set(title=name, xlabel="step", ylabel="loss")
        axis.legend()
    path = work / "curves.png"
    figure.savefig(path, dpi=100)
    return path
