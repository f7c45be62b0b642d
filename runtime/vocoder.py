"""The codec stage: codes of many streams become waveform in batches, each with its own state.

One thread decodes. A stream is decoded only as far as its reader has room (`lead_frames`), so a
reader that stops costs its codes (two bytes each), not its audio; the others go on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from omni_speak.models.base import Codec
from omni_speak.runtime.payload import RowOutput
from omni_speak.runtime.request import FinishReason, Frame
from omni_speak.runtime.step_times import StageTimes, Stopwatch

MAX_STREAMS_PER_ROUND = 32
"""Bounds a round's time and memory; the streams left out come first in the next."""


@dataclass(frozen=True, slots=True)
class End:
    """A stream's terminal event: after its last frame."""

    reason: FinishReason


Delivery = Callable[[list[tuple[str, Frame | End]]], None]
"""Takes one round's frames and ends, in order. Called on the vocoder thread."""


@dataclass(slots=True)
class _Stream:
    state: list[torch.Tensor]
    pending: deque[RowOutput] = field(default_factory=deque)
    decoded: int = 0
    consumed: int = 0
    end: FinishReason | None = None

    def due(self, lead_frames: int) -> bool:
        return bool(self.pending) and self.decoded - self.consumed < lead_frames


class Vocoder:
    """Decodes what streams are due, on its own thread. All methods are thread-safe."""

    def __init__(
        self,
        codec: Codec,
        *,
        samples_per_frame: int,
        stopwatch: Stopwatch,
        times: StageTimes,
        lead_frames: int,
        deliver: Delivery,
        on_failure: Callable[[BaseException], None],
        slack: Callable[[str], float] | None = None,
    ) -> None:
        """`times` learns how long a round takes, by streams in it. `slack` tells when a stream's
        reader runs dry, in seconds from now; without it, streams are decoded by how little their
        readers have to take."""
        self._codec = codec
        self._samples = samples_per_frame
        self._lead = lead_frames
        self._deliver = deliver
        self._on_failure = on_failure
        self._slack = slack
        self._stopwatch = stopwatch
        self._times = times
        self._streams: dict[str, _Stream] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="vocoder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the round in progress and join. Twice is harmless."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def __len__(self) -> int:
        return len(self._streams)

    def open(self, stream_id: str) -> None:
        state = self._codec.initial_state(1)
        with self._changed:
            self._streams[stream_id] = _Stream(state)

    def push(self, payload: Mapping[str, RowOutput]) -> None:
        """One step's rows by stream; those without codes are no frames. Streams that are gone are
        ignored: under async scheduling a step runs past a stream's end."""
        with self._changed:
            for stream_id, row in payload.items():
                stream = self._streams.get(stream_id)
                if stream is not None and stream.end is None and row.codes.size:
                    stream.pending.append(row)
            self._changed.notify()

    def finish(self, stream_id: str, reason: FinishReason) -> None:
        """No more codes come; the end is delivered after the last frame."""
        with self._changed:
            stream = self._streams.get(stream_id)
            if stream is not None:
                stream.end = reason
            self._changed.notify()

    def drop(self, stream_id: str) -> None:
        """Forget a stream: nothing of it is delivered after the round in progress."""
        with self._changed:
            self._streams.pop(stream_id, None)

    def consumed(self, stream_id: str) -> None:
        """The reader took one frame."""
        with self._changed:
            stream = self._streams.get(stream_id)
            if stream is not None:
                stream.consumed += 1
                if stream.pending:
                    self._changed.notify()

    # -- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        torch.set_num_threads(1)
        try:
            with torch.inference_mode():
                while (work := self._wait()) is not None:
                    batch, rows, ends = work
                    self._deliver([*(self._decode(batch, rows) if batch else []), *ends])
        except Exception as error:  # noqa: BLE001  the engine must learn of it, whatever it is
            self._on_failure(error)

    def _wait(
        self,
    ) -> tuple[list[tuple[str, _Stream]], list[RowOutput], list[tuple[str, Frame | End]]] | None:
        """The next round: streams with a frame each to decode, and the streams that are over with
        it (or already were). None when told to stop."""
        with self._changed:
            while not self._stopping:
                batch = self._due()
                # One frame at a time, backlog or not: several at once round the last bit another
                # way, and the same request alone would not give the same bytes twice.
                rows = [stream.pending.popleft() for _, stream in batch]
                ends = self._ended()
                if batch or ends:
                    return batch, rows, ends
                self._changed.wait()
        return None

    def _due(self) -> list[tuple[str, _Stream]]:
        due = [
            (stream_id, stream)
            for stream_id, stream in self._streams.items()
            if stream.due(self._lead)
        ]
        if self._slack is None:
            due.sort(key=lambda item: item[1].decoded - item[1].consumed)  # least lead first
            return due[:MAX_STREAMS_PER_ROUND]
        slack = {stream_id: self._slack(stream_id) for stream_id, _ in due}
        due.sort(key=lambda item: slack[item[0]])
        # All that fit: rounds cut short to be quick lose more by their number than they gain.
        return due[:MAX_STREAMS_PER_ROUND]

    def _ended(self) -> list[tuple[str, Frame | End]]:
        """Streams with nothing left to decode: their ends, and they are forgotten."""
        ended = [
            (stream_id, End(stream.end))
            for stream_id, stream in self._streams.items()
            if stream.end is not None and not stream.pending
        ]
        for stream_id, _ in ended:
            del self._streams[stream_id]
        return ended  # type: ignore[return-value]

    def _decode(
        self, batch: list[tuple[str, _Stream]], rows: list[RowOutput]
    ) -> list[tuple[str, Frame | End]]:
        start = self._stopwatch()
        streams = [stream for _, stream in batch]
        state = [torch.cat(rows) for rows in zip(*(s.state for s in streams), strict=True)]
        codes = torch.from_numpy(np.array([[row.codes] for row in rows], dtype=np.int64))
        pcm, state = self._codec.decode(codes, state)
        samples = pcm.numpy()
        frames: list[tuple[str, Frame | End]] = []
        for i, ((stream_id, stream), row) in enumerate(zip(batch, rows, strict=True)):
            stream.state = [tensor[i : i + 1] for tensor in state]
            index, stream.decoded = stream.decoded, stream.decoded + 1
            pts = index * self._samples
            frames.append((stream_id, Frame(index, row.codes, samples[i], pts, row.token)))
        self._times.observe(len(batch), 0, self._stopwatch() - start)
        return frames
