"""SpeechEngine: the asyncio façade over vLLM's engine core.

    event loop           engine thread                output builder       vocoder thread
    speak() ──add/abort──▶ schedule → forward → sample
                           → MTP → snapshot ────────▶ codes by request ──▶ batched decode
    frames ◀────────────────────────────────────────────── one wake-up per round ──┘

The loop never blocks on the other threads; a stream's frames come over a bounded queue.
"""

from __future__ import annotations

import asyncio
import gc
import math
import queue
import secrets
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

import anyio
import anyio.to_thread
import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from omni_speak.models.base import Front, OpenTextFront, Prompt, TextSegment
from omni_speak.models.registry import open_model
from omni_speak.runtime.admission import Admission
from omni_speak.runtime.errors import (
    EngineDead,
    InvalidRequest,
    ModelFault,
    NoAudio,
    SpeechError,
)
from omni_speak.runtime.frame_clock import FrameClock
from omni_speak.runtime.request import (
    MAX_SEED,
    EngineInfo,
    FinishReason,
    Frame,
    SpeechRequest,
    SpeechResult,
    check_request,
)
from omni_speak.runtime.step_times import Stopwatch
from omni_speak.runtime.tally import Tally
from omni_speak.runtime.text_to_come import TextToCome
from omni_speak.runtime.vocoder import End, Vocoder

if TYPE_CHECKING:
    from vllm.v1.engine.core import EngineCore

    from omni_speak.runtime.runner import SpeechRunnerMixin
    from omni_speak.runtime.scheduler import FrameClockMixin

AUTO_STREAMS = 64
"""Slots for streams where their number follows from the measured speed."""


SWITCH_INTERVAL_S = 0.0005
"""How long one thread may keep Python from another that wants it (Python's own 5 ms are a large
part of a frame): a step waits for it after each kernel that ran while the vocoder was in Python."""


TEXT_TIME_S = 0.01
"""How long text that comes behind what is spoken may keep a step waiting; one piece always may. A
page of it takes Wren a quarter of a second, and everybody's frames would be late by that."""


class EngineConfig(BaseModel):
    """How to run a model. `model` is a bundled model's name or a directory."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = "wren"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    max_streams: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="streams at the same time; auto: as many as can be in time"
    )
    max_queue: int = Field(64, ge=0, description="requests that wait for a place; more are refused")
    queue_timeout_s: float = Field(
        10.0, gt=0, description="how long one waits before it is refused"
    )
    ordering: Literal["clock", "arrival"] = Field(
        "clock", description="arrival is vLLM's own order, to compare with"
    )
    max_step_tokens: int = Field(512, ge=32, description="prefill and decode tokens of one step")
    kv_cache_mib: int = Field(64, ge=1)
    kv_cache_blocks: int | None = Field(None, ge=1, description="overrides kv_cache_mib")
    lead_frames: int = Field(64, ge=1, description="frames decoded ahead of a stream's reader")
    async_scheduling: bool | None = Field(None, description="None: on CUDA only")
    lexicon: Path | None = Field(None, description="words and how to read them, for the model")

    @model_validator(mode="after")
    def _a_step_holds_every_stream(self) -> Self:
        if self.max_step_tokens < self.slots:
            raise ValueError(
                f"max_step_tokens ({self.max_step_tokens}) must be at least max_streams "
                f"({self.slots}): every running stream decodes one token a step"
            )
        return self

    @property
    def slots(self) -> int:
        return AUTO_STREAMS if self.max_streams == "auto" else self.max_streams


@dataclass(frozen=True, slots=True)
class StageStats:
    """One stage's time in all, and the mean relative error of what was predicted of it."""

    seconds: float
    error: float


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since the start, and what is in the engine now; times in seconds.

    `held` streams are ahead of their listeners; `waiting` ones have no place yet; `capacity` is
    how many may have one; `kv_use` is the share of KV blocks in use; `underruns` are frames that
    reached their reader after the moment its player needed them; `leads` of the streams that have
    audio. `stages`: forward (a step but for its MTP), mtp, vocoder.
    """

    running: int
    waiting: int
    held: int
    capacity: int
    requests_total: int
    refused_total: int
    frames_total: int
    steps_total: int
    tokens_total: int
    underruns_total: int
    kv_use: float
    leads: Sequence[float]
    stages: Mapping[str, StageStats]
    first_audio: Tally
    lateness: Tally
    underruns_of_streams: Tally


class SpeechEngine:
    """Speaks many requests at once.

    async with SpeechEngine() as engine:
        async for frame in engine.speak(SpeechRequest(text="Hello!")):
            play(frame.pcm)
    """

    info: EngineInfo

    def __init__(self, config: EngineConfig | None = None) -> None:
        self.config = config or EngineConfig()
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._streams: dict[str, SpeechStream] = {}
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._death: BaseException | None = None
        self._requests = self._frames = self._steps = self._tokens = 0
        self._text: TextToCome[tuple[SpeechStream, TextSegment, bool]] = TextToCome()
        self._rest = 0.0  # how long there will be nothing to step, unless a command comes
        self._admission = Admission(
            self._capacity,
            max_queue=self.config.max_queue,
            timeout=self.config.queue_timeout_s,
        )
        self._clock: FrameClock
        self._core: EngineCore
        self._runner: SpeechRunnerMixin
        self._vocoder: Vocoder

    async def __aenter__(self) -> Self:
        """Load the model and start the threads. Raises `ModelNotFound` and what vLLM raises."""
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._thread.start()
        try:
            await asyncio.shield(self._ready)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        self._inbox.put(None)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join)
        self._fail_streams(EngineDead("the engine was closed"))

    @property
    def alive(self) -> bool:
        """The engine thread serves requests: False before the start, after its end or death."""
        return self._thread.is_alive() and self._ready.done() and self._death is None

    def _check_alive(self) -> None:
        if not self.alive:
            raise EngineDead(f"the engine is not running: {self._death or 'closed'}")

    def stats(self) -> EngineStats:
        clock = self._clock
        return EngineStats(
            running=self._admission.running,
            waiting=self._admission.waiting,
            held=clock.held,
            capacity=self._capacity(),
            requests_total=self._requests,
            refused_total=self._admission.refused,
            frames_total=self._frames,
            steps_total=self._steps,
            tokens_total=self._tokens,
            underruns_total=clock.underruns,
            kv_use=self._core.scheduler.get_kv_cache_usage(),
            leads=clock.leads(),
            stages={
                "forward": StageStats(clock.forward.seconds, clock.forward.wall.error),
                "mtp": StageStats(clock.mtp.seconds, clock.mtp.wall.error),
                "vocoder": StageStats(clock.vocoder.seconds, clock.vocoder.wall.error),
            },
            first_audio=clock.first_audio,
            lateness=clock.lateness,
            underruns_of_streams=clock.underruns_of_streams,
        )

    def _capacity(self) -> int:
        if self.config.max_streams != "auto":
            return self.config.max_streams
        return self._clock.capacity(self.config.slots)

    def speak(self, request: SpeechRequest, *, open_text: bool = False) -> SpeechStream:
        """The frames of one utterance, as an async iterator.

        Raises `InvalidRequest` (or a subclass) at once if voice, speed, types or size are wrong,
        `Overloaded` if no more may wait, `EngineDead` if it died. Text that holds nothing to say
        is found when iteration starts, and so is a place that does not become free in time.

        With `open_text` more may come (`SpeechStream.append`) until `end_text`: one voice, one
        breath. Raises `InvalidRequest` if the model speaks only whole texts.
        """
        self._check_alive()
        request = check_request(request, self.info)
        if open_text and not self.info.open_text:
            raise InvalidRequest(
                f"model {self.info.model} speaks whole texts only; it cannot be given more later"
            )
        self._admission.check()
        seed = secrets.randbelow(MAX_SEED) if request.seed is None else request.seed
        return SpeechStream(self, request, seed, open_text)

    # -- on the event loop -------------------------------------------------------------------

    def _add(self, stream: SpeechStream, prompt: Prompt) -> None:
        self._check_alive()
        self._streams[stream.request_id] = stream
        self._requests += 1
        self._inbox.put(lambda: self._add_request(stream, prompt))

    def _abort(self, request_id: str) -> None:
        if self._streams.pop(request_id, None) is not None:
            self._clock.close(request_id)
            self._inbox.put(lambda: self._abort_request(request_id))

    def _extend(self, stream: SpeechStream, segment: TextSegment, *, ends: bool) -> None:
        self._inbox.put(lambda: self._keep_text(stream, segment, ends))

    def _plan_again(self) -> None:
        self._inbox.put(lambda: None)  # it may rest

    def _receive(self, deliveries: list[tuple[str, Frame | End]]) -> None:
        for request_id, item in deliveries:
            stream = self._streams.get(request_id)
            if stream is None:
                continue
            self._frames += isinstance(item, Frame)
            if isinstance(item, End):
                del self._streams[request_id]
                self._clock.close(request_id)
            stream._deliver(item)

    def _fail_streams(self, error: SpeechError) -> None:
        for stream in list(self._streams.values()):
            self._clock.close(stream.request_id)
            stream._deliver(error)
        self._streams.clear()

    def _call_loop(self, callback: Callable[..., None], *args: Any) -> None:
        """From another thread; the loop may already be gone at interpreter exit."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    # -- on the engine thread ----------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._load()
        except BaseException as error:  # noqa: BLE001  reported to whoever awaits the start
            self._death = error
            self._call_loop(self._set_ready, error)
            return
        self._call_loop(self._set_ready, None)
        try:
            while self._serve_inbox():
                self._step()
        except BaseException as error:  # noqa: BLE001  whatever it is, every stream must hear of it
            self._die(error)
        finally:
            self._vocoder.stop()
            self._core.shutdown()

    def _set_ready(self, error: BaseException | None) -> None:
        if self._ready.done():
            return
        if error is None:
            self._ready.set_result(None)
        else:
            self._ready.set_exception(error)

    def _load(self) -> None:
        # Collections during start walk the importing heap for seconds; nothing there is garbage.
        gc.disable()
        try:
            model = open_model(self.config.model)
            self.info = model.front.info
            if self.config.lexicon is not None:
                _use_lexicon(model.front, self.config.lexicon)
            # Here, not above: importing vLLM takes seconds, and this is the thread that may block.
            from omni_speak.runtime.vllm_setup import (
                make_core,
                make_request,
                pick_device,
                vllm_config,
            )

            gc.freeze()
            torch.set_num_threads(1)
            sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
            device = pick_device(self.config.device)
            asynchronous = self.config.async_scheduling
            self._core, self._runner = make_core(
                vllm_config(
                    model,
                    device=device,
                    max_streams=self.config.slots,
                    max_step_tokens=self.config.max_step_tokens,
                    kv_cache_bytes=self.config.kv_cache_mib << 20,
                    num_kv_blocks=self.config.kv_cache_blocks,
                    async_scheduling=device != "cpu" if asynchronous is None else asynchronous,
                )
            )
            self._make_request = make_request
            self._front = model.front
            self._units_of = getattr(model.front, "units_of", _no_units)
            self._clock = FrameClock(1 / self.info.frame_rate, time.monotonic)
            self._stopwatch = Stopwatch(device)
            self._runner.stopwatch = self._stopwatch
            self._scheduler: FrameClockMixin = self._core.scheduler
            self._vocoder = Vocoder(
                model.load_codec(),
                samples_per_frame=self.info.samples_per_frame,
                stopwatch=self._stopwatch,
                times=self._clock.vocoder,
                lead_frames=self.config.lead_frames,
                deliver=self._send_round,
                slack=self._clock.slack_at_reader if self.config.ordering == "clock" else None,
                on_failure=lambda error: self._inbox.put(lambda: _raise(error)),
            )
            self._runner.builder.sink = self._vocoder.push
            # From the builder's thread too, hence by the inbox: served before the next step.
            self._runner.on_request_failed = lambda request_id, error: self._inbox.put(
                lambda: self._fail_requests([request_id], error)
            )
            self._vocoder.start()
            # Collections look at what comes from now on, and at nothing else: each is short, and
            # they are frequent (the next is due when a quarter of what the last one saw is new).
            gc.freeze()
            gc.collect()
        finally:
            gc.enable()

    def _serve_inbox(self) -> bool:
        """Run what the loop asked for; wait for something when there is nothing to step. False
        when told to close."""
        rest = self._rest if self._core.scheduler.has_requests() else math.inf
        while True:
            try:
                command = self._inbox.get(
                    block=rest > 0, timeout=None if rest == math.inf else max(rest, 0.0)
                )
            except queue.Empty:
                return True
            if command is None:
                return False
            command()
            rest = 0.0

    def _send_round(self, items: list[tuple[str, Frame | End]]) -> None:
        """On the vocoder's thread."""
        self._clock.delivered([stream for stream, item in items if isinstance(item, Frame)])
        self._call_loop(self._receive, items)

    def _step(self) -> None:
        self._rest = 0.0
        more = self._learn_text()
        for request_id in self._clock.starved_out():
            self._core.abort_requests([request_id])
            self._finish(request_id, "starved")
        if self.config.ordering == "clock":
            scheduler = self._scheduler
            plan = self._clock.plan(scheduler.is_prefilling, scheduler.is_in_flight)
            if not (scheduler.has_work(plan) or self._core.batch_queue):
                if not more:
                    self._rest = self._clock.wake(plan) - self._clock.now()
                return
            scheduler.next_plan = plan
        start = self._stopwatch()
        try:
            outputs, executed = self._core.step_fn()
        except ModelFault as fault:
            self._fail_requests(fault.requests, fault)
            return
        self._core.post_step(executed)
        if executed:
            rows, prefill = self._scheduler.last_step
            self._steps += 1
            self._tokens += rows + prefill
            frames, mtp = self._runner.take_mtp()
            self._clock.mtp.observe(frames, 0, mtp)
            self._clock.forward.observe(rows, prefill, self._stopwatch() - start - mtp)
        ends = self._runner.hooks.end_token_ids
        for batch in (outputs or {}).values():
            for output in batch.outputs:
                for token in output.new_token_ids:
                    if token not in ends:
                        self._clock.sampled(output.request_id, self._units_of(token))
        finished: list[tuple[str, FinishReason]] = [
            (output.request_id, str(output.finish_reason))  # type: ignore[misc]
            for batch in (outputs or {}).values()
            for output in batch.outputs
            if output.finish_reason is not None
        ]
        if finished:
            # Their last codes must reach the vocoder before their ends do.
            self._runner.collect_build()
            for request_id, reason in finished:
                self._finish(request_id, reason)

    def _finish(self, request_id: str, reason: FinishReason) -> None:
        self._clock.finish(request_id)
        self._text.drop(request_id)
        self._vocoder.finish(request_id, reason)

    def _add_request(self, stream: SpeechStream, prompt: Prompt) -> None:
        request = stream.request
        self._vocoder.open(stream.request_id)
        self._clock.open(
            stream.request_id,
            arrival=stream.arrival,
            max_lead=math.inf if request.max_lead_ms is None else request.max_lead_ms / 1000,
            units=prompt.units if stream.open_text else math.inf,
            starve_timeout=request.starve_timeout_s,
        )
        self._core.add_request(
            self._make_request(
                self._core,
                self._runner,
                stream.request_id,
                prompt,
                seed=stream.seed,
                max_frames=request.max_frames,
            )
        )

    def _keep_text(self, stream: SpeechStream, segment: TextSegment, ends: bool) -> None:
        if stream.request_id in self._core.scheduler.requests:  # else it ended
            self._text.add(stream.request_id, (stream, segment, ends))

    def _learn_text(self) -> bool:
        """Whether there may be more that can be learned now."""
        until = self._clock.now() + TEXT_TIME_S
        while (piece := self._text.take(self._units_left)) is not None:
            self._extend_request(*piece)
            if self._clock.now() >= until:
                return True
        return False

    def _units_left(self, request_id: str) -> float:
        begun = request_id in self._runner.frames
        return self._clock.units_left(request_id) if begun else math.inf

    def _extend_request(self, stream: SpeechStream, segment: TextSegment, ends: bool) -> None:
        request = self._core.scheduler.requests[stream.request_id]
        self._runner.extend_request(stream.request_id, segment.conditioning)
        if stream.request.max_frames is None:
            room = self._runner.max_model_len - request.num_prompt_tokens
            request.max_tokens = min(request.max_tokens + segment.max_frames, room)
        self._clock.extend(stream.request_id, math.inf if ends else segment.units)

    def _abort_request(self, request_id: str) -> None:
        self._core.abort_requests([request_id])
        self._text.drop(request_id)
        self._vocoder.drop(request_id)
        self._clock.close(request_id)  # again: it may have been opened since

    def _fail_requests(self, request_ids: Sequence[str], error: SpeechError) -> None:
        """End these requests with an error. Their KV may be wrong: nobody may find it again."""
        pool = self._core.scheduler.kv_cache_manager
        blocks = {
            block
            for request_id in request_ids
            if request_id in self._core.scheduler.requests
            for group in pool.get_block_ids(request_id)
            for block in group
        }
        self._core.abort_requests(list(request_ids))
        pool.evict_blocks(blocks)
        for request_id in request_ids:
            self._text.drop(request_id)
            self._vocoder.drop(request_id)
            self._call_loop(self._deliver_failure, request_id, error)

    def _deliver_failure(self, request_id: str, error: SpeechError) -> None:
        stream = self._streams.pop(request_id, None)
        self._clock.close(request_id)
        if stream is not None:
            stream._deliver(error)

    def _die(self, error: BaseException) -> None:
        self._death = error
        dead = EngineDead(f"the engine died: {type(error).__name__}: {error}")
        dead.__cause__ = error
        self._call_loop(self._fail_streams, dead)


class SpeechStream:
    """One utterance: iterate it once for its frames. Ending the iteration early (break, cancel,
    `aclose`) takes the request out before the engine's next step."""

    def __init__(
        self, engine: SpeechEngine, request: SpeechRequest, seed: int, open_text: bool
    ) -> None:
        self.request = request
        self.seed = seed
        self.open_text = open_text
        self.spans: list[tuple[int, int]] = []
        """For each unit of the text (for Wren: each phoneme) the characters [start, end) it speaks
        of the segments joined without anything between; grows with them. A frame's `token` says
        how many units it moved on."""
        self.arrival = engine._clock.now()
        self.request_id = uuid.uuid4().hex
        self.result: SpeechResult | None = None
        self._engine = engine
        # The vocoder keeps at most `lead_frames` here; an end or an error comes on top.
        self._send, self._queue = anyio.create_memory_object_stream[Frame | End | SpeechError](
            engine.config.lead_frames + 2
        )
        self._text_lock = anyio.Lock()
        self._begun = anyio.Event()
        self._delivered = 0
        self._second = anyio.Event()
        self._ended = False
        self._conditioning: Mapping[str, Any] = {}
        self._chars = len(request.text)

    def __aiter__(self) -> AsyncIterator[Frame]:
        return self._frames()

    def _deliver(self, item: Frame | End | SpeechError) -> None:
        self._send.send_nowait(item)
        self._delivered += 1
        if self._delivered == 2:
            self._second.set()

    async def append(self, text: str) -> None:
        """The text goes on with another segment, a sentence or so. Whether it comes early or late
        changes no code, only when it is spoken.

        Waits until the stream has begun. Raises `NothingToSay`, `TextTooLong` (the stream then
        goes on without it), `InvalidRequest` if the text is not open.
        """
        if not self.open_text or self._ended:
            raise InvalidRequest("the text of this stream has ended", param="text")
        await self._begun.wait()
        front = cast(OpenTextFront, self._engine._front)
        async with self._text_lock:
            segment = await anyio.to_thread.run_sync(
                front.extend, self.request, text, self._conditioning
            )
            self._conditioning = segment.conditioning
            self.spans += [(start + self._chars, end + self._chars) for start, end in segment.spans]
            self._chars += len(text)
            self._engine._extend(self, segment, ends=False)

    async def end_text(self) -> None:
        """No more text comes; the stream ends when it has spoken what it has. Twice is harmless."""
        if not self.open_text or self._ended:
            return
        self._ended = True
        await self._begun.wait()
        front = cast(OpenTextFront, self._engine._front)
        async with self._text_lock:
            self._engine._extend(self, front.finish(self._conditioning), ends=True)

    def units_of(self, token: int) -> int:
        """How many units of `spans` a frame with this token moved on."""
        return self._engine._units_of(token)

    def played(self, samples: int) -> None:
        """The listener has heard this many samples; until the first such word, the wall clock since
        the first audio counts. Say it more often than `max_lead_ms`: who says nothing has paused,
        and the stream waits. After `ACK_TIMEOUT_S` of that the wall clock counts again; who pauses
        for longer says the same once more."""
        seconds = samples / self._engine.info.sample_rate
        if self._engine._clock.played(self.request_id, seconds):
            self._engine._plan_again()

    async def _frames(self) -> AsyncIterator[Frame]:
        """Raises `NothingToSay` and what else the front end finds, `Overloaded`, `NoAudio` if the
        model ended before its first frame, `EngineDead`."""
        engine, count = self._engine, 0
        front = cast(OpenTextFront, engine._front)
        prepare = front.prepare_open if self.open_text else front.prepare
        prompt = await anyio.to_thread.run_sync(prepare, self.request)
        self.spans += prompt.spans
        self._conditioning = prompt.conditioning
        async with engine._admission.place(engine._clock.now):
            engine._add(self, prompt)
            self._begun.set()
            try:
                with self._send, self._queue:
                    while isinstance(item := await self._queue.receive(), Frame):
                        if count == 0 and engine.config.ordering == "clock":
                            with anyio.move_on_after(engine._clock.opening(self.request_id)):
                                await self._second.wait()
                        engine._vocoder.consumed(self.request_id)
                        if engine._clock.taken(self.request_id):
                            engine._plan_again()
                        count += 1
                        yield item
            finally:
                engine._abort(self.request_id)
        if isinstance(item, SpeechError):
            raise item
        if count == 0:
            raise NoAudio("the model ended before its first frame; nothing was spoken")
        self.result = SpeechResult(item.reason, count, self.seed)


def _use_lexicon(front: Front, path: Path) -> None:
    use = getattr(front, "use_lexicon", None)
    if use is None:
        raise InvalidRequest(f"the model {front.info.model} takes no lexicon", param="lexicon")
    use(path)


def _no_units(token: int) -> int:
    return 0


def _raise(error: BaseException) -> None:
    raise error
