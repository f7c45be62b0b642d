"""Wren's shape and habits as data: read from `weights/config.json`, no torch in here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

STRESS = "ˈˌ"
MODIFIERS = "ː̩ʲ̃"
"""Length and the like: marks after a phoneme's base, as stress stands before it."""
# Id 0 is anything unknown; then begin, end and the word boundary.
PHONEMES = (
    "",
    "^",
    "$",
    " ",
    *(
        "! , . : ; ? aɪ aʊ b d dʒ eɪ f h i iː j k l m n oʊ p s t tʃ uː v w z æ ð ŋ ɐ ɑː ɔɪ ɔː "
        "ə ɚ ɛ ɜː ɡ ɪ ɹ ɾ ʃ ʊ ʌ ʒ ˈaɪ ˈaʊ ˈeɪ ˈi ˈiː ˈoʊ ˈuː ˈæ ˈɑː ˈɔɪ ˈɔː ˈɛ ˈɜː ˈɪ ˈʊ ˈʌ ˌaɪ "
        "ˌaʊ ˌeɪ ˌi ˌiː ˌoʊ ˌuː ˌæ ˌɑː ˌɔɪ ˌɔː ˌɛ ˌɜː ˌɪ ˌʊ ˌʌ θ ᵻ"
    ).split(),
)


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class CodecConfig(Strict):
    """Codes ⇄ waveform. hop and window in samples; the trunk runs at sample_rate / hop."""

    codebooks: int = 8
    codebook_size: int = 512
    latent: int = 64
    mel_bands: int = 80
    hop: int = 240
    window: int = 960
    upsample: int = 8
    width: int = 256
    blocks: int = 7
    expansion: int = 2


class TalkerConfig(Strict):
    """The trunk, in Qwen3's terms. window: positions seen, the current one included."""

    hidden_size: int = 256
    num_layers: int = 6
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    intermediate_size: int = 704
    window: int = 64
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-6
    text_layers: int = 3
    text_kernel: int = 5


class DepthConfig(Strict):
    """The MTP: a depth transformer over one frame's codes."""

    hidden_size: int = 192
    num_layers: int = 2
    num_heads: int = 3
    intermediate_size: int = 512
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-6


class PointerConfig(Strict):
    """Bounds on the pointer's walk. max_stay and max_tail in frames."""

    max_advance: int = 9
    max_stay: int = 12
    max_tail: int = 4


class SamplingConfig(Strict):
    """Defaults where a request says nothing; temperature 0 is greedy."""

    advance_temperature: float = 0.6
    code_temperature: float = 0.5
    top_k: int = 25
    seed: int = 0


class WrenConfig(Strict):
    """The whole voice. phonemes[i] is the token of id i."""

    model_type: Literal["wren"] = "wren"
    trained: bool = False
    frame_rate: float = 12.5
    sample_rate: int = 24_000
    phonemes: tuple[str, ...] = PHONEMES
    max_phonemes: int = 3_000
    max_frames: int = 4_096
    codec: CodecConfig = CodecConfig()
    talker: TalkerConfig = TalkerConfig()
    mtp: DepthConfig = DepthConfig()
    pointer: PointerConfig = PointerConfig()
    sampling: SamplingConfig = SamplingConfig()

    @property
    def frame_samples(self) -> int:
        """Samples of one frame."""
        return self.codec.hop * self.codec.upsample

    @property
    def codec_delay(self) -> int:
        """Samples by which decoded audio trails its codes, from overlap-add."""
        return (self.codec.window - self.codec.hop) // 2

    @property
    def end_token(self) -> int:
        return self.pointer.max_advance + 1

    @property
    def begin_token(self) -> int:
        return self.pointer.max_advance + 2

    @property
    def vocab_size(self) -> int:
        """Advances, END and BEGIN, padded to a multiple of 16."""
        return -(-(self.pointer.max_advance + 3) // 16) * 16

    def phoneme_ids(self, tokens: list[str]) -> list[int]:
        """Phoneme tokens → ids, one each; 0 for a token that nothing known comes near."""
        known = {token: index for index, token in enumerate(self.phonemes)}
        return [nearest_phoneme(token, known) or 0 for token in tokens]

    @classmethod
    def load(cls, path: Path) -> WrenConfig:
        return cls.model_validate_json(path.read_text("utf-8"))

    def save(self, path: Path) -> None:
        path.write_text(self.model_dump_json(indent=2) + "\n", "utf-8")


def nearest_phoneme(token: str, known: Mapping[str, int]) -> int | None:
    """The id of a phoneme token; one that is not known is tried without stress, then without
    length, then without both."""
    bare = token.lstrip(STRESS)
    for form in (token, bare, token.rstrip(MODIFIERS), bare.rstrip(MODIFIERS)):
        if form in known:
            return known[form]
    return None
