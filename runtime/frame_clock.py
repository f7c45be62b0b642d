"""The frame clock: which streams a step serves, and how much prefill it may carry.

Policy is pure: `plan` maps frozen views of the streams to a `Plan`. `FrameClock` keeps the books
that the views are taken from; `StepTimeModel` says how long a step will take. Times in seconds.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

FIRST_AUDIO_TARGET = 0.3
"""A stream without audio yet is as urgent as one that runs dry this long after its arrival."""

MIN_PREFILL = 16
"""Prompt tokens that every step may carry, however late the streams are: newcomers get on."""

HYSTERESIS = 0.5
"""A held stream comes back when its lead is under this share of its bound."""

MAX_LOAD = 0.8
"""Share of a frame's period that admission lets a step and a decode of all streams take."""


class StepTimeModel:
    """seconds ≈ fixed + row × rows + token × prefill tokens, fitted online.

    Least squares with exponential forgetting (the normal equations decay by `1 - 1 / memory` with
    each observation), drawn to the prior where nothing was seen; never negative.
    """

    def __init__(
        self, prior: tuple[float, float, float] = (0.010, 0.0005, 0.0001), memory: int = 200
    ) -> None:
        self._prior = np.array(prior)
        self._decay = 1 - 1 / memory
        # As if the prior had been seen once, at 8 rows and 64 tokens.
        self._ridge = np.diag([1.0, 8.0**2, 64.0**2])
        self._xx = np.zeros((3, 3))
        self._xy = np.zeros(3)
        self._weights = self._prior
        self.error = 0.0
        """Running mean of |predicted - seen| / seen."""

    def observe(self, rows: int, prefill: int, seconds: float) -> None:
        self.error += 0.05 * (abs(self.predict(rows, prefill) / seconds - 1) - self.error)
        x = np.array([1.0, rows, prefill])
        self._xx = self._decay * self._xx + np.outer(x, x)
        self._xy = self._decay * self._xy + x * seconds
        solved = np.linalg.solve(self._xx + self._ridge, self._xy + self._ridge @ self._prior)
        self._weights = solved.clip(min=0.0)

    def predict(self, rows: int, prefill: int = 0) -> float:
        fixed, row, token = self._weights
        return float(fixed + row * rows + token * prefill)

    def rows_within(self, seconds: float) -> int:
        """How many decode rows fit, at least one."""
        return max(1, _fitting(seconds - self.predict(0), self._weights[1]))

    def prefill_within(self, seconds: float, rows: int) -> int:
        """How many prompt tokens fit beside `rows` decode rows."""
        return max(0, _fitting(seconds - self.predict(rows), self._weights[2]))


def _fitting(seconds: float, each: float) -> int:
    return int(min(seconds / max(each, 1e-9), 1e6))


@dataclass(frozen=True, slots=True)
class StreamView:
    """One stream, as the policy sees it.

    `lead` is generated minus heard, None before first audio; `max_lead` bounds it; `held`: the
    last plan left it out because of its lead; `starved`: its text ran out and more may come;
    `prefilling`: its prompt is not through yet.
    """

    id: str
    arrival: float
    lead: float | None
    max_lead: float = math.inf
    held: bool = False
    starved: bool = False
    prefilling: bool = False

    def slack(self, now: float) -> float:
        """Time until it runs dry, or until its first audio is later than the target."""
        return self.arrival + FIRST_AUDIO_TARGET - now if self.lead is None else self.lead

    @property
    def release(self) -> float:
        """The lead at which it comes back once it is held."""
        return self.max_lead * HYSTERESIS

    @property
    def is_ahead(self) -> bool:
        if self.lead is None:
            return False
        return self.lead >= (self.release if self.held else self.max_lead)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the next step may do: `rows` decode in this order, `prefills` go on in theirs, with
    newcomers, by `prefill_tokens` in all. All others stay where they are; `ahead` of them are
    held for their lead, until `wake` at the earliest."""

    rows: tuple[str, ...]
    prefills: tuple[str, ...]
    prefill_tokens: int
    ahead: frozenset[str]
    wake: float


def plan(
    streams: Sequence[StreamView],
    now: float,
    model: StepTimeModel,
    *,
    period: float,
    reserve: float = 0.0,
) -> Plan:
    """Least slack first; who is ahead or starved is left out; no step so long that the stream
    with the least slack runs dry.

    `period` is a frame's; `reserve` what a frame still takes after its step (the vocoder). A step
    may take half the least slack (also a held stream's), but its rows always a frame's time, and
    its prefill half of one: rounds of all streams within a frame are what keeps all in time.
    """
    slack = [s.slack(now) for s in streams if s.lead is not None and not s.starved]
    allowed = max((min(slack, default=math.inf) - reserve) / 2, period / 2)
    ahead = [s for s in streams if s.is_ahead and not s.starved]
    due = sorted(
        (s for s in streams if not s.is_ahead and not s.starved), key=lambda s: s.slack(now)
    )
    rows = [s.id for s in due if not s.prefilling][: model.rows_within(max(allowed, period))]
    return Plan(
        rows=tuple(rows),
        prefills=tuple(s.id for s in due if s.prefilling),
        prefill_tokens=max(model.prefill_within(allowed, len(rows)), MIN_PREFILL),
        ahead=frozenset(s.id for s in ahead),
        wake=now + min((s.slack(now) - s.release for s in ahead), default=math.inf),
    )


def capacity(step: StepTimeModel, vocoder: StepTimeModel, period: float, most: int) -> int:
    """How many streams can have every frame in time: step and decode of all, one after the other
    (they share cores and the interpreter), within `MAX_LOAD` of a frame's period."""
    for streams in range(most, 1, -1):
        if step.predict(streams) + vocoder.predict(streams) <= MAX_LOAD * period:
            return streams
    return 1


@dataclass(slots=True)
class _Stream:
    arrival: float
    max_lead: float
    units: float  # of text, known so far; inf once the text is complete
    starve_timeout: float
    spoken: int = 0
    generated: int = 0
    delivered: int = 0
    taken: int = 0
    start: float | None = None  # when its player started, moved by every stall
    played: float | None = None
    held: bool = False
    starved_at: float | None = None
    finished: bool = False
    excused: bool = False  # the next late frame is late for want of text

    def lead(self, now: float, period: float) -> float | None:
        if self.start is None:
            return None
        heard = min(now - self.start, self.taken * period) if self.played is None else self.played
        return self.generated * period - heard


class FrameClock:
    """The books of all streams. Thread-safe; `now` is injected."""

    def __init__(self, period: float, now: Callable[[], float]) -> None:
        self.period = period
        self.now = now
        self.steps = StepTimeModel()
        self.underruns = 0
        self._streams: dict[str, _Stream] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def held(self) -> int:
        return sum(s.held for s in list(self._streams.values()))

    def open(
        self,
        stream_id: str,
        *,
        arrival: float,
        max_lead: float = math.inf,
        units: float = math.inf,
        starve_timeout: float = math.inf,
    ) -> None:
        """A stream arrives. `units`: of its text, if more of it may come."""
        with self._lock:
            self._streams[stream_id] = _Stream(arrival, max_lead, units, starve_timeout)

    def finish(self, stream_id: str) -> None:
        """The talker is through with it; what it made is still on its way."""
        with self._lock:
            if (stream := self._streams.get(stream_id)) is not None:
                stream.finished, stream.held, stream.starved_at = True, False, None

    def close(self, stream_id: str) -> None:
        """Twice is harmless."""
        with self._lock:
            self._streams.pop(stream_id, None)

    def extend(self, stream_id: str, units: float) -> None:
        """More text came: `units` more, inf for its end."""
        with self._lock:
            if (stream := self._streams.get(stream_id)) is not None:
                stream.units += units
                stream.starved_at = None

    def sampled(self, stream_id: str, units: int) -> None:
        """The talker made a frame that spoke `units` of the text."""
        with self._lock:
            if (stream := self._streams.get(stream_id)) is not None:
                stream.generated += 1
                stream.spoken += units
                if stream.spoken >= stream.units:
                    stream.starved_at, stream.excused = self.now(), True

    def delivered(self, stream_ids: Iterable[str]) -> None:
        """One frame of each went to its reader: the first starts its player, a late one stalls
        it (an underrun)."""
        now = self.now()
        with self._lock:
            for stream_id in stream_ids:
                if (stream := self._streams.get(stream_id)) is None:
                    continue
                if stream.start is None:
                    stream.start = now
                elif (late := now - stream.start - stream.delivered * self.period) > 0:
                    stream.start += late
                    self.underruns += not stream.excused
                    stream.excused = False
                stream.delivered += 1

    def slack_at_reader(self, stream_id: str) -> float:
        """Until the reader has played all that was delivered to it; 0 before first audio."""
        with self._lock:
            stream = self._streams.get(stream_id)
            if stream is None or stream.start is None:
                return 0.0
            return stream.start + stream.delivered * self.period - self.now()

    def taken(self, stream_id: str) -> None:
        """The reader took a frame."""
        with self._lock:
            if (stream := self._streams.get(stream_id)) is not None:
                stream.taken += 1

    def played(self, stream_id: str, seconds: float) -> None:
        """The listener has heard this much; from now on this counts, not the wall clock."""
        with self._lock:
            if (stream := self._streams.get(stream_id)) is not None:
                stream.played = max(seconds, stream.played or 0.0)

    def starved_out(self) -> list[str]:
        """Streams that waited for text longer than they may."""
        now = self.now()
        with self._lock:
            return [
                stream_id
                for stream_id, s in self._streams.items()
                if s.starved_at is not None and now - s.starved_at >= s.starve_timeout
            ]

    def plan(
        self,
        prefilling: Callable[[str], bool],
        reserve: float = 0.0,
        in_flight: Callable[[str], bool] = lambda _: False,
    ) -> Plan:
        """The next step's plan; `prefilling` tells whose prompt is not through, `in_flight` whose
        last sample is not known yet: while more text may come, that one may have been the last."""
        now = self.now()
        with self._lock:
            views = [
                StreamView(
                    id=stream_id,
                    arrival=s.arrival,
                    lead=s.lead(now, self.period),
                    max_lead=s.max_lead,
                    held=s.held,
                    starved=s.starved_at is not None
                    or (s.units < math.inf and in_flight(stream_id)),
                    prefilling=prefilling(stream_id),
                )
                for stream_id, s in self._streams.items()
                if not s.finished
            ]
            result = plan(views, now, self.steps, period=self.period, reserve=reserve)
            for stream_id, stream in self._streams.items():
                stream.held = stream_id in result.ahead
        return result

    def wake(self, plan: Plan) -> float:
        """When a plan without work is to be made again: a held stream is due, or a starved one's
        time is up."""
        with self._lock:
            ends = [
                s.starved_at + s.starve_timeout
                for s in self._streams.values()
                if s.starved_at is not None
            ]
        return min(ends, default=math.inf) if not plan.ahead else min([plan.wake, *ends])
