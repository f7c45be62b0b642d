"""What a speech model must offer: the reference of every hook, its shapes, and when it is called.

A model comes in three parts. The **front** turns a request into a prompt (no torch needed to
refuse a bad one), the **talker** is the vLLM module whose hooks the runner calls around each
sample, the **codec** turns codes into waveform with explicit per-stream state.

The hooks keep the names of the reference runner (vLLM-Omni's AR runner), so that people who write
models for it are at home. `resolve_hooks` looks them up once, at load; the hot path never asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

    from omni_speak.runtime.request import EngineInfo, SpeechRequest


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request, ready for the engine.

    `token_ids` are what the talker prefills. `conditioning` is everything else the talker needs
    to know of the request; it reaches `begin_request`. `cache_salt` names all that shapes the
    prompt's keys and values besides its ids (voice, speed): prompts with equal ids and salt may
    share prefix-cache blocks. `max_frames` is the frame budget derived from the text.
    """

    token_ids: list[int]
    conditioning: Mapping[str, Any]
    cache_salt: str
    max_frames: int
    temperature: float
    top_k: int = 0


@dataclass(frozen=True, slots=True)
class SampledRows:
    """The rows of a step that sampled a token, in batch order.

    `req_ids` and `infos` (each request's entry of `model_intermediate_buffer`) have one item per
    row; `slots` int64 [rows] is each request's place in per-slot tables; `positions` int64 [rows]
    is the sequence position the sampled token takes (== the sequence's length before it); `seeds`
    int64 [rows] keys all noise of this frame (`runtime.sampling`), one per (request, position).
    """

    req_ids: Sequence[str]
    infos: Sequence[Mapping[str, Any]]
    slots: torch.Tensor
    positions: torch.Tensor
    seeds: torch.Tensor


class Front(Protocol):
    """Text and options → `Prompt`. Called from worker threads: must be thread-safe."""

    info: EngineInfo

    def prepare(self, request: SpeechRequest) -> Prompt:
        """Raises `InvalidRequest` (or a subclass) naming what is wrong and what is allowed."""
        ...


class Codec(Protocol):
    """Codes ⇄ waveform, incremental. State is explicit: a list of tensors whose first dimension
    is the batch, so that the states of many streams can be gathered and scattered by row."""

    def initial_state(self, batch: int) -> list[torch.Tensor]: ...

    def decode(
        self, codes: torch.Tensor, state: list[torch.Tensor]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """codes int64 [B, T, Q] → pcm float32 [B, T × samples_per_frame], new state."""
        ...


@runtime_checkable
class Talker(Protocol):
    """Hooks of the vLLM module. All tensors are on the module's device.

    Per-slot tables are the model's own: `allocate` makes them once, `begin_request` fills a slot,
    and every later hook is batched over slots, so that a step's Python work does not grow with
    the number of streams.
    """

    codebooks: int
    """Q, codes per frame."""
    end_token_ids: frozenset[int]
    """Sampled tokens that end the request and are no frame."""

    def allocate(self, slots: int, max_len: int) -> None:
        """Make the per-slot tables: `slots` requests at once, `max_len` positions each."""
        ...

    def begin_request(self, slot: int, conditioning: Mapping[str, Any]) -> None:
        """A new request takes `slot`; whatever the slot held before is void."""
        ...

    def embed_frames(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        codes: torch.Tensor,
    ) -> torch.Tensor:
        """Before the forward, for all scheduled tokens: ids, positions, slots int64 [n], codes
        int64 [n, Q] of the frame each position carries (-1: none, a prompt position) →
        embeddings [n, hidden]."""
        ...

    def constrain_logits(self, logits: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """Before sampling: logits [rows, vocab] and each row's slot → logits with what the
        request may not sample now at -inf."""
        ...

    def post_sample_talker_mtp(
        self, input_ids: torch.Tensor, hidden_states: torch.Tensor, rows: SampledRows
    ) -> torch.Tensor:
        """After sampling, once per step, for the rows that sampled: tokens int64 [rows], hidden
        states [rows, hidden] → this frame's codes, int64 [rows, Q]."""
        ...


@dataclass(frozen=True, slots=True)
class Hooks:
    """A talker's capabilities, resolved once at load."""

    codebooks: int
    end_token_ids: frozenset[int]
    constrains_logits: bool
    background_output: bool = field(default=True)
    """The model lets its outputs be built off the critical path (R21)."""


def resolve_hooks(talker: Talker) -> Hooks:
    """Raises `TypeError` naming the hooks a talker lacks."""
    required = ("allocate", "begin_request", "embed_frames", "post_sample_talker_mtp")
    missing = [name for name in required if not callable(getattr(talker, name, None))]
    if missing:
        raise TypeError(f"{type(talker).__name__} is no talker: it lacks {', '.join(missing)}")
    return Hooks(
        codebooks=talker.codebooks,
        end_token_ids=frozenset(talker.end_token_ids),
        constrains_logits=callable(getattr(talker, "constrain_logits", None)),
        background_output=getattr(talker, "background_output", True),
    )


class SpeechModel(Protocol):
    """One model on disk: where its parts come from. Registered by name in `registry`."""

    path: Path
    front: Front

    def hf_config(self) -> PretrainedConfig:
        """The talker's shape as vLLM wants it; `architectures` names the talker class."""
        ...

    def talker_class(self) -> type[torch.nn.Module]: ...

    def load_talker(self, talker: Any) -> None:
        """Fill the built talker with the weights at `path`."""
        ...

    def load_codec(self) -> Codec: ...
