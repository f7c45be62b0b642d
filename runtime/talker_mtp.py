"""The post-sample talker MTP: the sampled token becomes this frame's codes, in the same step."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import torch

from omni_speak.models.base import SampledRows, Talker
from omni_speak.runtime.errors import MalformedShape, MalformedType, SpeechError


def check_sampled(sampled: torch.Tensor, req_ids: Sequence[str]) -> None:
    """R15: one token per row, one column. Raises `MalformedShape` (a `ValueError`) naming the
    requests and the shape."""
    if sampled.ndim != 2 or sampled.shape[1] != 1 or sampled.shape[0] != len(req_ids):
        raise MalformedShape(
            "post_sample_talker_mtp needs exactly one sampled token per row, "
            f"[{len(req_ids)}, 1]; got {list(sampled.shape)} for requests {list(req_ids)}",
            req_ids,
        )


def check_shape(
    hook: str, value: object, shape: Sequence[int], req_ids: Sequence[str]
) -> torch.Tensor:
    """A hook's result, held to its shape. Raises `MalformedType` (a `TypeError`) if it is no
    tensor, `MalformedShape` (a `ValueError`) for another shape."""
    if not isinstance(value, torch.Tensor):
        raise MalformedType(
            f"{hook} must return a tensor, got {type(value).__name__} for requests {list(req_ids)}",
            req_ids,
        )
    if value.shape != tuple(shape):
        raise MalformedShape(
            f"{hook} must return {list(shape)} for requests {list(req_ids)}, "
            f"got {list(value.shape)}",
            req_ids,
        )
    return value


def check_codes(codes: object, talker: Talker, req_ids: Sequence[str]) -> torch.Tensor:
    """R16: int64 [rows, Q]. Raises `MalformedType` for another type or rank, `MalformedShape` for
    another number of rows or codebooks."""
    hook = f"{type(talker).__name__}.post_sample_talker_mtp"
    if isinstance(codes, torch.Tensor) and (codes.dtype != torch.int64 or codes.ndim != 2):
        raise MalformedType(
            f"{hook} must return int64 [rows, Q], got {codes.dtype} {list(codes.shape)} "
            f"for requests {list(req_ids)}",
            req_ids,
        )
    return check_shape(hook, codes, (len(req_ids), talker.codebooks), req_ids)


class GraphCaptureFailed(SpeechError):
    """A model promised `talker_mtp_graph_safe` and its MTP could not be captured."""

    code = "graph_capture_failed"


class MTPGraphs:
    """The MTP as CUDA graphs, one per batch bucket (R19).

    A batch runs in the smallest bucket that holds it, its padding rows in the spare slot. Rows of
    a batch larger than every bucket run eagerly.
    """

    def __init__(
        self, talker: Talker, buckets: Sequence[int], hidden_size: int, spare_slot: int
    ) -> None:
        self._talker = talker
        self._buckets = sorted(set(buckets))
        self._hidden_size = hidden_size
        self._spare_slot = spare_slot
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._codes: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return len(self._graphs)

    def capture(self, device: torch.device, dtype: torch.dtype) -> None:
        """Capture every bucket, largest first, so that the smaller ones reuse its memory. Raises
        `GraphCaptureFailed` naming the model's promise."""
        size = self._buckets[-1]
        self._tokens = torch.zeros(size, dtype=torch.int64, device=device)
        self._hidden = torch.zeros(size, self._hidden_size, dtype=dtype, device=device)
        self._slots = torch.full((size,), self._spare_slot, dtype=torch.int64, device=device)
        self._positions = torch.zeros(size, dtype=torch.int64, device=device)
        self._seeds = torch.zeros(size, dtype=torch.int64, device=device)
        self._sampling = torch.zeros(size, 3, dtype=torch.float32, device=device)
        pool = None
        for bucket in reversed(self._buckets):
            try:
                self._run(bucket)  # warm-up: lazy initialisation must not be captured
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool):
                    self._codes[bucket] = self._run(bucket)
            except Exception as error:
                raise GraphCaptureFailed(
                    f"{type(self._talker).__name__} declares talker_mtp_graph_safe, but its "
                    f"post_sample_talker_mtp could not be captured for {bucket} rows: {error}"
                ) from error
            self._graphs[bucket] = graph
            pool = graph.pool()

    def _run(self, rows: int) -> torch.Tensor:
        return self._talker.post_sample_talker_mtp(
            self._tokens[:rows],
            self._hidden[:rows],
            SampledRows(
                req_ids=(),
                infos=(),
                slots=self._slots[:rows],
                positions=self._positions[:rows],
                seeds=self._seeds[:rows],
                sampling=self._sampling[:rows],
            ),
        )

    def __call__(
        self, tokens: torch.Tensor, hidden_states: torch.Tensor, rows: SampledRows
    ) -> torch.Tensor:
        """As `post_sample_talker_mtp`."""
        count = len(tokens)
        place = bisect.bisect_left(self._buckets, count)
        if not self._graphs or place == len(self._buckets):
            return self._talker.post_sample_talker_mtp(tokens, hidden_states, rows)
        bucket = self._buckets[place]
        for buffer, value in (
            (self._tokens, tokens),
            (self._hidden, hidden_states),
            (self._slots, rows.slots),
            (self._positions, rows.positions),
            (self._seeds, rows.seeds),
            (self._sampling, rows.sampling),
        ):
            buffer[:count].copy_(value)
        self._slots[count:bucket].fill_(self._spare_slot)
        self._graphs[bucket].replay()
        # The graph writes here again at the next replay.
        return self._codes[bucket][:count].clone()

    def release(self) -> None:
        """Drop the graphs and their memory."""
        self._graphs.clear()
        self._codes.clear()
