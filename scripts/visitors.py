"""The clients of scripts/soak: what people's programs do to a server, by chance, and what each may
expect of it.

A visit is one client from its connection to its end; `chance` makes all its choices, and what was
checked is counted in `seen`. It raises Contradiction where the server broke a promise: to be silent
while it owes something is one, unless the machine is just slow (`Server.look`). To be refused as
one too many is not.
"""

from __future__ import annotations

import json
import ssl
from base64 import b64decode
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import anyio
import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from witness import Contradiction, Witness, samples_in

from omni_speak.runtime.errors import Overloaded
from omni_speak.streams.client import (
    AudioFrame,
    CodesFrame,
    Context,
    DuplexClient,
)
from omni_speak.streams.encoder import OPUS_RATES
from omni_speak.streams.http_speech import MAX_BODY_BYTES
from omni_speak.streams.messages import (
    SAMPLE_RATES,
    SERVER_MESSAGE,
    TRY_AGAIN_LATER,
    ContextDone,
    ContextInterrupted,
    ContextOpened,
    ErrorEvent,
    SessionClosed,
    SessionOpened,
)
from omni_speak.streams.speaking import MAX_TEXT_CHARS
from omni_speak.streams.wire import WireFrame, decode

T = TypeVar("T")

SENTENCES = (
    "Hello! I am speaking to you, one frame at a time.",
    "Your appointment is confirmed for Tuesday at three.",
    "Dr. Ng paid $6.25 at 8 a.m. for 47.2 grams, e.g. tea.",
    "**Bold** words, a link to https://example.com, and a smile :)",
    "Naïve façades — “quoted”, 1,234,567 times.",
    "No.",
)
NONSENSE: tuple[str | bytes, ...] = (
    "{",
    "[]",
    "null",
    "\x00",
    '{"type":"no.such"}',
    '{"type":"text.append","context":7}',
    '{"type":"context.open","context":"","speed":1e999}',
    '{"context_id":{"a":1},"text":[]}',
    '{"a":' * 500,
    b"\x16\x01 not audio",
    bytes(3000),
)
TOO_BIG = "x" * (300 * 1024)

LOOK_S = 5.0
LOOKS = 12
"""More than a place in the engine is waited for, and than a visitor pauses."""
MANY_STEPS = 200
"""So many make several frames for everybody."""
ACK_S = 0.1


@dataclass(slots=True, eq=False)
class _Debt:
    """Something owed to a visitor, for so many looks, the first of them at this many steps."""

    scope: anyio.CancelScope
    looks: int = 0
    steps: float = 0.0


class Server:
    """The server as its visitors know it. Their patience is not counted in seconds: a slow machine
    may take its time as long as it gets on."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.websocket_url = url.replace("http", "ws", 1)
        self._trust = ssl.create_default_context()  # also what SSL_CERT_FILE names
        self._debts: set[_Debt] = set()

    @contextmanager
    def owing(self) -> Iterator[None]:
        """Something comes from the server. Raises Contradiction if it does not."""
        debt = _Debt(anyio.CancelScope())
        self._debts.add(debt)
        try:
            with debt.scope:
                yield
        finally:
            self._debts.remove(debt)
        if debt.scope.cancelled_caught:
            raise Contradiction(f"the server said nothing for {LOOKS * LOOK_S:g} s or more")

    def look(self, steps: float) -> None:
        """The engine's steps so far, every `LOOK_S`. After some looks, whoever is owed something
        loses patience if it made none meanwhile, or many, and none of them for this visitor."""
        for debt in self._debts:
            if debt.looks == 0:
                debt.steps = steps
            debt.looks += 1
            if debt.looks > LOOKS and not 0 < steps - debt.steps < MANY_STEPS:
                debt.scope.cancel()

    def http(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None)
        return httpx.AsyncClient(
            base_url=self.url, verify=self._trust, trust_env=False, timeout=None, limits=limits
        )

    async def hear(self, socket: ClientConnection) -> str | bytes:
        with self.owing():
            return await socket.recv()

    async def hear_json(self, socket: ClientConnection) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(await self.hear(socket))
        return message

    async def closes(self, socket: ClientConnection) -> None:
        """Returns when the server has closed it."""
        with suppress(ConnectionClosed):
            while True:
                await self.hear(socket)

    async def patiently(self, parts: AsyncIterator[T]) -> AsyncIterator[T]:
        while True:
            with self.owing():
                try:
                    part = await anext(parts)
                except StopAsyncIteration:
                    return
            yield part


Visit = Callable[[Server, Random, Counter[str]], Awaitable[None]]


def some_text(chance: Random) -> str:
    return " ".join(chance.choices(SENTENCES, k=chance.randint(1, 4)))


def pieces(text: str, chance: Random) -> list[str]:
    """The text by characters, by words, or whole."""
    match chance.choice(("chars", "words", "whole")):
        case "chars":
            return list(text)
        case "words":
            return [word + " " for word in text.split()]
        case _:
            return [text]


async def pause(chance: Random, longest: float) -> None:
    """Nobody types, thinks or reads on a beat."""
    await anyio.sleep(chance.random() ** 3 * longest)


@dataclass(slots=True)
class Player:
    """What a listener has heard of a context: audio starts when it comes, and stops where none is.
    All in samples, as `pts` counts them."""

    rate: int
    epoch: int = -1
    heard: int = 0
    end: int = 0

    def take(self, epoch: int, pts: int, samples: int) -> None:
        if epoch != self.epoch:
            self.epoch, self.heard = epoch, pts
        self.end = pts + samples

    def play(self, seconds: float) -> int:
        self.heard = min(self.end, self.heard + round(seconds * self.rate))
        return self.heard


# -- our own protocol, by its Python client -----------------------------------------------------


async def python_client(server: Server, chance: Random, seen: Counter[str]) -> None:
    """Some texts at once; each is heard whole, interrupted, cancelled or left."""
    async with (
        DuplexClient(server.url, codes=chance.random() < 0.3) as client,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(chance.randint(1, 3)):
            tasks.start_soon(_python_context, server, client, Random(chance.random()), seen)
        if chance.random() < 0.3:
            await pause(chance, 3)
            client._socket.transport.abort()  # it comes back by itself


async def _python_context(
    server: Server, client: DuplexClient, chance: Random, seen: Counter[str]
) -> None:
    context = await client.open_context(max_lead_ms=chance.choice((None, 500, 2000)))
    turn = chance.choice(("none", "none", "interrupt", "cancel", "leave"))
    acks = chance.choice(("none", "at once", "as played"))
    player = Player(client.info.sample_rate)
    turn_after, pts = chance.randint(1, 40), -1
    async with anyio.create_task_group() as tasks:
        writing = anyio.CancelScope()
        tasks.start_soon(_write, context, writing, chance)
        if acks == "as played":
            tasks.start_soon(_acknowledge, context, player)
        try:
            async with aclosing(context.events()) as events:
                async for event in server.patiently(events):
                    if not isinstance(event, AudioFrame | CodesFrame):
                        continue
                    hold(event.pts > pts, f"pts {event.pts} after {pts}")
                    hold(event.epoch == context.epoch, f"epoch {event.epoch} in {context.epoch}")
                    pts, turn_after = event.pts, turn_after - 1
                    player.take(event.epoch, pts, _samples(event, client))
                    seen["frames"] += 1
                    if acks == "at once":
                        await context.played(player.end)
                    if turn_after == 0 and turn != "none":
                        writing.cancel()
                        if turn == "leave":
                            seen["left"] += 1
                            tasks.cancel_scope.cancel()
                            return
                        if turn == "cancel":
                            await context.cancel()
                        else:
                            await context.interrupt(chance.choice((None, pts / 24)))
                            seen["interrupts"] += 1
                            writing = anyio.CancelScope()
                            tasks.start_soon(_write, context, writing, chance)
        except Overloaded:
            seen["refused"] += 1
            tasks.cancel_scope.cancel()
            return
        tasks.cancel_scope.cancel()
    ends = ("cancelled", "stop") if turn == "cancel" else ("stop",)
    hold(context.result is not None and context.result.reason in ends, f"{context.result}")
    seen["ended"] += 1


def _samples(event: AudioFrame | CodesFrame, client: DuplexClient) -> int:
    if isinstance(event, AudioFrame):
        return len(event.pcm)
    return len(event.codes) * client.info.samples_per_frame


async def _acknowledge(context: Context, player: Player) -> None:
    while True:
        await anyio.sleep(ACK_S)
        await context.played(player.play(ACK_S))


async def _write(context: Context, scope: anyio.CancelScope, chance: Random) -> None:
    with scope:
        for piece in pieces(some_text(chance), chance):
            await context.append(piece)
            await pause(chance, 0.05)
        await context.end()


# -- our own protocol, by hand ------------------------------------------------------------------


class Peer:
    """A session over as many connections as it takes, everything seen by a Witness. Only the reader
    changes the connection; `_saying` keeps the others off it meanwhile. Some listen to a player,
    and tell what it played; the others' time is the wall clock's."""

    def __init__(self, server: Server, chance: Random, seen: Counter[str]) -> None:
        self._server = server
        self._chance = chance
        self._sent: list[str | bytes] = []
        self._saying = anyio.Lock()
        self._moving = anyio.Lock()
        self._seen = seen
        self._slow = chance.choice((0.0, 0.0, 0.05, 0.2))
        self._sleepy = chance.choice((0.0, 0.0, 0.002))
        self._restless = chance.choice((0.0, 0.0, 0.01, 0.05))
        self._players: dict[int, tuple[str, Player]] | None = chance.choice((None, {}))
        self.listening = True
        self.witness = Witness()
        self.done: dict[str, anyio.Event] = {}
        self._socket: ClientConnection

    async def open(self) -> None:
        format = self._chance.choice(
            ("pcm_s16le", "pcm_f32le", "mulaw", "alaw", "opus", "codes_u16")
        )
        rates = OPUS_RATES if format == "opus" else SAMPLE_RATES
        rate = None if format == "codes_u16" else self._chance.choice((None, *rates))
        if format == "opus" and rate is None:
            rate = 24000
        self._socket = await dial(self._server.websocket_url + "/v1/duplex")
        await self.say(
            type="session.open",
            format=format,
            sample_rate=rate,
            frames_per_message=self._chance.choice(("auto", 1, 4)),
        )

    async def say(self, **message: Any) -> None:
        await self.say_raw(json.dumps(message))

    async def say_raw(self, data: str | bytes) -> None:
        async with self._saying:
            self._sent.append(data)
            with suppress(ConnectionClosed):  # the reader will send it again
                await self._socket.send(data)

    async def close(self) -> None:
        """And move no more: a session that is over cannot be resumed."""
        async with self._moving:
            self.listening = False
            await self.say(type="session.close")

    def vanish(self) -> None:
        self._socket.transport.abort()

    async def read(self) -> None:
        """Up to the session's end."""
        while True:
            data = await self._server.hear(self._socket)
            event = decode(data) if isinstance(data, bytes) else SERVER_MESSAGE.validate_json(data)
            self.witness.see(event)
            match event:
                case WireFrame():
                    self._play(event)
                case ContextOpened() if self._players is not None:
                    self._players[event.handle] = event.context, Player(event.sample_rate)
                case ContextDone():
                    self._seen["refused" if event.reason == "error" else "ended"] += 1
                    self.done[event.context].set()
                case ContextInterrupted():
                    self._seen["interrupts"] += 1
                case ErrorEvent():
                    hold(event.code in FAIR_ERRORS, f"{event}")
                case SessionClosed():
                    await self._server.closes(self._socket)
                    hold(self._socket.close_code == 1000, f"{self._socket.close_code}")
                    return
            await pause(self._chance, self._slow)
            if self._chance.random() < self._sleepy:
                await anyio.sleep(self._chance.random() * 10)
            if self.witness.opened is not None and self._chance.random() < self._restless:
                async with self._moving:
                    if self.listening:
                        await self._change_connection()

    def _play(self, frame: WireFrame) -> None:
        assert self.witness.opened is not None
        self._seen["frames"] += 1
        if self._players is not None:
            _, player = self._players[frame.context]
            player.take(frame.epoch, frame.pts, samples_in(frame, self.witness.opened))

    async def listen(self) -> None:
        while self.listening and self._players is not None:
            await anyio.sleep(ACK_S)
            for name, player in list(self._players.values()):
                before = player.heard
                if player.play(ACK_S) > before:
                    await self.say(type="playback.ack", context=name, samples=player.heard)

    async def _change_connection(self) -> None:
        self._seen["reconnects"] += 1
        before = self._socket
        if take_over := self._chance.random() < 0.5:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._see_it_taken_over, before)
                await self._resume()
        else:
            before.transport.abort()
            await pause(self._chance, 1)
            await self._resume()
        hold(take_over or before.close_code == 1006, f"closed with {before.close_code}")

    async def _resume(self) -> None:
        opened = self.witness.opened
        assert opened is not None
        async with self._saying:
            self._socket = await dial(self._server.websocket_url + "/v1/duplex")
            resume = {"session": opened.session, "token": opened.resume_token}
            resume["seq"] = self.witness.seq
            await self._socket.send(json.dumps({"type": "session.open", "resume": resume}))
            greeting = SERVER_MESSAGE.validate_json(await self._server.hear(self._socket))
            hold(isinstance(greeting, SessionOpened), f"resuming was answered by {greeting}")
            self.witness.see(greeting)
            for data in self._sent[greeting.received :]:
                await self._socket.send(data)

    async def _see_it_taken_over(self, socket: ClientConnection) -> None:
        await self._server.closes(socket)
        hold(socket.close_code == 4001, f"taken over, but closed with {socket.close_code}")


FAIR_ERRORS = {
    *("overloaded", "unknown_context", "text_ended", "invalid_json", "unknown_type"),
    *("invalid_message", "unexpected_binary", "unknown_field"),
}
"""What a visitor may bring upon itself, or upon others by their number."""


async def duplex(server: Server, chance: Random, seen: Counter[str]) -> None:
    """Our own protocol in all formats: pieces, flushes, interrupts, acks, cancels and nonsense;
    read at any pace over connections that break, move or vanish."""
    peer = Peer(server, chance, seen)
    await peer.open()
    will_vanish = chance.random() < 0.2
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.read)
            tasks.start_soon(peer.listen)
            with anyio.move_on_after(chance.random() * 5 if will_vanish else None):
                async with anyio.create_task_group() as contexts:
                    for number in range(chance.randint(1, 4)):
                        contexts.start_soon(_context, peer, f"c{number}", Random(chance.random()))
            if will_vanish:
                seen["left"] += 1
                tasks.cancel_scope.cancel()
                return
            await peer.close()
    finally:
        peer.vanish()
    hold(not peer.witness.open_contexts, f"no end of {peer.witness.open_contexts}")


async def _context(peer: Peer, name: str, chance: Random) -> None:
    peer.done[name] = anyio.Event()
    lead = chance.choice((None, 500, 2000))
    await peer.say(type="context.open", context=name, max_lead_ms=lead)
    for turn in range(chance.choice((1, 1, 2, 3))):
        if turn:
            await pause(chance, 3)
            if chance.random() < 0.2:
                await peer.say(type="cancel", context=name)
                break
            offset = chance.choice((None, chance.random() * 5000))
            await peer.say(type="interrupt", context=name, played_ms=offset)
        for piece in pieces(some_text(chance), chance):
            await peer.say(type="text.append", context=name, text=piece)
            await pause(chance, 0.05)
            if chance.random() < 0.02:
                await peer.say(type="text.flush", context=name)
            if chance.random() < 0.02:
                await peer.say_raw(chance.choice(NONSENSE))
        await peer.say(type="text.end", context=name)
    await peer.done[name].wait()


async def crowd(server: Server, chance: Random, seen: Counter[str]) -> None:
    """As many contexts at once as a session may have; one more is refused and harms nobody."""
    witness, ends = Witness(), Counter[str]()
    async with dial(server.websocket_url + "/v1/duplex") as socket:
        await tell(socket, type="session.open", format="mulaw")
        opened = SERVER_MESSAGE.validate_json(await server.hear(socket))
        hold(isinstance(opened, SessionOpened), f"{opened}")
        assert isinstance(opened, SessionOpened)
        witness.see(opened)
        most = opened.limits.contexts
        for number in range(most):
            await tell(socket, type="context.open", context=f"c{number}")
        await tell(socket, type="context.open", context="one too many")
        for number in range(most):
            text = chance.choice(SENTENCES)
            await tell(socket, type="text.append", context=f"c{number}", text=text)
            await tell(socket, type="text.end", context=f"c{number}")
        errors = Counter[str]()
        while ends.total() < most:
            data = await server.hear(socket)
            event = decode(data) if isinstance(data, bytes) else SERVER_MESSAGE.validate_json(data)
            witness.see(event)
            if isinstance(event, ContextDone):
                ends[event.reason] += 1
            if isinstance(event, ErrorEvent):
                errors[event.code] += 1
            if left(socket, chance, seen, 0.001):
                return
        hold(errors.pop("too_many_contexts", 0) == 1, f"{errors}, and nobody was one too many")
        hold(errors.total() == errors["overloaded"] == ends["error"], f"{errors}, {ends}")
        seen["ended"] += ends["stop"]
        seen["refused"] += ends["error"]


async def long_winded(server: Server, chance: Random, seen: Counter[str]) -> None:
    """As much text as a context holds, in as large a message as may be, interrupted after a while;
    what it says then is heard whole."""
    witness, last = Witness(), "Thank you."
    async with dial(server.websocket_url + "/v1/duplex") as socket:
        await tell(socket, type="session.open", format="pcm_f32le", sample_rate=48000)
        opened = SERVER_MESSAGE.validate_json(await server.hear(socket))
        assert isinstance(opened, SessionOpened)
        witness.see(opened)
        await tell(socket, type="context.open", context="c", max_lead_ms=chance.choice((500, None)))
        text = filled(chance, opened.limits.text_chars - len(last))
        message = json.dumps({"type": "text.append", "context": "c", "text": text})
        await socket.send(message.ljust(opened.limits.message_bytes))
        turn_after = chance.randint(1, 60)
        while True:
            data = await server.hear(socket)
            event = decode(data) if isinstance(data, bytes) else SERVER_MESSAGE.validate_json(data)
            witness.see(event)
            match event:
                case WireFrame():
                    seen["frames"] += 1
                    turn_after -= 1
                    if turn_after == 0:
                        await tell(socket, type="interrupt", context="c")
                        await tell(socket, type="text.append", context="c", text=last)
                        await tell(socket, type="text.end", context="c")
                case ContextInterrupted():
                    whole = event.text_spoken + event.text_remaining
                    hold(whole == text, f"{len(whole)} characters of {len(text)} came back")
                    seen["interrupts"] += 1
                case ErrorEvent():
                    hold(event.code == "overloaded", f"{event}")
                case ContextDone():
                    seen["refused" if event.reason == "error" else "ended"] += 1
                    return


def filled(chance: Random, length: int) -> str:
    text = ""
    while len(text) < length:
        text += chance.choice(SENTENCES) + " "
    return text[:length]


# -- other services' clients --------------------------------------------------------------------


async def openai(server: Server, chance: Random, seen: Counter[str]) -> None:
    """One text over HTTP in any format, whole, streamed or as events; some leave early."""
    text = some_text(chance)
    body = {
        "input": text,
        "response_format": chance.choice(("wav", "pcm", "mp3", "opus", "flac", "aac")),
        "stream_format": chance.choice(("audio", "audio", "sse")),
        "stream": chance.random() < 0.7,
    }
    leave_after = chance.choice((None, None, None, chance.randint(0, 50_000)))
    received = b""
    async with (
        server.http() as http,
        http.stream("POST", "/v1/audio/speech", json=body) as answer,
    ):
        hold(answer.status_code in (200, 503), f"{answer.status_code} for {body}")
        async for chunk in server.patiently(answer.aiter_bytes()):
            received += chunk
            if leave_after is not None and len(received) > leave_after:
                seen["left"] += 1
                return
    seen["ended" if answer.status_code == 200 else "refused"] += 1
    if answer.status_code == 200 and body["stream_format"] == "sse":
        hold(received.count(b"speech.audio.done") == 1, f"no end of {body}")
    elif answer.status_code == 200:
        hold(len(received) > 1000, f"{len(received)} bytes for {body}")


async def openai_book(server: Server, chance: Random, seen: Counter[str]) -> None:
    """The longest text in the largest body; whoever hears its beginning leaves."""
    body = json.dumps({"input": filled(chance, MAX_TEXT_CHARS), "response_format": "pcm"})
    content = body.ljust(MAX_BODY_BYTES)
    async with (
        server.http() as http,
        http.stream("POST", "/v1/audio/speech", content=content) as answer,
    ):
        hold(answer.status_code in (200, 503), f"{answer.status_code} for {len(content)} bytes")
        with server.owing():
            await anext(answer.aiter_bytes())
        seen["left" if answer.status_code == 200 else "refused"] += 1


async def hasty(server: Server, chance: Random, seen: Counter[str]) -> None:
    """Many readers over HTTP at once, each gone within a tenth of a second."""

    async def come_and_go(seconds: float, text: str) -> None:
        with anyio.move_on_after(seconds):
            await http.post("/v1/audio/speech", json={"input": text})
        seen["left"] += 1

    async with server.http() as http, anyio.create_task_group() as tasks:
        for _ in range(chance.randint(5, 20)):
            tasks.start_soon(come_and_go, chance.random() * 0.1, some_text(chance))


async def half_closed(server: Server, chance: Random, seen: Counter[str]) -> None:
    """Says over TCP that nothing more comes from it, and goes on listening: the server takes it for
    gone. Over TLS nobody can say that; it leaves."""
    async with dial(server.websocket_url + "/v1/duplex") as socket:
        await tell(socket, type="session.open")
        await tell(socket, type="context.open", context="c")
        await tell(socket, type="text.append", context="c", text=some_text(chance))
        await tell(socket, type="text.flush", context="c")
        await pause(chance, 2)
        if socket.transport.can_write_eof():
            socket.transport.write_eof()
            await server.closes(socket)
        seen["left"] += 1


async def elevenlabs(server: Server, chance: Random, seen: Counter[str]) -> None:
    """Many contexts, each closed, or the socket with all of them; `isFinal` follows each close."""
    form = chance.choice(("pcm_24000", "mp3_44100_128", "ulaw_8000", "opus_48000_64"))
    path = f"/v1/text-to-speech/wren/multi-stream-input?output_format={form}"
    names = [f"c{number}" for number in range(chance.randint(1, 3))]
    final: list[str] = []
    async with dial(server.websocket_url + path) as socket:
        for name in names:
            await tell(socket, text=" ", context_id=name)
            for piece in some_text(chance).split():
                await tell(socket, text=piece + " ", context_id=name, flush=chance.random() < 0.05)
                await pause(chance, 0.05)
            flush = chance.random() < 0.7  # or what was not flushed is cut off
            await tell(socket, context_id=name, flush=flush, close_context=True)
            await blurt(socket, chance)
            if left(socket, chance, seen):
                return
        while len(final) < len(names):
            message = await server.hear_json(socket)
            if message.get("isFinal"):
                final.append(message["contextId"])
            await pause(chance, 0.1)
        hold(sorted(final) == names, f"{final} are final of {names}")
        seen["ended"] += len(names)
        await tell(socket, close_socket=True)
        await server.closes(socket)


async def elevenlabs_single(server: Server, chance: Random, seen: Counter[str]) -> None:
    """One context; the server closes when it is spoken."""
    path = "/v1/text-to-speech/wren/stream-input?output_format=pcm_16000"
    async with dial(server.websocket_url + path) as socket:
        await tell(socket, text=" ", try_trigger_generation=True)
        for piece in some_text(chance).split():
            await tell(socket, text=piece + " ")
            await pause(chance, 0.05)
            if left(socket, chance, seen, 0.01):
                return
        await tell(socket, text="")
        finals = 0
        with suppress(ConnectionClosed):
            while True:
                finals += bool((await server.hear_json(socket)).get("isFinal"))
        full = socket.close_code == TRY_AGAIN_LATER
        hold(full or finals == 1, f"{finals} times isFinal")
        seen["refused" if full else "ended"] += 1


async def cartesia(server: Server, chance: Random, seen: Counter[str]) -> None:
    """Many contexts over one socket, some cancelled; each is done once, or finds no place."""
    form = {
        "container": "raw",
        "encoding": chance.choice(("pcm_s16le", "pcm_f32le", "pcm_mulaw", "pcm_alaw")),
        "sample_rate": chance.choice(SAMPLE_RATES),
    }
    names = [f"c{number}" for number in range(chance.randint(1, 3))]
    async with dial(server.websocket_url + "/tts/websocket") as socket:
        for name in names:
            request = {
                "context_id": name,
                "voice": {"mode": "id", "id": "wren"},
                "output_format": form,
                "add_timestamps": chance.random() < 0.5,
            }
            for piece in some_text(chance).split():
                flush = chance.random() < 0.05
                await tell(
                    socket, transcript=piece + " ", **request, **{"continue": True}, flush=flush
                )
                await pause(chance, 0.05)
            await tell(socket, transcript="", **request, **{"continue": False})
            await blurt(socket, chance)
            if chance.random() < 0.2:
                await tell(socket, context_id=name, cancel=True)
            if left(socket, chance, seen):
                return
        done: list[str] = []
        while len(done) < len(names):
            message = await server.hear_json(socket)
            if message["type"] == "done" or message.get("error_code") == "overloaded":
                done.append(message["context_id"])
            await pause(chance, 0.1)
        hold(sorted(done) == names, f"{done} are done of {names}")
        seen["ended"] += len(names)


async def deepgram(server: Server, chance: Random, seen: Counter[str]) -> None:
    """Turns of words, some cleared; then it closes, and hears all that it asked for first."""
    path = f"/v1/speak?encoding=linear16&sample_rate={chance.choice(SAMPLE_RATES)}"
    async with dial(server.websocket_url + path) as socket:
        for _ in range(chance.randint(1, 3)):
            for word in some_text(chance).split():
                await tell(socket, type="Speak", text=word)
                await pause(chance, 0.05)
            await tell(socket, type="Flush")
            await blurt(socket, chance)
            if chance.random() < 0.2:
                await tell(socket, type="Clear")
            if left(socket, chance, seen):
                return
        await tell(socket, type="Speak", text="That is all.")
        await tell(socket, type="Close")
        told: list[Any] = []
        with suppress(ConnectionClosed):
            while True:
                data = await server.hear(socket)
                told.append("audio" if isinstance(data, bytes) else json.loads(data)["type"])
        if socket.close_code == TRY_AGAIN_LATER:
            seen["refused"] += 1
            return
        hold(told[-1] == "Flushed", f"the last was told {told[-3:]}")
        hold(socket.close_code == 1000, f"closed with {socket.close_code}")
        seen["ended"] += 1


async def deepgram_v2(server: Server, chance: Random, seen: Counter[str]) -> None:
    """Turns of words, some interrupted, with a position or without; audio comes only between a
    turn's start and its end, or its interruption."""
    path = f"/v2/speak?encoding=linear16&sample_rate={chance.choice(SAMPLE_RATES)}"
    async with (
        dial(server.websocket_url + path) as socket,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_read_turns, server, socket, chance.choice((0.0, 0.2)), seen)
        with suppress(ConnectionClosed):  # no place for it
            for _ in range(chance.randint(1, 3)):
                for word in some_text(chance).split():
                    await tell(socket, type="Speak", text=word + " ")
                    await pause(chance, 0.05)
                await tell(socket, type="Flush")
                await blurt(socket, chance)
                if left(socket, chance, seen):
                    tasks.cancel_scope.cancel()
                    return
                if chance.random() < 0.4:
                    await pause(chance, 3)
                    offset = {"type": "time_ms", "value": chance.random() * 5000}
                    await tell(
                        socket, type="Interrupt", playback_offset=chance.choice((None, offset))
                    )
            await tell(socket, type="Close")


async def _read_turns(
    server: Server, socket: ClientConnection, slow: float, seen: Counter[str]
) -> None:
    speaking, last = False, ""
    with suppress(ConnectionClosed):
        while True:
            data = await server.hear(socket)
            if isinstance(data, bytes):
                hold(speaking, f"audio after {last}")
                seen["frames"] += 1
                await anyio.sleep(slow)
                continue
            last = json.loads(data)["type"]
            match last:
                case "SpeechStarted":
                    hold(not speaking, "a turn started within another")
                    speaking = True
                case "SpeechMetadata" | "SpeechInterrupted":
                    speaking = False
                    seen["interrupts" if last == "SpeechInterrupted" else "ended"] += 1
    if socket.close_code == TRY_AGAIN_LATER:
        seen["refused"] += 1
        return
    hold(last == "SessionMetadata", f"the last was told {last}")
    hold(socket.close_code == 1000, f"closed with {socket.close_code}")


async def vllm_omni(server: Server, chance: Random, seen: Counter[str]) -> None:
    """Utterances, whole or as they are made; each is told whole and in its turn."""
    streams, timed = chance.choice(((False, False), (True, False), (True, True)))
    slow, count = chance.choice((0.0, 0.2)), chance.randint(1, 3)
    async with dial(server.websocket_url + "/v1/audio/speech/stream") as socket:
        await tell(
            socket,
            type="session.config",
            response_format=chance.choice(("wav", "pcm", "mp3", "opus", "flac", "aac")),
            stream_audio=streams,
            word_timestamps=timed,
        )
        for _ in range(count):
            for word in some_text(chance).split():
                await tell(socket, type="input.text", text=word + " ")
                await pause(chance, 0.05)
            await tell(socket, type="input.done")
            await blurt(socket, chance)
            if left(socket, chance, seen):
                return
        await tell(socket, type="session.close")
        done: list[int] = []
        size = 0
        with suppress(ConnectionClosed):
            while True:
                data = await server.hear(socket)
                if isinstance(data, bytes):
                    size += len(data)
                    continue
                match message := json.loads(data):
                    case {"type": "audio.chunk"}:
                        size += len(b64decode(message["audio_b64"]))
                    case {"type": "audio.done"}:
                        whole = message["total_bytes"] == size > 0
                        hold(whole or message["error"], f"{size} bytes came of {message}")
                        seen["refused" if message["error"] else "ended"] += 1
                        size = 0
                    case {"type": "session.done"}:
                        done.append(message["utterance_index"])
                await pause(chance, slow)
        hold(done == list(range(count)), f"{done} are done of {count}")
        hold(socket.close_code == 1000, f"closed with {socket.close_code}")


async def vllm_omni_duplex(server: Server, chance: Random, seen: Counter[str]) -> None:
    """Responses one after another, some barged into or cancelled, over connections that break."""
    url = server.websocket_url + "/v1/realtime?duplex=1"
    rate, acks = chance.choice(SAMPLE_RATES), chance.random() < 0.5
    socket, seq = await dial(url), 0
    try:
        output = {"output": {"sample_rate_hz": rate}}
        await tell(socket, type="session.update", session={"audio": output})
        session = await server.hear_json(socket)
        for number in range(1, chance.randint(2, 4)):
            for word in some_text(chance).split():
                await tell(socket, type="input.text.append", text=word + " ")
                await pause(chance, 0.05)
            await tell(socket, type="input.commit")
            turn = chance.choice(("none", "barge_in", "response.cancel", "break"))
            turn_after, samples, status, truncated = chance.randint(1, 20), 0, "", False
            while not status:
                message = await server.hear_json(socket)
                now = message.get("server_event_seq", seq + 1)
                hold(now > seq, f"event {now} after {seq}")
                seq = message.get("server_event_seq", seq)
                match message["type"]:
                    case "response.output_audio.delta":
                        hold(message["response_id"] == f"resp_{number}", f"{message} in {number}")
                        hold(not truncated, "audio after the barge-in was answered")
                        seen["frames"] += 1
                        samples += len(b64decode(message["delta"])) // 2
                        if acks:
                            await tell(socket, type="playback.ack", played_ms=1000 * samples / rate)
                        turn_after -= 1
                        if turn_after == 0 and turn == "break":
                            # Answered when all that was sent before it was taken.
                            await tell(socket, type="no.such")
                        elif turn_after == 0 and turn != "none":
                            await tell(socket, type=turn)
                    case "conversation.item.truncated":
                        truncated = message["item_id"] == f"item_resp_{number}"
                        seen["interrupts"] += 1
                    case "error" if turn == "break":
                        turn = "none"
                        seen["reconnects"] += 1
                        socket.transport.abort()
                        await pause(chance, 1)
                        socket = await dial(url)
                        await tell(
                            socket,
                            type="session.resume",
                            session_id=session["session_id"],
                            resume_token=session["resume_token"],
                            last_received_server_event_seq=seq,
                        )
                        resumed = await server.hear_json(socket)
                        hold(resumed["type"] == "session.resumed", f"{resumed}")
                    case "response.done":
                        status = message["response"]["status"]
            seen["refused" if status == "failed" else "ended"] += 1
        await tell(socket, type="session.close")
        await server.closes(socket)
        hold(socket.close_code == 1000, f"closed with {socket.close_code}")
    finally:
        socket.transport.abort()


async def rude(server: Server, chance: Random, seen: Counter[str]) -> None:
    """Says what nobody understands, everywhere; some say too much at once."""
    async with server.http() as http:
        body = chance.choice((b"{", b"\xff", b'{"input":7}', b'{"input":"!!!"}', b"x" * 2_000_000))
        answer = await http.post("/v1/audio/speech", content=body)
        hold(answer.status_code in (400, 413), f"{answer.status_code} for {body[:40]!r}")
    path = chance.choice(
        (
            "/v1/duplex",
            "/tts/websocket",
            "/v1/speak?sample_rate=24000",
            "/v2/speak?sample_rate=24000",
            "/v1/audio/speech/stream",
            "/v1/realtime?duplex=1",
        )
    )
    async with dial(server.websocket_url + path) as socket:
        if path == "/v1/audio/speech/stream":  # which hangs up on nonsense instead of this
            await tell(socket, type="session.config")
        for _ in range(chance.randint(1, 20)):
            await socket.send(chance.choice(NONSENSE))
            await server.hear(socket)
        if chance.random() < 0.5:
            await socket.send(TOO_BIG)
            await server.closes(socket)
            hold(socket.close_code == 1009, f"too big, closed with {socket.close_code}")


VISITS: dict[Visit, int] = {
    python_client: 3,
    duplex: 6,
    openai: 3,
    elevenlabs: 1,
    elevenlabs_single: 1,
    cartesia: 1,
    deepgram: 1,
    deepgram_v2: 1,
    vllm_omni: 1,
    vllm_omni_duplex: 1,
    rude: 1,
    crowd: 1,
    long_winded: 1,
    openai_book: 1,
    hasty: 1,
    half_closed: 1,
}
"""Each with how often it comes, in proportion."""


def dial(url: str) -> connect:
    return connect(url, proxy=None, compression=None, close_timeout=2, ping_interval=None)


async def tell(socket: ClientConnection, **message: Any) -> None:
    await socket.send(json.dumps(message))


async def blurt(socket: ClientConnection, chance: Random) -> None:
    if chance.random() < 0.1:
        await socket.send(chance.choice(NONSENSE))


def left(socket: ClientConnection, chance: Random, seen: Counter[str], often: float = 0.1) -> bool:
    """Whether this visitor has just pulled the plug."""
    if gone := chance.random() < often:
        socket.transport.abort()
        seen["left"] += 1
    return gone


def hold(true: bool, otherwise: str) -> None:
    if not true:
        raise Contradiction(otherwise)
