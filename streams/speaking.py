"""Speaking a text of many sentences: one request per segment, one continuous run of frames.

What this layer needs of an engine is written down here as protocols, so that nothing in `streams`
imports torch or vLLM until somebody starts a real one.
"""

from __future__ import annotations

import secrets
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
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from omni_speak.runtime.errors import NothingToSay, TextTooLong
from omni_speak.runtime.request import (
    MAX_SEED,
    EngineInfo,
    Frame,
    SpeechRequest,
    SpeechResult,
    check_request,
)
from omni_speak.streams.segmenter import Segmenter

MAX_TEXT_CHARS = 20_000
MAX_SEGMENT_CHARS = 300


class SpeechStream(Protocol):
    @property
    def request_id(self) -> str: ...
    @property
    def result(self) -> SpeechResult | None: ...
    def __aiter__(self) -> AsyncIterator[Frame]: ...


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
    def speak(self, request: SpeechRequest) -> SpeechStream: ...
    def stats(self) -> EngineStats: ...


@dataclass(frozen=True, slots=True, eq=False)
class SpokenFrame(Frame):
    """A frame of a whole text: `index` and `pts` run on over segments, `segment` counts those
    spoken so far, from 0. Where it changes, the decoder started afresh."""

    segment: int


@dataclass(frozen=True, slots=True)
class SpokenResult:
    """How a text ended: `length` if any segment spent its frame budget, so that audio is missing.
    Segments with nothing speakable in them are not counted."""

    reason: Literal["stop", "length"]
    frames: int
    samples: int
    segments: int
    seed: int


class TextStream:
    """An async iterator of `SpokenFrame`s; iterate once. `result` is set when it ended by itself.

    Closing the iterator, or cancelling who waits for it, aborts the segment being spoken. Raises
    what the engine raises; a segment with nothing to say is skipped.
    """

    def __init__(
        self,
        engine: Engine,
        request: SpeechRequest,
        segments: AsyncIterable[str],
        *,
        must_speak: bool = False,
    ) -> None:
        if request.seed is None:
            raise ValueError("the request's seed must be drawn first, see settle()")
        self.seed = request.seed
        self.result: SpokenResult | None = None
        self._engine = engine
        self._request = request
        self._segments = segments
        self._must_speak = must_speak

    async def __aiter__(self) -> AsyncGenerator[SpokenFrame]:
        frames = samples = spoken = 0
        reason: Literal["stop", "length"] = "stop"
        async for segment in self._segments:
            try:
                stream = self._engine.speak(replace(self._request, text=segment))
                async with _closing(stream) as segment_frames:
                    async for frame in segment_frames:
                        yield SpokenFrame(
                            frames, frame.codes, frame.pcm, samples, frame.token, spoken
                        )
                        frames += 1
                        samples += len(frame.pcm)
            except NothingToSay:
                continue
            spoken += 1
            if stream.result is not None and stream.result.finish_reason == "length":
                reason = "length"
        if self._must_speak and spoken == 0:
            raise NothingToSay("the text holds nothing that can be spoken", param="text")
        self.result = SpokenResult(reason, frames, samples, spoken, self.seed)


def speak_text(
    engine: Engine,
    text: str,
    *,
    voice: str | None = None,
    speed: float = 1.0,
    seed: int | None = None,
    temperature: float | None = None,
) -> TextStream:
    """Speak all of `text`, sentence by sentence, each with the same `seed`.

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
        SpeechRequest(text="", voice=voice, speed=speed, seed=seed, temperature=temperature),
    )
    segmenter = Segmenter(segment_chars(engine.info))
    segments = [*segmenter.push(text), *segmenter.flush()]
    return TextStream(engine, request, _each(segments), must_speak=True)


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


def segment_chars(info: EngineInfo) -> int:
    return min(MAX_SEGMENT_CHARS, info.max_text_chars)


def _closing(stream: SpeechStream) -> aclosing[AsyncGenerator[Frame]]:
    # Left to the garbage collector, the engine would go on speaking to nobody for a while.
    return aclosing(stream.__aiter__())  # type: ignore[arg-type]


async def _each(segments: Iterable[str]) -> AsyncIterator[str]:
    for segment in segments:
        yield segment
