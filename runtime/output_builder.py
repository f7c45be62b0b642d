"""The background output builder: a step's snapshot becomes each request's output, off the critical
path.

    snapshot → split by request → route → wire ─┬▶ sink: what clients get, one entry per row
                                                └▶ send: what the next stage gets
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from omni_speak.models.base import Hooks
from omni_speak.runtime.errors import MalformedShape, SpeechError
from omni_speak.runtime.payload import (
    NO_CODES,
    NO_FRAME,
    Accumulator,
    Payload,
    Router,
    RowOutput,
    partition,
    split_rows,
    to_wire,
)
from omni_speak.runtime.snapshot import StepSnapshot
from omni_speak.runtime.sparse_audio import SparseAudio

CODES, HIDDEN = "codes.audio", "hidden"
"""Payload keys of a row's audio codes and hidden states."""

Sink = Callable[[dict[str, RowOutput]], None]
"""Takes one step's outputs for clients: request id → its row's output, in batch order."""

Send = Callable[[dict[str, Payload]], None]
"""Takes one step's payloads for the next stage: only requests that have one."""

Row = tuple[torch.Tensor | None, Mapping[str, Any]]
"""A row's hidden states [t, hidden], if it ships any, and its outputs by key."""

RowHook = Callable[[str, Row], Row]
"""What the runner still does to a row, given its request id, before it is sent."""

Fail = Callable[[str, SpeechError], None]
"""This request is at fault and must end."""


class PendingBuild:
    """A step's output under construction. Built exactly once (R23); `result` waits, raises what
    the builder raised as it was, and lets go of everything after.

    A bare lock, held until it is built: a `Future` costs a step several times the build's own time.
    """

    def __init__(self, job: Callable[[], None]) -> None:
        self._job: Callable[[], None] | None = job
        self._error: BaseException | None = None
        self._building = threading.Lock()
        self._building.acquire()

    def build(self) -> None:
        job, self._job = self._job, None
        assert job is not None
        try:
            job()
        except BaseException as error:  # noqa: BLE001  the consumer's to handle, whatever it is
            self._error = error
        finally:
            self._building.release()

    def result(self) -> None:
        with self._building:
            error, self._error = self._error, None
        if error is not None:
            raise error


class OutputBuilder:
    """Builds steps in order, on one long-lived worker thread (R24) or inline (R21)."""

    def __init__(self, hooks: Hooks, *, background: bool, on_row: RowHook | None = None) -> None:
        self._hooks = hooks
        self._on_row = on_row
        self._ended: set[str] = set()
        self._sparse = SparseAudio()
        self._router = Router(hooks.stage_output, hooks.stage_id)
        self._accumulator = Accumulator()
        self.background = background
        self._closed = False
        self._queue: queue.SimpleQueue[PendingBuild | None] = queue.SimpleQueue()
        self._worker = threading.Thread(target=self._work, name="output-builder", daemon=True)
        if background:
            self._worker.start()
        self.sink: Sink = _drop
        self.send: Send | None = None
        self.fail: Fail = _raise

    def wants(self, req_id: str, final_stage: int | None) -> bool:
        """Whether a row with this marker has a payload (R26)."""
        return self._router.wants(req_id, final_stage)

    def submit(self, snapshot: StepSnapshot) -> PendingBuild:
        """Build one step."""
        return self._run(self._build, snapshot)

    def finish(self, req_ids: Sequence[str]) -> PendingBuild:
        """These requests are over: send what was kept for their end, forget the rest."""
        return self._run(self._finish, req_ids)

    def _run(self, job: Callable[[Any], None], argument: Any) -> PendingBuild:
        if self._closed:
            raise RuntimeError("the output builder was shut down: nothing more is built")
        pending = PendingBuild(partial(job, argument))
        if self.background:
            self._queue.put(pending)
        else:
            pending.build()
        return pending

    def _work(self) -> None:
        while (pending := self._queue.get()) is not None:
            pending.build()

    def _build(self, snapshot: StepSnapshot) -> None:
        """R17: every row of the batch has an entry, in batch order. A row that got no frame this
        step (unfinished prefill, or the token that ends it) has an *empty* one: never a replay."""
        snapshot.wait()
        rows = dict.fromkeys(snapshot.req_ids, NO_FRAME)
        # Async scheduling samples one step past the end. An ended request that is in no later
        # batch is gone, so only this batch's are remembered.
        self._ended.intersection_update(snapshot.req_ids)
        tokens = snapshot.tokens.tolist()
        frames = list(snapshot.codes.numpy().astype(np.uint16)) or [NO_CODES] * len(tokens)
        for place, token, codes in zip(snapshot.sampled, tokens, frames, strict=True):
            req_id = snapshot.req_ids[place]
            if token in self._hooks.end_token_ids:
                self._ended.add(req_id)
            elif req_id not in self._ended:
                rows[req_id] = RowOutput(codes, token)
        if self.send is not None or snapshot.outputs or snapshot.hidden is not None:
            self._build_payloads(snapshot, rows)
        self.sink(rows)

    def _build_payloads(self, snapshot: StepSnapshot, rows: dict[str, RowOutput]) -> None:
        """What the model made besides frames, by request: into `rows` what is the client's, on
        its way what is the next stage's."""
        hidden = _split_hidden(snapshot)
        outputs = {
            key: split_rows(value, snapshot.starts, snapshot.hidden_length, snapshot.resent)
            for key, value in self._sparse.route(snapshot.outputs, snapshot.req_ids).items()
        }
        onward: dict[str, Payload] = {}
        for place, req_id in enumerate(snapshot.req_ids):
            row: Row = (hidden[place], {key: split[place] for key, split in outputs.items()})
            marker = snapshot.final_stages[place] if snapshot.final_stages else None
            try:
                rows[req_id], payload = self._build_row(req_id, rows[req_id], row, marker)
            except SpeechError as error:  # one row's fault is one request's end
                rows[req_id] = NO_FRAME
                self.fail(req_id, error)
                continue
            if self._hooks.payload_at_end:
                self._accumulator.add(req_id, payload)
            elif payload:
                onward[req_id] = payload
        if onward and self.send is not None:
            self.send(onward)

    def _build_row(
        self, req_id: str, output: RowOutput, row: Row, final_stage: int | None
    ) -> tuple[RowOutput, Payload]:
        """One row's output for its client and payload for the next stage."""
        hidden, values = row if self._on_row is None else self._on_row(req_id, row)
        codes = output.codes
        if not self._hooks.codebooks and CODES in values:
            codes = _own_codes(req_id, values[CODES])
        if not self._router.wants(req_id, final_stage):
            return RowOutput(codes, output.token), {}
        client, payload = partition(to_wire(values), self._hooks.client_keys)
        if codes.size:
            payload[CODES] = torch.from_numpy(codes.astype(np.int64))
        if hidden is not None and self._hooks.ships_hidden:
            payload[HIDDEN] = hidden
        return RowOutput(codes, output.token, client), payload

    def _finish(self, req_ids: Sequence[str]) -> None:
        onward: dict[str, Payload] = {}
        for req_id in req_ids:
            self._router.forget(req_id)
            payload = self._accumulator.take(req_id)
            if payload:
                onward[req_id] = payload
        if onward and self.send is not None:
            self.send(onward)

    def shutdown(self) -> None:
        """Finish what is queued and end the worker. Twice is harmless."""
        if self.background and not self._closed:
            self._queue.put(None)
            self._worker.join()
        self._closed = True


def _split_hidden(snapshot: StepSnapshot) -> Sequence[torch.Tensor | None]:
    if isinstance(snapshot.hidden, tuple):
        return snapshot.hidden
    if snapshot.hidden is None:
        return [None] * len(snapshot.req_ids)
    return split_rows(snapshot.hidden, snapshot.starts, snapshot.hidden_length, snapshot.resent)


def _own_codes(req_id: str, codes: Any) -> NDArray[np.uint16]:
    """The codes a model without MTP made in its forward: one frame [Q], or none."""
    codes = torch.as_tensor(codes)
    if codes.numel() == 0:
        return NO_CODES
    if codes.ndim != 1:
        raise MalformedShape(
            f"output {CODES!r} must be one frame [Q] per request, "
            f"got {list(codes.shape)} for request {req_id}",
            [req_id],
        )
    frame: NDArray[np.uint16] = codes.numpy().astype(np.uint16)
    return frame


def _drop(rows: dict[str, RowOutput]) -> None:
    """Until an engine listens (warm-up), outputs go nowhere."""


def _raise(req_id: str, error: SpeechError) -> None:
    """Until somebody can end requests, a row's fault is the builder's."""
    raise error
