"""Random clients of all kinds against a real server, on loopback, for some minutes; over TLS where
the seed is odd.

First one visit of each kind, so that whatever is made on first use is made; then the server is read
(`/metrics`) with nobody there. `--clients` visitors at a time follow, and when the last is gone the
server must be as it was: sessions, requests, streams, KV blocks, tasks, open files; its memory must
have stopped growing, its engine be alive, its log free of tracebacks, and no visit gone wrong.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import anyio.to_thread
import numpy as np
import typer
from bench import metrics, wait_until_ready
from visitors import LOOK_S, VISITS, Server, Visit

from omni_speak.streams.access import self_signed

VISIT_TIMEOUT_S = 1800
"""The longest one: a dozen of paragraphs, read slowly, from a server on a machine that is slow."""
SETTLE_S = 90
"""For sessions whose client vanished: `limits.resume_s`, and some."""

MAX_GROWTH_KIB = 4.0
"""Memory that the second half of the visits may leave behind, each, beyond the noise below."""
NOISE_MIB = 48.0
"""What allocators and caches may still take in a second half that is only a minute."""

GONE = (
    "omni_speak_sessions",
    "omni_speak_engine_running",
    "omni_speak_engine_waiting",
    "omni_speak_engine_held",
    "omni_speak_engine_kv_use",
    "omni_speak_tasks",
    "process_open_fds",
)
"""What every visit takes, and must give back."""


@dataclass
class Soak:
    """`tell` has the server log what it does. `memory`: visits so far and its KiB, every
    `LOOK_S`."""

    server: Server
    tell: Callable[[], None]
    seed: int
    visits: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    memory: list[tuple[int, float]] = field(default_factory=list)

    async def visit(self, visit: Visit, number: int) -> None:
        name = visit.__name__
        try:
            with anyio.fail_after(VISIT_TIMEOUT_S):
                await visit(self.server, random.Random(f"{self.seed}/{number}"), self.seen)
        except Exception as error:  # noqa: BLE001  whatever went wrong is told at the end
            self.tell()
            now = await self.read()
            engine = ", ".join(f"{now[name]:g} {name.rpartition('_')[2]}" for name in GONE[1:4])
            self.failures.append(f"visit {number}, {name}: {told(error)}; engine: {engine}")
            print(self.failures[-1], file=sys.stderr, flush=True)
        self.visits[name] += 1

    async def read(self) -> dict[str, float]:
        return await anyio.to_thread.run_sync(metrics, self.server.url)

    async def watch(self) -> None:
        while True:
            now = await self.read()
            self.memory.append((self.visits.total(), now["process_resident_memory_bytes"] / 1024))
            self.server.look(now["omni_speak_engine_steps_total"])
            await anyio.sleep(LOOK_S)

    async def settled(self, before: dict[str, float] | None = None) -> dict[str, float]:
        """What the server says with nobody there, once it is as `before`, or waited for in vain."""
        end = time.monotonic() + SETTLE_S
        while True:
            now = await self.read()
            quiet = not any(now[name] for name in GONE[:5])
            same = before is None or all(now[name] <= before[name] for name in GONE)
            if (quiet and same) or time.monotonic() > end:
                return now
            await anyio.sleep(0.5)


async def soak(url: str, tell: Callable[[], None], seed: int, seconds: float, clients: int) -> bool:
    """Whether everything held; tells what did not."""
    await wait_until_ready(url)
    it = Soak(Server(url), tell, seed)
    numbers = itertools.count()
    kinds = random.Random(seed)

    async def client() -> None:
        while time.monotonic() < end:
            (visit,) = kinds.choices(list(VISITS), list(VISITS.values()))
            await it.visit(visit, next(numbers))

    async with anyio.create_task_group() as watch:
        watch.start_soon(it.watch)
        async with anyio.create_task_group() as tasks:
            for visit in VISITS:
                tasks.start_soon(it.visit, visit, next(numbers))
        before = await it.settled()
        it.memory.clear()
        end = time.monotonic() + seconds
        async with anyio.create_task_group() as tasks:
            for _ in range(clients):
                tasks.start_soon(client)
        watch.cancel_scope.cancel()
    after = await it.settled(before)
    return report(it, before, after)


def report(it: Soak, before: dict[str, float], after: dict[str, float]) -> bool:
    visits = ", ".join(f"{count} {name}" for name, count in sorted(it.visits.items()))
    frames = after["omni_speak_engine_frames_total"]
    print(f"seed {it.seed}: {it.visits.total()} visits ({visits}), {frames:.0f} frames")
    print(", ".join(f"{count} {what}" for what, count in sorted(it.seen.items())))
    refusals = "omni_speak_engine_refusals_total"
    print(f"{after[refusals] - before[refusals]:.0f} refusals")
    faults = list(it.failures)
    for name in GONE:
        print(f"{name:<28} {before[name]:>10g} before {after[name]:>10g} after")
        if after[name] > before[name]:
            faults.append(f"{name} was {before[name]:g} and is {after[name]:g}")
    minutes = it.memory[:: round(60 / LOOK_S)]
    print(f"MiB each minute: {' '.join(f'{kib / 1024:.0f}' for _, kib in minutes)}")
    grown = growth(it.memory)
    print(f"memory: {it.memory[-1][1] / 1024:.0f} MiB, {grown:+.1f} KiB a visit in the second half")
    half = it.memory[len(it.memory) // 2 :]
    if grown > MAX_GROWTH_KIB and grown * (half[-1][0] - half[0][0]) > 1024 * NOISE_MIB:
        faults.append(f"memory grows by {grown:.1f} KiB a visit")
    if not after["omni_speak_engine_alive"]:
        faults.append("the engine died")
    faults += [f"{name} {n:g}" for name, n in after.items() if 'outcome="bug"' in name]
    for fault in faults:
        print(f"FAULT: {fault}")
    return not faults


def growth(memory: list[tuple[int, float]]) -> float:
    """KiB a visit: the slope over the second half."""
    visits, kib = np.array(memory[len(memory) // 2 :]).T
    return float(np.polyfit(visits, kib, 1)[0]) if len(set(visits)) > 1 else 0.0


def told(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(told(inner) for inner in error.exceptions)
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    at = f" ({Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno})" if frame else ""
    return f"{type(error).__name__}: {error}{at}"


@contextmanager
def own_server(log: Path, *, tls: bool) -> Iterator[tuple[str, Callable[[], None]]]:
    """A server of Wren on a free port of loopback, trusted here, and how to have it log what it is
    doing."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, str(Path(__file__).with_name("soaked.py")), str(port)]
    log.parent.mkdir(parents=True, exist_ok=True)
    if tls:
        certificate, _ = self_signed(log.parent / "soak-tls", "127.0.0.1")
        os.environ["SSL_CERT_FILE"] = str(certificate)
        command.append(str(certificate.parent))
    with log.open("w") as output, subprocess.Popen(command, stderr=output) as server:
        try:
            url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
            yield url, partial(server.send_signal, signal.SIGUSR1)
        finally:
            server.terminate()
            server.wait()
    if server.returncode:
        raise RuntimeError(f"the server ended with {server.returncode}, see {log}")


def main(
    minutes: Annotated[float, typer.Option(help="How long visitors keep coming.")] = 2,
    clients: Annotated[int, typer.Option(help="Visitors at the same time.")] = 10,
    seed: Annotated[int | None, typer.Option(help="Makes the visitors' choices.")] = None,
    log: Annotated[Path, typer.Option(help="The server's.")] = Path("build/soak.log"),
) -> None:
    """Exits with 1 where a visit or the server went wrong."""
    seed = int.from_bytes(os.urandom(4)) if seed is None else seed
    print(f"seed {seed}", flush=True)
    with own_server(log, tls=seed % 2 == 1) as (url, tell):
        held = anyio.run(soak, url, tell, seed, 60 * minutes, clients)
    if "Traceback" in log.read_text():
        print(f"FAULT: a traceback in {log}")
        held = False
    raise typer.Exit(0 if held else 1)


if __name__ == "__main__":
    typer.run(main)
