"""The background output builder: a step's snapshot becomes each request's codes, off the
critical path."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from omni_speak.runtime.payload import NO_FRAME, RowOutput
from omni_speak.runtime.snapshot import StepSnapshot

Sink = Callable[[dict[str, RowOutput]], None]
"""Takes one step's payload: request id → its row's output, in batch order."""


class PendingBuild:
    """A step's output under construction. Built exactly once (R23); `result` waits, raises what
    the builder raised as it was, and lets go of everything after."""

    def __init__(self, future: Future[None]) -> None:
        self._future: Future[None] | None = future

    def result(self) -> None:
        future, self._future = self._future, None
        if future is not None:
            future.result()


class OutputBuilder:
    """Builds steps in order, on one long-lived worker thread (R24) or inline (R21)."""

    def __init__(self, end_token_ids: frozenset[int], *, background: bool) -> None:
        self._end_token_ids = end_token_ids
        self._ended: set[str] = set()
        self._worker = (
            ThreadPoolExecutor(max_workers=1, thread_name_prefix="output-builder")
            if background
            else None
        )
        self.sink: Sink = _drop

    @property
    def background(self) -> bool:
        return self._worker is not None

    def submit(self, snapshot: StepSnapshot) -> PendingBuild:
        if self._worker is not None:
            return PendingBuild(self._worker.submit(self._build, snapshot))
        done: Future[None] = Future()
        self._build(snapshot)
        done.set_result(None)
        return PendingBuild(done)

    def _build(self, snapshot: StepSnapshot) -> None:
        """R17: every row of the batch has an entry, in batch order. A row that got no frame this
        step (unfinished prefill, or the token that ends it) has an *empty* one: never a replay."""
        snapshot.wait()
        codes = snapshot.codes.numpy().astype(np.uint16)
        payload = dict.fromkeys(snapshot.req_ids, NO_FRAME)
        # Async scheduling samples one step past the end. An ended request that is in no later
        # batch is gone, so only this batch's are remembered.
        self._ended.intersection_update(snapshot.req_ids)
        for row, (place, token) in enumerate(
            zip(snapshot.sampled, snapshot.tokens.tolist(), strict=True)
        ):
            req_id = snapshot.req_ids[place]
            if token in self._end_token_ids:
                self._ended.add(req_id)
            elif req_id not in self._ended:
                payload[req_id] = RowOutput(codes[row], token)
        self.sink(payload)

    def shutdown(self) -> None:
        """Finish what is queued and end the worker. Twice is harmless."""
        if self._worker is not None:
            self._worker.shutdown(wait=True)


def _drop(payload: dict[str, RowOutput]) -> None:
    """Until an engine listens (warm-up), outputs go nowhere."""
