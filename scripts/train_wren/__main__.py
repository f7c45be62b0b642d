"""`python scripts/train_wren STAGE`: train Wren from nothing, stage by stage."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.train_wren.settings import Settings

WEIGHTS = Path(__file__).resolve().parents[2] / "models" / "wren" / "weights"
app = typer.Typer(no_args_is_help=True, add_completion=False)
Weights = Annotated[Path, typer.Option(help="Folder of the exported weights.")]
Minutes = Annotated[float | None, typer.Option(help="Wall-clock budget instead of the default.")]
Begin = Annotated[
    Path | None,
    typer.Option(help="Exported weights to go on from; what the codes mean stays as it is."),
]
Work = Annotated[Path, typer.Option(help="Folder for data, checkpoints and logs.")]


@app.callback()
def main() -> None:
    """Train Wren: data, codec, talker, evaluate, export."""


def _start(work: Path, stage: str) -> Settings:
    """Log to the terminal and to `WORK/STAGE.log`; one thread, so that stages run side by side."""
    work.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(message)s",
        datefmt="%H:%M:%S",
        handlers=[logging.StreamHandler(), logging.FileHandler(work / f"{stage}.log")],
    )
    logging.getLogger("faster_whisper").setLevel(logging.WARNING)
    torch.set_num_threads(1)
    return Settings()


@app.command()
def data(
    wordnet: Annotated[Path, typer.Option(help="Folder with WordNet 3.0's data.* files.")],
    work: Work = Path("build/wren"),
) -> None:
    """Speech from the teacher, with the time of each phoneme."""
    from scripts.train_wren.data import generate

    generate(work / "data", wordnet, _start(work, "data").data)


@app.command()
def mel(minutes: Minutes = None, work: Work = Path("build/wren")) -> None:
    """Codec, stage 1: what the codes mean."""
    from omni_speak.models.wren.config import WrenConfig
    from scripts.train_wren import mel_stage

    settings = _start(work, "mel")
    if minutes is not None:
        settings = replace(settings, mel=replace(settings.mel, minutes=minutes))
    mel_stage.train(work, WrenConfig(), settings)


@app.command()
def wave(begin: Begin = None, minutes: Minutes = None, work: Work = Path("build/wren")) -> None:
    """Codec, stage 2: the vocoder. Reads what codes there are; the talker stage may add more."""
    from omni_speak.models.wren.config import WrenConfig
    from scripts.train_wren.wave_stage import Trainer

    settings = _start(work, "wave")
    own = settings.wave if begin is None else settings.better_wave
    if minutes is not None:
        own = replace(own, minutes=minutes)
    Trainer(work, WrenConfig(), own, settings.checkpoint_minutes, begin).run()


@app.command()
def talker(begin: Begin = None, minutes: Minutes = None, work: Work = Path("build/wren")) -> None:
    """Talker and MTP. Encodes new clips as it goes; the data stage may still be running."""
    from omni_speak.models.wren.config import WrenConfig
    from scripts.train_wren.talker_stage import Trainer

    settings = _start(work, "talker")
    own = settings.talker if begin is None else settings.going_on
    if minutes is not None:
        own = replace(own, minutes=minutes)
    Trainer(work, WrenConfig(), own, settings.checkpoint_minutes, begin).run()


@app.command()
def export(
    weights: Weights = WEIGHTS, begin: Begin = None, work: Work = Path("build/wren")
) -> None:
    """Averaged weights of the last checkpoints → the files the runtime loads. What was not trained
    since `begin` is taken from there."""
    from omni_speak.models.wren.config import WrenConfig
    from scripts.train_wren import export as files
    from scripts.train_wren.mel_stage import load_codec
    from scripts.train_wren.talker_stage import load_talker
    from scripts.train_wren.wave_stage import load_vocoder

    _start(work, "export")
    config = WrenConfig(trained=True)
    if begin is None:
        codec = load_codec(work, config)
    else:
        _, nets, trunk, codec = files.load(begin)
    if begin is None or (work / "wave.pt").exists():
        codec = load_vocoder(work, codec)
    if begin is None or (work / "talker.pt").exists():
        talker = load_talker(work, config)
        nets, trunk = talker.nets, talker.trunk
    files.export(weights, config, nets, trunk, codec)


@app.command()
def evaluate(
    weights: Weights = WEIGHTS,
    work: Work = Path("build/wren"),
    name: Annotated[str, typer.Option(help="Of these weights, among `WORK/judged`.")] = "wren",
    seeds: Annotated[int, typer.Option(help="Readings of each held-out sentence.")] = 1,
    hard: Annotated[int, typer.Option(help="Hard utterances to test for running away.")] = 200,
    rated_every: Annotated[int, typer.Option(help="MOS predictors hear every so many.")] = 5,
) -> None:
    """Word errors, ratings, lengths and runaways of the teacher, the codec and the voice."""
    from scripts.train_wren import evaluate as judging

    _start(work, "evaluate")
    judging.evaluate(weights, work, name, seeds, hard, rated_every)


@app.command()
def spectrograms(weights: Weights = WEIGHTS, work: Work = Path("build/wren")) -> None:
    """A page of teacher, codec and voice side by side."""
    from scripts.train_wren.spectrograms import draw

    _start(work, "spectrograms")
    typer.echo(draw(weights, work))


@app.command()
def speed(weights: Weights = WEIGHTS, work: Work = Path("build/wren")) -> None:
    """Milliseconds of each part of a frame, on one core. Run it alone on the machine."""
    from scripts.train_wren.speed import measure

    _start(work, "speed")
    for part, milliseconds in measure(weights).items():
        typer.echo(f"{part} {milliseconds:.2f} ms")


@app.command()
def curves(work: Work = Path("build/wren")) -> None:
    """The talker's losses, from its log."""
    from scripts.train_wren.curves import draw

    typer.echo(draw(work))


if __name__ == "__main__":
    app()
