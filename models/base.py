"""What a speech model must offer: the reference of every hook, its shapes, and when it is called.

A model comes in three parts. The **front** turns a request into a prompt (no torch needed to
refuse a bad one), the **talker** is the vLLM module whose hooks the runner calls around each
sample, the **codec** turns codes into waveform with explicit per-stream state.

The hooks keep the names of the reference runner (vLLM-Omni's AR runner), so that people who write
models for it are at home. `resolve_hooks` looks them up once, at load; the hot path never asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig
    from vllm.v1.outputs import SamplerOutput
    from vllm.v1.sample.metadata import SamplingMetadata

    from omni_speak.runtime.request import EngineInfo, SpeechRequest

StageOutput = Literal["audio", "text", "latent"]
"""What a stage makes: audio codes that end here, text, or tensors for the stages after it."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. `temperature` 0.0 is greedy; `top_k` 0 and `top_p` 1.0 allow all;
    `repetition_penalty` 1.0 is none."""

    temperature: float
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request, ready for the engine.

    `token_ids` are what the talker prefills. `conditioning` is everything else the talker needs
    to know of the request; it reaches `begin_request` and the request's entry of
    `model_intermediate_buffer`. `cache_salt` names all that shapes the prompt's keys and values
    besides its ids (voice, speed): prompts with equal ids and salt may share prefix-cache blocks.
    `max_frames` is the frame budget derived from the text. `units` is how much of the text there
    is to speak (for Wren: advances of the pointer), counted as `OpenTextFront.units_of` counts;
    `spans` has for each unit's phoneme, from the one spoken first, the characters [start, end) of
    the text that it speaks (empty where it speaks none). `sampling` is the talker's, `mtp` the
    multi-token predictor's (None: the model's own choice).
    """

    token_ids: list[int]
    conditioning: Mapping[str, Any]
    cache_salt: str
    max_frames: int
    sampling: Sampling
    mtp: Sampling | None = None
    units: int = 0
    spans: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class TextSegment:
    """More text of a running request, ready for the engine.

    `conditioning` reaches `extend_request`; `units`, `spans` and `max_frames` add to the
    prompt's.
    """

    conditioning: Mapping[str, Any]
    units: int
    spans: Sequence[tuple[int, int]]
    max_frames: int


@dataclass(frozen=True, slots=True)
class SampledRows:
    """The rows of a step that sampled a token, in batch order.

    `req_ids` and `infos` (each request's entry of `model_intermediate_buffer`) have one item per
    row, and none when the MTP runs in a CUDA graph; `slots` int64 [rows] is each request's place
    in per-slot tables; `positions` int64 [rows] is the sequence position the sampled token takes
    (== the sequence's length before it); `seeds` int64 [rows] keys all noise of this frame
    (`runtime.sampling`), one per (request, position); `sampling` float32 [rows, 3] has the columns
    temperature, top_k and top_p of `Prompt.mtp`, or of `Prompt.sampling` where that is None.
    """

    req_ids: Sequence[str]
    infos: Sequence[Mapping[str, Any]]
    slots: torch.Tensor
    positions: torch.Tensor
    seeds: torch.Tensor
    sampling: torch.Tensor


@dataclass(frozen=True, slots=True)
class ForwardOutput:
    """What `forward` returns when it makes more than hidden states.

    `hidden_states` [n, hidden] for the step's (padded) tokens. `outputs` by key, each a tensor
    whose first dimension is the step's tokens (split by request), a list of one tensor per request
    in batch order, or a tensor of any other length (every request gets all of it).
    """

    hidden_states: torch.Tensor
    outputs: Mapping[str, Any]


class Front(Protocol):
    """Text and options → `Prompt`. Called from worker threads: must be thread-safe."""

    info: EngineInfo

    def prepare(self, request: SpeechRequest) -> Prompt:
        """Raises `InvalidRequest` (or a subclass) naming what is wrong and what is allowed."""
        ...


class LexiconFront(Front, Protocol):
    """A front that can be told how to read words."""

    def use_lexicon(self, path: Path) -> None:
        """Before the first request. Raises `InvalidRequest` naming the file, the line and what is
        wrong there."""
        ...


class OpenTextFront(Front, Protocol):
    """A front whose model can be given more text while it speaks.

    Segments join into one utterance. What is spoken must depend on the segments, not on when they
    came: the talker waits at the end of each until it knows the next, and so may be held there.
    """

    def prepare_open(self, request: SpeechRequest) -> Prompt:
        """Like `prepare`, for a text that may go on after `request.text`."""
        ...

    def extend(self, request: SpeechRequest, text: str, before: Mapping[str, Any]) -> TextSegment:
        """The next segment; `before` is the conditioning of the one before. Raises
        `InvalidRequest` (or a subclass); the segment is then as if it had not come."""
        ...

    def finish(self, before: Mapping[str, Any]) -> TextSegment:
        """No more text comes."""
        ...

    def units_of(self, token: int) -> int:
        """How many units a frame spoke, by its sampled token."""
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


class Talker(Protocol):
    """Hooks of the vLLM module, in the order of a step. All tensors are on the module's device.

    Every hook but those marked *always* is optional: a module offers what it has. Per-slot tables
    are the model's own: `allocate` makes them once, `begin_request` fills a slot, and every later
    hook is batched over slots, so that a step's Python work does not grow with the streams. A
    hook that finds one request at fault raises `RequestFault` and must have changed nothing.
    """

    end_token_ids: frozenset[int]
    """*Always.* Sampled tokens that end the request and are no frame."""
    codebooks: int
    """Q, codes per frame, of a model with `post_sample_talker_mtp`."""
    head_size: int
    """Width of the logits, where it is not the vocabulary's (default)."""

    def allocate(self, slots: int, max_len: int) -> None:
        """*Always.* Make the per-slot tables: `slots` requests at once, `max_len` positions
        each. The last slot is never a request's: padding rows of CUDA graphs use it."""
        ...

    def begin_request(self, slot: int, conditioning: Mapping[str, Any]) -> None:
        """*Always.* A new request takes `slot`; whatever the slot held before is void."""
        ...

    def extend_request(self, slot: int, conditioning: Mapping[str, Any]) -> None:
        """Between steps: more text for the request in `slot` (`TextSegment.conditioning`). Comes
        with a front that is an `OpenTextFront`."""
        ...

    def clear_warmup_state(self) -> None:
        """Once, before the first real step: forget what warm-up and profiling left."""
        ...

    def on_requests_finished(self, req_ids: Sequence[str]) -> None:
        """After the batch was updated and before the forward: these requests are gone."""
        ...

    def prepare_runner_inputs(
        self, input_ids: torch.Tensor, positions: torch.Tensor, req_ids: Sequence[str] | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Before the forward: ids int64 [n] and positions int64 [n] of the scheduled tokens →
        those the forward shall see, same shapes. `req_ids` are the batch's requests in the order
        of the logits; None under speculative decoding, where rows and requests do not match."""
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
        embeddings [n, hidden]. Comes with `post_sample_talker_mtp`."""
        ...

    def assisted_attention_rows(self, num_reqs: int) -> int:
        """How many rows the step's attention metadata shall have; what is beyond `num_reqs` is
        neutral padding. At most `max_num_seqs` are given."""
        ...

    def set_assisted_attention(self, metadata: Mapping[str, Any] | None) -> None:
        """Around the forward: vLLM's attention metadata by layer, then None, also on failure."""
        ...

    def constrain_logits(self, logits: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """Before sampling: logits [rows, vocab] and each row's slot → logits with what the
        request may not sample now at -inf."""
        ...

    def prepare_duplex_sampling(
        self, logits: torch.Tensor, metadata: SamplingMetadata, rows: Sequence[int]
    ) -> None:
        """Before sampling, while the batch has requests whose conditioning says
        `{"duplex": {"data_plane": True}}`: their rows, to change `logits` in place; once more
        with no rows after the last of them went away."""
        ...

    prefer_model_sampler: bool
    skips_model_sampler_output_token_history: bool

    def sample(self, logits: torch.Tensor, metadata: SamplingMetadata) -> SamplerOutput | None:
        """With `prefer_model_sampler`: logits float32 [rows, vocab] after bias (allowed ids, min
        tokens; not penalties) → the sample, or None for "not this step". `metadata` has each
        row's fields and, unless the model says it `skips_model_sampler_output_token_history`,
        all it has sampled so far (`output_token_ids`)."""
        ...

    talker_mtp_graph_safe: bool
    """The promise that `post_sample_talker_mtp` may be captured as a CUDA graph: it reads only
    tensors (not `req_ids` or `infos`), writes only per-slot tables, and never synchronises."""

    def post_sample_talker_mtp(
        self, input_ids: torch.Tensor, hidden_states: torch.Tensor, rows: SampledRows
    ) -> torch.Tensor:
        """After sampling, once per step, for the rows that sampled: tokens int64 [rows], hidden
        states [rows, hidden] → this frame's codes, int64 [rows, Q]."""
        ...

    has_postprocess: bool
    eager_omni_postprocess_before_async_output: bool

    def postprocess(
        self, req_id: str, hidden_states: torch.Tensor, outputs: Mapping[str, torch.Tensor]
    ) -> Mapping[str, Any]:
        """With `has_postprocess`, per request and step: its rows of the hidden states [t, hidden]
        and its outputs → what to merge into its entry of `model_intermediate_buffer`. Eager: on
        device tensors, before the snapshot; else on the host's, when the output is built."""
        ...

    stage_output: StageOutput
    """What this stage makes (default "audio")."""
    stage_id: int
    """This stage's place in the pipeline (default 0)."""
    omni_pooler_payload_include_hidden: bool
    """Ship hidden states with the payload (default: only if `stage_output` is "latent")."""
    omni_client_multimodal_output_keys: tuple[str, ...]
    """Output keys that go to the client; all others go to the next stage."""
    omni_payload_at_request_end: bool
    """Nothing crosses per step; one payload crosses when the request ends."""
    caches_prefix_outputs: bool
    """Rows of cached prefixes are needed: they come back merged with the step's own."""
    requires_full_prefix_cached_hidden_states: bool
    """With it: hidden states too (default), not only the step's own tail."""
    deferred_prefix_cache_mm_keys: tuple[str, ...]
    """Outputs whose rows enter the prefix cache only when their request ends."""

    def kv_transfer_metadata(self, req_id: str) -> Mapping[str, Any]:
        """For a finished request whose KV is sent on: what to add to the message."""
        ...

    background_output: bool
    """Outputs may be built off the critical path (default)."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """A talker's capabilities, resolved once at load. `codebooks` 0: it makes no frames."""

    codebooks: int
    end_token_ids: frozenset[int]
    head_size: int
    clears_warmup: bool
    hears_finished: bool
    prepares_inputs: bool
    assists_attention: bool
    constrains_logits: bool
    samples_duplex: bool
    own_sampler: bool
    reads_history: bool
    mtp_graph_safe: bool
    postprocess: Literal["eager", "at_build"] | None
    stage_output: StageOutput
    stage_id: int
    ships_hidden: bool
    client_keys: frozenset[str]
    payload_at_end: bool
    caches_outputs: bool
    caches_hidden: bool
    deferred_keys: frozenset[str]
    adds_kv_metadata: bool
    background_output: bool


def resolve_hooks(talker: Any, vocab_size: int) -> Hooks:
    """Raises `TypeError` naming the hooks a talker lacks, `ValueError` for a malformed client-key
    list (R28)."""

    def has(name: str) -> bool:
        return callable(getattr(talker, name, None))

    def flag(name: str, default: bool = False) -> bool:
        return bool(getattr(talker, name, default))

    name = type(talker).__name__
    required = ["allocate", "begin_request"]
    if has("post_sample_talker_mtp"):
        required.append("embed_frames")
    if flag("prefer_model_sampler"):
        required.append("sample")
    if flag("has_postprocess"):
        required.append("postprocess")
    missing = [hook for hook in required if not has(hook)]
    if not hasattr(talker, "end_token_ids"):
        missing.append("end_token_ids")
    if missing:
        raise TypeError(f"{name} is no talker: it lacks {', '.join(missing)}")

    eager = flag("eager_omni_postprocess_before_async_output")
    stage_output: StageOutput = getattr(talker, "stage_output", "audio")
    return Hooks(
        codebooks=talker.codebooks if has("post_sample_talker_mtp") else 0,
        end_token_ids=frozenset(talker.end_token_ids),
        head_size=getattr(talker, "head_size", vocab_size),
        clears_warmup=has("clear_warmup_state"),
        hears_finished=has("on_requests_finished"),
        prepares_inputs=has("prepare_runner_inputs"),
        assists_attention=has("assisted_attention_rows"),
        constrains_logits=has("constrain_logits"),
        samples_duplex=has("prepare_duplex_sampling"),
        own_sampler=flag("prefer_model_sampler"),
        reads_history=flag("prefer_model_sampler")
        and not flag("skips_model_sampler_output_token_history"),
        mtp_graph_safe=flag("talker_mtp_graph_safe"),
        postprocess=("eager" if eager else "at_build") if flag("has_postprocess") else None,
        stage_output=stage_output,
        stage_id=getattr(talker, "stage_id", 0),
        ships_hidden=flag("omni_pooler_payload_include_hidden", stage_output == "latent"),
        client_keys=_client_keys(name, getattr(talker, "omni_client_multimodal_output_keys", ())),
        payload_at_end=flag("omni_payload_at_request_end"),
        caches_outputs=flag("caches_prefix_outputs"),
        caches_hidden=flag("requires_full_prefix_cached_hidden_states", True),
        deferred_keys=frozenset(getattr(talker, "deferred_prefix_cache_mm_keys", ())),
        adds_kv_metadata=has("kv_transfer_metadata"),
        background_output=flag("background_output", True),
    )


def _client_keys(name: str, keys: object) -> frozenset[str]:
    """A tuple of unique, non-empty strings, or `ValueError`."""
    if (
        isinstance(keys, tuple)
        and all(isinstance(key, str) and key for key in keys)
        and len(set(keys)) == len(keys)
    ):
        return frozenset(keys)
    raise ValueError(
        f"{name}.omni_client_multimodal_output_keys must be a tuple of unique, non-empty "
        f"strings, got {keys!r}"
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
