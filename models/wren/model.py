"""Wren on disk: `config.json`, `talker.safetensors`, `codec.safetensors` in one directory."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import ValidationError
from safetensors.torch import load_file

from omni_speak.models.base import Prompt, Sampling, TextSegment
from omni_speak.models.wren.codec import Codec
from omni_speak.models.wren.config import PHONEMES, WrenConfig
from omni_speak.models.wren.text.front_end import FrontEnd, Utterance
from omni_speak.models.wren.text.lexicon import read_lexicon
from omni_speak.runtime.errors import ModelNotFound, TextTooLong
from omni_speak.runtime.request import EngineInfo, SpeechRequest

if TYPE_CHECKING:
    from transformers import Qwen3Config

    from omni_speak.models.wren.talker import WrenTalker

VOICE = "wren"
MAX_TEXT_CHARS = 2000
"""Of one request; sessions cut longer texts into segments."""

SPEED_RANGE = (0.7, 1.4)
"""The speaking rates Wren was trained on."""

FRAMES_PER_PHONEME, EXTRA_FRAMES = 2.0, 20
"""The frame budget, about twice what speech at speed 1 takes: a runaway ends there."""


TEXT_CONTEXT = 16
"""Phonemes before a segment that its first features may see; at least the encoder's reach."""

SPACE_ID = PHONEMES.index(" ")


def phoneme_spans(utterance: Utterance) -> list[tuple[int, int]]:
    """For each token the characters it speaks; `^`, `$`, spaces and pauses speak none and stand
    where the word before them ends."""
    spans, at = [(0, 0)] * len(utterance.tokens), 0
    words = iter(utterance.words)
    word = next(words, None)
    for token in range(len(spans)):
        if word is not None and token >= word.end_token:
            at, word = word.end, next(words, None)
        inside = word is not None and word.first_token <= token
        spans[token] = (word.start, word.end) if word is not None and inside else (at, at)
    return spans


class WrenFront:
    """Text → phonemes → `Prompt`."""

    def __init__(self, config: WrenConfig) -> None:
        self.config = config
        self.front_end = FrontEnd(config.phonemes)
        self.info = EngineInfo(
            model="wren",
            voices=(VOICE,),
            default_voice=VOICE,
            sample_rate=config.sample_rate,
            frame_rate=config.frame_rate,
            samples_per_frame=config.frame_samples,
            codebooks=config.codec.codebooks,
            codebook_size=config.codec.codebook_size,
            max_text_chars=MAX_TEXT_CHARS,
            speed_range=SPEED_RANGE,
            open_text=True,
            languages=("English", "en"),
        )

    def use_lexicon(self, path: Path) -> None:
        """See `text.lexicon` for the format. Raises `InvalidRequest` naming the line."""
        self.front_end.lexicon = read_lexicon(path)

    def prepare(self, request: SpeechRequest) -> Prompt:
        """Raises `NothingToSay`, `TextTooLong`."""
        return self._prompt(request, is_open=False)

    def prepare_open(self, request: SpeechRequest) -> Prompt:
        """Raises `NothingToSay`, `TextTooLong`."""
        return self._prompt(request, is_open=True)

    def extend(self, request: SpeechRequest, text: str, before: Mapping[str, Any]) -> TextSegment:
        """Raises `NothingToSay`, `TextTooLong`."""
        utterance = self.front_end(text, literally=not request.normalise)
        # As inside one utterance: a space instead of `^`, and as much before it as its features
        # see. What came earlier keeps its features, so that arrival times change nothing.
        context = before["phonemes"][:-1][-TEXT_CONTEXT:]
        added = (SPACE_ID, *utterance.tokens[1:])
        count = before["count"] + len(added) - 1
        self._check_length(count + 1)
        return TextSegment(
            conditioning={
                "phonemes": (*context, *added),
                "context": len(context),
                "speed": before["speed"],
                "count": count,
            },
            units=len(added) - 1,
            spans=phoneme_spans(utterance)[:-1],
            max_frames=math.ceil(FRAMES_PER_PHONEME * len(added) / before["speed"]),
        )

    def finish(self, before: Mapping[str, Any]) -> TextSegment:
        """The `$`, known since the last segment, may be spoken."""
        return TextSegment({"phonemes": ()}, units=1, spans=(), max_frames=0)

    def units_of(self, token: int) -> int:
        return token

    def _check_length(self, phonemes: int) -> None:
        if phonemes > self.config.max_phonemes:
            raise TextTooLong(
                f"text reads as {phonemes} phonemes; "
                f"at most {self.config.max_phonemes} are allowed",
                param="text",
            )

    def _prompt(self, request: SpeechRequest, *, is_open: bool) -> Prompt:
        utterance = self.front_end(request.text, literally=not request.normalise)
        phonemes = utterance.tokens
        self._check_length(len(phonemes))
        sampling, given = self.config.sampling, request.temperature
        known = len(phonemes) - is_open
        conditioning = {
            "phonemes": phonemes,
            "speed": float(request.speed),
            "open": is_open,
            "count": known,
        }
        frames = EXTRA_FRAMES + FRAMES_PER_PHONEME * len(phonemes) / request.speed
        return Prompt(
            token_ids=[self.config.begin_token],
            conditioning=conditioning,
            # The first position's text feature depends on the phonemes.
            cache_salt=hashlib.sha256(json.dumps(conditioning).encode()).hexdigest(),
            max_frames=math.ceil(frames),
            sampling=Sampling(sampling.advance_temperature if given is None else given),
            mtp=Sampling(sampling.code_temperature if given is None else given, sampling.top_k),
            units=known - 1,
            spans=phoneme_spans(utterance)[:known],
        )


class Wren:
    """See `models.base.SpeechModel`. Raises `ModelNotFound` naming a missing or broken file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("talker.safetensors", "codec.safetensors"):
            if not (path / name).is_file():
                raise ModelNotFound(f"{path / name} does not exist", param="model")
        try:
            self.config = WrenConfig.load(path / "config.json")
        except ValidationError as error:
            raise ModelNotFound(f"{path / 'config.json'}: {error}", param="model") from error
        self.front = WrenFront(self.config)

    def hf_config(self) -> Qwen3Config:
        from transformers import Qwen3Config

        talker = self.config.talker
        config = Qwen3Config(
            architectures=["WrenTalker"],
            vocab_size=self.config.vocab_size,
            hidden_size=talker.hidden_size,
            intermediate_size=talker.intermediate_size,
            num_hidden_layers=talker.num_layers,
            num_attention_heads=talker.num_heads,
            num_key_value_heads=talker.num_kv_heads,
            head_dim=talker.head_dim,
            rms_norm_eps=talker.rms_norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": talker.rope_theta},
            use_sliding_window=True,
            sliding_window=talker.window,
            max_window_layers=0,
            max_position_embeddings=self.config.max_frames,
            tie_word_embeddings=False,
        )
        config.wren = self.config
        return config

    def talker_class(self) -> type[WrenTalker]:
        from omni_speak.models.wren.talker import WrenTalker

        return WrenTalker

    def load_talker(self, talker: WrenTalker) -> None:
        """Trunk tensors carry Qwen3's names under `model.`; the rest are `WrenNets`'."""
        nets, trunk = {}, []
        for name, value in load_file(self.path / "talker.safetensors").items():
            if name.startswith("model."):
                trunk.append((name.removeprefix("model."), value))
            else:
                nets[name] = value.float()
        talker.nets.load_state_dict(nets)
        talker.model.load_weights(trunk)

    def load_codec(self) -> Codec:
        codec = Codec(self.config)
        tensors = load_file(self.path / "codec.safetensors")
        codec.load_state_dict({name: value.to(torch.float32) for name, value in tensors.items()})
        codec.eval().prepare()
        return codec
