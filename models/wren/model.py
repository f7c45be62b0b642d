"""Wren on disk: `config.json`, `talker.safetensors`, `codec.safetensors` in one directory."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from pydantic import ValidationError
from safetensors.torch import load_file

from omni_speak.models.base import Prompt, Sampling
from omni_speak.models.wren.codec import Codec
from omni_speak.models.wren.config import WrenConfig
from omni_speak.models.wren.text.front_end import FrontEnd
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
        )

    def prepare(self, request: SpeechRequest) -> Prompt:
        """Raises `NothingToSay`, `TextTooLong`."""
        phonemes = self.front_end(request.text).tokens
        if len(phonemes) > self.config.max_phonemes:
            raise TextTooLong(
                f"text reads as {len(phonemes)} phonemes; "
                f"at most {self.config.max_phonemes} are allowed",
                param="text",
            )
        sampling, given = self.config.sampling, request.temperature
        conditioning = {"phonemes": phonemes, "speed": float(request.speed)}
        frames = EXTRA_FRAMES + FRAMES_PER_PHONEME * len(phonemes) / request.speed
        return Prompt(
            token_ids=[self.config.begin_token],
            conditioning=conditioning,
            # The first position's text feature depends on the phonemes.
            cache_salt=hashlib.sha256(json.dumps(conditioning).encode()).hexdigest(),
            max_frames=math.ceil(frames),
            sampling=Sampling(sampling.advance_temperature if given is None else given),
            mtp=Sampling(sampling.code_temperature if given is None else given, sampling.top_k),
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
        return codec.eval()
