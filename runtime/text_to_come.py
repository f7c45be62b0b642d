"""Text that a model has yet to learn: behind what it speaks, so it can wait for a better moment."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Piece = TypeVar("Piece")


class TextToCome(Generic[Piece]):
    """Each stream's pieces in their order; first those of the stream that will need them first."""

    def __init__(self) -> None:
        self._pieces: dict[str, deque[Piece]] = {}

    def add(self, stream_id: str, piece: Piece) -> None:
        self._pieces.setdefault(stream_id, deque()).append(piece)

    def take(self, left: Callable[[str], float]) -> Piece | None:
        """The next piece. `left` is how much of its text a stream has still to speak; inf: it
        cannot take more yet. None if there is no piece for a stream that can."""
        stream_id = min(self._pieces, key=left, default=None)
        if stream_id is None or left(stream_id) == math.inf:
            return None
        pieces = self._pieces[stream_id]
        piece = pieces.popleft()
        if not pieces:
            del self._pieces[stream_id]
        return piece

    def drop(self, stream_id: str) -> None:
        """A stream is over. Twice is harmless."""
        self._pieces.pop(stream_id, None)
