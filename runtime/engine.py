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
import queue
import secrets
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import anyio
import anyio.to_thread
import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from omni_speak.models.base import Prompt
from omni_speak.models.registry import open_model
from omni_speak.runtime.errors import (
    EngineDead,
    ModelFault,
    NoAudio,
    Overloaded,
    SpeechError,
)
from omni_speak.runtime.request import (
    MAX_SEED,
    EngineInfo,
    FinishReason,
    Frame,
    SpeechRequest,
    SpeechResult,
    check_request,
)
from omni_speak.runtime.vocoder import End, Vocoder

if TYPE_CHECKING:
    from vllm.v1.engine.core import EngineCore

    from omni_speak.runtime.runner import SpeechRunnerMixin


class EngineConfig(BaseModel):
    """How to run a model. `model` is a bundled model's name or a directory."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = "wren"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    max_streams: int = Field(64, ge=1, description="requests generated at the same time")
    max_requests: int = Field(256, ge=1, description="requests held at all; more are refused")
    max_step_tokens: int = Field(512, ge=32, description="prefill and decode tokens of one step")
    kv_cache_mib: int = Field(64, ge=1)
    kv_cache_blocks: int | None = Field(None, ge=1, description="overrides kv_cache_mib")
    lead_frames: int = Field(64, ge=1, description="frames decoded ahead of a stream's reader")
    async_scheduling: bool | None = Field(None, description="None: on CUDA only")

    @model_validator(mode="after")
    def _a_step_holds_every_stream(self) -> Self:
        if self.max_step_tokens < self.max_streams:
            raise ValueError(
                f"max_step_tokens ({self.max_step_tokens}) must be at least max_streams "
                f"({self.max_streams}): every running stream decodes one token a step"
            )
        return self


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since the start, and what is in the engine now."""

    running: int
    waiting: int
    requests_total: int
    frames_total: int
    steps_total: int


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
        self._requests = self._frames = self._steps = 0
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
        running, waiting = self._core.scheduler.get_request_counts()
        return EngineStats(running, waiting, self._requests, self._frames, self._steps)

    def speak(self, request: SpeechRequest) -> SpeechStream:
        """The frames of one utterance, as an async iterator.

        Raises `InvalidRequest` (or a subclass) at once if voice, speed, types or size are wrong,
        `Overloaded` if the engine holds too many requests, `EngineDead` if it died. Text that
        holds nothing to say is found when iteration starts.
        """
        self._check_alive()
        request = check_request(request, self.info)
        if len(self._streams) >= self.config.max_requests:
            raise Overloaded(
                f"{len(self._streams)} requests are in the engine; "
                f"at most {self.config.max_requests} are allowed"
            )
        seed = secrets.randbelow(MAX_SEED) if request.seed is None else request.seed
        return SpeechStream(self, request, seed)

    # -- on the event loop -------------------------------------------------------------------

    def _add(self, stream: SpeechStream, prompt: Prompt) -> None:
        self._check_alive()
        self._streams[stream.request_id] = stream
        self._requests += 1
        self._inbox.put(lambda: self._add_request(stream, prompt))

    def _abort(self, request_id: str) -> None:
        if self._streams.pop(request_id, None) is not None:
            self._inbox.put(lambda: self._abort_request(request_id))

    def _receive(self, deliveries: list[tuple[str, Frame | End]]) -> None:
        for request_id, item in deliveries:
            stream = self._streams.get(request_id)
            if stream is None:
                continue
            self._frames += isinstance(item, Frame)
            if isinstance(item, End):
                del self._streams[request_id]
            stream._deliver(item)

    def _fail_streams(self, error: SpeechError) -> None:
        for stream in list(self._streams.values()):
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
            # Here, not above: importing vLLM takes seconds, and this is the thread that may block.
            from omni_speak.runtime.vllm_setup import (
                make_core,
                make_request,
                pick_device,
                vllm_config,
            )

            gc.freeze()
            torch.set_num_threads(1)
            device = pick_device(self.config.device)
            asynchronous = self.config.async_scheduling
            self._core, self._runner = make_core(
                vllm_config(
                    model,
                    device=device,
                    max_streams=self.config.max_streams,
                    max_step_tokens=self.config.max_step_tokens,
                    kv_cache_bytes=self.config.kv_cache_mib << 20,
                    num_kv_blocks=self.config.kv_cache_blocks,
                    async_scheduling=device != "cpu" if asynchronous is None else asynchronous,
                )
            )
            self._make_request = make_request
            self._front = model.front
            self._vocoder = Vocoder(
                model.load_codec(),
                samples_per_frame=self.info.samples_per_frame,
                lead_frames=self.config.lead_frames,
                deliver=lambda items: self._call_loop(self._receive, items),
                on_failure=lambda error: self._inbox.put(lambda: _raise(error)),
            )
            self._runner.builder.sink = self._vocoder.push
            # From the builder's thread too, hence by the inbox: served before the next step.
            self._runner.on_request_failed = lambda request_id, error: self._inbox.put(
                lambda: self._fail_requests([request_id], error)
            )
            self._vocoder.start()
        finally:
            gc.enable()

    def _serve_inbox(self) -> bool:
        """Run what the loop asked for; wait for something when there is nothing to step. False
        when told to close."""
        idle = not self._core.scheduler.has_requests()
        while True:
            try:
                command = self._inbox.get(block=idle)
            except queue.Empty:
                return True
            if command is None:
                return False
            command()
            idle = False

    def _step(self) -> None:
        try:
            outputs, executed = self._core.step_fn()
        except ModelFault as fault:
            self._fail_requests(fault.requests, fault)
            return
        self._core.post_step(executed)
        self._steps += executed
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
                self._vocoder.finish(request_id, reason)

    def _add_request(self, stream: SpeechStream, prompt: Prompt) -> None:
        self._vocoder.open(stream.request_id)
        self._core.add_request(
            self._make_request(
                self._core,
                self._runner,
                stream.request_id,
                prompt,
                seed=stream.seed,
                max_frames=stream.request.max_frames,
            )
        )

    def _abort_request(self, request_id: str) -> None:
        self._core.abort_requests([request_id])
        self._vocoder.drop(request_id)

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
            self._vocoder.drop(request_id)
            self._call_loop(self._deliver_failure, request_id, error)

    def _deliver_failure(self, request_id: str, error: SpeechError) -> None:
        stream = self._streams.pop(request_id, None)
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

    def __init__(self, engine: SpeechEngine, request: SpeechRequest, seed: int) -> None:
        self.request = request
        self.seed = seed
        self.request_id = uuid.uuid4().hex
        self.result: SpeechResult | None = None
        self._engine = engine
        # The vocoder keeps at most `lead_frames` here; an end or an error comes on top.
        self._send, self._queue = anyio.create_memory_object_stream[Frame | End | SpeechError](
            engine.config.lead_frames + 2
        )

    def __aiter__(self) -> AsyncIterator[Frame]:
        return self._frames()

    def _deliver(self, item: Frame | End | SpeechError) -> None:
        self._send.send_nowait(item)

    async def _frames(self) -> AsyncIterator[Frame]:
        """Raises `NothingToSay` and what else the front end finds, `NoAudio` if the model ended
        before its first frame, `EngineDead`."""
        engine, count = self._engine, 0
        prompt = await anyio.to_thread.run_sync(engine._front.prepare, self.request)
        engine._add(self, prompt)
        try:
            with self._send, self._queue:
                while isinstance(item := await self._queue.receive(), Frame):
                    engine._vocoder.consumed(self.request_id)
                    count += 1
                    yield item
        finally:
            engine._abort(self.request_id)
        if isinstance(item, SpeechError):
            raise item
        if count == 0:
            raise NoAudio("the model ended before its first frame; nothing was spoken")
        self.result = SpeechResult(item.reason, count, self.seed)


def _raise(error: BaseException) -> None:
    raise error
