"""The AR runner: vLLM's V1 runner, with a frame around every sample.

    execute_model   stage inputs → states → embed past frames → forward     (`_update_states`,
                                                                 `_preprocess`, `_model_forward`)
    sample_tokens   bias → constrain → sample → bookkeeping                 (`_sample`,
                    → talker MTP → frame table → snapshot → output builder   `_bookkeeping_sync`)

`SpeechRunnerMixin` only captures what passes vLLM's seams and calls `super()`; each override names
its seam. What is ours (frame table, MTP, snapshot, builder) knows nothing of vLLM.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from vllm.compilation.cuda_graph import CUDAGraphWrapper
from vllm.distributed.parallel_state import get_pp_group
from vllm.v1.outputs import AsyncModelRunnerOutput, ModelRunnerOutput, SamplerOutput
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from omni_speak.models.base import ForwardOutput, Hooks, SampledRows, Sampling, resolve_hooks
from omni_speak.runtime.connectors.base import Sender
from omni_speak.runtime.connectors.kv_transfer import kv_message
from omni_speak.runtime.connectors.stage_inputs import StageInputs
from omni_speak.runtime.errors import (
    ModelFault,
    RequestFault,
    SpeechError,
)
from omni_speak.runtime.frames import FrameTable
from omni_speak.runtime.model_sampler import (
    DuplexRows,
    clamp_prompt_ids,
    sample_by_model,
    within_head,
)
from omni_speak.runtime.output_builder import OutputBuilder, PendingBuild, Row
from omni_speak.runtime.payload import split_rows
from omni_speak.runtime.prefix_cache import OutputPrefixCache
from omni_speak.runtime.sampling import request_keys, row_seeds
from omni_speak.runtime.snapshot import StepSnapshot, take_snapshot
from omni_speak.runtime.step_times import Spent, Stopwatch
from omni_speak.runtime.talker_mtp import MTPGraphs, check_codes, check_sampled, check_shape

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import GrammarOutput, NewRequestData, SchedulerOutput

log = logging.getLogger(__name__)

T = TypeVar("T")

SPEECH_ARGS = "speech"
"""Key of a request's `RequestArgs` in `SamplingParams.extra_args`."""


@dataclass(frozen=True, slots=True)
class RequestArgs:
    """What a request brings the runner besides tokens and vLLM's sampling fields."""

    conditioning: Mapping[str, Any]
    mtp: Sampling


@dataclass(frozen=True, slots=True)
class Transfers:
    """What a step did between stages: requests whose KV was sent, and those that got payloads."""

    kv_sent: frozenset[str] = frozenset()
    received: frozenset[str] = frozenset()


@dataclass
class SpeechRunnerOutput(ModelRunnerOutput):
    """vLLM's step output, and the step's transfers."""

    transfers: Transfers | None = None


if TYPE_CHECKING:
    # The class the mixin is written against; at run time it stands before either runner.
    class _Runner(GPUModelRunner): ...
else:
    _Runner = object


class SpeechRunnerMixin(_Runner):
    """Makes a frame of each sampled token. Stands before `CPUModelRunner` or `GPUModelRunner`."""

    hooks: Hooks
    frames: FrameTable
    builder: OutputBuilder
    inputs: StageInputs | None = None
    """Set by whoever connects a stage before this one."""
    kv_sender: Sender | None = None
    """Set by whoever connects a stage that takes finished requests' KV."""
    output_cache: OutputPrefixCache | None = None
    copy_stream: torch.cuda.Stream | None = None
    stopwatch: Stopwatch = Stopwatch("cpu")

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Seam: after the weights are in, resolve the talker's hooks and make the tables."""
        super().load_model(*args, **kwargs)
        self.talker: Any = self.get_model()
        self.hooks = resolve_hooks(self.talker, self.model_config.get_vocab_size())
        if self.hooks.codebooks and self.parallel_config.pipeline_parallel_size > 1:
            raise ValueError(
                "a model with post_sample_talker_mtp cannot run pipeline-parallel: its frames are "
                "made on the last rank and embedded on the first; use tensor parallelism"
            )
        slots, length = self.max_num_reqs, self.max_model_len + 1  # + the token sampled last
        self.frames = FrameTable(slots, length, self.hooks.codebooks, self.device)
        self.talker.allocate(slots + 1, length)
        self.mtp_sampling = torch.zeros(slots + 1, 3, device=self.device)
        # R7: per-request model state, nested; `update_intermediate_buffer` is the only writer.
        self.model_intermediate_buffer: dict[str, dict[str, Any]] = {}
        self.mtp = MTPGraphs(
            self.talker,
            self.compilation_config.cudagraph_capture_sizes or [1],
            self.model_config.get_hidden_size(),
            self.frames.spare,
        )
        self.builder = OutputBuilder(
            self.hooks,
            background=self._may_build_in_background(),
            on_row=self._finish_row if self._finishes_rows() else None,
        )
        self._duplex = DuplexRows()
        self._warm = False
        self._rows_of: list[str] = []
        self._failed: set[str] = set()
        self._unforgotten: set[str] = set()
        self._delivered: dict[str, int] = {}
        self._transfers = Transfers()
        self._outputs: Mapping[str, Any] = {}
        self._execute_raised = False
        self._pending: list[PendingBuild] = []
        self._mtp_rows, self._mtp_spent = 0, Spent()
        self.on_request_failed: Callable[[str, SpeechError], None] = _log_failure
        self.builder.fail = self._fail

    def _finishes_rows(self) -> bool:
        return self.hooks.caches_outputs or self.hooks.postprocess == "at_build"

    def _may_build_in_background(self) -> bool:
        """R21. Without async scheduling the loop has nothing to do meanwhile but Python, for which
        the builder's thread would compete: inline is faster then (scripts/bench_step.py)."""
        return (
            self.use_async_scheduling
            and self.speculative_config is None
            and not self._finishes_rows()
            and not self.hooks.payload_at_end
            and not self.vllm_config.aux_output_config.enable_return_routed_experts
            and self.hooks.background_output
        )

    def initialize_kv_cache(self, kv_cache_config: Any, *args: Any, **kwargs: Any) -> None:
        """Seam: the KV pool and the final input batch exist."""
        super().initialize_kv_cache(kv_cache_config, *args, **kwargs)
        if self.hooks.reads_history:
            # R10: vLLM then keeps every row's sampled ids, and fills those in flight from the
            # last step's host copy, waiting for it only if a row needs one.
            self.input_batch.logitsprocs_need_output_token_ids = True
        if self.hooks.caches_outputs and self.cache_config.enable_prefix_caching:
            self.output_cache = OutputPrefixCache(
                self.hooks, self.kv_cache_config.num_blocks, self.cache_config.block_size
            )

    def capture_model(self) -> int:
        """Seam: vLLM captures its graphs; ours follow (R19)."""
        size: int = super().capture_model()
        if self.hooks.codebooks and self.hooks.mtp_graph_safe:
            self.mtp.capture(self.device, self.dtype)
        return size

    # -- execute -----------------------------------------------------------------------------

    @torch.inference_mode()
    def execute_model(self, scheduler_output: SchedulerOutput, *args: Any, **kwargs: Any) -> Any:
        """Seam: before the step, what must happen while the last step's requests are known."""
        if self.execute_model_state is not None:  # R1
            return super().execute_model(scheduler_output, *args, **kwargs)
        self._execute_raised = True
        scheduler_output = self._own_copy(scheduler_output)
        if not self._warm and scheduler_output.total_num_scheduled_tokens:
            self._warm = True
            if self.hooks.clears_warmup:  # R5
                self.talker.clear_warmup_state()
        self._before_states(scheduler_output)
        output = super().execute_model(scheduler_output, *args, **kwargs)
        self._execute_raised = False
        return self._with_transfers(output) if isinstance(output, ModelRunnerOutput) else output

    def _own_copy(self, scheduler_output: SchedulerOutput) -> SchedulerOutput:
        """R4: the engine's object is shared, so what differs here is a copy. A negative number of
        tokens is none (R2); requests that ended in a step that failed end now."""
        changes: dict[str, Any] = {}
        if scheduler_output.total_num_scheduled_tokens < 0:
            changes["total_num_scheduled_tokens"] = 0
        if self._unforgotten:
            changes["finished_req_ids"] = scheduler_output.finished_req_ids | self._unforgotten
        new = [within_head(n, self.hooks.head_size) for n in scheduler_output.scheduled_new_reqs]
        if any(a is not b for a, b in zip(new, scheduler_output.scheduled_new_reqs, strict=True)):
            changes["scheduled_new_reqs"] = new
        self._unforgotten.update(scheduler_output.finished_req_ids)
        return replace(scheduler_output, **changes) if changes else scheduler_output

    def _before_states(self, scheduler_output: SchedulerOutput) -> None:
        """R3, in its order. Nothing here waits for another stage."""
        finished = scheduler_output.finished_req_ids
        if self.output_cache is not None:
            self.output_cache.apply_finished_writes()
        if self.kv_sender is not None:
            self._send_kv(scheduler_output)
        if self.inputs is not None:
            self.inputs.register(n.req_id for n in scheduler_output.scheduled_new_reqs)
            self.inputs.receive()
            self.inputs.flush(finished)
        if self.output_cache is not None:
            self.output_cache.end(finished)
            self.output_cache.forget(scheduler_output.preempted_req_ids or ())
        if finished and self.hooks.stage_output == "latent":
            self._pending.append(self.builder.finish(sorted(finished)))

    def _send_kv(self, scheduler_output: SchedulerOutput) -> None:
        """Hand finished requests' KV on while their blocks are known and unwritten. The model's
        metadata joins a copy of the request's; if it fails, the step fails (R33)."""
        assert self.kv_sender is not None
        messages = []
        for req_id in sorted(scheduler_output.finished_req_ids & self.requests.keys()):
            wanted = self.model_intermediate_buffer[req_id]["conditioning"].get("kv_transfer")
            state = self.requests[req_id]
            if wanted is None or not state.output_token_ids:
                continue
            metadata = dict(wanted)
            if self.hooks.adds_kv_metadata:
                metadata |= self._call_hook(
                    "kv_transfer_metadata",
                    list(scheduler_output.num_scheduled_tokens) or [req_id],
                    req_id,
                )
            metadata["num_tokens"] = state.num_tokens - 1  # the one sampled last has no KV
            messages.append(
                kv_message(
                    req_id,
                    self.kv_caches,
                    state.block_ids[0],
                    self.kv_cache_config.num_blocks,
                    metadata,
                )
            )
        if messages:
            self.kv_sender.send(messages)
            sent = frozenset(message.req_id for message in messages)
            self._transfers = replace(self._transfers, kv_sent=self._transfers.kv_sent | sent)

    def _update_states(self, scheduler_output: SchedulerOutput) -> Any:
        """Seam: requests come and go. A slot is freed only when its request has finished, so a
        preempted request finds its frames again."""
        finished = scheduler_output.finished_req_ids
        for req_id in finished:
            self.frames.release(req_id)
            self.model_intermediate_buffer.pop(req_id, None)
            self._delivered.pop(req_id, None)
        self._failed.difference_update(finished)
        result = super()._update_states(scheduler_output)
        self._unforgotten.clear()
        if finished or scheduler_output.scheduled_new_reqs:
            self._rows_of = []
        if finished and self.hooks.hears_finished:
            self.talker.on_requests_finished(sorted(finished))
        for new in scheduler_output.scheduled_new_reqs:
            if new.req_id not in self.frames:
                self._begin_request(new)
        if self.inputs is not None:
            received = frozenset(self.inputs.deliver())
            self._transfers = replace(self._transfers, received=self._transfers.received | received)
        return result

    def _begin_request(self, new: NewRequestData) -> None:
        req_id, params = new.req_id, new.sampling_params
        args: RequestArgs = params.extra_args[SPEECH_ARGS]
        slot = self.frames.take(req_id)
        self.model_intermediate_buffer[req_id] = {
            "slot": slot,
            "seed": params.seed,
            "conditioning": args.conditioning,
        }
        mtp = args.mtp
        self.mtp_sampling[slot] = torch.tensor([mtp.temperature, mtp.top_k, mtp.top_p])
        if self.output_cache is not None:
            self.output_cache.begin(req_id, new.block_ids[0], new.num_computed_tokens)
        try:
            self.talker.begin_request(slot, args.conditioning)
        except Exception as error:  # noqa: BLE001  whatever it is, it is this request's alone
            self._fail(req_id, _as_fault("begin_request", req_id, error))

    @torch.inference_mode()  # between steps nothing else sees to it
    def extend_request(self, req_id: str, conditioning: Mapping[str, Any]) -> None:
        """More text for a request that has begun, between steps."""
        if req_id in self._failed:
            return
        slot = self.model_intermediate_buffer[req_id]["slot"]
        try:
            self.talker.extend_request(slot, conditioning)
        except Exception as error:  # noqa: BLE001  whatever it is, it is this request's alone
            self._fail(req_id, _as_fault("extend_request", req_id, error))

    def update_intermediate_buffer(self, req_id: str, update: Mapping[str, Any]) -> None:
        """R7: merge `update` into the request's entry, one level deep."""
        entry = self.model_intermediate_buffer[req_id]
        for key, value in update.items():
            if isinstance(value, Mapping):
                entry[key] = {**entry.get(key, {}), **value}
            else:
                entry[key] = value

    def _preprocess(
        self, scheduler_output: SchedulerOutput, num_input_tokens: int, *args: Any, **kwargs: Any
    ) -> Any:
        """Seam: the model may adjust ids and positions (R6), and token ids become embeddings of
        the frames they stand for (R18)."""
        result = super()._preprocess(scheduler_output, num_input_tokens, *args, **kwargs)
        count = scheduler_output.total_num_scheduled_tokens
        req_ids = self.input_batch.req_ids
        self._look_up_rows()
        ids, positions = self.input_ids.gpu[:count], self.positions[:count]
        if self.hooks.prepares_inputs:
            ids, moved = self._call_hook(
                "prepare_runner_inputs",
                req_ids,
                ids,
                positions,
                None if self.speculative_config is not None else list(req_ids),
            )
            # In place: graphs read the persistent buffers.
            self.input_ids.gpu[:count].copy_(ids)
            result[2][..., :count].copy_(moved)
        if not self.hooks.codebooks or not get_pp_group().is_first_rank:
            return result
        rows = self.req_indices.gpu[:count]

        def embed(row_slots: torch.Tensor) -> torch.Tensor:
            slots = row_slots[rows]
            codes = self.frames.read(slots, positions)
            embeds: torch.Tensor = self.talker.embed_frames(
                ids.to(torch.int64), positions, slots, codes
            )
            return embeds

        embeds = self._by_slot("embed_frames", embed)
        self._check_shape("embed_frames", embeds, (count, self.inputs_embeds.gpu.shape[1]))
        # Into the runner's persistent buffer: CUDA graphs read their inputs where they were
        # captured, and padding rows keep whatever they hold.
        self.inputs_embeds.gpu[:count].copy_(embeds)
        return (None, self.inputs_embeds.gpu[:num_input_tokens], *result[2:])

    def _look_up_rows(self) -> None:
        """Slots and seeds of the batch's rows; most steps have the last step's requests."""
        req_ids = self.input_batch.req_ids
        if req_ids != self._rows_of:
            self._rows_of = list(req_ids)
            self._row_slots = self.frames.slots(req_ids, self._failed)
            seeds = [self.model_intermediate_buffer[r]["seed"] for r in req_ids]
            self._request_keys = request_keys(np.array(seeds, dtype=np.int64))

    def _build_attention_metadata(self, *args: Any, **kwargs: Any) -> Any:
        """Seam: a model may ask for padded metadata (R32). vLLM fills what is beyond the live
        rows: empty queries, zero lengths, the null block."""
        if self.hooks.assists_attention and not kwargs.get("for_cudagraph_capture"):
            live = kwargs["num_reqs"]
            wanted = self.talker.assisted_attention_rows(live)
            padded = min(max(wanted, kwargs.get("num_reqs_padded") or live), self.max_num_reqs)
            kwargs["num_reqs_padded"] = padded
            result = super()._build_attention_metadata(*args, **kwargs)
            self._assisted = result[0]
            return result
        return super()._build_attention_metadata(*args, **kwargs)

    def _model_forward(self, *args: Any, **kwargs: Any) -> Any:
        """Seam: keep what the forward makes besides hidden states, and the model's attention
        context on for exactly as long as it runs."""
        if self.hooks.assists_attention:
            self.talker.set_assisted_attention(self._assisted)
        try:
            output = super()._model_forward(*args, **kwargs)
        finally:
            if self.hooks.assists_attention:
                self.talker.set_assisted_attention(None)
        if isinstance(output, ForwardOutput):
            self._outputs = output.outputs
            return output.hidden_states
        self._outputs = {}
        return output

    # -- sample ------------------------------------------------------------------------------

    def _sample(
        self, logits: torch.Tensor | None, spec_decode_metadata: Any, *args: Any, **kwargs: Any
    ) -> SamplerOutput:
        """Seam: constrain the logits, key each request's generator by position, let the model
        sample if it wants to, keep the sample.

        Generators are re-seeded instead of advanced, so what a request samples depends neither
        on how its prefill was chunked nor on a preemption.
        """
        req_ids = self.input_batch.req_ids
        positions = self.optimistic_seq_lens_cpu.numpy()[: len(req_ids)].astype(np.int64)
        seeds = row_seeds(self._request_keys, positions)
        for row, generator in self.input_batch.generators.items():
            generator.manual_seed(int(seeds[row]))
        self._row_positions, self._row_seeds = torch.from_numpy(positions), torch.from_numpy(seeds)
        output = None
        if logits is not None:
            self.input_batch.sampling_metadata = clamp_prompt_ids(
                self.input_batch.sampling_metadata, logits.shape[-1]
            )
            logits = self._shape_logits(logits)
            if self.hooks.own_sampler and spec_decode_metadata is None:
                output = self._sample_by_model(logits)
        if output is None:
            output = super()._sample(logits, spec_decode_metadata, *args, **kwargs)
        self._sampled = output.sampled_token_ids
        return output

    def _shape_logits(self, logits: torch.Tensor) -> torch.Tensor:
        shape = logits.shape
        if self.hooks.samples_duplex:
            infos = [self.model_intermediate_buffer[r] for r in self.input_batch.req_ids]
            self._duplex.prepare(self.talker, logits, self.input_batch.sampling_metadata, infos)
        if self.hooks.constrains_logits:
            given = logits
            logits = self._by_slot(
                "constrain_logits", lambda slots: self.talker.constrain_logits(given, slots)
            )
            self._check_shape("constrain_logits", logits, shape)
        return logits

    def _sample_by_model(self, logits: torch.Tensor) -> SamplerOutput | None:
        self.input_batch.update_async_output_token_ids()
        req_ids = self.input_batch.req_ids
        metadata = self.input_batch.sampling_metadata
        output = sample_by_model(self.talker, self.sampler, logits, metadata, req_ids)
        if output is None:
            _log_default_sampler(type(self.talker).__name__)
        else:
            check_sampled(output.sampled_token_ids, req_ids)
        return output

    def _bookkeeping_sync(self, *args: Any, **kwargs: Any) -> Any:
        """Seam: vLLM rewinds the generators of rows that did not really sample. Ours are keyed by
        position and need none, and a CPU generator cannot be rewound."""
        generators, self.input_batch.generators = self.input_batch.generators, {}
        try:
            return super()._bookkeeping_sync(*args, **kwargs)
        finally:
            self.input_batch.generators = generators

    @torch.inference_mode()
    def sample_tokens(self, grammar_output: GrammarOutput | None) -> Any:
        """Seam: after vLLM's sampling and bookkeeping, make the frames and hand them off."""
        state = self.execute_model_state
        if state is None and self._execute_raised:
            return None  # vLLM's sign that execute_model failed: it raises what that raised
        output = super().sample_tokens(grammar_output)
        if state is None:
            return self._with_transfers(output)
        # The last step's build had this step's forward to hide behind; its failure surfaces here.
        self.collect_build()
        pending = self._finish_step(state)
        if isinstance(output, AsyncModelRunnerOutput):
            return BuiltOutput(output, pending, self._take_transfers())
        self._pending.append(pending)
        return self._with_transfers(output)

    def _finish_step(self, state: Any) -> PendingBuild:
        """MTP, frame table, snapshot, hand-off."""
        req_ids = list(self.input_batch.req_ids)
        if self._sampled.shape[-1] == 1 or self.hooks.codebooks:
            check_sampled(self._sampled, req_ids)
            # R14: not the rows whose chunked prefill is unfinished.
            sampled = np.flatnonzero(~self.discard_request_mask.np[: len(req_ids)]).tolist()
            if self._failed:
                sampled = [row for row in sampled if req_ids[row] not in self._failed]
            start = self.stopwatch()
            tokens, codes = self._make_frames(req_ids, sampled, state.sample_hidden_states)
            self._mtp_rows, self._mtp_spent = len(sampled), self.stopwatch() - start
        else:  # speculation: several tokens a row, and no model that could make frames of them
            sampled, tokens, codes = [], torch.empty(0, dtype=torch.int64), self._no_codes
        snapshot = self._snapshot(req_ids, sampled, tokens, codes, state)
        if self.output_cache is not None:
            slot_mapping = self.input_batch.block_table[0].slot_mapping.gpu
            self.output_cache.write(snapshot, slot_mapping[: snapshot.starts[-1]].cpu())
        return self.builder.submit(snapshot)

    def _make_frames(
        self, req_ids: list[str], sampled: list[int], hidden_states: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The sampled rows' tokens and codes; `sampled` loses rows that turn out at fault."""
        while True:
            tokens, slots = self._sampled[:, 0].to(torch.int64), self._row_slots
            positions, seeds, hidden = self._row_positions, self._row_seeds, hidden_states
            if len(sampled) < len(req_ids):
                index = torch.tensor(sampled, dtype=torch.int64)
                positions, seeds = positions[index], seeds[index]
                index = index.to(self.device)
                tokens, slots, hidden = tokens[index], slots[index], hidden[index]
            if not sampled or not self.hooks.codebooks:
                return tokens, self._no_codes
            ids = [req_ids[row] for row in sampled]
            rows = SampledRows(
                req_ids=ids,
                infos=[self.model_intermediate_buffer[r] for r in ids],
                slots=slots,
                positions=positions.to(self.device, non_blocking=True),
                seeds=seeds.to(self.device, non_blocking=True),
                sampling=self.mtp_sampling[slots],
            )
            try:
                codes = self._guard("post_sample_talker_mtp", ids, self.mtp, tokens, hidden, rows)
            except RequestFault as fault:
                if fault.request not in ids:
                    raise ModelFault(str(fault), req_ids) from fault
                self._fail(fault.request, fault)
                sampled.remove(req_ids.index(fault.request))
                continue
            codes = check_codes(codes, self.talker, ids)
            self.frames.write(slots, rows.positions, codes)
            for req_id, frame in zip(ids, codes.unbind(0), strict=True):
                self.update_intermediate_buffer(req_id, {"codes": {"audio": frame}})
            return tokens, codes

    @property
    def _no_codes(self) -> torch.Tensor:
        return torch.empty((0, self.hooks.codebooks), dtype=torch.int64, device=self.device)

    def _snapshot(
        self,
        req_ids: list[str],
        sampled: list[int],
        tokens: torch.Tensor,
        codes: torch.Tensor,
        state: Any,
    ) -> StepSnapshot:
        """What the builder will read; a model that makes only frames has little of it."""
        if not (self._outputs or self.hooks.ships_hidden or self.hooks.postprocess):
            return take_snapshot(req_ids, sampled, tokens, codes, self._copy_stream())
        starts = self.query_start_loc.np[: len(req_ids) + 1].tolist()
        hidden_states = state.hidden_states
        if self.hooks.postprocess == "eager":
            self._postprocess_eagerly(req_ids, starts, hidden_states)
        markers = [
            self.model_intermediate_buffer[r]["conditioning"].get("final_stage") for r in req_ids
        ]
        return take_snapshot(
            req_ids,
            sampled,
            tokens,
            codes,
            self._copy_stream(),
            starts=starts,
            hidden_length=len(hidden_states),
            resent=self._resent(req_ids, starts),
            final_stages=markers,
            hidden=self._hidden_to_ship(req_ids, starts, hidden_states, markers),
            outputs=self._outputs,
        )

    def _hidden_to_ship(
        self,
        req_ids: Sequence[str],
        starts: Sequence[int],
        hidden_states: torch.Tensor,
        markers: Sequence[int | None],
    ) -> torch.Tensor | tuple[torch.Tensor | None, ...] | None:
        """R25: one copy for the whole batch when every row needs its hidden states, else by row."""
        if self.hooks.postprocess != "at_build" and not self.hooks.ships_hidden:
            return None
        wanted = [
            self.hooks.postprocess == "at_build" or self.builder.wants(req_id, marker)
            for req_id, marker in zip(req_ids, markers, strict=True)
        ]
        if all(wanted):
            return hidden_states
        return tuple(
            hidden_states[starts[row] : starts[row + 1]] if needed else None
            for row, needed in enumerate(wanted)
        )

    def _resent(self, req_ids: Sequence[str], starts: Sequence[int]) -> list[int]:
        """How many of each row's tokens were in an earlier step, before a preemption: their
        outputs are computed again but not sent again."""
        resent = []
        for row, req_id in enumerate(req_ids):
            begin = int(self.input_batch.num_computed_tokens_cpu[row])
            count = starts[row + 1] - starts[row]
            before = self._delivered.get(req_id, 0)
            resent.append(min(max(before - begin, 0), count))
            self._delivered[req_id] = max(before, begin + count)
        return resent

    def _postprocess_eagerly(
        self, req_ids: Sequence[str], starts: Sequence[int], hidden_states: torch.Tensor
    ) -> None:
        outputs = {
            key: split_rows(value, starts, len(hidden_states))
            for key, value in self._outputs.items()
        }
        for row, req_id in enumerate(req_ids):
            hidden = hidden_states[starts[row] : starts[row + 1]]
            values = {key: split[row] for key, split in outputs.items()}
            try:
                self._postprocess(req_id, hidden, values)
            except RequestFault as fault:
                self._fail(req_id, fault)

    def _postprocess(
        self, req_id: str, hidden: torch.Tensor | None, outputs: Mapping[str, Any]
    ) -> None:
        try:
            update = self.talker.postprocess(req_id, hidden, outputs)
        except Exception as error:
            raise _as_fault("postprocess", req_id, error) from error
        if not isinstance(update, Mapping):
            name = f"{type(self.talker).__name__}.postprocess"
            raise RequestFault(
                f"{name} must return a mapping, got {type(update).__name__} for request {req_id}",
                req_id,
            )
        self.update_intermediate_buffer(req_id, update)

    def _finish_row(self, req_id: str, row: Row) -> Row:
        """Inline, in the builder: the cached prefix in front, then the model's postprocess."""
        if self.output_cache is not None:
            row = self.output_cache.merge(req_id, row)
        if self.hooks.postprocess == "at_build" and req_id not in self._failed:
            self._postprocess(req_id, *row)
        return row

    def _copy_stream(self) -> torch.cuda.Stream | None:
        if self.device.type != "cuda":
            return None
        if self.copy_stream is None:
            self.copy_stream = torch.cuda.Stream(self.device)
        return self.copy_stream

    # -- faults ------------------------------------------------------------------------------

    def _fail(self, req_id: str, error: SpeechError) -> None:
        """End this request alone: its rows become neutral until the engine has taken it out."""
        self._failed.add(req_id)
        self._rows_of = []
        self.on_request_failed(req_id, error)

    def _call_hook(self, name: str, req_ids: Sequence[str], *args: Any) -> Any:
        return self._guard(name, req_ids, getattr(self.talker, name), *args)

    def _guard(self, name: str, req_ids: Sequence[str], hook: Callable[..., T], *args: Any) -> T:
        """Whatever a hook raises has its name and requests on it."""
        try:
            return hook(*args)
        except (ModelFault, RequestFault):
            raise
        except Exception as error:
            raise ModelFault(
                f"{type(self.talker).__name__}.{name} failed for requests {list(req_ids)}: "
                f"{type(error).__name__}: {error}",
                req_ids,
            ) from error

    def _by_slot(self, name: str, hook: Callable[[torch.Tensor], T]) -> T:
        """Call a batched hook with the batch's slots; a request at fault gets the spare one."""
        req_ids = self.input_batch.req_ids
        while True:
            try:
                return self._guard(name, req_ids, hook, self._row_slots)
            except RequestFault as fault:
                if fault.request in self._failed or fault.request not in req_ids:
                    raise ModelFault(str(fault), req_ids) from fault
                self._fail(fault.request, fault)
                self._look_up_rows()

    def _check_shape(self, name: str, value: object, shape: Sequence[int]) -> None:
        hook = f"{type(self.talker).__name__}.{name}"
        check_shape(hook, value, shape, self.input_batch.req_ids)

    # -- end ---------------------------------------------------------------------------------

    def take_mtp(self) -> tuple[int, Spent]:
        """The last step's frames and what making them took; asked for after every step."""
        taken = self._mtp_rows, self._mtp_spent
        self._mtp_rows, self._mtp_spent = 0, Spent()
        return taken

    def collect_build(self) -> None:
        """Wait for the last step's build; raises what the builder raised."""
        while self._pending:
            self._pending.pop(0).result()

    def _take_transfers(self) -> Transfers | None:
        transfers, self._transfers = self._transfers, Transfers()
        return transfers if transfers != Transfers() else None

    def _with_transfers(self, output: ModelRunnerOutput) -> ModelRunnerOutput:
        return _with_transfers(output, self._take_transfers())

    def shutdown(self) -> None:
        """Seam: what is ours goes first, in the order of dependence (R35). The builder reads our
        tensors, so it ends before any of them; twice is harmless."""
        gc.unfreeze()
        self.mtp.release()
        self.builder.shutdown()
        self.output_cache = None
        self.model_intermediate_buffer.clear()
        self._delivered.clear()
        CUDAGraphWrapper.clear_all_graphs()
        super().shutdown()


class BuiltOutput(AsyncModelRunnerOutput):
    """Async scheduling: the consumer of a step's tokens also waits for its build."""

    def __init__(
        self, output: AsyncModelRunnerOutput, pending: PendingBuild, transfers: Transfers | None
    ) -> None:
        self._output = output
        self._pending = pending
        self._transfers = transfers

    def get_output(self) -> ModelRunnerOutput:
        output = self._output.get_output()
        self._pending.result()
        return _with_transfers(output, self._transfers)


def _with_transfers(output: ModelRunnerOutput, transfers: Transfers | None) -> ModelRunnerOutput:
    """A copy: vLLM's empty output is one shared object."""
    if transfers is None:
        return output
    values = {field.name: getattr(output, field.name) for field in fields(ModelRunnerOutput)}
    return SpeechRunnerOutput(**values, transfers=transfers)


def _as_fault(hook: str, req_id: str, error: Exception) -> RequestFault:
    if isinstance(error, RequestFault):
        return error
    fault = RequestFault(f"{hook} failed for request {req_id}: {error!r}", req_id)
    fault.__cause__ = error
    return fault


def _log_failure(req_id: str, error: SpeechError) -> None:
    """Until an engine can end requests."""
    log.error("request %s failed: %s", req_id, error)


@cache
def _log_default_sampler(model: str) -> None:
    """Once per model."""
    log.info("%s.sample left a step to the default sampler", model)


class CPUSpeechRunner(SpeechRunnerMixin, CPUModelRunner):
    """The runner on CPU."""


class GPUSpeechRunner(SpeechRunnerMixin, GPUModelRunner):
    """The runner on CUDA."""
