"""The AR runner: vLLM's V1 runner, with a frame around every sample.

    execute_model   embed past frames → forward            (vLLM's, through `_preprocess`)
    sample_tokens   constrain → sample → bookkeeping       (vLLM's, through `_sample`)
                    → talker MTP → frame table → snapshot → output builder

`SpeechRunnerMixin` only captures what passes vLLM's seams and calls `super()`; each override names
its seam. What is ours (frame table, MTP, snapshot, builder) knows nothing of vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from vllm.v1.outputs import AsyncModelRunnerOutput, ModelRunnerOutput, SamplerOutput
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from omni_speak.models.base import Hooks, SampledRows, resolve_hooks
from omni_speak.runtime.frames import FrameTable
from omni_speak.runtime.output_builder import OutputBuilder, PendingBuild
from omni_speak.runtime.sampling import row_seeds
from omni_speak.runtime.snapshot import take_snapshot
from omni_speak.runtime.talker_mtp import check_sampled, run_talker_mtp

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import GrammarOutput, NewRequestData, SchedulerOutput

SPEECH_ARGS = "speech"
"""Key of a request's conditioning in `SamplingParams.extra_args`."""

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
    copy_stream: torch.cuda.Stream | None = None

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Seam: after the weights are in, resolve the talker's hooks and make the tables."""
        super().load_model(*args, **kwargs)
        self.talker: Any = self.get_model()
        self.hooks = resolve_hooks(self.talker)
        slots, length = self.max_num_reqs, self.max_model_len + 1  # + the token sampled last
        self.frames = FrameTable(slots, length, self.hooks.codebooks, self.device)
        self.talker.allocate(slots, length)
        # R7: per-request model state, nested; `update_intermediate_buffer` is the only writer.
        self.model_intermediate_buffer: dict[str, dict[str, Any]] = {}
        self.builder = OutputBuilder(
            self.hooks.end_token_ids, background=self._may_build_in_background()
        )
        self._pending: PendingBuild | None = None

    def _may_build_in_background(self) -> bool:
        """R21. Codes reach their streams past the scheduler, so the token path never waits for
        the builder and async scheduling is no precondition here."""
        return self.speculative_config is None and self.hooks.background_output

    # -- execute -----------------------------------------------------------------------------

    @torch.inference_mode()
    def execute_model(self, scheduler_output: SchedulerOutput, *args: Any, **kwargs: Any) -> Any:
        """Seam: before the step, collect the last step's build, so that at most one is in flight
        and its failure surfaces here."""
        if self.execute_model_state is None:  # R1: otherwise super() raises
            self.collect_build()
        if scheduler_output.total_num_scheduled_tokens < 0:  # R2; R4: never mutated
            scheduler_output = replace(scheduler_output, total_num_scheduled_tokens=0)
        return super().execute_model(scheduler_output, *args, **kwargs)

    def _update_states(self, scheduler_output: SchedulerOutput) -> Any:
        """Seam: requests come and go. A slot is freed only when its request has finished, so a
        preempted request finds its frames again."""
        for req_id in scheduler_output.finished_req_ids:
            self.frames.release(req_id)
            self.model_intermediate_buffer.pop(req_id, None)
        result = super()._update_states(scheduler_output)
        for new in scheduler_output.scheduled_new_reqs:
            if new.req_id not in self.frames:
                self._begin_request(new)
        return result

    def _begin_request(self, new: NewRequestData) -> None:
        conditioning = new.sampling_params.extra_args[SPEECH_ARGS]
        slot = self.frames.take(new.req_id)
        self.model_intermediate_buffer[new.req_id] = {
            "slot": slot,
            "seed": new.sampling_params.seed,
            "conditioning": conditioning,
        }
        self.talker.begin_request(slot, conditioning)

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
        """Seam: token ids become embeddings of the frames they stand for (R18)."""
        result = super()._preprocess(scheduler_output, num_input_tokens, *args, **kwargs)
        count = scheduler_output.total_num_scheduled_tokens
        self._row_slots = self.frames.slots(self.input_batch.req_ids)
        slots = self._row_slots[self.req_indices.gpu[:count]]
        positions = self.positions[:count]
        embeds = self.talker.embed_frames(
            self.input_ids.gpu[:count].to(torch.int64),
            positions,
            slots,
            self.frames.read(slots, positions),
        )
        # Into the runner's persistent buffer: CUDA graphs read their inputs where they were
        # captured, and padding rows keep whatever they hold.
        self.inputs_embeds.gpu[:count].copy_(embeds)
        return (None, self.inputs_embeds.gpu[:num_input_tokens], *result[2:])

    # -- sample ------------------------------------------------------------------------------

    def _sample(self, logits: torch.Tensor | None, *args: Any, **kwargs: Any) -> SamplerOutput:
        """Seam: constrain the logits, key each request's generator by position, keep the sample.

        Generators are re-seeded instead of advanced, so what a request samples depends neither
        on how its prefill was chunked nor on a preemption.
        """
        req_ids = self.input_batch.req_ids
        positions = self.optimistic_seq_lens_cpu[: len(req_ids)].to(torch.int64)
        seeds = torch.tensor([self.model_intermediate_buffer[r]["seed"] for r in req_ids])
        self._row_seeds = row_seeds(seeds, positions)
        self._row_positions = positions
        for row, generator in self.input_batch.generators.items():
            generator.manual_seed(int(self._row_seeds[row]))
        if logits is not None and self.hooks.constrains_logits:
            logits = self.talker.constrain_logits(logits, self._row_slots)
        output = super()._sample(logits, *args, **kwargs)
        self._sampled = output.sampled_token_ids
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
        output = super().sample_tokens(grammar_output)
        if state is None:
            return output
        pending = self._make_frames(state.sample_hidden_states)
        if isinstance(output, AsyncModelRunnerOutput):
            return BuiltOutput(output, pending)
        self._pending = pending
        return output

    def _make_frames(self, hidden_states: torch.Tensor) -> PendingBuild:
        """MTP, frame table, snapshot, hand-off: hidden_states [num_reqs, hidden] of the sampled
        positions, in batch order."""
        req_ids = list(self.input_batch.req_ids)
        check_sampled(self._sampled, req_ids)
        # R14: not the rows whose chunked prefill is unfinished.
        sampled = np.flatnonzero(~self.discard_request_mask.np[: len(req_ids)]).tolist()
        tokens, slots = self._sampled[:, 0].to(torch.int64), self._row_slots
        positions, seeds = self._row_positions, self._row_seeds
        if len(sampled) < len(req_ids):
            index = torch.tensor(sampled, dtype=torch.int64)
            positions, seeds = positions[index], seeds[index]
            index = index.to(self.device)
            tokens, slots, hidden_states = tokens[index], slots[index], hidden_states[index]
        codes = torch.empty((0, self.hooks.codebooks), dtype=torch.int64, device=self.device)
        if sampled:
            ids = [req_ids[row] for row in sampled]
            rows = SampledRows(
                req_ids=ids,
                infos=[self.model_intermediate_buffer[r] for r in ids],
                slots=slots,
                positions=positions.to(self.device, non_blocking=True),
                seeds=seeds.to(self.device, non_blocking=True),
            )
            codes = run_talker_mtp(self.talker, tokens, hidden_states, rows)
            self.frames.write(slots, rows.positions, codes)
            for row, req_id in enumerate(ids):
                self.update_intermediate_buffer(req_id, {"codes": {"audio": codes[row]}})
        return self.builder.submit(
            take_snapshot(req_ids, sampled, tokens, codes, self._copy_stream())
        )

    def _copy_stream(self) -> torch.cuda.Stream | None:
        if self.device.type != "cuda":
            return None
        if self.copy_stream is None:
            self.copy_stream = torch.cuda.Stream(self.device)
        return self.copy_stream

    # -- end ---------------------------------------------------------------------------------

    def collect_build(self) -> None:
        """Wait for the last step's build; raises what the builder raised."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def shutdown(self) -> None:
        """Seam: the builder reads our tensors, so it ends before vLLM lets go of them."""
        self.builder.shutdown()
        self.model_intermediate_buffer.clear()
        super().shutdown()


class BuiltOutput(AsyncModelRunnerOutput):
    """Async scheduling: the consumer of a step's tokens also waits for its build."""

    def __init__(self, output: AsyncModelRunnerOutput, pending: PendingBuild) -> None:
        self._output = output
        self._pending = pending

    def get_output(self) -> ModelRunnerOutput:
        output = self._output.get_output()
        self._pending.result()
        return output


class CPUSpeechRunner(SpeechRunnerMixin, CPUModelRunner):
    """The runner on CPU."""


class GPUSpeechRunner(SpeechRunnerMixin, GPUModelRunner):
    """The runner on CUDA."""
