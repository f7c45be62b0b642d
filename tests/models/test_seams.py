"""Wren's voice has no seams: however its frames are cut into packets, none is heard (D02)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, chain, repeat
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from omni_speak.models.wren.codec import Codec
from omni_speak.models.wren.model import Wren

WEIGHTS = Path(__file__).parents[2] / "models" / "wren" / "weights"
FRAMES = 400
LOUDEST_JUMP = 0.25
"""From one sample to the next across a seam, in the RMS around it."""

RAMPS = {
    "frame by frame": [1],
    "pairs": [2],
    "threes": [3],
    "the largest messages": [8],
    "one, then growing": [1, 2, 3, 5, 8],
    "a tiny first packet": [1, 25],
    "a few, then many": [4, 25],
    "nearly all at once": [399],
}


@pytest.fixture(scope="module")
def codec() -> Codec:
    return Wren(WEIGHTS).load_codec()


@pytest.fixture(scope="module")
def codes(codec: Codec) -> Tensor:
    """A vowel that never ends, [1, FRAMES, Q]: its pitch and its formants glide, it never rests."""
    rate = codec.config.sample_rate
    seconds = np.arange(FRAMES * codec.config.frame_samples) / rate
    pitch = 120 + 30 * np.sin(2 * np.pi * 0.31 * seconds)
    turns = np.cumsum(pitch) / rate
    voice = np.zeros_like(seconds)
    for harmonic in range(1, 30):
        frequency = harmonic * pitch
        level = sum(
            weight / (1 + ((frequency - centre) / 120) ** 2)
            for weight, centre in (
                (1.0, 500 + 200 * np.sin(2 * np.pi * 0.7 * seconds)),
                (0.4, 1500 + 400 * np.sin(2 * np.pi * 0.43 * seconds)),
            )
        )
        voice += level * np.sin(2 * np.pi * harmonic * turns)
    pcm = torch.from_numpy(0.3 * voice / np.abs(voice).max()).float()
    return codec.encode(pcm[None])


@pytest.fixture(scope="module")
def whole(codec: Codec, codes: Tensor) -> np.ndarray:
    return decode(codec, codes, [FRAMES])


def packets(ramp: list[int]) -> Iterator[int]:
    """Sizes: the ramp, then its last for as long as the stream is."""
    left = FRAMES
    for size in chain(ramp, repeat(ramp[-1])):
        if not left:
            return
        yield min(size, left)
        left -= min(size, left)


def decode(codec: Codec, codes: Tensor, sizes: list[int], *, forgets: bool = False) -> np.ndarray:
    state, parts = codec.initial_state(1), []
    for packet in codes.split(sizes, 1):
        pcm, after = codec.decode(packet, state)
        state = codec.initial_state(1) if forgets else after
        parts.append(pcm[0])
    return torch.cat(parts).numpy()


def seams(codec: Codec, sizes: list[int]) -> np.ndarray:
    """The samples that packets begin with, but for the first."""
    return np.array(list(accumulate(sizes))[:-1]) * codec.config.frame_samples


def jumps(pcm: np.ndarray, at: np.ndarray, around: int = 480) -> np.ndarray:
    """The steps between the samples before and at `at`, in the RMS of the `around` on each side."""
    energy = np.concatenate([[0.0], np.cumsum(np.square(pcm, dtype=np.float64))])
    low, high = np.maximum(at - around, 0), np.minimum(at + around, len(pcm))
    rms = np.sqrt((energy[high] - energy[low]) / (high - low))
    return np.abs(pcm[at] - pcm[at - 1]) / rms


@pytest.mark.parametrize("ramp", RAMPS.values(), ids=RAMPS)
def test_D02_no_seam_is_heard_at_any_ramp(
    codec: Codec, codes: Tensor, whole: np.ndarray, ramp: list[int]
) -> None:
    """Glottal pulses are jumps, too: there may be one at a seam where the whole has it."""
    sizes = list(packets(ramp))
    streamed, at = decode(codec, codes, sizes), seams(codec, sizes)
    np.testing.assert_allclose(streamed, whole, rtol=0, atol=1e-6)
    assert np.abs(jumps(streamed, at) - jumps(whole, at)).max() <= 0.01 * LOUDEST_JUMP


def test_D02_frames_begin_as_smoothly_as_they_go_on(codec: Codec, whole: np.ndarray) -> None:
    begin = seams(codec, [1] * FRAMES)
    median = np.median(jumps(whole, np.arange(1, len(whole))))
    assert np.median(jumps(whole, begin)) <= 1.5 * median <= 0.5 * LOUDEST_JUMP


def test_D02_a_decoder_that_forgets_would_be_heard(
    codec: Codec, codes: Tensor, whole: np.ndarray
) -> None:
    sizes = list(packets([25]))
    at = seams(codec, sizes)
    clicks = jumps(decode(codec, codes, sizes, forgets=True), at) - jumps(whole, at)
    assert clicks.max() > 4 * LOUDEST_JUMP
