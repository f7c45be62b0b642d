"""Time to first audio, real-time factor, frame lateness and underruns, by number of streams.

Starts a server of its own (or uses `--server`), then plays real-time clients against it: each has
its own websocket and a simulated player that starts at the first packet, consumes one frame per
tick of the clock and counts what comes too late. Prints a table, writes JSON.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import platform
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import anyio
import numpy as np
import typer

from omni_speak.runtime.errors import SpeechError
from omni_speak.streams.client import DuplexClient
from omni_speak.streams.messages import DEFAULT_LEAD_MS

SENTENCES = (
    "Hello! I am speaking to you, one frame at a time.",
    "Your appointment is confirmed for Tuesday at three.",
    "The weather is going to be sunny tomorrow morning.",
    "I would like to book a table for four people tonight.",
    "Please bring your passport and your boarding card.",
    "Learning a new language takes patience and practice.",
)
START_TIMEOUT_S = 600


@dataclass
class Utterance:
    """One utterance as its player saw it, times in seconds."""

    first_audio: float
    generation: float  # request to last frame
    frames: int
    audio: float  # how long it lasts
    lateness: list[float] = field(default_factory=list)  # arrival minus due; negative is early
    underruns: int = 0


@dataclass
class Row:
    """One concurrency's summary, in milliseconds unless named otherwise. `stalled` clients beside
    the streams read nothing."""

    streams: int
    utterances: int
    frames: int
    ttfa_p50: float
    ttfa_p95: float
    rtf_p50: float
    lateness_p50: float
    lateness_p99: float
    underruns: int
    stalled: int = 0
    loop_p99: float = math.nan
    loop_max: float = math.nan


@dataclass
class Heard:
    """What came of one run: the players' utterances, and the seconds of speech that files got
    beside them."""

    utterances: list[Utterance] = field(default_factory=list)
    filed: float = 0.0


async def speak(
    client: DuplexClient, text: str, seed: int, max_lead_ms: int = DEFAULT_LEAD_MS
) -> Utterance:
    """Speak `text` and play it in real time; returns when the player has played all of it."""
    period = 1 / client.info.frame_rate
    start = time.perf_counter()
    seen: Utterance | None = None
    buffered_until = 0.0  # when the player runs dry
    async for frame in client.speak(text, seed=seed, max_lead_ms=max_lead_ms):
        now = time.perf_counter()
        frames = len(frame.pcm) // client.info.samples_per_frame
        if seen is None:
            seen = Utterance(first_audio=now - start, generation=0.0, frames=0, audio=0.0)
            buffered_until = now
        seen.lateness += [now - buffered_until] * frames
        if now > buffered_until and seen.frames:
            seen.underruns += 1
            buffered_until = now  # the player waited, and goes on from here
        buffered_until += frames * period
        seen.frames += frames
        seen.audio += frames * period
        seen.generation = now - start
    if seen is None:
        raise RuntimeError(f"no audio came for {text!r}")
    await anyio.sleep(max(0.0, buffered_until - time.perf_counter()))
    return seen


async def run_clients(
    server: str,
    streams: int,
    seconds: float,
    max_lead_ms: int = DEFAULT_LEAD_MS,
    bulk: int = 0,
    stalled: int = 0,
) -> Heard:
    """`streams` clients, each speaking one utterance after the other for about `seconds`; beside
    them, and not counted, `bulk` that read long texts as fast as they come, as for files, and
    `stalled` that ask for as much and then read nothing."""
    heard = Heard()

    async def read_fast() -> None:
        async with DuplexClient(server) as connection:
            while True:
                async for frame in connection.speak(" ".join(SENTENCES), max_lead_ms=None):
                    heard.filed += len(frame.pcm) / connection.info.sample_rate

    async def read_nothing() -> None:
        async with DuplexClient(server) as connection:
            async for _ in connection.speak(" ".join(SENTENCES * 20)):
                await anyio.sleep_forever()

    async def client(number: int) -> None:
        chance = random.Random(number)
        async with DuplexClient(server) as connection:
            await anyio.sleep(chance.random())  # people do not start on the same tick
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                text = chance.choice(SENTENCES)
                seed = chance.randrange(2**31)
                heard.utterances.append(await speak(connection, text, seed, max_lead_ms))

    async with anyio.create_task_group() as background:
        for _ in range(bulk):
            background.start_soon(read_fast)
        for _ in range(stalled):
            background.start_soon(read_nothing)
        async with anyio.create_task_group() as tasks:
            for number in range(streams):
                tasks.start_soon(client, number)
        background.cancel_scope.cancel()
    return heard


def summarise(streams: int, utterances: list[Utterance]) -> Row:
    ttfa = [1000 * u.first_audio for u in utterances]
    late = [1000 * value for u in utterances for value in u.lateness[1:]]
    return Row(
        streams=streams,
        utterances=len(utterances),
        frames=sum(u.frames for u in utterances),
        ttfa_p50=float(np.percentile(ttfa, 50)),
        ttfa_p95=float(np.percentile(ttfa, 95)),
        rtf_p50=float(np.median([u.generation / u.audio for u in utterances])),
        lateness_p50=float(np.percentile(late, 50)),
        lateness_p99=float(np.percentile(late, 99)),
        underruns=sum(u.underruns for u in utterances),
    )


@dataclass(kw_only=True)
class ClockRow(Row):
    """One concurrency under one ordering. In cores: `cpu` is the server's, `others` what neither
    it nor the clients used; in seconds of speech a second: `filed`, what readers of files got."""

    ordering: str
    bulk: int
    filed: float
    cpu: float
    others: float


def cpu_seconds(pid: int) -> float:
    """What a process has used, in user and kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busy_seconds() -> float:
    """What all processes have used, and the machine's host has taken."""
    user, nice, system, _, _, *others = (
        int(ticks) for ticks in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + sum(others)) / os.sysconf("SC_CLK_TCK")


@dataclass
class Turns:
    """What one ordering did in all its turns at one concurrency; times in seconds."""

    heard: Heard = field(default_factory=Heard)
    time: float = 0.0
    cpu: float = 0.0
    others: float = 0.0

    async def take(self, address: str, pid: int, streams: int, seconds: float, bulk: int) -> None:
        start, server, clients = time.perf_counter(), cpu_seconds(pid), time.process_time()
        busy = busy_seconds()
        heard = await run_clients(address, streams, seconds, DEFAULT_LEAD_MS, bulk)
        cpu = cpu_seconds(pid) - server
        self.cpu += cpu
        self.others += busy_seconds() - busy - cpu - (time.process_time() - clients)
        self.time += time.perf_counter() - start
        self.heard.utterances += heard.utterances
        self.heard.filed += heard.filed

    def row(self, streams: int, bulk: int, ordering: str) -> ClockRow:
        return ClockRow(
            **asdict(summarise(streams, self.heard.utterances)),
            ordering=ordering,
            bulk=bulk,
            filed=self.heard.filed / self.time,
            cpu=self.cpu / self.time,
            others=self.others / self.time,
        )


async def bench_clock(
    servers: dict[str, tuple[str, int]],
    concurrencies: list[int],
    seconds: float,
    bulk: int,
    rounds: int,
) -> list[ClockRow]:
    """Rising concurrency, the orderings by turns, so that both meet the machine's good and bad
    moments. Players start at their first packet; the server may run two seconds ahead of them."""
    for address, _ in servers.values():
        await wait_until_ready(address)
    rows: list[ClockRow] = []
    for streams in concurrencies:
        turns = {ordering: Turns() for ordering in servers}
        for _ in range(rounds):
            for ordering, (address, pid) in servers.items():
                await turns[ordering].take(address, pid, streams, seconds, bulk)
        for ordering in servers:
            row = turns[ordering].row(streams, bulk, ordering)
            rows.append(row)
            print(
                f"{ordering:>8} {bulk:>5} {streams:>7} {row.utterances:>5} {row.ttfa_p50:>9.0f} "
                f"{row.ttfa_p95:>6.0f} {row.lateness_p99:>9.0f} {row.underruns:>9} "
                f"{row.filed:>6.1f} {row.cpu:>5.2f} {row.others:>6.2f}",
                flush=True,
            )
    return rows


def cleanest(rows: Sequence[ClockRow]) -> str:
    """The most streams up to which no concurrency, rising, had an underrun, and what they heard."""
    best: ClockRow | None = None
    for row in rows:
        if row.underruns:
            break
        best = row
    if best is None:
        return "0 clean streams"
    return (
        f"{best.streams} clean streams, TTFA p50 {best.ttfa_p50:.0f} ms, "
        f"p95 {best.ttfa_p95:.0f} ms, {best.cpu:.2f} cores"
    )


def compare_orderings(
    model: str, concurrencies: list[int], seconds: float, bulks: list[int], rounds: int
) -> list[ClockRow]:
    """The frame clock, and vLLM's own order beside it, each on a server of its own."""
    print(
        f"{'ordering':>8} {'bulk':>5} {'streams':>7} {'utts':>5} {'TTFA p50':>9} {'p95':>6} "
        f"{'late p99':>9} {'underruns':>9} {'filed':>6} {'cpu':>5} {'others':>6}   (ms; s/s; cores)"
    )
    rows: list[ClockRow] = []
    with ExitStack() as stack:
        servers = {
            ordering: stack.enter_context(
                own_server(model, "--ordering", ordering, "--max-streams", "64")
            )
            for ordering in ("clock", "arrival")
        }
        for bulk in bulks:
            measured = anyio.run(bench_clock, servers, concurrencies, seconds, bulk, rounds)
            rows += measured
            for ordering in servers:
                clean = cleanest([row for row in measured if row.ordering == ordering])
                print(f"{ordering}, {bulk} readers of files: {clean}", flush=True)
    return rows


@contextmanager
def own_server(model: str, *options: str) -> Iterator[tuple[str, int]]:
    """A server on a private socket, as `omni-speak serve` starts it, and its process id."""
    with tempfile.TemporaryDirectory() as directory:
        socket = Path(directory) / "bench.sock"
        command = [sys.executable, "-m", "omni_speak.streams.cli", "serve"]
        server = subprocess.Popen([*command, "--uds", str(socket), "--model", model, *options])
        try:
            yield f"unix:{socket}", server.pid
        finally:
            server.terminate()
            server.wait()


async def wait_until_ready(server: str) -> None:
    """One utterance spoken to the end: whatever is made on first use is made."""
    with anyio.fail_after(START_TIMEOUT_S):
        while True:
            try:
                async with DuplexClient(server) as client:
                    await speak(client, "Ready.", 0)
                    return
            except SpeechError:  # not there yet, or still starting
                await anyio.sleep(0.2)


def metrics(server: str) -> dict[str, float]:
    """A server's `/metrics`, by name and labels."""
    if server.startswith("unix:"):
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(server.removeprefix("unix:"))
    elif server.startswith("https:"):
        connection = http.client.HTTPSConnection(server.removeprefix("https://"))
    else:
        connection = http.client.HTTPConnection(server.removeprefix("http://"))
    with closing(connection):
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


LOOP_LAG = "omni_speak_loop_lag_seconds_bucket{le="


def loop_lag(counts: Counter[float]) -> tuple[float, float]:
    """Of wake-ups counted by bounds on their lag: bounds on the p99 and the maximum, in ms."""
    total = max(counts.values())
    p99 = min(bound for bound, count in counts.items() if count >= 0.99 * total)
    return 1000 * p99, 1000 * min(bound for bound, count in counts.items() if count == total)


def lags(read: dict[str, float]) -> Counter[float]:
    """A server's wake-ups so far, by bounds on their lag in seconds."""
    return Counter(
        {
            float(name.removeprefix(LOOP_LAG).strip('"}')): value
            for name, value in read.items()
            if name.startswith(LOOP_LAG)
        }
    )


async def bench(
    server: str, concurrencies: list[int], seconds: float, stalls: list[int], rounds: int
) -> list[Row]:
    """Rising concurrency; at each, none and some stalled clients by turns."""
    await wait_until_ready(server)
    print(
        f"{'streams':>7} {'stalled':>7} {'utts':>5} {'TTFA p50':>9} {'p95':>6} {'RTF p50':>8} "
        f"{'late p50':>9} {'p99':>7} {'underruns':>9} {'loop p99':>9} {'max':>6}   (ms)"
    )
    rows = []
    for streams in concurrencies:
        spoken: dict[int, list[Utterance]] = {stalled: [] for stalled in stalls}
        woken: dict[int, Counter[float]] = {stalled: Counter() for stalled in stalls}
        for _ in range(rounds):
            for stalled in stalls:
                before = lags(metrics(server))
                heard = await run_clients(server, streams, seconds, stalled=stalled)
                spoken[stalled] += heard.utterances
                woken[stalled].update(lags(metrics(server)))
                woken[stalled].subtract(before)
        for stalled in stalls:
            row = summarise(streams, spoken[stalled])
            row.stalled = stalled
            row.loop_p99, row.loop_max = loop_lag(woken[stalled])
            rows.append(row)
            print(
                f"{row.streams:>7} {stalled:>7} {row.utterances:>5} {row.ttfa_p50:>9.0f} "
                f"{row.ttfa_p95:>6.0f} {row.rtf_p50:>8.3f} {row.lateness_p50:>9.0f} "
                f"{row.lateness_p99:>7.0f} {row.underruns:>9} "
                f"{'<=' + format(row.loop_p99, '.0f'):>9} {'<=' + format(row.loop_max, '.0f'):>6}",
                flush=True,
            )
    return rows


def machine() -> dict[str, object]:
    model = platform.processor()
    if (info := Path("/proc/cpuinfo")).exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version()}


def numbers(listed: str) -> list[int]:
    return [int(part) for part in listed.split(",")]


def main(
    streams: Annotated[str, typer.Option(help="Concurrencies, with commas.")] = "1,4,8,16",
    seconds: Annotated[float, typer.Option(help="How long at each concurrency.")] = 20,
    model: str = "wren",
    clock: Annotated[
        bool, typer.Option("--clock", help="Compare the frame clock with vLLM's own order.")
    ] = False,
    bulk: Annotated[
        str, typer.Option(help="With --clock: readers for files beside the streams, with commas.")
    ] = "0,4",
    rounds: Annotated[
        int, typer.Option(help="How often each takes its turn, of what is compared.")
    ] = 1,
    stalled: Annotated[
        str, typer.Option(help="Clients beside the streams that read nothing, with commas.")
    ] = "0",
    server: Annotated[str | None, typer.Option(help="Measure this server instead.")] = None,
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path("build/bench.json"),
) -> None:
    """Measure a server as its clients hear it."""
    concurrencies, stalls = numbers(streams), numbers(stalled)
    rows: Sequence[Row]
    if clock:
        rows = compare_orderings(model, concurrencies, seconds, numbers(bulk), rounds)
    elif server is not None:
        rows = anyio.run(bench, server, concurrencies, seconds, stalls, rounds)
    else:
        with own_server(model) as (address, _):
            rows = anyio.run(bench, address, concurrencies, seconds, stalls, rounds)
    out.parent.mkdir(parents=True, exist_ok=True)
    result = {"machine": machine(), "command": sys.argv, "rows": [asdict(row) for row in rows]}
    out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"wrote {out}", file=sys.stderr)


if __name__ == "__main__":
    typer.run(main)
