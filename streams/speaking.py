"""Speaking a text of many segments as one continuous run of frames, with the times of its words.

A model that takes text while it speaks (`EngineInfo.open_text`) says them in one request: one
voice, one breath. A text too long for one goes on in another. With other models each segment is a
request.

What this layer needs of an engine is written down here as protocols, so that nothing in `streams`
imports torch or vLLM until somebody starts a real one.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import anyio
from anyio.abc import TaskGroup

from omni_speak.runtime.errors import NothingToSay, TextTooLong
from omni_speak.runtime.request import (
    MAX_LEAD_MS,
    MAX_SEED,
    EngineInfo,
    Frame,
    SpeechRequest,
    SpeechResult,
    check_request,
)
from omni_speak.streams.messages import Word
from omni_speak.streams.segmenter import Segment, Segmenter

MAX_TEXT_CHARS = 20_000
MAX_SEGMENT_CHARS = 300


class SpeechStream(Protocol):
    @property
    def request_id(self) -> str: ...
    @property
    def spans(self) -> Sequence[tuple[int, int]]: ...
    @property
    def result(self) -> SpeechResult | None: ...
    def __aiter__(self) -> AsyncIterator[Frame]: ...
    def units_of(self, token: int) -> int: ...
    async def append(self, text: str) -> None: ...
    async def end_text(self) -> None: ...
    def played(self, samples: int) -> None: ...


class Tally(Protocol):
    @property
    def sum(self) -> float: ...
    def buckets(self) -> Iterable[tuple[str, int]]: ...


class StageStats(Protocol):
    @property
    def seconds(self) -> float: ...
    @property
    def error(self) -> float: ...


class EngineStats(Protocol):
    @property
    def running(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def requests_total(self) -> int: ...
    @property
    def frames_total(self) -> int: ...
    @property
    def steps_total(self) -> int: ...
    @property
    def tokens_total(self) -> int: ...
    @property
    def held(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def kv_use(self) -> float: ...
    @property
    def underruns_total(self) -> int: ...
    @property
    def refused_total(self) -> int: ...
    @property
    def leads(self) -> Sequence[float]: ...
    @property
    def stages(self) -> Mapping[str, StageStats]: ...
    @property
    def first_audio(self) -> Tally: ...
    @property
    def lateness(self) -> Tally: ...
    @property
    def underruns_of_streams(self) -> Tally: ...


class Engine(Protocol):
    @property
    def info(self) -> EngineInfo: ...
    @property
    def alive(self) -> bool: ...
    def speak(self, request: SpeechRequest, *, open_text: bool = False) -> SpeechStream: ...
    def stats(self) -> EngineStats: ...


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """Characters [start_char, end_char) of the text are heard from sample `start` to `end`."""

    start_char: int
    end_char: int
    start: float
    end: float

    def told(self, text: str, rate: int, at: int = 0) -> Word:
        """With its text, in milliseconds of audio that had `at` samples before this text's."""
        return Word(
            text=text[self.start_char : self.end_char],
            start_char=self.start_char,
            end_char=self.end_char,
            start_ms=round((at + self.start) * 1000 / rate, 1),
            end_ms=round((at + self.end) * 1000 / rate, 1),
        )


@dataclass(frozen=True, slots=True, eq=False)
class SpokenFrame(Frame):
    """A frame of a whole text: `index` and `pts` run on over segments, `segment` counts those
    spoken so far, from 0. Where `key`, the decoder started afresh. `words` end in this frame. Where
    `dry`, all text that came was spoken: the next frame may have to wait for more."""

    segment: int
    key: bool
    words: tuple[SpokenWord, ...]
    dry: bool = False


@dataclass(frozen=True, slots=True)
class SpokenResult:
    """How a text ended: `length` if a frame budget was spent, so that audio is missing.
    Segments with nothing speakable in them are not counted."""

    reason: Literal["stop", "length"]
    frames: int
    samples: int
    segments: int
    seed: int


@dataclass(slots=True)
class _Run:
    """One request: the segments it was given, and how far the model has come in its units.

    A unit belongs to a word; moving over the last of them ends it. `n` moves during one frame cut
    it into `n + 1` equal parts, so times are right to half a frame or so.
    """

    stream: SpeechStream
    segments: list[Segment]
    pts: int
    starts: list[int] = field(default_factory=lambda: [0])
    units_before: list[int] = field(default_factory=lambda: [0])
    unit: int = 0
    word: tuple[int, int] = (0, 0)
    word_start: float = 0.0
    feeding: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    fed: anyio.Event = field(default_factory=anyio.Event)
    open: bool = False

    def __post_init__(self) -> None:
        self.word_start = self.pts

    @property
    def chars(self) -> int:
        return self.starts[-1] + len(self.segments[-1].text)

    @property
    def segment(self) -> int:
        """Which of `segments` is being spoken."""
        return bisect_right(self.units_before, self.unit) - 1

    @property
    def dry(self) -> bool:
        return self.open and 0 < len(self.stream.spans) <= self.unit + 1

    def add(self, segment: Segment, units_before: int) -> None:
        self.starts.append(self.chars)
        self.segments.append(segment)
        self.units_before.append(units_before)

    def frame(self, frame: Frame) -> tuple[SpokenWord, ...]:
        """The words that end in it."""
        spans, words = self.stream.spans, []
        moves = self.stream.units_of(frame.token)
        for move in range(1, moves + 1):
            now = self.pts + frame.pts + len(frame.pcm) * move / (moves + 1)
            if self.unit == 0 and spans:
                self._enter(spans[0], self.pts)
            self.unit += 1
            span = spans[self.unit] if self.unit < len(spans) else (0, 0)
            if span != self.word:
                if self.word[0] < self.word[1]:
                    words.append(self._placed(now))
                self._enter(span, now)
        return tuple(words)

    def _enter(self, span: tuple[int, int], now: float) -> None:
        self.word, self.word_start = span, now

    def _placed(self, now: float) -> SpokenWord:
        start, end = self.word
        at = bisect_right(self.starts, start) - 1
        shift = self.segments[at].start - self.starts[at]
        return SpokenWord(start + shift, end + shift, self.word_start, now)


class TextStream:
    """An async iterator of `SpokenFrame`s; iterate once. `result` is set when it ended by itself.

    Segments that must be waited for are taken by a task in `tasks`; without, they must be at hand.
    Closing the iterator, or cancelling who waits for it, aborts what is being spoken. Raises what
    the engine raises; a segment with nothing to say is skipped. A request that starved gives its
    place back; text that comes later is spoken by another.
    """

    def __init__(
        self,
        engine: Engine,
        request: SpeechRequest,
        segments: AsyncIterable[Segment],
        *,
        must_speak: bool = False,
        tasks: TaskGroup | None = None,
    ) -> None:
        if request.seed is None:
            raise ValueError("the request's seed must be drawn first, see settle()")
        self.seed = request.seed
        self.result: SpokenResult | None = None
        self._engine = engine
        self._request = request
        self._source = segments.__aiter__()
        self._waiting: deque[Segment] = deque()
        self._must_speak = must_speak
        self._tasks = tasks
        self._run: _Run | None = None

    def played(self, samples: int) -> None:
        """The listener has heard this much of the whole."""
        if self._run is not None:
            self._run.stream.played(max(0, samples - self._run.pts))

    async def __aiter__(self) -> AsyncGenerator[SpokenFrame]:
        frames = samples = spoken = 0
        reason: Literal["stop", "length"] = "stop"
        while (segment := await self._next()) is not None:
            request = replace(self._request, text=segment.text)
            open_text = self._engine.info.open_text and await self._may_go_on()
            run = _Run(self._engine.speak(request, open_text=open_text), [segment], samples)
            self._run, run.open = run, open_text
            if open_text and self._tasks is not None:
                self._tasks.start_soon(self._feed_aside, run)
            else:
                run.fed.set()
            key, speakable = True, True
            try:
                async with _closing(run.stream) as spoken_frames:
                    async for frame in spoken_frames:
                        if key and open_text and self._tasks is None:
                            await self._feed(run)
                        words = run.frame(frame)
                        yield SpokenFrame(
                            frames,
                            frame.codes,
                            frame.pcm,
                            samples,
                            frame.token,
                            spoken + run.segment,
                            key,
                            words,
                            run.dry,
                        )
                        key = False
                        frames += 1
                        samples += len(frame.pcm)
            except NothingToSay:
                speakable = False
            finally:
                run.feeding.cancel()
                self._run = None
            await run.fed.wait()  # or a segment in its hands would be missed
            if not speakable:
                continue
            result = run.stream.result
            if result is not None and result.finish_reason == "starved":
                self._take_back(run)
            if result is not None and result.finish_reason == "length":
                reason = "length"
            spoken += len(run.segments)
        if self._must_speak and spoken == 0:
            raise NothingToSay("the text holds nothing that can be spoken", param="text")
        self.result = SpokenResult(reason, frames, samples, spoken, self.seed)

    async def _next(self) -> Segment | None:
        return self._waiting.popleft() if self._waiting else await anext(self._source, None)

    async def _may_go_on(self) -> bool:
        if self._tasks is not None:
            return True
        following = await self._next()
        if following is not None:
            self._waiting.appendleft(following)
        return following is not None

    async def _feed_aside(self, run: _Run) -> None:
        try:
            await self._feed(run)
        finally:
            run.fed.set()

    async def _feed(self, run: _Run) -> None:
        """Give the request what comes, up to the text's end or all that it can take."""
        with run.feeding:
            while (segment := await self._next()) is not None:
                self._waiting.appendleft(segment)  # until it is given
                if run.chars + len(segment.text) > self._engine.info.max_text_chars:
                    break
                units = len(run.stream.spans)
                try:
                    await run.stream.append(segment.text)
                except NothingToSay:
                    self._waiting.popleft()
                except TextTooLong:
                    break
                else:
                    run.add(self._waiting.popleft(), units)
            run.open = False
            await run.stream.end_text()

    def _take_back(self, run: _Run) -> None:
        """What was given when the request had already starved."""
        while run.units_before[-1] > run.unit:
            run.units_before.pop()
            self._waiting.appendleft(run.segments.pop())


def speak_text(
    engine: Engine,
    text: str,
    *,
    voice: str | None = None,
    speed: float = 1.0,
    seed: int | None = None,
    temperature: float | None = None,
    max_frames: int | None = None,
    normalise: bool = True,
) -> TextStream:
    """Speak all of `text`; `max_frames` bounds each of its requests.

    Whoever asked may hear it as it comes or keep it: it has deadlines, and its lead no bound.

    Raises InvalidRequest (UnknownVoice, TextTooLong) at once; iteration raises NothingToSay if no
    segment holds anything speakable, and what the engine raises.
    """
    if len(text) > MAX_TEXT_CHARS:
        raise TextTooLong(
            f"the text has {len(text)} characters, at most {MAX_TEXT_CHARS} are allowed",
            param="text",
        )
    request = settle(
        engine.info,
        SpeechRequest(
            text="",
            voice=voice,
            speed=speed,
            seed=seed,
            temperature=temperature,
            max_frames=max_frames,
            max_lead_ms=MAX_LEAD_MS,
            normalise=normalise,
        ),
    )
    segmenter = new_segmenter(engine.info)
    segments = [*segmenter.push(text), *segmenter.flush()]
    return TextStream(engine, request, _each(segments), must_speak=True)


def new_segmenter(info: EngineInfo, start: int = 0) -> Segmenter:
    """Makes segments that the model takes; the text begins at character `start`."""
    return Segmenter(min(MAX_SEGMENT_CHARS, info.max_text_chars), start=start)


def settle(
    info: EngineInfo,
    request: SpeechRequest,
    draw_seed: Callable[[], int] = lambda: secrets.randbelow(MAX_SEED),
) -> SpeechRequest:
    """The request checked, with nothing left open: the voice's exact name, a seed.

    Raises InvalidRequest or a subclass, naming what is allowed.
    """
    request = check_request(request, info)
    return replace(request, seed=draw_seed()) if request.seed is None else request


def _closing(stream: SpeechStream) -> aclosing[AsyncGenerator[Frame]]:
    # Left to the garbage collector, the engine would go on speaking to nobody for a while.
    return aclosing(stream.__aiter__())  # type: ignore[arg-type]


async def _each(segments: Iterable[Segment]) -> AsyncIterator[Segment]:
    for segment in segments:
        yield segment
