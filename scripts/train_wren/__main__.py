"""`python scripts/train_wren STAGE`: train Wren from nothing, stage by stage."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from train_wren.settings import Settings  # noqa: E402

app = typer.Typer(no_args_is_help=True, add_completion=False)
Minutes = Annotated[float | None, typer.Option(help="Wall-clock budget instead of the default.")]
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
    torch.set_num_threads(1)
    return Settings()


@app.command()
def data(
    wordnet: Annotated[Path, typer.Option(help="Folder with WordNet 3.0's data.* files.")],
    work: Work = Path("build/wren"),
) -> None:
    """Speech from the teacher, with the time of each phoneme."""
    from train_wren.data import generate

    generate(work / "data", wordnet, _start(work, "data").data)


@app.command()
def mel(minutes: Minutes = None, work: Work = Path("build/wren")) -> None:
    """Codec, stage 1: what the codes mean."""
    from omni_speak.models.wren.config import WrenConfig
    from train_wren import mel_stage

    settings = _start(work, "mel")
    if minutes is not None:
        settings = replace(settings, mel=replace(settings.mel, minutes=minutes))
    mel_stage.train(work, WrenConfig(), settings)


if __name__ == "__main__":
    app()
