"""The clock's policy, with plain values and simulated time."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni_speak.runtime.frame_clock import (
    COMFORT,
    FIRST_AUDIO_TARGET,
    HYSTERESIS,
    MIN_PREFILL,
    FrameClock,
    Plan,
    StreamView,
    capacity,
    plan,
)
from omni_speak.runtime.request import ACK_TIMEOUT_S
from omni_speak.runtime.step_times import Spent, StepTime

PERIOD = 0.08
HOUR = 3600.0


def view(name: str, lead: float | None, **fields: object) -> StreamView:
    fields = {"arrival": 0.0, "max_lead": HOUR, "served": math.inf} | fields
    return StreamView(id=name, lead=lead, **fields)  # type: ignore[arg-type]


STEP = StepTime(0.010, 0.0005, 0.0001)


def planned(*streams: StreamView, now: float = 0.0, step: StepTime = STEP, places: int = 0):
    return plan(streams, now, step, period=PERIOD, places=places)


def test_least_slack_first_and_newcomers_by_how_long_they_waited() -> None:
    result = planned(
        view("relaxed", COMFORT),
        view("tight", 0.05),
        view("new", None, arrival=9.9),
        view("old", None, arrival=9.75),
        now=10.0,
    )
    assert result.rows == ("tight", "old", "new", "relaxed")
    waited_too_long = view("late", None, arrival=10.0 - FIRST_AUDIO_TARGET - 0.1)
    assert planned(view("tight", 0.05), waited_too_long, now=10.0).rows[0] == "late"


def test_who_is_comfortable_leaves_the_step_to_who_is_in_haste() -> None:
    relaxed = view("relaxed", 0.6)
    assert planned(relaxed, view("tight", 0.2)).rows == ("tight",)
    assert planned(relaxed, view("new", None, arrival=10.0), now=10.1).rows == ("new",)
    long_prompt = view("prompt", None, arrival=10.0, prefilling=True)
    assert planned(relaxed, long_prompt, now=10.1).rows == ()
    assert planned(relaxed, view("calm", 0.35)).rows == ("calm", "relaxed")


def test_steps_stay_large_enough_to_keep_up() -> None:
    """20 ms a step and 1 ms a row: 24 rows within 72 ms leave time for 2.4 steps, of ten rows."""
    step = StepTime(0.020, 0.001, 0.0)
    calm = [view(f"calm {i}", 1.0 + i / 100) for i in range(23)]
    result = planned(view("tight", 0.1), *calm, step=step)
    assert result.rows == ("tight", *(f"calm {i}" for i in range(9)))
    quick = StepTime(0.001, 0.0001, 0.0)
    assert planned(view("tight", 0.1), *calm, step=quick).rows == ("tight",)


def test_a_stream_ahead_of_its_bound_is_held_until_half_of_it() -> None:
    assert planned(view("a", 1.9, max_lead=2.0)).rows == ("a",)
    result = planned(view("a", 2.0, max_lead=2.0), now=5.0)
    assert result.rows == () and result.ahead == {"a"}
    assert result.wake == pytest.approx(5.0 + 2.0 - 2.0 * HYSTERESIS)
    assert planned(view("a", 1.1, max_lead=2.0, held=True)).ahead == {"a"}
    assert planned(view("a", 0.9, max_lead=2.0, held=True)).rows == ("a",)
    assert planned(view("a", 100.0)).rows == ("a",)  # without a bound never


def file(name: str, served: float = 0.0, **fields: object) -> StreamView:
    return view(name, None, served=served, max_lead=math.inf, **fields)


def test_files_come_last_and_by_turns() -> None:
    step = StepTime(0.010, 0.002, 0.0)
    assert planned(file("b", 2.0), file("a", 1.0), now=3.0, step=step).rows == ("a", "b")
    files = [file(f"f{i}", float(i)) for i in range(40)]
    assert len(planned(*files, now=50.0, step=step).rows) == 40
    calm = [view(f"s{i}", 1.0) for i in range(5)]
    # Room for 20 more a period, and four steps in one.
    rows = planned(*files, *calm, now=50.0, step=step, places=25).rows
    assert rows == (*(s.id for s in calm), *(f.id for f in files[:5]))
    waiting = planned(file("prompt", prefilling=True), view("new", None, prefilling=True))
    assert waiting.prefills == ("new", "prompt")


def test_files_wait_while_listeners_need_the_machine_but_never_for_ever() -> None:
    step = StepTime(0.010, 0.002, 0.0)
    files = [file(f"f{i}") for i in range(40)]
    tight = [view(f"s{i}", 0.1) for i in range(30)]
    assert planned(*files, *tight, step=step, places=25).rows == (*(s.id for s in tight), "f0")
    held = view("held", 5.0, max_lead=2.0)
    assert len(planned(*files, held, step=step, places=25).rows) == 3


def test_a_starved_stream_is_in_no_step_and_hurries_nobody() -> None:
    result = planned(view("a", -3.0, starved=True), view("p", None, prefilling=True))
    assert (result.rows, result.prefills, result.ahead) == ((), ("p",), frozenset())
    assert result.prefill_tokens > 500


def rounds(clock: FrameClock, time: Time, step: StepTime, steps: int) -> Counter[str]:
    """How often each stream is served on a machine where a step takes that long. "acks" tells that
    it has heard all but a frame; the clock thinks of the others that they heard all."""
    served: Counter[str] = Counter()
    for _ in range(steps):
        rows = clock.plan(lambda _: False).rows
        time.now += step.predict(len(rows))
        clock.forward.observe(len(rows), 0, Spent(wall=step.predict(len(rows)), work=0.01))
        clock.mtp.observe(len(rows), 0, Spent(0.0, 0.0))
        for name in rows:
            heard(clock, name, 1)
        served.update(rows)
        clock.played("acks", (served["acks"] - 1) * PERIOD)
    return served


@pytest.mark.parametrize("step", [StepTime(0.2, 0.0, 0.0), StepTime(0.1, 0.06, 0.0)])
def test_on_a_machine_too_slow_for_all_nobody_goes_without(step: StepTime) -> None:
    time = Time()
    clock = FrameClock(PERIOD, time)
    clock.open("file", arrival=time.now, max_lead=math.inf)
    for name in ("acks", "s0", "s1", "s2"):
        clock.open(name, arrival=time.now, max_lead=2.0)
    served = rounds(clock, time, step, 300)
    assert len(served) == 5 and min(served.values()) > 20, served


def test_steps_slower_than_frames_still_serve_many_at_once() -> None:
    dry = [view(f"s{i}", 0.0) for i in range(8)]
    assert len(planned(*dry, step=StepTime(0.11, 0.0, 0.0)).rows) == 8
    assert len(planned(*dry, step=StepTime(0.09, 0.03, 0.0)).rows) == 3


@given(
    leads=st.lists(st.floats(-1, 3), min_size=1, max_size=40),
    fixed=st.floats(0.001, 0.05),
    row=st.floats(1e-5, 0.01),
    token=st.floats(1e-6, 0.01),
)
def test_no_step_runs_the_least_slack_dry(
    leads: list[float], fixed: float, row: float, token: float
) -> None:
    step = StepTime(fixed, row, token)
    streams = [view(str(i), lead, max_lead=2.0) for i, lead in enumerate(leads)]
    result = planned(*streams, view("new", None, prefilling=True), step=step)
    allowed = max(min(leads) / 2, PERIOD / 2)
    rows = len(result.rows)
    assert rows <= 1 or step.predict(rows) <= max(allowed, PERIOD, 2 * fixed) + 1e-6
    if result.prefill_tokens > MIN_PREFILL:
        assert step.predict(rows, result.prefill_tokens) <= allowed + 1e-6


def test_capacity_is_what_fits_into_a_frame() -> None:
    frame = StepTime(0.014, 0.002, 0)
    assert capacity(frame, PERIOD, 64) == 29  # 14 ms + 2 ms each within 72 ms
    assert capacity(frame, PERIOD, 8) == 8
    assert capacity(StepTime(1.0, 1.0, 0), PERIOD, 64) == 1


# -- the books -----------------------------------------------------------------------------------


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def heard(clock: FrameClock, name: str, frames: int) -> None:
    for _ in range(frames):
        clock.sampled(name, 0)
        clock.delivered([name])
        clock.taken(name)


def test_lead_counts_acks_else_the_wall_clock_else_what_was_taken() -> None:
    time = Time()
    clock = FrameClock(PERIOD, time)
    clock.open("a", arrival=time.now, max_lead=2.0)
    heard(clock, "a", 30)  # 2.4 s
    assert clock.plan(lambda _: False).ahead == {"a"}
    time.now += 1.5
    assert clock.plan(lambda _: False).rows == ("a",)  # 0.9 s left, by the wall clock
    clock.played("a", 0.2)
    heard(clock, "a", 1)
    assert clock.plan(lambda _: False).ahead == {"a"}  # its player stands: 2.28 s ahead
    clock.open("stalled", arrival=time.now, max_lead=2.0)
    heard(clock, "stalled", 2)
    for _ in range(25):
        clock.sampled("stalled", 0)
        clock.delivered(["stalled"])
    time.now += 60
    assert "stalled" in clock.plan(lambda _: False).ahead  # nobody took them: nothing was heard


def test_a_held_stream_wakes_the_engine_when_it_comes_back_and_not_before() -> None:
    time = Time()
    clock = FrameClock(PERIOD, time)
    clock.open("plays", arrival=time.now, max_lead=1.92)
    heard(clock, "plays", 24)
    todo = clock.plan(lambda _: False)
    assert todo.ahead == {"plays"} and clock.wake(todo) == pytest.approx(time.now + 0.96)
    time.now = clock.wake(todo) + 1e-9
    assert clock.plan(lambda _: False).rows == ("plays",)
    clock.close("plays")


@pytest.mark.parametrize("more", [0, 1, 5])
def test_a_held_stream_whose_listener_stands_still_wakes_nobody(more: int) -> None:
    """However far it is above the bound where it comes back; at the bound it does, and is held
    again."""
    time = Time()
    clock = FrameClock(PERIOD, time)
    for name in ("takes", "acks"):
        clock.open(name, arrival=time.now, max_lead=1.92)
        heard(clock, name, 1)
    for _ in range(23 + more):
        for name in ("takes", "acks"):
            clock.sampled(name, 0)
            clock.delivered([name])
    clock.played("acks", 0.0)
    assert clock.plan(lambda _: False).ahead == {"takes", "acks"}
    for _ in range(3):
        time.now += 10.0
        todo = clock.plan(lambda _: False)
        assert todo.ahead == {"takes", "acks"} and clock.wake(todo) == math.inf
    for frame in range(2, 12 + more):
        assert not clock.taken("takes") and not clock.played("acks", frame * PERIOD)
        assert clock.wake(clock.plan(lambda _: False)) == math.inf
    assert clock.taken("takes") and clock.played("acks", (12 + more) * PERIOD + 1e-9)
    assert set(clock.plan(lambda _: False).rows) == {"takes", "acks"}


def test_who_acks_runs_dry_by_the_clock_and_not_only_by_what_it_said() -> None:
    """Seven frames wait for their message: it has nothing to play, and nothing new to tell."""
    time = Time()
    clock = FrameClock(PERIOD, time)
    clock.open("acks", arrival=time.now, max_lead=2.0)
    heard(clock, "acks", 8)
    time.now += 8 * PERIOD
    clock.played("acks", 8 * PERIOD)
    heard(clock, "acks", 7)
    clock.open("newcomer", arrival=time.now, max_lead=2.0)
    assert clock.plan(lambda _: False).rows == ("newcomer",)
    time.now += 0.2
    assert set(clock.plan(lambda _: False).rows) == {"newcomer", "acks"}


def test_a_pause_is_no_underrun_and_hurries_nobody_while_the_stream_is_held() -> None:
    time = Time()
    clock = FrameClock(PERIOD, time)
    clock.open("pauses", arrival=time.now, max_lead=2.0)
    heard(clock, "pauses", 13)
    time.now += 0.5
    clock.played("pauses", 0.5)
    heard(clock, "pauses", 19)
    time.now += 20.0
    for _ in range(2):  # at its bound; held, and under it
        todo = clock.plan(lambda _: False)
        assert todo.ahead == {"pauses"} and todo.prefill_tokens > 500
        clock.played("pauses", 1.0)
    clock.played("pauses", 1.6)
    assert clock.plan(lambda _: False).rows == ("pauses",)
    heard(clock, "pauses", 1)
    assert clock.underruns == 0


def test_who_stops_telling_what_was_heard_is_waited_for_but_not_for_ever() -> None:
    time = Time()
    clock = FrameClock(PERIOD, time)
    clock.open("a", arrival=time.now, max_lead=2.0)
    heard(clock, "a", 30)  # 2.4 s
    clock.played("a", 0.3)
    time.now += ACK_TIMEOUT_S
    assert clock.plan(lambda _: False).ahead == {"a"}
    clock.played("a", 0.3)  # it is there, and pauses
    time.now += ACK_TIMEOUT_S
    todo = clock.plan(lambda _: False)
    assert todo.ahead == {"a"} and clock.wake(todo) == pytest.approx(time.now + 1.1)
    time.now += 1.5
    assert clock.plan(lambda _: False).rows == ("a",)
    assert clock.leads() == [pytest.approx(0.6)]
    time.now += 60.0
    assert clock.leads() == [0.0]  # no more was heard than there was
    heard(clock, "a", 30)
    clock.played("a", 0.4)  # it goes on
    assert clock.plan(lambda _: False).ahead == {"a"}
    assert clock.leads() == [pytest.approx(4.4)]


def test_a_first_frame_on_its_way_will_want_a_second() -> None:
    clock = FrameClock(PERIOD, Time())
    clock.open("a", arrival=100.0, max_lead=2.0)
    clock.open("long prompt", arrival=100.0, max_lead=2.0)
    before = clock.plan(lambda name: name == "long prompt").prefill_tokens
    clock.sampled("a", 0)
    after = clock.plan(lambda name: name == "long prompt").prefill_tokens
    assert after <= clock.forward.wall.time.prefill_within(PERIOD / 2, 0) < before


def test_files_that_wait_wait_by_turns() -> None:
    time = Time()
    clock = FrameClock(PERIOD, time)
    for i in range(40):  # more than there is room for
        clock.open(f"s{i}", arrival=time.now, max_lead=HOUR)
    for i in range(3):
        clock.open(f"file{i}", arrival=time.now, max_lead=math.inf)
    served = []
    for _ in range(6):
        time.now += 0.01
        served += [name for name in clock.plan(lambda _: False).rows if "file" in name]
        clock.sampled(served[-1], 0)
    assert served == ["file0", "file1", "file2"] * 2


def test_a_file_has_no_player_and_no_deadlines() -> None:
    time = Time()
    clock = FrameClock(PERIOD, time)
    clock.open("file", arrival=time.now, max_lead=math.inf)
    for _ in range(10):
        heard(clock, "file", 1)
        time.now += 1.0
    assert clock.underruns == clock.lateness.count == clock.first_audio.count == 0
    assert clock.gap.longest == clock.opening("file") == 0.0
    assert clock.slack_at_reader("file") == math.inf


def test_a_late_frame_is_an_underrun_once_and_moves_the_player() -> None:
    time = Time()
    clock = FrameClock(PERIOD, time)
    clock.open("a", arrival=time.now, max_lead=HOUR)
    heard(clock, "a", 2)
    time.now += 0.3
    heard(clock, "a", 1)
    assert clock.underruns == 1
    time.now += 0.07
    heard(clock, "a", 1)
    assert clock.underruns == 1


def jittery(clock: FrameClock, time: Time, gaps: list[float]) -> None:
    """Twenty streams whose frames come so far apart, for a second or two each."""
    for number in range(20):
        clock.open(name := f"before {number}", arrival=time.now, max_lead=HOUR)
        heard(clock, name, 1)
        for gap in gaps * (20 // len(gaps)):
            time.now += gap
            heard(clock, name, 1)
        clock.close(name)


@pytest.mark.parametrize(
    ("gaps", "least", "most"),
    [([0.03], 0.0, 0.0), ([0.07], 0.0, 0.0), ([0.12], 0.04, 0.06), ([0.02, 0.14], 0.1, 0.25)],
)
def test_a_player_starts_when_its_second_frame_will_be_in_time(
    gaps: list[float], least: float, most: float
) -> None:
    time = Time()
    clock = FrameClock(PERIOD, time)
    jittery(clock, time, gaps)
    clock.open("new", arrival=time.now, max_lead=HOUR)
    clock.sampled("new", 0)
    clock.delivered(["new"])
    assert least - 1e-6 <= clock.opening("new") <= most
    time.now += clock.opening("new")
    late = clock.underruns
    clock.taken("new")
    time.now += max(gaps) - clock.opening("new")
    clock.delivered(["new"])
    assert clock.underruns == late


def test_a_first_frame_never_waits_past_the_target() -> None:
    time = Time()
    clock = FrameClock(PERIOD, time)
    jittery(clock, time, [0.25])
    clock.open("new", arrival=time.now, max_lead=HOUR)
    clock.sampled("new", 0)
    time.now += FIRST_AUDIO_TARGET - 0.01
    clock.delivered(["new"])
    assert clock.opening("new") == pytest.approx(0.01)
    time.now += 0.02
    assert clock.opening("new") == 0.0


def test_frames_in_no_hurry_say_nothing_about_the_gap() -> None:
    time = Time()
    clock = FrameClock(PERIOD, time)
    clock.open("held", arrival=time.now, max_lead=HOUR)
    heard(clock, "held", 100)
    before = clock.gap.longest
    for _ in range(50):
        time.now += 0.1
        heard(clock, "held", 1)
    assert clock.gap.longest == before


def test_starvation_holds_excuses_and_ends() -> None:
    time = Time()
    clock = FrameClock(PERIOD, time)
    clock.open("a", arrival=time.now, max_lead=HOUR, units=3, starve_timeout=5.0)
    clock.sampled("a", 2)
    assert clock.plan(lambda _: False).rows == ("a",)
    clock.sampled("a", 1)
    starved = clock.plan(lambda _: False)
    assert starved.rows == () and clock.wake(starved) == time.now + 5.0
    clock.delivered(["a", "a"])
    time.now += 4.9
    assert clock.starved_out() == []
    clock.extend("a", 2)
    assert clock.plan(lambda _: False).rows == ("a",)
    heard(clock, "a", 1)
    assert clock.underruns == 0  # it was the text that came late
    clock.sampled("a", 2)
    time.now += 5.0
    assert clock.starved_out() == ["a"]
    clock.finish("a")
    assert clock.starved_out() == [] and clock.plan(lambda _: False).rows == ()


# -- simulated time ------------------------------------------------------------------------------


@dataclass
class Simulated:
    """One engine, one vocoder, in simulated time."""

    fixed: float
    row: float
    token: float
    decode: float  # of one round
    max_step_tokens: int = 2048
    slow_from: float = math.inf  # its steps take three times as long from then on

    def capacity(self) -> int:
        """What the clock makes of work measured while other threads held this one up."""
        clock = FrameClock(PERIOD, Time())
        for rows in [1, 4, 8] * 100:
            step = self.fixed + self.row * rows
            clock.forward.observe(rows, 0, Spent(wall=2 * step, work=step))
            clock.mtp.observe(rows, 0, Spent(0.0, 0.0))
            clock.vocoder.observe(rows, 0, Spent(wall=2 * self.decode, work=self.decode))
        return clock.capacity(64)

    def run(
        self,
        arrivals: list[tuple[float, str, int]],
        seconds: float,
        bound: float = 2.0,
        plain: bool = False,
        learned: int = 0,
    ):
        """arrivals: (when, name, prompt tokens) → (clock, first audio by name). `plain` is vLLM's
        own order: everybody in every step, prompts as much as a step takes. The clock has seen
        `learned` steps of either kind before."""
        time = Time()
        time.now = 0.0
        clock = FrameClock(PERIOD, time)
        for rows, tokens in [(8, 0), (4, 300)] * learned:
            step = self.fixed + self.row * rows + self.token * tokens
            clock.forward.observe(rows, tokens, Spent(step, step))
            clock.mtp.observe(rows, 0, Spent())
        waiting, prompt, first = sorted(arrivals), {}, {}
        heapq.heapify(waiting)
        ready: list[tuple[float, str]] = []
        opens: dict[str, float] = {}  # when a player starts, unless its second frame comes before

        def take(name: str) -> None:
            clock.taken(name)
            first.setdefault(name, time.now)

        def deliver() -> None:
            now = time.now
            while True:
                opening = min(opens, key=opens.__getitem__, default="")
                if opening and opens[opening] <= min([now, *(r[0] for r in ready[:1])]):
                    time.now = opens.pop(opening)
                    take(opening)
                elif ready and ready[0][0] <= now:
                    time.now, name = heapq.heappop(ready)
                    clock.delivered([name])
                    if name not in first and name not in opens:
                        opens[name] = time.now + clock.opening(name)
                        continue
                    if opens.pop(name, None) is not None:
                        take(name)
                    take(name)
                else:
                    break
            time.now = now

        while time.now < seconds:
            while waiting and waiting[0][0] <= time.now:
                at, name, tokens = heapq.heappop(waiting)
                clock.open(name, arrival=at, max_lead=math.inf if "file" in name else bound)
                prompt[name] = tokens
            deliver()
            todo = clock.plan(lambda name: prompt[name] > 0)
            if plain:
                todo = Plan(
                    rows=tuple(name for name, tokens in prompt.items() if not tokens),
                    prefills=tuple(name for name, tokens in prompt.items() if tokens),
                    prefill_tokens=self.max_step_tokens,
                    ahead=frozenset(),
                    wake=math.inf,
                )
            if not todo.rows and not todo.prefills:
                soon = [todo.wake, *opens.values()]
                soon += [a[0] for a in waiting[:1]] + [r[0] for r in ready[:1]]
                time.now = max(time.now + 1e-6, min([*soon, seconds]))
                continue
            budget = min(todo.prefill_tokens, self.max_step_tokens)
            done, sampled = 0, list(todo.rows)
            for name in todo.prefills:
                part = min(prompt[name], budget - done)
                prompt[name] -= part
                done += part
                if part and prompt[name] == 0:
                    sampled.append(name)
            took = self.fixed + self.row * len(sampled) + self.token * done
            took *= 3 if time.now >= self.slow_from else 1
            clock.forward.observe(len(sampled), done, Spent(took, took))
            clock.mtp.observe(len(sampled), 0, Spent())
            clock.vocoder.observe(1, 0, Spent(self.decode, self.decode))
            time.now += took
            for name in sampled:
                clock.sampled(name, 0)
                heapq.heappush(ready, (time.now + self.decode, name))
        return clock, first


def test_long_prompts_arrive_and_nobody_runs_dry() -> None:
    """Four streams speak, then three prompts of 8,000 tokens arrive."""
    machine = Simulated(fixed=0.010, row=0.0005, token=0.0002, decode=0.010)
    running = [(0.0, f"r{i}", 1) for i in range(4)]
    newcomers = [(5.0, f"n{i}", 8000) for i in range(3)]
    clock, first = machine.run(running + newcomers, 20.0)
    assert clock.underruns == 0
    assert len(first) == 7
    # 24,000 tokens are 4.8 s of work: half of the steps' time at least is theirs.
    assert max(first[f"n{i}"] for i in range(3)) < 5.0 + 2 * 4.8


@pytest.mark.parametrize("streams", [4, 16])
def test_a_machine_suddenly_slower_than_learned_lets_nobody_run_dry(streams: int) -> None:
    machine = Simulated(fixed=0.010, row=0.0005, token=0.0002, decode=0.010, slow_from=5.0)
    running = [(0.05 * i, f"r{i}", 1) for i in range(streams)]
    newcomers = [(5.0, f"n{i}", 8000) for i in range(3)]
    clock, first = machine.run(running + newcomers, 20.0, learned=100)
    assert clock.underruns == 0
    assert "n0" in first  # 4.8 s of work, of 15


@pytest.mark.parametrize("streams", [1, 8])
def test_D03_no_cliff_after_the_first_packet(streams: int) -> None:
    machine = Simulated(fixed=0.035, row=0.0, token=0.0, decode=0.030)
    clock, first = machine.run([(0.0, f"s{i}", 1) for i in range(streams)], 12.0)
    assert clock.underruns == 0
    assert max(first.values()) < 0.2


def test_held_streams_leave_the_machine_to_a_newcomer() -> None:
    machine = Simulated(fixed=0.010, row=0.001, token=0.0002, decode=0.010)
    clock, first = machine.run([(0.0, f"s{i}", 1) for i in range(20)] + [(6.0, "new", 1)], 8.0)
    assert clock.underruns == 0
    assert first["new"] - 6.0 < 0.08


def test_listeners_stay_in_time_beside_more_files_than_the_machine_can_keep_up_with() -> None:
    """A step of all 50 would take 110 ms; of the 25 listeners 60."""
    machine = Simulated(fixed=0.010, row=0.002, token=0.0002, decode=0.010)
    files = [(0.0, f"file{i}", 1) for i in range(25)]
    listeners = [(1.0 + 0.1 * i, f"s{i}", 1) for i in range(25)]
    clock, first = machine.run(files + listeners, 20.0)
    assert clock.underruns == 0
    assert max(first[name] - at for at, name, _ in listeners) < FIRST_AUDIO_TARGET
    assert len(first) == 50  # no file was forgotten


def clean_streams(machine: Simulated, files: int, plain: bool = False) -> int:
    """How many listeners, coming one after the other, nobody of them ever running dry."""
    streams = 10
    while True:
        arrivals = [(0.0, f"file{i}", 1) for i in range(files)]
        arrivals += [(1.0 + 0.05 * i, f"s{i}", 1) for i in range(streams)]
        clock, _ = machine.run(arrivals, 8.0, plain=plain)
        if clock.underruns:
            return streams - 1
        streams += 1


def test_files_cost_listeners_no_places_as_they_do_in_plain_order() -> None:
    """35 rows fit into a period."""
    machine = Simulated(fixed=0.010, row=0.002, token=0.0002, decode=0.010)
    assert clean_streams(machine, files=0, plain=True) == 35
    assert clean_streams(machine, files=16, plain=True) == 35 - 16
    assert clean_streams(machine, files=0) >= 35
    assert clean_streams(machine, files=16) >= 32


def test_capacity_counts_work_not_waiting() -> None:
    """The times of a busy machine contain its load already: counted again, they would refuse
    streams that there is room for."""
    machine = Simulated(fixed=0.012, row=0.001, token=0.0, decode=0.010)
    assert machine.capacity() == pytest.approx((72 - 12 - 10) / 1.0, abs=5)


def test_no_plan_without_streams() -> None:
    result = planned()
    assert result.rows == () and result.wake == math.inf
