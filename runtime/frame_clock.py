"""The frame clock: which streams a step serves, and how much prefill it may carry.

Policy is pure: `plan` maps frozen views of the streams to a `Plan`. `FrameClock` keeps the books
that the views are taken from, and what is measured by them. Times in seconds.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from omni_speak.runtime.request import ACK_TIMEOUT_S
from omni_speak.runtime.step_times import StageTimes, StepTime
from omni_speak.runtime.tally import Tally

FIRST_AUDIO_TARGET = 0.3
"""A stream without audio yet is as urgent as one that runs dry this long after its arrival."""

MIN_PREFILL = 16
"""Prompt tokens that every step may carry, however late the streams are: newcomers get on."""

COMFORT = 0.5
"""While somebody has less slack than `FIRST_AUDIO_TARGET`, who has more than this sits out, if the
others are enough to keep up."""

LONGEST_WAIT = 2.0
"""A stream whose last frame is this long ago is as urgent as one that runs dry, whatever is taken
for its lead: when there is too little time for all, nobody goes without any."""

HYSTERESIS = 0.5
"""A held stream comes back when its lead is under this share of its bound."""

MAX_LOAD = 0.9
"""Share of a frame's period that a frame of all streams may take."""

FILES_LOAD = 0.7
"""Share of a frame's period up to which files may fill what listeners leave."""

GAP_MEMORY = 64
"""Over how many gaps between two frames of a stream in haste their running mean goes."""

GAP_DEVIATIONS = 3.0
"""A player starts so that its second frame may come this many mean deviations later than most."""


class _Bounded:
    """A stream whose lead has a bound; inf is a file, which nobody hears while it is made."""

    __slots__ = ()
    max_lead: float

    @property
    def is_file(self) -> bool:
        return self.max_lead == math.inf

    @property
    def release(self) -> float:
        """The lead at which it comes back once it is held."""
        return self.max_lead * HYSTERESIS


@dataclass(frozen=True, slots=True)
class StreamView(_Bounded):
    """One stream, as the policy sees it.

    `lead` is generated minus heard, None before first audio. `clock_lead` takes for heard what a
    player that never stops has played by now: who tells what it heard plays on meanwhile.
    `pause`: for how long time takes nothing of the lead; `lasting`: what it never takes. `held`:
    the last plan left it out because of its lead; `starved`: its text ran out and more may come;
    `prefilling`: its prompt is not through yet; `served`: when its last frame was sampled, at first
    its arrival.
    """

    id: str
    arrival: float
    lead: float | None
    max_lead: float
    clock_lead: float = math.inf
    pause: float = 0.0
    lasting: float = 0.0
    held: bool = False
    starved: bool = False
    prefilling: bool = False
    served: float = 0.0

    def slack(self, now: float) -> float:
        """Time until it runs dry, or until its first audio is later than the target. Who is not
        ahead may have run dry since it told what it heard."""
        if self.is_file:
            return math.inf
        if self.lead is None:
            return self.arrival + FIRST_AUDIO_TARGET - now
        return self.lead if self.is_ahead else min(self.lead, self.clock_lead)

    def urgency(self, now: float) -> float:
        """Its slack, or the time until it has waited for long enough."""
        return min(self.slack(now), self.served + LONGEST_WAIT - now)

    @property
    def comes_back(self) -> float:
        """In how long, when it is held."""
        if self.lead is None or self.lasting > self.release:
            return math.inf  # not until its listener takes more, or tells
        return self.pause + self.lead - self.release

    @property
    def is_ahead(self) -> bool:
        if self.lead is None:
            return False
        return self.lead > self.release if self.held else self.lead >= self.max_lead


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
    step: StepTime,
    *,
    period: float,
    reserve: float = 0.0,
    places: int = 0,
) -> Plan:
    """Least slack first; who is ahead or starved is left out, and who is comfortable while others
    are in haste; no step so long that the stream with the least slack runs dry.

    But never so few at once that the steps' fixed cost leaves no time for all: under load who is
    comfortable now is in haste soon. Files come last, by turns: beside listeners, as many as keep
    all to the frames of `places` streams, and one at least. Whoever was left out for
    `LONGEST_WAIT`, listener or file, comes before who was not.

    `period` is a frame's; `step` a step's expected time; `reserve` what a frame still takes after
    it (the vocoder). A step may take half the least slack (also a held stream's), but its rows
    always a frame's time, and its prefill half of one: rounds of all streams within a frame are
    what keeps all in time. On a machine too slow for that, rows may take as long as what is fixed.
    """
    slack = [s.slack(now) for s in streams if s.lead is not None and not s.starved]
    allowed = max((min(slack, default=math.inf) - reserve) / 2, period / 2)
    ahead = [s for s in streams if s.is_ahead and not s.starved]
    able = [s for s in streams if not s.is_ahead and not s.starved]
    files = sorted((s for s in able if s.is_file), key=lambda s: s.served)
    if not all(s.is_file for s in streams):
        heard = len(able) - len(files)
        a_period = places - sum(not s.is_file for s in streams)
        files = files[: max(int(a_period * step.predict(heard) / period), 1)]
    due = sorted((s for s in able if not s.is_file), key=lambda s: s.urgency(now))
    if any(s.slack(now) < FIRST_AUDIO_TARGET for s in due):
        with_files = replace(step, fixed=step.predict(len(files)))
        enough = with_files.rows_to_keep_up(len(due), MAX_LOAD * period)
        hasty = sum(s.urgency(now) <= COMFORT for s in due)
        due = due[: max(enough, hasty)]
    due += files
    rows = [s for s in due if not s.prefilling]
    most = step.rows_within(max(allowed, period, 2 * step.fixed))
    if len(rows) > most:
        rows = sorted(rows, key=lambda s: s.urgency(now))[:most]
    return Plan(
        rows=tuple(s.id for s in rows),
        prefills=tuple(s.id for s in due if s.prefilling),
        prefill_tokens=max(step.prefill_within(allowed, len(rows)), MIN_PREFILL),
        ahead=frozenset(s.id for s in ahead),
        wake=now + min((s.comes_back for s in ahead), default=math.inf),
    )


def capacity(frame: StepTime, period: float, most: int) -> int:
    """How many streams can have every frame in time: the work of a step and a decode of all (they
    share cores and the interpreter) within `MAX_LOAD` of a frame's period."""
    return min(frame.rows_within(MAX_LOAD * period), most)


class Gap:
    """How far apart two frames of a stream in haste come: a running mean and mean deviation, as
    TCP keeps them of round trips (RFC 6298)."""

    def __init__(self) -> None:
        self._mean: float | None = None
        self._deviation = 0.0

    def observe(self, seconds: float) -> None:
        if self._mean is None:
            self._mean, self._deviation = seconds, seconds / 2
        off = seconds - self._mean
        self._mean += off / GAP_MEMORY
        self._deviation += (abs(off) - self._deviation) / GAP_MEMORY

    @property
    def longest(self) -> float:
        """What few gaps exceed; 0 before the first."""
        return (self._mean or 0.0) + GAP_DEVIATIONS * self._deviation


@dataclass(slots=True)
class _Stream(_Bounded):
    arrival: float
    max_lead: float
    units: float  # of text, known so far; inf once the text is complete
    starve_timeout: float
    served: float  # see StreamView
    spoken: int = 0
    generated: int = 0
    delivered: int = 0
    taken: int = 0
    decoded_at: float = 0.0  # its last frame
    start: float | None = None  # when its player started, moved by every stall
    played: float | None = None
    played_at: float = 0.0  # when that was said
    held: bool = False
    starved_at: float | None = None
    finished: bool = False
    underruns: int = 0
    excused: bool = False  # the next late frame is late for want of text

    def lead(self, now: float, period: float) -> float | None:
        if not self.generated:
            return None
        if self.played is None:
            return self.clock_lead(now, period)
        unsaid = min(now - self.played_at - ACK_TIMEOUT_S, self.taken * period - self.played)
        return self.generated * period - self.played - max(0.0, unsaid)

    def clock_lead(self, now: float, period: float) -> float:
        if self.start is None:  # no player yet: a first frame waits to be taken; or never, a file
            return self.generated * period
        return self.generated * period - min(now - self.start, self.taken * period)

    def pause(self, now: float) -> float:
        return 0.0 if self.played is None else max(0.0, self.played_at + ACK_TIMEOUT_S - now)

    def lasting(self, period: float) -> float:
        return (self.generated - self.taken) * period

    def is_back(self, lead: float) -> bool:
        return self.held and lead <= self.release


class FrameClock:
    """The books of all streams. Thread-safe; `now` is injected."""

    def __init__(self, period: float, now: Callable[[], float]) -> None:
        self.period = period
        self.now = now
        self.forward = StageTimes(StepTime(0.008, 0.0005, 0.0001))
        """A step but for its MTP."""
        self.mtp = StageTimes(StepTime(0.004, 0.0006, 0.0))
        self.vocoder = StageTimes(StepTime(0.004, 0.001, 0.0))
        self.gap = Gap()
        self.underruns = 0
        self.first_audio = Tally((0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0))
        """From a stream's arrival to its first frame; of those that somebody hears as they come."""
        self.lateness = Tally((-2.0, -1.0, -0.5, -0.2, -0.08, 0.0, 0.08, 0.2, 0.5, 1.0))
        """When frames after the first came, minus when their players ran dry; negative is early."""
        self.underruns_of_streams = Tally((0, 1, 2, 5, 10, 50))
        """One value for each stream that ended."""
        self._streams: dict[str, _Stream] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def held(self) -> int:
        return sum(s.held for s in list(self._streams.values()))

    def leads(self) -> list[float]:
        """Of all streams that have audio, those at their end included."""
        now = self.now()
        with self._lock:
            leads = [stream.lead(now, self.period) for stream in self._streams.values()]
        return [lead for lead in leads if lead is not None]

    def open(
        self,
        stream_id: str,
        *,
        arrival: float,
        max_lead: float,
        units: float = math.inf,
        starve_timeout: float = math.inf,
    ) -> None:
        """A stream arrives. `max_lead` inf is a file: nobody hears it while it is made, so it has
        no deadlines. `units`: of its text, if more of it may come."""
        with self._lock:
            self._streams[stream_id] = _Stream(
                arrival, max_lead, units, starve_timeout, served=arrival
            )

    def finish(self, stream_id: str) -> None:
        """The talker is through with it; what it made is still on its way."""
        with self._lock:
            if (stream := self._streams.get(stream_id)) is not None:
                stream.finished, stream.held, stream.starved_at = True, False, None

    def close(self, stream_id: str) -> None:
        """Twice is harmless."""
        with self._lock:
            if (stream := self._streams.pop(stream_id, None)) is not None:
                self.underruns_of_streams.add(stream.underruns)

    def extend(self, stream_id: str, units: float) -> None:
        """More text came: `units` more, inf for its end."""
        with self._lock:
            if (stream := self._streams.get(stream_id)) is not None:
                stream.units += units
                stream.starved_at = None

    def units_left(self, stream_id: str) -> float:
        """How much of the text that is known it has still to speak."""
        stream = self._streams.get(stream_id)
        return math.inf if stream is None else stream.units - stream.spoken

    def sampled(self, stream_id: str, units: int) -> None:
        """The talker made a frame that spoke `units` of the text."""
        with self._lock:
            if (stream := self._streams.get(stream_id)) is not None:
                stream.generated += 1
                stream.served = self.now()
                stream.spoken += units
                if stream.spoken >= stream.units:
                    stream.starved_at, stream.excused = self.now(), True

    def delivered(self, stream_ids: Iterable[str]) -> None:
        """One frame of each is on its way to its reader; a late one stalls its player (an
        underrun)."""
        now = self.now()
        with self._lock:
            for stream_id in stream_ids:
                if (stream := self._streams.get(stream_id)) is None:
                    continue
                late = -math.inf if stream.is_file else now - self._dry(stream)
                if stream.delivered and not stream.excused and late > -COMFORT:
                    self.gap.observe(now - stream.decoded_at)
                if stream.start is not None:
                    if not stream.excused:
                        self.lateness.add(late)
                    if late > 0:
                        stream.start += late
                        stream.underruns += not stream.excused
                        self.underruns += not stream.excused
                        stream.excused = False
                stream.decoded_at = now
                stream.delivered += 1

    def _dry(self, stream: _Stream) -> float:
        """When its player has played all that was delivered; now, before it starts."""
        if stream.start is None:
            return self.now()
        return stream.start + stream.delivered * self.period

    def slack_at_reader(self, stream_id: str) -> float:
        """Until the reader has played all that was delivered to it; 0 before first audio, inf for
        a file."""
        with self._lock:
            stream = self._streams.get(stream_id)
            if stream is None:
                return 0.0
            return math.inf if stream.is_file else self._dry(stream) - self.now()

    def opening(self, stream_id: str) -> float:
        """How long a first frame waits for the second before its player starts: no time unless
        frames come further apart now than a period, and never past `FIRST_AUDIO_TARGET`."""
        with self._lock:
            stream = self._streams.get(stream_id)
            if stream is None or stream.is_file:
                return 0.0
            left = stream.arrival + FIRST_AUDIO_TARGET - self.now()
            return max(0.0, min(self.gap.longest - self.period, left))

    def taken(self, stream_id: str) -> bool:
        """The reader took a frame; the first starts its player. Whether the plan that held the
        stream did not know when it comes back, and another one may."""
        with self._lock:
            if (stream := self._streams.get(stream_id)) is None:
                return False
            stream.taken += 1
            if stream.start is None and not stream.is_file:
                stream.start = self.now()
                self.first_audio.add(stream.start - stream.arrival)
            return stream.is_back(stream.lasting(self.period))

    def played(self, stream_id: str, seconds: float) -> bool:
        """The listener has heard this much; from now on this counts, not the wall clock, for how
        far ahead the stream may be, until nothing was said for `ACK_TIMEOUT_S`. Returns whether
        the stream comes back from being held."""
        with self._lock:
            if (stream := self._streams.get(stream_id)) is None:
                return False
            now = stream.played_at = self.now()
            if stream.played is not None and seconds <= stream.played:
                return False
            stream.played = seconds
            if stream.start is not None:  # its player started later, or stopped since
                stream.start = max(stream.start, now - seconds)
            lead = stream.lead(now, self.period)
            return lead is not None and stream.is_back(lead)

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
                    clock_lead=s.clock_lead(now, self.period),
                    pause=s.pause(now),
                    lasting=s.lasting(self.period),
                    held=s.held,
                    starved=s.starved_at is not None
                    or (s.units < math.inf and in_flight(stream_id)),
                    prefilling=prefilling(stream_id),
                    served=s.served,
                )
                for stream_id, s in self._streams.items()
                if not s.finished
            ]
            step = self.forward.wall.expected + self.mtp.wall.expected
            reserve = self.vocoder.wall.expected.predict(len(views))
            places = self._frame.rows_within(FILES_LOAD * self.period)
            result = plan(views, now, step, period=self.period, reserve=reserve, places=places)
            for stream_id, stream in self._streams.items():
                stream.held = stream_id in result.ahead
        return result

    def capacity(self, most: int) -> int:
        """How many streams the measured work leaves room for."""
        return capacity(self._frame, self.period, most)

    @property
    def _frame(self) -> StepTime:
        """The work of a frame of all streams."""
        stages = self.forward, self.mtp, self.vocoder
        return sum((stage.work.time for stage in stages), StepTime(0.0, 0.0, 0.0))

    def wake(self, plan: Plan) -> float:
        """When a plan without work is to be made again if nobody takes or tells anything: a held
        stream is due, or a starved one's time is up."""
        with self._lock:
            ends = [
                s.starved_at + s.starve_timeout
                for s in self._streams.values()
                if s.starved_at is not None
            ]
        return min([plan.wake, *ends])
