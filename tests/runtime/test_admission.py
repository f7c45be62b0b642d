"""Overload: some run, some wait, the rest is refused at once."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from omni_speak.runtime.admission import Admission
from omni_speak.runtime.errors import Overloaded
from omni_speak.runtime.request import SpeechRequest
from tests.runtime.tiny_engine import tiny_engine

pytestmark = pytest.mark.anyio


def never(admission: Admission) -> None:
    assert (admission.running, admission.waiting) == (0, 0)


async def test_places_are_given_in_order_of_arrival() -> None:
    admission, entered, leave = Admission(lambda: 1, max_queue=8, timeout=60), [], anyio.Event()

    async def stay(name: int) -> None:
        async with admission.place(anyio.current_time):
            entered.append(name)
            await leave.wait()

    async with anyio.create_task_group() as tasks:
        for name in range(4):
            tasks.start_soon(stay, name)
        await anyio.wait_all_tasks_blocked()
        assert (entered, admission.running, admission.waiting) == ([0], 1, 3)
        leave.set()
    assert entered == [0, 1, 2, 3]
    never(admission)


async def test_whoever_waits_too_long_is_told_when_to_come_back() -> None:
    admission = Admission(lambda: 1, max_queue=8, timeout=0.01)
    async with admission.place(anyio.current_time):
        with pytest.raises(Overloaded, match="no place") as refused:
            async with admission.place(anyio.current_time):
                pass
        assert refused.value.retry_after >= 1
    never(admission)


async def test_a_cancelled_wait_leaves_no_trace_even_as_its_turn_comes() -> None:
    admission = Admission(lambda: 1, max_queue=8, timeout=60)
    scope = anyio.CancelScope()

    async def wait() -> None:
        with scope:
            async with admission.place(anyio.current_time):
                await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        async with admission.place(anyio.current_time):
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
        scope.cancel()  # its turn has come, and it has not run since
    never(admission)


async def test_D20_32_offered_at_capacity_4_and_a_queue_of_4(tmp_path: Path) -> None:
    outcomes: list[str] = []
    async with tiny_engine(tmp_path, {"never_ends": True}, max_streams=4, max_queue=4) as engine:

        async def offer(number: int) -> None:
            try:
                stream = engine.speak(SpeechRequest(f"offer {number}", seed=number, max_frames=30))
                frames = [frame async for frame in stream]
                outcomes.append(f"spoke {len(frames)}")
            except Overloaded:
                outcomes.append("refused")

        async with anyio.create_task_group() as tasks:
            for number in range(32):
                tasks.start_soon(offer, number)
        # Refused before anybody was through.
        assert outcomes == ["refused"] * 24 + ["spoke 30"] * 8
        stats = engine.stats()
        assert (stats.running, stats.waiting, stats.refused_total) == (0, 0, 24)
