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
from numpy.typing import NDArray

from omni_speak.models.base import Codec
from omni_speak.runtime.request import FinishReason, Frame

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
    pending: deque[NDArray[np.uint16]] = field(default_factory=deque)
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
        lead_frames: int,
        deliver: Delivery,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._codec = codec
        self._samples = samples_per_frame
        self._lead = lead_frames
        self._deliver = deliver
        self._on_failure = on_failure
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

    def push(self, payload: Mapping[str, NDArray[np.uint16]]) -> None:
        """One step's codes by stream: uint16 [Q], empty for none. Streams that are gone are
        ignored: under async scheduling a step runs past a stream's end."""
        with self._changed:
            for stream_id, codes in payload.items():
                stream = self._streams.get(stream_id)
                if stream is not None and stream.end is None and codes.size:
                    stream.pending.append(codes)
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
                while True:
                    with self._changed:
                        while not (batch := self._due()) and not (ends := self._ended()):
                            if self._stopping:
                                return
                            self._changed.wait()
                        if self._stopping:
                            return
                        if batch:
                            codes, ends = self._take(batch), []
                    self._deliver(self._decode(batch, codes) if batch else ends)
        except Exception as error:  # noqa: BLE001  the engine must learn of it, whatever it is
            self._on_failure(error)

    def _due(self) -> list[tuple[str, _Stream]]:
        due = [
            (stream_id, stream)
            for stream_id, stream in self._streams.items()
            if stream.due(self._lead)
        ]
        due.sort(key=lambda item: item[1].decoded - item[1].consumed)  # least lead first
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

    def _take(self, batch: list[tuple[str, _Stream]]) -> torch.Tensor:
        """The next frame of every stream in the batch, int64 [B, 1, Q].

        One frame at a time, backlog or not: several at once round the last bit another way,
        and the same request alone would not give the same bytes twice.
        """
        codes = np.stack([stream.pending.popleft() for _, stream in batch])
        return torch.from_numpy(codes.astype(np.int64))[:, None]

    def _decode(
        self, batch: list[tuple[str, _Stream]], codes: torch.Tensor
    ) -> list[tuple[str, Frame | End]]:
        streams = [stream for _, stream in batch]
        state = [torch.cat(rows) for rows in zip(*(s.state for s in streams), strict=True)]
        pcm, state = self._codec.decode(codes, state)
        samples, wire = pcm.numpy(), codes[:, 0].numpy().astype(np.uint16)
        frames: list[tuple[str, Frame | End]] = []
        for row, (stream_id, stream) in enumerate(batch):
            stream.state = [tensor[row : row + 1] for tensor in state]
            index, stream.decoded = stream.decoded, stream.decoded + 1
            pts = index * self._samples
            frames.append((stream_id, Frame(index, wire[row], samples[row], pts)))
        return frames
