"""Stage `spectrograms`: one held-out sentence of each kind as the teacher speaks it, through the
codec, and as Wren speaks it, side by side: `WORK/spectrograms.png`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from omni_speak.models.wren.text.front_end import FrontEnd

from . import export
from .clips import pcm_to_float
from .data import load_clips
from .speak import Speaker
from .texts import held_out


def draw(weights: Path, work: Path) -> Path:
    config, nets, trunk, codec = export.load(weights)
    speaker, front_end = Speaker(config, nets, trunk, codec), FrontEnd(config.phonemes)
    shown = [sentences[0] for sentences in held_out().values()]
    clips = {clip.record.text: clip for clip in load_clips(work / "data", "heldout")}
    ids = [list(front_end(text).tokens) for text in shown]
    spoken = speaker.speak(ids, torch.Generator().manual_seed(0))
    figure = Figure((18, 3 * len(shown)), layout="constrained")
    axes = figure.subplots(len(shown), 3)
    for row, text, one in zip(axes, shown, spoken, strict=True):
        pcm = pcm_to_float(clips[text].audio)
        decoded = codec.decode(codec.encode(pcm.unsqueeze(0)), codec.initial_state(1))[0][0]
        sources = {"teacher": pcm, "codec": decoded, "Wren": speaker.waveform(one.codes)}
        for axis, (name, wave) in zip(row, sources.items(), strict=True):
            # A floor at -100 dB: silence has no logarithm.
            quiet = 1e-5 * np.random.default_rng(0).standard_normal(len(wave))
            axis.specgram(
                wave.numpy() + quiet, 1024, config.sample_rate, noverlap=768, vmin=-140, vmax=-40
            )
            axis.set(title=f"{name}: {text[:60]}", xlabel="s", ylabel="Hz")
    path = work / "spectrograms.png"
    figure.savefig(path, dpi=70)
    return path
