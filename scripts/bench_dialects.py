"""What a dialect costs beside our own protocol: time to first audio, and the server's CPU.

One server. The dialects speak in turn, so that every one meets the machine's good and bad moments;
each over a connection, or over several at once: alone a stream shows what it adds to first audio,
and many at once what it costs in CPU, since the model's own cost per stream is then less. The
clients are plain websockets and HTTP, keep their connection, and take all audio as 16-bit samples
at the model's own rate.

First audio varies by more than a dialect adds. What it adds is the median over the rounds, with the
interval that holds it 19 times in 20; `--short` texts let many rounds fit into a minute.
"""

from __future__ import annotations

import json
import random
import sys
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import anyio
import httpx
import numpy as np
import typer
from bench import SENTENCES, cpu_seconds, machine, own_server, wait_until_ready
from numpy.typing import NDArray
from websockets.asyncio.client import ClientConnection, unix_connect

from omni_speak.streams.wire import HEADER_BYTES

VOICE = "wren"
RATE = 24_000
SHORT = ("Hello!", "Good morning.", "Thank you very much.", "Of course.")

Speak = Callable[[str], AsyncIterator[bytes]]
"""Speaks a text; gives its audio as it comes."""


def dial(socket: str, path: str) -> unix_connect:
    return unix_connect(socket, f"ws://localhost{path}", compression=None)


async def tell(connection: ClientConnection, **message: Any) -> None:
    await connection.send(json.dumps(message))


@asynccontextmanager
async def native(socket: str) -> AsyncIterator[Speak]:
    async with dial(socket, "/v1/duplex") as connection:
        await tell(connection, type="session.open")
        await connection.recv()

        async def speak(text: str) -> AsyncIterator[bytes]:
            await tell(connection, type="context.open", context="a")
            await tell(connection, type="text.append", context="a", text=text)
            await tell(connection, type="text.end", context="a")
            async for data in connection:
                if isinstance(data, bytes):
                    yield data[HEADER_BYTES:]
                elif json.loads(data)["type"] == "context.done":
                    return

        yield speak


def openai(stream_format: str) -> Callable[[str], AbstractAsyncContextManager[Speak]]:
    @asynccontextmanager
    async def client(socket: str) -> AsyncIterator[Speak]:
        limits = httpx.Limits(keepalive_expiry=None)
        transport = httpx.AsyncHTTPTransport(uds=socket, limits=limits)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:

            async def speak(text: str) -> AsyncIterator[bytes]:
                body = {"input": text, "response_format": "pcm", "stream_format": stream_format}
                async with http.stream("POST", "/v1/audio/speech", json=body) as response:
                    response.raise_for_status()
                    if stream_format == "audio":
                        async for data in response.aiter_raw():
                            yield data
                        return
                    async for line in response.aiter_lines():
                        yield b64decode(json.loads(line[6:] or "{}").get("audio", ""))

            yield speak

    return client


@asynccontextmanager
async def elevenlabs(socket: str) -> AsyncIterator[Speak]:
    path = f"/v1/text-to-speech/{VOICE}/multi-stream-input?output_format=pcm_{RATE}"
    async with dial(socket, path) as connection:

        async def speak(text: str) -> AsyncIterator[bytes]:
            await tell(connection, context_id="a", text=text, flush=True)
            await tell(connection, context_id="a", close_context=True)
            async for data in connection:
                message = json.loads(data)
                if message.get("isFinal"):
                    return
                yield b64decode(message["audio"])

        yield speak


@asynccontextmanager
async def cartesia(socket: str) -> AsyncIterator[Speak]:
    ask = {
        "context_id": "a",
        "voice": {"mode": "id", "id": VOICE},
        "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": RATE},
    }
    async with dial(socket, "/tts/websocket") as connection:

        async def speak(text: str) -> AsyncIterator[bytes]:
            await tell(connection, **ask, transcript=text)
            async for data in connection:
                message = json.loads(data)
                if message["done"]:
                    return
                yield b64decode(message["data"])

        yield speak


@asynccontextmanager
async def deepgram(socket: str) -> AsyncIterator[Speak]:
    path = f"/v1/speak?encoding=linear16&sample_rate={RATE}"
    async with dial(socket, path) as connection:
        await connection.recv()

        async def speak(text: str) -> AsyncIterator[bytes]:
            await tell(connection, type="Speak", text=text)
            await tell(connection, type="Flush")
            async for data in connection:
                if isinstance(data, bytes):
                    yield data
                elif json.loads(data)["type"] == "Flushed":
                    return

        yield speak


@asynccontextmanager
async def realtime(socket: str) -> AsyncIterator[Speak]:
    """vLLM-Omni's duplex websocket."""
    async with dial(socket, "/v1/realtime?duplex=1") as connection:
        await tell(connection, type="session.update")
        await connection.recv()

        async def speak(text: str) -> AsyncIterator[bytes]:
            await tell(connection, type="input.text.append", text=text)
            await tell(connection, type="input.commit")
            async for data in connection:
                message = json.loads(data)
                if message["type"] == "response.output_audio.delta":
                    yield b64decode(message["delta"])
                elif message["type"] == "response.done":
                    return

        yield speak


@asynccontextmanager
async def speech_stream(socket: str) -> AsyncIterator[Speak]:
    """vLLM-Omni's speech websocket."""
    async with dial(socket, "/v1/audio/speech/stream") as connection:
        await tell(connection, type="session.config", response_format="pcm", stream_audio=True)

        async def speak(text: str) -> AsyncIterator[bytes]:
            await tell(connection, type="input.text", text=text)
            await tell(connection, type="input.done")
            async for data in connection:
                if isinstance(data, bytes):
                    yield data
                elif json.loads(data)["type"] == "session.done":
                    return

        yield speak


CLIENTS: dict[str, Callable[[str], AbstractAsyncContextManager[Speak]]] = {
    "native": native,
    "openai": openai("audio"),
    "openai-sse": openai("sse"),
    "elevenlabs": elevenlabs,
    "cartesia": cartesia,
    "deepgram": deepgram,
    "vllm-omni": realtime,
    "vllm-stream": speech_stream,
}


@dataclass
class Spoken:
    """What a dialect's connections said at once, in seconds: from sending the text to each one's
    first audio, how long their audio lasts together, and what the server's process used meanwhile.
    """

    first_audio: list[float]
    audio: float
    cpu: float


@dataclass
class Row:
    """One dialect: milliseconds, and CPU seconds per second of audio; beside our own protocol."""

    dialect: str
    utterances: int
    first_audio_p50: float
    first_audio_more: float
    first_audio_interval: tuple[float, float]
    cpu: float
    cpu_more_percent: float


async def measure(speakers: list[Speak], text: str, pid: int) -> Spoken:
    before = cpu_seconds(pid)
    first_audio: list[float] = []
    sizes: list[int] = []

    async def listen(speak: Speak) -> None:
        start, size = time.perf_counter(), 0
        async with aclosing(speak(text)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                if piece and not size:
                    first_audio.append(time.perf_counter() - start)
                size += len(piece)
        if not size:
            raise RuntimeError(f"no audio came for {text!r}")
        sizes.append(size)

    async with anyio.create_task_group() as tasks:
        for speak in speakers:
            tasks.start_soon(listen, speak)
    return Spoken(first_audio, sum(sizes) / 2 / RATE, cpu_seconds(pid) - before)


async def bench(
    address: str, pid: int, names: list[str], texts: Sequence[str], rounds: int, at_once: int
) -> list[Row]:
    """Every dialect `rounds` times, each round with one text for all, and in an order of its own:
    what comes after whom must not matter. One round before them, in which HTTP connects, does not
    count."""
    await wait_until_ready(address)
    socket = address.removeprefix("unix:")
    spoken: dict[str, list[Spoken]] = {name: [] for name in names}
    chance = random.Random(0)
    async with AsyncExitStack() as stack:
        speakers = {
            name: [await stack.enter_async_context(CLIENTS[name](socket)) for _ in range(at_once)]
            for name in names
        }
        for number in range(-1, rounds):
            for name in chance.sample(names, len(names)):
                turn = await measure(speakers[name], texts[number % len(texts)], pid)
                if number >= 0:
                    spoken[name].append(turn)
    return summarise(spoken)


def summarise(spoken: dict[str, list[Spoken]]) -> list[Row]:
    """How much later is the median over the rounds: texts differ in when they are first heard."""
    first = {
        name: np.array([np.median(turn.first_audio) for turn in said])
        for name, said in spoken.items()
    }
    cpu = {
        name: sum(turn.cpu for turn in said) / sum(turn.audio for turn in said)
        for name, said in spoken.items()
    }
    return [
        Row(
            dialect=name,
            utterances=sum(len(turn.first_audio) for turn in said),
            first_audio_p50=1000 * float(np.median(first[name])),
            first_audio_more=1000 * float(np.median(first[name] - first["native"])),
            first_audio_interval=interval_of_median(1000 * (first[name] - first["native"])),
            cpu=cpu[name],
            cpu_more_percent=100 * (cpu[name] / cpu["native"] - 1),
        )
        for name, said in spoken.items()
    ]


def interval_of_median(values: NDArray[np.float64]) -> tuple[float, float]:
    """95 %, by drawing as many of the values again and again."""
    drawn = np.random.default_rng(0).choice(values, (4000, len(values)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return float(low), float(high)


def main(
    dialects: Annotated[str, typer.Option(help="Which, with commas.")] = ",".join(CLIENTS),
    rounds: Annotated[int, typer.Option(help="How often each speaks.")] = 15,
    at_once: Annotated[int, typer.Option(help="How many connections of each speak at once.")] = 1,
    short: Annotated[bool, typer.Option("--short", help="A few words, in place of sentences.")] = (
        False
    ),
    model: str = "wren",
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path("build/dialects.json"),
) -> None:
    """Measure what the dialects cost beside our own protocol."""
    names = ["native", *(name for name in dialects.split(",") if name != "native")]
    with own_server(model) as (address, pid):
        texts = SHORT if short else SENTENCES
        rows = anyio.run(bench, address, pid, names, texts, rounds, at_once)
    print(
        f"{'dialect':>12} {'utts':>5} {'TTFA p50':>9} {'more':>6} {'95 %':>13} "
        f"{'cpu':>6} {'more':>6}  (ms; s/s)"
    )
    for row in rows:
        low, high = row.first_audio_interval
        print(
            f"{row.dialect:>12} {row.utterances:>5} {row.first_audio_p50:>9.1f} "
            f"{row.first_audio_more:>+6.1f} {low:>+6.1f} {high:>+6.1f} "
            f"{row.cpu:>6.3f} {row.cpu_more_percent:>+5.0f}%"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    result = {"machine": machine(), "command": sys.argv, "rows": [asdict(row) for row in rows]}
    out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"wrote {out}", file=sys.stderr)


if __name__ == "__main__":
    typer.run(main)
