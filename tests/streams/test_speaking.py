"""Text streams beside their engine, without sockets."""

from __future__ import annotations

import anyio
import pytest

from omni_speak.runtime.request import SpeechRequest
from omni_speak.streams.segmenter import Segment
from omni_speak.streams.speaking import TextStream, settle
from tests.streams.fake_engine import FakeEngine, FakeStream

pytestmark = pytest.mark.anyio


async def test_text_that_comes_in_the_moment_a_place_is_given_back_is_spoken() -> None:
    sender, segments = anyio.create_memory_object_stream[Segment](1)

    class Stream(FakeStream):
        async def _more(self) -> bool:
            more = await super()._more()
            if not more and self._request.text == "One two.":
                sender.send_nowait(Segment("Three.", 9))
                sender.close()
            return more

    class Engine(FakeEngine):
        def speak(self, request: SpeechRequest, *, open_text: bool = False) -> FakeStream:
            super().speak(request, open_text=open_text)
            return Stream(self, self.asked[-1], open_text)

    engine = Engine(patience_s=0.0)
    request = settle(engine.info, SpeechRequest(text="", seed=1))
    with anyio.fail_after(10), segments:
        async with anyio.create_task_group() as tasks:
            stream = TextStream(engine, request, segments, tasks=tasks)
            sender.send_nowait(Segment("One two.", 0))
            frames = [frame async for frame in stream]
    assert [asked.text for asked in engine.asked] == ["One two.", "Three."]
    assert [frame.index for frame in frames] == [0, 1, 2]
