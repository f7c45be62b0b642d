"""Random training segments on the frame grid, and the codes of every clip."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from omni_speak.models.wren.codec import Codec

from .data import FRAME, Clip, load_clips

log = logging.getLogger(__name__)


class Segments:
    """Segments of equal length, each second of speech as likely as any other."""

    def __init__(self, clips: list[Clip], rng: random.Random) -> None:
        self.clips = clips
        self._rng = rng
        self._ends = np.cumsum([len(clip.audio) for clip in clips])

    def pick(self) -> Clip:
        at = np.searchsorted(self._ends, self._rng.random() * self._ends[-1])
        return self.clips[int(at)]

    def batch(self, count: int, frames: int, overhang: int = 2) -> Tensor:
        """pcm [count, frames · FRAME] float32; may hang over a clip's ends, silence there."""
        rows = []
        for _ in range(count):
            audio = self.pick().audio
            whole = len(audio) // FRAME
            begin = self._rng.randint(-overhang, max(-overhang, whole - frames + overhang))
            low, high = max(0, begin), min(whole, begin + frames)
            row = np.zeros(frames * FRAME, np.int16)
            row[(low - begin) * FRAME : (high - begin) * FRAME] = audio[low * FRAME : high * FRAME]
            rows.append(pcm_to_float(row))
        return torch.stack(rows)


def pcm_to_float(samples: NDArray[np.int16]) -> Tensor:
    """int16 [N] → float32 [N] in -1..1."""
    return torch.from_numpy(samples.astype(np.float32) / 32768)


class Codes:
    """`NAME.codes`: uint16 [frames, Q], frame for frame beside `NAME.s16`."""

    def __init__(self, folder: Path, name: str, codebooks: int) -> None:
        self._folder, self._name, self._codebooks = folder, name, codebooks
        self._path = folder / f"{name}.codes"

    def extend(self, codec: Codec) -> None:
        """Encode the clips that came since the last call. One process at a time may do this."""
        done = self._frames()
        with self._path.open("ab") as file:
            file.truncate(done * self._codebooks * 2)
            for clip in load_clips(self._folder, self._name):
                if clip.record.offset // FRAME >= done:
                    codes = codec.encode(pcm_to_float(clip.audio).unsqueeze(0))[0]
                    file.write(codes.numpy().astype(np.uint16).tobytes())
        log.info("%s: %d frames encoded", self._path.name, self._frames())

    def load(self) -> list[tuple[Clip, NDArray[np.uint16]]]:
        """Each encoded clip with its codes [frames, Q]."""
        codes = np.fromfile(self._path, np.uint16, self._frames() * self._codebooks)
        codes = codes.reshape(-1, self._codebooks)
        pairs = []
        for clip in load_clips(self._folder, self._name):
            first = clip.record.offset // FRAME
            last = first + clip.record.samples // FRAME
            if last <= len(codes):
                pairs.append((clip, codes[first:last]))
        return pairs

    def _frames(self) -> int:
        """Frames encoded, in whole clips only."""
        if not self._path.exists():
            return 0
        stored = self._path.stat().st_size // (2 * self._codebooks)
        ends = [0]
        for clip in load_clips(self._folder, self._name):
            ends.append((clip.record.offset + clip.record.samples) // FRAME)
        return max(end for end in ends if end <= stored)
