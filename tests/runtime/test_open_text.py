"""Text that arrives while Wren speaks: one request, one voice, whenever the text comes."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator

import anyio
import pytest
import torch

from omni_speak.runtime.engine import EngineConfig, SpeechEngine, SpeechStream
from omni_speak.runtime.errors import InvalidRequest, NothingToSay
from omni_speak.runtime.request import Frame, SpeechRequest
from tests.runtime.tiny_engine import codes, tiny_engine

pytestmark = pytest.mark.anyio

SEGMENTS = ("Hello there.", "I am still speaking!", "And this is the end.")


@pytest.fixture(params=[False, True], ids=["sync", "async"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[SpeechEngine]:
    config = EngineConfig(max_streams=4, kv_cache_mib=16, async_scheduling=request.param)
    async with SpeechEngine(config) as engine:
        yield engine


def hello(**fields: object) -> SpeechRequest:
    return SpeechRequest(SEGMENTS[0], seed=5, **fields)  # type: ignore[arg-type]


async def give(stream: SpeechStream) -> None:
    for segment in SEGMENTS[1:]:
        await stream.append(segment)
    await stream.end_text()


async def all_at_once(engine: SpeechEngine) -> tuple[SpeechStream, list[Frame]]:
    stream = engine.speak(hello(), open_text=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(give, stream)
        frames = [frame async for frame in stream]
    return stream, frames


async def until_starved(engine: SpeechEngine, stream: SpeechStream) -> None:
    """Until the talker has spoken all the text it knows."""
    clock = engine._clock
    while (s := clock._streams.get(stream.request_id)) is None or (
        s.starved_at is None or s.spoken < len(stream.spans) - 1
    ):
        await anyio.sleep(0.005)


async def test_codes_do_not_depend_on_when_the_text_came(engine: SpeechEngine) -> None:
    early, expected = await all_at_once(engine)
    assert early.result is not None and early.result.finish_reason == "stop"

    late = engine.speak(hello(), open_text=True)
    steps: list[int] = []

    async def feed() -> None:
        for segment in SEGMENTS[1:]:
            await until_starved(engine, late)
            before = engine._clock._streams[late.request_id].generated
            await anyio.sleep(0.1)  # starved for a while: nothing is made up meanwhile
            assert engine._clock._streams[late.request_id].generated == before
            steps.append(before)
            await late.append(segment)
        await until_starved(engine, late)
        await late.end_text()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed)
        for _ in range(2):  # and with others in the batch
            tasks.start_soon(all_at_once, engine)
        frames = [frame async for frame in late]
    assert late.result is not None and late.result.finish_reason == "stop"
    assert codes(frames) == codes(expected)
    assert len(steps) == 2 and 0 < steps[0] < steps[1] < len(frames)


async def test_text_that_comes_later_leaves_nothing_behind(engine: SpeechEngine) -> None:
    """A graph for gradients would keep every layer's activations, of all texts since the start."""
    await all_at_once(engine)
    tensors = [item for item in gc.get_objects() if isinstance(item, torch.Tensor)]
    assert not [tensor.shape for tensor in tensors if tensor.grad_fn is not None]


async def test_text_for_a_stream_that_is_over_is_forgotten(engine: SpeechEngine) -> None:
    stream, given = engine.speak(hello(), open_text=True), []
    extend = engine._extend
    engine._extend = lambda *args, **kw: given.append((args, kw))  # type: ignore[method-assign,func-returns-value]
    frames = aiter(stream)
    await anext(frames)
    for segment in SEGMENTS[1:]:
        await stream.append(segment)
    extend(*given[0][0], **given[0][1])
    await frames.aclose()  # type: ignore[attr-defined]
    extend(*given[1][0], **given[1][1])
    del engine._extend  # the method is back
    await all_at_once(engine)
    assert engine._text.take(lambda _: 0.0) is None


async def test_much_text_at_once_keeps_a_step_waiting_for_one_piece_only(
    engine: SpeechEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the text, others' frames are late by no more than `TEXT_TIME_S`; here that is 0."""
    _, expected = await all_at_once(engine)
    monkeypatch.setattr("omni_speak.runtime.engine.TEXT_TIME_S", 0.0)
    happened: list[str] = []
    step, extend = engine._core.step_fn, engine._runner.extend_request

    def stepped() -> object:
        happened.append("step")
        return step()

    def extended(*args: object) -> None:
        happened.append("text")
        extend(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(engine._core, "step_fn", stepped)
    monkeypatch.setattr(engine._runner, "extend_request", extended)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(all_at_once, engine)
        _, frames = await all_at_once(engine)
    assert codes(frames) == codes(expected)
    assert happened.count("text") == 4 * 3  # two segments and the end
    # Two at a time only where there was nothing to step.
    assert happened.count("step") > 12 and happened[:1] == ["step"]


async def test_spans_say_which_characters_each_phoneme_speaks(engine: SpeechEngine) -> None:
    stream, frames = await all_at_once(engine)
    text = "".join(SEGMENTS)
    words = list(dict.fromkeys(text[start:end] for start, end in stream.spans if end > start))
    spoken = "Hello there I am still speaking And this is the end".split()
    assert [word.strip(".!") for word in words] == spoken
    assert stream.spans == sorted(stream.spans)
    # The pointer ends on the `$`, behind all units.
    assert sum(frame.token for frame in frames) == len(stream.spans)


async def test_a_text_left_open_ends_by_its_time_limit(engine: SpeechEngine) -> None:
    stream = engine.speak(hello(starve_timeout_s=0.2), open_text=True)
    frames = [frame async for frame in stream]
    assert stream.result is not None and stream.result.finish_reason == "starved"
    assert sum(frame.token for frame in frames) == len(stream.spans) - 1  # all of what there was
    stats = engine.stats()
    assert (stats.running, stats.waiting, len(engine._clock)) == (0, 0, 0)


async def test_a_segment_with_nothing_to_say_changes_nothing(engine: SpeechEngine) -> None:
    _, expected = await all_at_once(engine)
    stream = engine.speak(hello(), open_text=True)

    async def feed() -> None:
        with pytest.raises(NothingToSay):
            await stream.append("…")
        await give(stream)
        with pytest.raises(InvalidRequest, match="has ended"):
            await stream.append("More?")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed)
        frames = [frame async for frame in stream]
    assert codes(frames) == codes(expected)


async def test_the_frame_budget_grows_with_the_text(engine: SpeechEngine) -> None:
    budget = engine._front.prepare_open(hello()).max_frames
    stream = engine.speak(hello(), open_text=True)

    async def feed() -> None:
        for _ in range(3):
            await stream.append("And this is one more sentence to speak.")
        await stream.end_text()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed)
        frames = [frame async for frame in stream]
    assert stream.result is not None and stream.result.finish_reason == "stop"
    assert len(frames) > budget


async def test_D06_max_frames_bounds_an_open_text(engine: SpeechEngine) -> None:
    stream = engine.speak(hello(max_frames=9), open_text=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(give, stream)
        frames = [frame async for frame in stream]
    assert stream.result is not None and stream.result.finish_reason == "length"
    assert len(frames) == 9


async def test_a_model_of_whole_texts_refuses_open_ones(tmp_path) -> None:
    async with tiny_engine(tmp_path) as engine:
        with pytest.raises(InvalidRequest, match="whole texts only"):
            engine.speak(SpeechRequest("hello"), open_text=True)
