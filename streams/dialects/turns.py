"""Texts that are heard one after another: a turn's audio waits until the turn before it ended.

The engine may speak several at the same time. What waits is bounded: see `overfull`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from omni_speak.streams.messages import (
    Cancel,
    ClientMessage,
    ContextOpen,
    ContextOpened,
    TextAppend,
    TextEnd,
)
from omni_speak.streams.wire import WireFrame

MAX_WAITING_BYTES = 4 * 1024 * 1024


@dataclass(slots=True, eq=False)
class Turn:
    """`flushed`: no more text comes. `chars` of it were accepted. `sent`: bytes of its audio."""

    name: str
    chars: int = 0
    flushed: bool = False
    opened: bool = False
    done: bool = False
    sent: int = 0
    waiting: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Started:
    """The turn's audio, if any, comes next."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Ended:
    """All of the turn's audio was there."""

    turn: Turn


Heard = Started | bytes | Ended


class Turns:
    """Iterating gives the turns that have not ended, in order; each is a context."""

    def __init__(self) -> None:
        self._queue: deque[Turn] = deque()
        self._names: dict[int, str] = {}
        self._count = 0

    def __iter__(self) -> Iterator[Turn]:
        return iter(self._queue)

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def last(self) -> Turn | None:
        """The turn whose text may still go on."""
        return self._queue[-1] if self._queue and not self._queue[-1].flushed else None

    @property
    def overfull(self) -> bool:
        """More waits than `MAX_WAITING_BYTES`: the client flushed faster than it can be spoken."""
        return sum(len(audio) for turn in self for audio in turn.waiting) > MAX_WAITING_BYTES

    # What the client said

    def speak(self, text: str, speed: float) -> list[ClientMessage]:
        """More text of the last turn, or, where that was flushed, of a new one."""
        begin: list[ClientMessage] = []
        turn = self.last
        if turn is None:
            self._count += 1
            turn = Turn(f"turn-{self._count}")
            self._queue.append(turn)
            begin.append(ContextOpen(context=turn.name, speed=speed))
        return [*begin, TextAppend(context=turn.name, text=text)]

    def flush(self) -> list[ClientMessage]:
        """The end of the last turn's text; nothing where there is none to end."""
        turn = self.last
        if turn is None:
            return []
        turn.flushed = True
        return [TextEnd(context=turn.name)]

    def clear(self) -> list[ClientMessage]:
        """Nothing of them is heard any more, nor told."""
        cancelled = [Cancel(context=turn.name) for turn in self if not turn.done]
        self._queue.clear()
        return [*cancelled]

    # What the session made

    def opened(self, event: ContextOpened) -> list[Heard]:
        self._names[event.handle] = event.context
        turn = self._find(event.context)
        if turn is None:  # cleared
            return []
        turn.opened = True
        return [Started(turn)] if turn is self._queue[0] else []

    def audio(self, frame: WireFrame) -> list[Heard]:
        turn = self._find(self._names[frame.context])
        if turn is None:  # cleared
            return []
        turn.waiting.append(bytes(frame.payload))
        return self._release(turn) if turn is self._queue[0] else []

    def done(self, name: str) -> list[Heard]:
        turn = self._find(name)
        if turn is not None:
            turn.done = True
        return self._advance()

    def refused(self, name: str | None) -> list[Heard]:
        """An error was told of this turn; one that was never opened is over."""
        turn = self._find(name)
        if turn is None or turn.opened:
            return []
        first = turn is self._queue[0]
        self._queue.remove(turn)
        return [*self._begin(), *self._advance()] if first else []

    def _find(self, name: str | None) -> Turn | None:
        return next((turn for turn in self if turn.name == name), None)

    def _release(self, turn: Turn) -> list[Heard]:
        audio, turn.waiting = turn.waiting, []
        turn.sent += sum(map(len, audio))
        return [*audio]

    def _advance(self) -> list[Heard]:
        heard: list[Heard] = []
        while self._queue and self._queue[0].done:
            heard += [Ended(self._queue.popleft()), *self._begin()]
        return heard

    def _begin(self) -> list[Heard]:
        """The first turn was not the first until now."""
        if not self._queue or not self._queue[0].opened:
            return []
        turn = self._queue[0]
        return [Started(turn), *self._release(turn)]
