"""The server of scripts/soak: `omni-speak serve` as it is by default, over TLS where its second
argument is a folder for the certificate. On SIGUSR1 it tells on its standard error what everything
in it is doing. Names the innards of many modules, on purpose: it is
for whoever looks for why somebody hears nothing.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import anyio

from omni_speak.runtime.engine import EngineConfig, SpeechEngine
from omni_speak.streams.access import self_signed
from omni_speak.streams.server import serve
from omni_speak.streams.session import DuplexSession


class Told:
    def __init__(self) -> None:
        self.engine = SpeechEngine(EngineConfig())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[SpeechEngine]:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self.tell)
        async with self.engine:
            yield self.engine

    def tell(self) -> None:
        print("== what the server is doing", file=sys.stderr)
        for line in (*_engine(self.engine), *_sessions(), *_tasks()):
            print(line, file=sys.stderr)
        faulthandler.dump_traceback(file=sys.stderr)
        print("==", file=sys.stderr, flush=True)


def _engine(engine: SpeechEngine) -> Iterator[str]:
    clock, vocoder = engine._clock, engine._vocoder
    scheduler: Any = engine._core.scheduler
    now = clock.now()
    for name in ("forward", "mtp", "vocoder"):
        yield f"{name}: {getattr(clock, name).wall.time}"
    yield f"steps {engine._steps}, rest {engine._rest:.3f} s, inbox {engine._inbox.qsize()}"
    yield f"running {len(scheduler.running)}, waiting {len(scheduler.waiting)}"
    for name, stream in list(clock._streams.items()):
        yield f"stream {name}: lead {stream.lead(now, clock.period)} of {stream.max_lead}"
        yield f"  served {now - stream.served:.2f} s ago, {stream}"
        yield f"  {_request(scheduler.requests.get(name))}"
        if (decoding := vocoder._streams.get(name)) is not None:
            yield (
                f"  vocoder: {len(decoding.pending)} pending, {decoding.decoded} decoded, "
                f"{decoding.consumed} consumed, end {decoding.end}"
            )
        if (reader := engine._streams.get(name)) is not None:
            yield f"  reader: {reader._queue.statistics()}, text ended {reader._ended}"


def _sessions() -> Iterator[str]:
    for each in gc.get_objects():
        if not isinstance(each, DuplexSession) or not hasattr(each, "_journal"):
            continue
        yield f"session {each.id}: {each._link}, told {each._told}, given {each._given}"
        yield (
            f"  outbox {each._outgoing.statistics()}, room {each._made_room.value} "
            f"({each._made_room.statistics().tasks_waiting} waiting), "
            f"journal at {each._journal._next}, received {each._session.received}"
        )
        for context in each._session._by_name.values():
            yield (
                f"  context {context.name}: handle {context.handle}, epoch {context.epoch}, "
                f"text ended {context.text_ended}, {len(context.text)} characters, "
                f"{context.frames} frames sent, {len(context.held)} held for a full message, "
                f"acked {context.acked}, {context.request}"
            )
        for handle, speaker in each._speakers.items():
            run = speaker.stream._run
            request = run and run.stream.request_id
            yield f"  speaker {handle}: request {request}, {speaker.segments.statistics()}"


def _request(request: Any) -> str:
    if request is None:
        return "the scheduler does not know it"
    return (
        f"scheduler: {request.status.name}, {request.num_computed_tokens} computed of "
        f"{request.num_tokens} tokens, prompt {request.num_prompt_tokens}, "
        f"at most {request.max_tokens}"
    )


def _tasks() -> Iterator[str]:
    for task in asyncio.all_tasks():
        yield f"task {task.get_name()}: {' < '.join(reversed(list(_awaits(task.get_coro()))))}"


def _awaits(coroutine: Any) -> Iterator[str]:
    """From the task's function to what it waits for."""
    while coroutine is not None:
        frame: FrameType | None = getattr(coroutine, "cr_frame", None) or getattr(
            coroutine, "ag_frame", None
        )
        if frame is not None:
            yield f"{frame.f_code.co_qualname}:{frame.f_lineno}"
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)


if __name__ == "__main__":
    port, *folder = sys.argv[1:]
    tls = self_signed(Path(*folder), "127.0.0.1") if folder else None
    anyio.run(partial(serve, Told().running, port=int(port), tls=tls))
