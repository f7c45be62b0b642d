"""A deterministic engine without a model: what a request sounds like follows from its text, voice
and seed, one frame per word. Words that begin with `#` steer it:

    #frames=N   speak N frames          #eos     end before the first frame
    #length     spend the frame budget  #die     the engine dies after the first frame
    #endless    never end               #crowd   refuse as overloaded
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from omni_speak.runtime.errors import EngineDead, NoAudio, NothingToSay, Overloaded
from omni_speak.runtime.request import (
    EngineInfo,
    FinishReason,
    Frame,
    SpeechRequest,
    SpeechResult,
    check_request,
)
from omni_speak.runtime.tally import Tally
from omni_speak.streams.speaking import StageStats

SAMPLES = 1920
INFO = EngineInfo(
    model="fake",
    voices=("Ada", "bob"),
    default_voice="Ada",
    sample_rate=24_000,
    frame_rate=12.5,
    samples_per_frame=SAMPLES,
    codebooks=4,
    codebook_size=1024,
    max_text_chars=2_000,
    speed_range=(0.5, 2.0),
    open_text=True,
    languages=("English", "en"),
)


@dataclass(frozen=True)
class FakeStats:
    running: int
    waiting: int
    requests_total: int
    frames_total: int
    steps_total: int
    held: int = 0
    capacity: int = 64
    kv_use: float = 0.0
    underruns_total: int = 0
    refused_total: int = 0
    tokens_total: int = 0
    leads: tuple[float, ...] = ()
    stages: Mapping[str, StageStats] = field(default_factory=dict)
    first_audio: Tally = field(default_factory=lambda: Tally((0.1,)))
    lateness: Tally = field(default_factory=lambda: Tally((0.0,)))
    underruns_of_streams: Tally = field(default_factory=lambda: Tally((0,)))


class FakeEngine:
    """`running` holds the requests in progress; `asked` has all of them; `frames` counts all that
    were made. A request starves `patience_s` after its text ran out, if that is given."""

    def __init__(self, info: EngineInfo = INFO, *, patience_s: float | None = None) -> None:
        self.info = info
        self.patience_s = patience_s
        self.alive = True
        self.running: set[str] = set()
        self.asked: list[SpeechRequest] = []
        self.requests = 0
        self.frames = 0
        self.heard = 0
        self.numbers = itertools.count()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.alive = False

    def stats(self) -> FakeStats:
        return FakeStats(len(self.running), 0, self.requests, self.frames, self.frames)

    def speak(self, request: SpeechRequest, *, open_text: bool = False) -> FakeStream:
        if not self.alive:
            raise EngineDead("the engine is not running")
        assert self.info.open_text or not open_text
        request = check_request(request, self.info)
        if self.patience_s is not None:
            request = replace(request, starve_timeout_s=self.patience_s)
        self.asked.append(request)
        return FakeStream(self, request, open_text)


class FakeStream:
    """Its units are the words, and a pause behind each segment. What an appended segment sounds
    like does not depend on when it came, or on what came before it."""

    def __init__(self, engine: FakeEngine, request: SpeechRequest, open_text: bool) -> None:
        self.request_id = f"r{next(engine.numbers)}"
        self.result: SpeechResult | None = None
        self.spans: list[tuple[int, int]] = []
        self.heard = 0
        self._engine = engine
        self._request = request
        self._segments: list[str] = []
        self._ended = not open_text
        self._changed = asyncio.Event()

    def units_of(self, token: int) -> int:
        return token

    def played(self, samples: int) -> None:
        self.heard = samples
        self._engine.heard = samples

    async def append(self, text: str) -> None:
        assert not self._ended
        await asyncio.sleep(0)
        self._add(text)

    async def end_text(self) -> None:
        self._ended = True
        self._changed.set()

    def _add(self, text: str) -> None:
        if not re.search(r"\w", text):
            raise NothingToSay("the text holds nothing that can be spoken", param="text")
        at = sum(map(len, self._segments))
        self.spans += [(at + w.start(), at + w.end()) for w in re.finditer(r"\S+", text)]
        self.spans.append((at + len(text), at + len(text)))
        self._segments.append(text)
        self._changed.set()

    async def _more(self) -> bool:
        """False once the text has ended, or has starved."""
        try:
            async with asyncio.timeout(self._request.starve_timeout_s):
                while not self._changed.is_set():
                    await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    async def __aiter__(self) -> AsyncGenerator[Frame]:
        engine, request = self._engine, self._request
        if "#crowd" in request.text:
            raise Overloaded("the engine is full")
        await asyncio.sleep(0)
        self._add(request.text)
        engine.running.add(self.request_id)
        engine.requests += 1
        reason: FinishReason = "stop"
        index = spoken = 0
        try:
            while True:
                if spoken < len(self._segments):
                    segment, first = self._segments[spoken], spoken == 0
                    if "#length" in segment:
                        reason = "length"
                    async for frame in self._speak(segment, first):
                        yield replace(frame, index=index, pts=index * SAMPLES)
                        index += 1
                        if index == request.max_frames:
                            reason, self._ended, spoken = "length", True, len(self._segments)
                            break
                    spoken += 1
                elif self._ended:
                    break
                elif not await self._more():
                    reason = "starved"
                    break
        finally:
            engine.running.discard(self.request_id)
        if index == 0:
            raise NoAudio("the model ended before its first frame")
        assert request.seed is not None
        self.result = SpeechResult(reason, index, request.seed)

    async def _speak(self, segment: str, first: bool) -> AsyncGenerator[Frame]:
        engine, count, words = self._engine, frames_of(segment), len(segment.split())
        request = replace(self._request, text=segment)
        moved = 0
        for index in itertools.count():
            if index == count:
                return
            await asyncio.sleep(0)
            if index == 1 and "#die" in segment:
                engine.alive = False
            if not engine.alive:
                raise EngineDead("the engine died")
            engine.frames += 1
            due = (index + 1) * words // count if count > 0 else 0
            moves, moved = due - moved, due
            yield replace(frame_of(request, index), token=moves + (index == 0 and not first))


def frames_of(text: str) -> int:
    """How many frames a segment has; -1 never ends."""
    if "#eos" in text:
        return 0
    if "#endless" in text:
        return -1
    if match := re.search(r"#frames=(\d+)", text):
        return int(match[1])
    return len(text.split())


def frame_of(request: SpeechRequest, index: int) -> Frame:
    key = f"{request.text}|{request.voice}|{request.seed}|{request.speed}|{index}"
    generator = np.random.default_rng(int(hashlib.sha256(key.encode()).hexdigest()[:16], 16))
    pcm = generator.uniform(-0.5, 0.5, SAMPLES).astype(np.float32)
    codes = generator.integers(0, 1024, 4).astype(np.uint16)
    return Frame(index, codes, pcm, index * SAMPLES, token=0)
