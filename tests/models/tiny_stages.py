"""Tiny models with one capability each, made of the tiny talker. A test names the class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample.metadata import SamplingMetadata

from omni_speak.models.base import ForwardOutput
from tests.models.tiny import CODEBOOKS, CODES, END
from tests.models.tiny_talker import TinyTalker


class OwnSampler(TinyTalker):
    """Samples by itself: the best token that the request has not sampled last. Option `declines`
    leaves every step to the default sampler, `breaks_sampler` returns nonsense."""

    prefer_model_sampler = True

    def allocate(self, slots: int, max_len: int) -> None:
        super().allocate(slots, max_len)
        self.calls: list[tuple[torch.Tensor, SamplingMetadata]] = []

    def sample(self, logits: torch.Tensor, metadata: SamplingMetadata) -> SamplerOutput | None:
        self.calls.append((logits.clone(), metadata))
        if self.options.get("declines"):
            logits.zero_()
            return None
        if self.options.get("breaks_sampler"):
            return torch.zeros(len(logits))  # type: ignore[return-value]
        for row, history in enumerate(metadata.output_token_ids):
            if history:
                logits[row, history[-1]] = -torch.inf
        return SamplerOutput(logits.argmax(-1, keepdim=True).to(torch.int32), None)


class ForgetfulSampler(OwnSampler):
    """Its own sampler needs no history."""

    skips_model_sampler_output_token_history = True


class Duplex(TinyTalker):
    """Duplex rows say code 3, always."""

    def allocate(self, slots: int, max_len: int) -> None:
        super().allocate(slots, max_len)
        self.duplex_calls: list[list[int]] = []

    def prepare_duplex_sampling(
        self, logits: torch.Tensor, metadata: SamplingMetadata, rows: Sequence[int]
    ) -> None:
        self.duplex_calls.append(list(rows))
        for row in rows:
            best = logits[row, 3].clone()
            logits[row] = -torch.inf
            logits[row, 3] = best


class NarrowHead(TinyTalker):
    """Its head covers codes and END, its vocabulary the text too."""

    head_size = END + 1

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return super().compute_logits(hidden_states)[:, : self.head_size].contiguous()

    constrain_logits = None  # type: ignore[assignment]


class Attentive(TinyTalker):
    """Hears what happens to it, and shifts ids and positions by nothing or, with option `shift`,
    by one id and ten positions."""

    def allocate(self, slots: int, max_len: int) -> None:
        super().allocate(slots, max_len)
        self.heard: list[tuple[str, Any]] = []

    def clear_warmup_state(self) -> None:
        self.heard.append(("clear", None))

    def begin_request(self, slot: int, conditioning: Mapping[str, Any]) -> None:
        super().begin_request(slot, conditioning)
        self.heard.append(("begin", slot))

    def on_requests_finished(self, req_ids: Sequence[str]) -> None:
        self.heard.append(("finished", list(req_ids)))

    def prepare_runner_inputs(
        self, input_ids: torch.Tensor, positions: torch.Tensor, req_ids: Sequence[str] | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.heard.append(("inputs", req_ids))
        if not self.options.get("shift"):
            return input_ids, positions
        return (input_ids + 1) % 128, positions + 10

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.heard.append(("forward", kwargs["positions"].tolist()))
        return super().forward(*args, **kwargs)


class Assisted(TinyTalker):
    """Wants attention metadata of `rows` rows (option)."""

    def allocate(self, slots: int, max_len: int) -> None:
        super().allocate(slots, max_len)
        self.context: Any = None
        self.contexts: list[Any] = []
        self.forwards: list[bool] = []

    def assisted_attention_rows(self, num_reqs: int) -> int:
        return self.options["rows"]

    def set_assisted_attention(self, metadata: Mapping[str, Any] | None) -> None:
        self.context = metadata
        self.contexts.append(metadata)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.forwards.append(self.context is not None)
        if self.options.get("breaks_forward"):
            raise RuntimeError("broken forward")
        return super().forward(*args, **kwargs)


class Stage(TinyTalker):
    """No MTP: token ids in, text out."""

    stage_output = "text"
    post_sample_talker_mtp = None  # type: ignore[assignment]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        hidden = super().forward(*args, **kwargs)
        return ForwardOutput(hidden, {"energy": hidden.square().sum(-1)})


class Latent(Stage):
    """Hands hidden states and one output per token to the stages after it."""

    stage_output = "latent"
    omni_client_multimodal_output_keys = ("level",)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        outputs = {**output.outputs, "level": output.outputs["energy"].sqrt(), "rate": 2}
        if self.options.get("odd_output"):
            outputs["odd"] = {"not": "a tensor"}
        return ForwardOutput(output.hidden_states, outputs)


class SparseProducer(Stage):
    """Makes a frame in its forward for some of the batch's requests: those whose id is in
    `speaks`, in reverse order. `declare` may spoil its declaration."""

    stage_output = "audio"
    codebooks = 0

    def allocate(self, slots: int, max_len: int) -> None:
        super().allocate(slots, max_len)
        self.speaks: set[str] = set()
        self.declare: dict[str, Any] = {}

    def prepare_runner_inputs(
        self, input_ids: torch.Tensor, positions: torch.Tensor, req_ids: Sequence[str] | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        assert req_ids is not None
        self.batch = list(req_ids)
        return input_ids, positions

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        hidden = super().forward(*args, **kwargs).hidden_states
        ids = [r for r in reversed(self.batch) if r in self.speaks]
        frames = [torch.full((CODEBOOKS,), self.batch.index(r) % CODES) for r in ids]
        outputs = {"codes.audio": frames, "meta.sparse_audio": True, "meta.req_id": ids}
        return ForwardOutput(hidden, {**outputs, **self.declare})


class AtEnd(Latent):
    """One payload per request, when it ends."""

    omni_payload_at_request_end = True


class CachedOutputs(Latent):
    """Needs the outputs of cached prefixes too, hidden states included."""

    caches_prefix_outputs = True


class CachedTail(CachedOutputs):
    """Needs only its own tail of the hidden states."""

    requires_full_prefix_cached_hidden_states = False


class Deferred(CachedOutputs):
    """`energy` enters the cache when its request ends."""

    deferred_prefix_cache_mm_keys = ("energy",)


class Postprocessed(Latent):
    """Counts its tokens in the request's state, when its output is built."""

    has_postprocess = True

    def postprocess(
        self, req_id: str, hidden_states: torch.Tensor, outputs: Mapping[str, torch.Tensor]
    ) -> Mapping[str, Any]:
        if self.options.get("breaks_postprocess") == req_id:
            raise KeyError("broken postprocess")
        if self.options.get("odd_postprocess"):
            return 5  # type: ignore[return-value]
        return {"post": {"tokens": len(hidden_states), "energy": outputs["energy"].sum()}}


class EagerlyPostprocessed(Postprocessed):
    """The same on the step's own tensors, before the snapshot."""

    eager_omni_postprocess_before_async_output = True


class SendsKV(TinyTalker):
    """Adds its own metadata to KV that is sent on."""

    def kv_transfer_metadata(self, req_id: str) -> Mapping[str, Any]:
        if self.options.get("breaks_kv"):
            raise LookupError("no metadata")
        return {"layers": 2}


class Choosy(TinyTalker):
    """Finds requests at fault: `refuses` maps a hook's name to the request it refuses. With
    `malformed` a hook's result has another shape."""

    def allocate(self, slots: int, max_len: int) -> None:
        super().allocate(slots, max_len)
        self.refuses: dict[str, str] = {}
        self.malformed: set[str] = set()
        self.slot_of: dict[str, int] = {}

    def _check(self, hook: str, slots: torch.Tensor) -> None:
        from omni_speak.runtime.errors import RequestFault

        req_id = self.refuses.get(hook)
        if req_id is not None and self.slot_of[req_id] in slots.tolist():
            raise RequestFault(f"{hook} refuses {req_id}", req_id)

    def begin_request(self, slot: int, conditioning: Mapping[str, Any]) -> None:
        if conditioning.get("refused"):
            raise ValueError("cannot begin")
        super().begin_request(slot, conditioning)

    def embed_frames(self, ids: Any, positions: Any, slots: Any, codes: Any) -> torch.Tensor:
        self._check("embed_frames", slots)
        embeds = super().embed_frames(ids, positions, slots, codes)
        return embeds[:, 1:] if "embed_frames" in self.malformed else embeds

    def constrain_logits(self, logits: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        self._check("constrain_logits", slots)
        logits = super().constrain_logits(logits, slots)
        return logits[:, 1:] if "constrain_logits" in self.malformed else logits

    def post_sample_talker_mtp(self, ids: Any, hidden: Any, rows: Any) -> torch.Tensor:
        self._check("post_sample_talker_mtp", rows.slots)
        if "post_sample_talker_mtp" in self.malformed:
            raise IndexError("a bug")
        return super().post_sample_talker_mtp(ids, hidden, rows)
