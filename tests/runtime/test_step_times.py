from __future__ import annotations

import random

import pytest

from omni_speak.runtime.step_times import Spent, StageTimes, StepTime, Stopwatch, TimeFit


def test_the_fit_learns_the_machine_and_follows_it() -> None:
    fit, chance = TimeFit(StepTime(0.010, 0.0005, 0.0001)), random.Random(1)
    for _ in range(400):
        rows, prefill = chance.randint(1, 30), chance.choice([0, 0, 16, 200])
        noise = chance.uniform(0.9, 1.1)
        fit.observe(rows, prefill, (0.007 + 0.0003 * rows + 0.00005 * prefill) * noise)
    assert fit.time.predict(24) == pytest.approx(0.007 + 0.0003 * 24, rel=0.1)
    assert fit.time.predict(4, 500) == pytest.approx(0.007 + 0.0012 + 0.025, rel=0.1)
    assert fit.error < 0.15
    assert fit.time.seen == 256
    fit.observe(1, 4000, 0.2)
    assert fit.time.seen == 4000
    for _ in range(1000):  # the machine became three times slower
        rows = chance.randint(1, 30)
        fit.observe(rows, 0, 3 * (0.007 + 0.0003 * rows))
    assert fit.time.predict(24) == pytest.approx(3 * (0.007 + 0.0003 * 24), rel=0.1)


def test_slower_steps_are_expected_long_before_they_are_fitted_and_forgotten_soon() -> None:
    fit = TimeFit(StepTime(0.010, 0.0005, 0.0))
    for _ in range(200):
        fit.observe(8, 0, 0.014)
    assert fit.expected.predict(8) == pytest.approx(0.014, rel=0.01)
    for _ in range(2):
        fit.observe(8, 0, 0.042)
    assert fit.time.predict(8) < 0.016 < 0.032 < fit.expected.predict(8)
    for _ in range(10):
        fit.observe(8, 0, 0.014)
    assert fit.expected.predict(8) == pytest.approx(fit.time.predict(8), rel=0.01)
    fit.observe(8, 0, 0.001)
    assert fit.expected == fit.time  # a quick one promises nothing


def test_what_fits() -> None:
    step = StepTime(0.010, 0.001, 0.0001)
    assert step.rows_within(0.0305) == 20
    assert step.rows_within(0.001) == 1  # somebody must go on
    assert step.rows_to_keep_up(20, 0.080) == 4  # 5 × 10 ms, and 20 × 1 ms
    assert step.rows_to_keep_up(70, 0.080) == 70
    assert step.rows_to_keep_up(200, 0.080) == 200  # nobody can: the largest steps do most
    assert step.prefill_within(0.030, rows=10) == pytest.approx(100, abs=1)
    assert step.prefill_within(0.001, rows=10) == 0
    assert step.prefill_within(10.0, rows=10) == 2 * step.seen  # attention is no straight line
    assert step + StepTime(1, 2, 3, seen=8000) == StepTime(1.010, 2.001, 3.0001, seen=8000)


def test_a_stage_keeps_waiting_and_work_apart() -> None:
    stage = StageTimes(StepTime(0.001, 0.001, 0.0))
    for rows in [1, 2, 4, 8] * 50:
        stage.observe(rows, 0, Spent(wall=0.02 + 0.002 * rows, work=0.01 + 0.001 * rows))
    assert stage.wall.time.predict(8) == pytest.approx(0.036, rel=0.02)
    assert stage.work.time.predict(8) == pytest.approx(0.018, rel=0.02)
    assert stage.seconds == pytest.approx(50 * (4 * 0.02 + 0.002 * 15))


def test_work_on_a_cpu_is_this_threads_processor_time() -> None:
    watch = Stopwatch("cpu")
    start = watch()
    total = sum(range(200_000))
    spent = watch() - start
    assert total and spent.work > 0
    # Waiting costs wall time and no work.
    device = Stopwatch("cuda")
    start = device()
    spent = device() - start
    assert spent.wall == pytest.approx(spent.work, abs=0.01)
