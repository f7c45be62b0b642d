"""A model hook that breaks its promise, and a request that is at fault alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omni_speak.runtime.engine import SpeechEngine
from omni_speak.runtime.errors import MalformedShape, ModelFault, RequestFault
from tests.runtime.conftest import SteppedCore
from tests.runtime.tiny_engine import codes, collect, tiny_engine

Stepped = Callable[..., SteppedCore]


@pytest.mark.parametrize("hook", ["embed_frames", "constrain_logits"])
def test_a_malformed_result_names_hook_request_and_shape(stepped: Stepped, hook: str) -> None:
    core = stepped(tiny={"talker": "Choosy"})
    core.runner.talker.malformed = {hook}
    req_id = core.add("hello")
    with pytest.raises(MalformedShape, match=rf"Choosy\.{hook} must .*{req_id}.* got \[\d, \d+\]"):
        core.step()


def test_a_hooks_own_exception_names_hook_and_requests(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "Choosy"})
    core.runner.talker.malformed = {"post_sample_talker_mtp"}
    req_id = core.add("hello")
    with pytest.raises(ModelFault, match=rf"post_sample_talker_mtp failed .*{req_id}.*a bug") as e:
        core.step()
    assert isinstance(e.value.__cause__, IndexError) and e.value.requests == (req_id,)


@pytest.mark.parametrize("hook", ["embed_frames", "constrain_logits", "post_sample_talker_mtp"])
def test_a_request_at_fault_ends_alone(stepped: Stepped, hook: str) -> None:
    core = stepped(tiny={"talker": "Choosy", "never_ends": True})
    solo = core.add("good", seed=1, max_frames=8)
    core.run()

    good, bad = core.add("good", seed=1, max_frames=8), core.add("bad", seed=2, max_frames=8)
    core.step()
    slots = {r: core.runner.model_intermediate_buffer[r]["slot"] for r in (good, bad)}
    core.runner.talker.slot_of, core.runner.talker.refuses = slots, {hook: bad}
    core.run()
    assert list(core.failed) == [bad] and isinstance(core.failed[bad], RequestFault)
    assert core.codes(good) == core.codes(solo)
    assert len(core.codes(bad)) == 1  # nothing after the fault
    assert not core.runner.model_intermediate_buffer and len(core.runner.frames) == 0
    assert not core.runner._failed


def test_a_request_that_cannot_begin_ends_alone(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "Choosy", "never_ends": True})
    good = core.add("good", max_frames=4)
    bad = core.add("bad", max_frames=4, refused=True)
    core.run()
    assert "begin_request failed" in str(core.failed[bad]) and bad in str(core.failed[bad])
    assert len(core.codes(good)) == 4 and core.codes(bad) == []


def test_a_failed_step_loses_no_requests_end(stepped: Stepped) -> None:
    """Requests that ended just before a step that fails are forgotten all the same."""
    core = stepped(tiny={"talker": "SendsKV", "never_ends": True, "breaks_kv": True})
    core.runner.kv_sender = _Sent()
    core.add("ends", max_frames=1, kv_transfer={})
    other = core.add("goes on", max_frames=9)
    core.step()
    with pytest.raises(ModelFault) as caught:  # R33: loudly
        core.step()
    assert caught.value.requests == (other,)
    core.core.abort_requests([other])
    core.runner.kv_sender = None
    core.run()
    assert not core.runner.model_intermediate_buffer and not core.runner.requests


class _Sent(list[Any]):
    def send(self, messages: Any) -> None:
        self.extend(messages)

    def close(self) -> None: ...


@pytest.mark.anyio
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_the_engine_survives_a_failed_step(tmp_path: Any, asynchronous: bool) -> None:
    async with tiny_engine(tmp_path, {"talker": "Choosy"}, async_scheduling=asynchronous) as engine:
        _, before = await collect(engine, text="hello", seed=3)
        for hook in ("embed_frames", "post_sample_talker_mtp"):
            engine._runner.talker.malformed = {hook}
            with pytest.raises(ModelFault, match=hook):
                await collect(engine, text="hello", seed=3)
            engine._runner.talker.malformed = set()
            assert engine.alive
            _, after = await collect(engine, text="hello", seed=3)
            assert codes(after) == codes(before)
        _assert_empty(engine)


@pytest.mark.anyio
async def test_the_engine_ends_a_request_at_fault_alone(tmp_path: Any) -> None:
    prompt = "a prompt of more than one block, so that it could be found in the prefix cache " * 3
    async with tiny_engine(tmp_path, {"talker": "Choosy"}, max_step_tokens=512) as engine:
        begin = engine._runner.talker.begin_request

        def refuse(slot: int, conditioning: Any) -> None:
            raise ValueError("cannot begin")

        engine._runner.talker.begin_request = refuse
        with pytest.raises(RequestFault, match="cannot begin"):
            await collect(engine, text=prompt, seed=3, voice="two")
        engine._runner.talker.begin_request = begin
        # Its keys and values were made of nothing: nobody may find them again.
        _, after = await collect(engine, text=prompt, seed=3, voice="two")
        _assert_empty(engine)
    async with tiny_engine(tmp_path, {"talker": "Choosy"}, max_step_tokens=512) as engine:
        _, fresh = await collect(engine, text=prompt, seed=3, voice="two")
    assert codes(after) == codes(fresh)


def _assert_empty(engine: SpeechEngine) -> None:
    stats = engine.stats()
    assert (stats.running, stats.waiting) == (0, 0) and len(engine._vocoder) == 0
