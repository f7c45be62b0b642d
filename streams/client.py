"""DuplexClient: speech from a server, frame by frame, over one websocket.

    async with DuplexClient("127.0.0.1:8080") as client:
        async for frame in client.speak("Hello!"):
            play(frame.pcm)

Needs neither torch nor vLLM. One reader task hands each context its messages over a bounded queue:
the frames of a context nobody reads hold up the connection once `QUEUE` of them wait. A connection
that breaks is made again, and goes on where it broke: nothing is lost, and nothing comes twice.
"""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self, TypedDict, Unpack
from urllib.parse import urlsplit

import anyio
import numpy as np
from anyio.abc import TaskGroup
from numpy.typing import NDArray
from pydantic import ValidationError
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from omni_speak.runtime import errors
from omni_speak.runtime.errors import InvalidRequest, SpeechError, TextTooLong
from omni_speak.streams.audio import S16Reader
from omni_speak.streams.dialects.native import SUBPROTOCOL
from omni_speak.streams.messages import (
    SERVER_MESSAGE,
    AudioFormat,
    Cancel,
    ClientMessage,
    ContextDone,
    ContextFlushed,
    ContextInterrupted,
    ContextOpen,
    ContextOpened,
    DoneReason,
    ErrorEvent,
    FramesPerMessage,
    Interrupt,
    Marks,
    PlaybackAck,
    Resume,
    SessionOpen,
    SessionOpened,
    TextAppend,
    TextEnd,
    TextFlush,
)
from omni_speak.streams.wire import Encoding, Flag, Kind, WireError, WireFrame, decode

QUEUE = 256
"""Messages waiting per context: some 20 s of audio, 1 MB."""

APPEND_CHARS = 8_000  # per message: under the server's message limit however JSON escapes it
SENT_KEPT = 1024
"""Messages kept to be sent again after a break, if the server did not get them."""

_CLOSE_TIMEOUT_S = 2.0
_PING_TIMEOUT_S = 60.0  # the answer waits behind what nobody has read yet
_RETRY_S = 0.1


class ConnectionLost(SpeechError):
    """The server cannot be reached, or the connection broke; the message says how."""

    code = "connection_lost"


class ServerError(SpeechError):
    """An error of the server that has no class of its own here; `code` is the server's."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, param=param, retry_after=retry_after)
        self.code = code


@dataclass(frozen=True, slots=True, eq=False)
class AudioFrame:
    """`pcm` int16 [samples], `pts` the first sample's time in samples, `tick` its frame's number,
    `epoch` how often the context had been interrupted. A message of several frames is one
    AudioFrame."""

    pcm: NDArray[np.int16]
    pts: int
    tick: int
    epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class CodesFrame:
    """In place of AudioFrame where the client asked for codes: `codes` uint16 [frames, codebooks].
    Where `key`, the decoder is to start afresh."""

    codes: NDArray[np.uint16]
    pts: int
    tick: int
    epoch: int
    key: bool


@dataclass(frozen=True, slots=True)
class SpokenSummary:
    """How a context ended; `complete` is false if audio of the accepted text is missing."""

    reason: DoneReason
    complete: bool
    frames: int
    samples: int
    segments: int
    seed: int


class Player(Protocol):
    """Whatever makes a context's frames heard."""

    @property
    def playhead(self) -> int:
        """Up to which sample the context was heard, counted as `pts` is."""


class ContextOptions(TypedDict, total=False):
    """How a context speaks. `messages.ContextOpen` tells more, and what holds where none is given.

    `voice` is one of `client.info.voices`, `speed` 1.0 its own rate; `seed` speaks the same again;
    `max_lead_ms` None is for a file: as fast as those whom somebody hears leave room for.
    """

    voice: str | None
    speed: float
    seed: int | None
    temperature: float | None
    max_lead_ms: int | None
    starve_timeout_ms: int
    frames_per_message: FramesPerMessage | None
    normalise: bool


ContextEvent = AudioFrame | CodesFrame | Marks | ContextFlushed | ContextInterrupted
_Item = WireFrame | Marks | ContextFlushed | ContextInterrupted | ContextDone | SpeechError


@dataclass(slots=True, eq=False)
class _Asked:
    """An interrupt, and its answer once it `came`."""

    context: Context
    came: anyio.Event = field(default_factory=anyio.Event)
    answer: ContextInterrupted | SpeechError | None = None


class Context:
    """A stream of speech whose text may still be arriving. Iterate once for its frames, or its
    `events`; `opened` is set before the first, `result` after the last. Leaving the iteration early
    cancels."""

    def __init__(self, client: DuplexClient, name: str, player: Player | None) -> None:
        self.name = name
        self.opened: ContextOpened | None = None
        self.result: SpokenSummary | None = None
        self.epoch = 0
        self._client = client
        self._player = player
        self._samples = S16Reader()
        self._inbox, self._items = anyio.create_memory_object_stream[_Item](QUEUE)

    async def append(self, text: str) -> None:
        """Raises InvalidRequest for text that UTF-8 cannot carry."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidRequest("the text is not valid Unicode", param="text") from None
        for start in range(0, len(text), APPEND_CHARS):
            part = text[start : start + APPEND_CHARS]
            await self._client._send(TextAppend(context=self.name, text=part))

    async def flush(self) -> None:
        """Have spoken what was appended, without waiting for the end of its sentence."""
        await self._client._send(TextFlush(context=self.name))

    async def end(self) -> None:
        await self._client._send(TextEnd(context=self.name))

    async def cancel(self) -> None:
        """The iteration ends soon, with `result.reason` "cancelled"."""
        await self._client._send(Cancel(context=self.name))

    async def played(self, samples: int) -> None:
        """The listener has heard the context up to this sample, counted as `pts` is."""
        await self._client._send(PlaybackAck(context=self.name, samples=samples))

    async def interrupt(self, played_ms: float | None = None) -> ContextInterrupted:
        """Stop the speech, and learn what was heard of it; the context goes on with new text, if it
        is not done. `played_ms` is the listener's place in its media time; else the player tells,
        else acks or the clock.

        No frame of before is iterated once this returns; what waited here is dropped. A context
        whose iteration is over may be playing still, and is interrupted, too. Raises the server's
        error, and ConnectionLost.
        """
        if played_ms is None and self._player is not None:
            played_ms = self._player.playhead * 1000 / self._client.info.sample_rate
        asked = await self._client._interrupt(self, played_ms)
        await asked.came.wait()
        if isinstance(asked.answer, SpeechError):
            raise asked.answer
        assert asked.answer is not None  # it came
        return asked.answer

    async def events(self) -> AsyncGenerator[ContextEvent]:
        """Frames, marks and answers in the order they were sent. Raises the server's errors for
        this context, and ConnectionLost."""
        try:
            while (event := await self.next_event()) is not None:
                yield event
        finally:
            await self.leave()

    async def __aiter__(self) -> AsyncGenerator[AudioFrame]:
        """The audio frames among the events."""
        async with aclosing(self.events()) as events:
            async for event in events:
                if isinstance(event, AudioFrame):
                    yield event

    @property
    def left(self) -> bool:
        """Nobody iterates it any more."""
        return self.name not in self._client._contexts

    async def leave(self) -> None:
        """End the iteration, and cancel what is not done; the end of an iteration does it."""
        await self._client._leave(self)

    async def next_event(self) -> ContextEvent | None:
        """A step of `events`: None at the end, or once the context was left."""
        with suppress(anyio.ClosedResourceError):
            async for item in self._items:
                match item:
                    case WireFrame() if item.epoch == self.epoch:
                        return self._frame(item)
                    case Marks() if item.epoch == self.epoch:
                        return item
                    case ContextFlushed() | ContextInterrupted():
                        return item
                    case ContextDone():
                        self.result = self._summary(item)
                        if item.reason == "shutdown":
                            raise ConnectionLost("the server shut down before the speech was whole")
                        return None
                    case SpeechError():
                        raise item
        if self._client._lost is not None:
            raise self._client._lost
        return None

    def _drop_waiting(self) -> None:
        """The reader may be waiting for room here, and the answer to an interrupt come behind."""
        ends: list[_Item] = []
        with suppress(anyio.WouldBlock, anyio.ClosedResourceError, anyio.EndOfStream):
            while True:
                item = self._items.receive_nowait()
                if isinstance(item, ContextDone | SpeechError):
                    ends.append(item)
        for item in ends:  # the iteration still has to end
            self._inbox.send_nowait(item)

    def _frame(self, item: WireFrame) -> AudioFrame | CodesFrame:
        if item.kind == Kind.AUDIO:
            return AudioFrame(self._samples.feed(item.payload), item.pts, item.tick, item.epoch)
        codes = np.frombuffer(item.payload, dtype="<u2").astype(np.uint16)
        codes = codes.reshape(-1, self._client.info.codebooks)
        return CodesFrame(codes, item.pts, item.tick, item.epoch, bool(item.flags & Flag.KEY))

    def _summary(self, done: ContextDone) -> SpokenSummary:
        assert self.opened is not None  # the server says so first
        return SpokenSummary(
            reason=done.reason,
            complete=done.complete,
            frames=done.frames,
            samples=done.samples,
            segments=done.segments,
            seed=self.opened.seed,
        )


class Speech:
    """One text being spoken: iterate once for its frames. Nothing is sent before."""

    def __init__(
        self, client: DuplexClient, text: str, request: ContextOpen, player: Player | None
    ) -> None:
        self._client = client
        self._text = text
        self._request = request
        self._player = player
        self._context: Context | None = None

    @property
    def result(self) -> SpokenSummary | None:
        """Set once the iteration ended by itself."""
        return self._context.result if self._context else None

    @property
    def opened(self) -> ContextOpened | None:
        """What the server accepted, the seed included; set before the first frame."""
        return self._context.opened if self._context else None

    async def __aiter__(self) -> AsyncGenerator[AudioFrame]:
        """Raises TextTooLong, the server's errors for this text, and ConnectionLost."""
        context = await self.begin()
        async with aclosing(context.__aiter__()) as frames:
            async for frame in frames:
                yield frame

    async def begin(self) -> Context:
        """Send the text; iterating does it."""
        limit = self._client.info.limits.text_chars
        if len(self._text) > limit:  # the server would refuse only what is over, in the middle
            raise TextTooLong(
                f"the text has {len(self._text)} characters; at most {limit} are allowed",
                param="text",
            )
        self._context = context = await self._client._open(self._request, self._player)
        try:
            await context.append(self._text)
            await context.end()
        except BaseException:
            await context.leave()
            raise
        return context


class DuplexClient:
    """A connection to a server's duplex endpoint.

    `url` may be `host:port`, `http(s)://host:port`, `ws(s)://host:port/v1/duplex`, or
    `unix:/path/to.sock`. With `codes` the codec's codes come instead of samples. A `resumable`
    session outlives a connection that breaks; any other ends with it, at once. Entering raises
    ConnectionLost if nobody answers, ServerError if the server refuses.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        codes: bool = False,
        resumable: bool = True,
    ) -> None:
        self._url = url
        self._resumable = resumable
        self._token = token
        self._format: AudioFormat = "codes_u16" if codes else "pcm_s16le"
        self._sent: deque[str] = deque(maxlen=SENT_KEPT)
        self._sent_count = 0
        self._seq: int | None = None
        self._contexts: dict[str, Context] = {}
        self._interrupts: deque[_Asked] = deque()
        self._by_handle: dict[int, Context] = {}
        self._numbers = itertools.count(1)
        self._lost: SpeechError | None = None
        self._info: SessionOpened | None = None
        self._tasks: TaskGroup
        self._connected: anyio.Event
        self._socket: ClientConnection

    @property
    def info(self) -> SessionOpened:
        """The server's model, voices, rates and limits."""
        if self._info is None:
            raise RuntimeError("the client is not connected; use `async with DuplexClient(...)`")
        return self._info

    def speak(
        self, text: str, *, player: Player | None = None, **options: Unpack[ContextOptions]
    ) -> Speech:
        """Speak a whole text: `async for frame in client.speak("…")`."""
        return Speech(self, text, self._request(options), player)

    async def open_context(
        self, *, player: Player | None = None, **options: Unpack[ContextOptions]
    ) -> Context:
        """A context for text that arrives bit by bit: append, flush and end it from one task while
        another iterates it. What `player` has played is told to the server by itself."""
        return await self._open(self._request(options), player)

    def _request(self, options: ContextOptions) -> ContextOpen:
        # Checked by the server, whose messages say what is allowed there.
        return ContextOpen.model_construct(context=f"c{next(self._numbers)}", **options)

    async def __aenter__(self) -> Self:
        self._connected = anyio.Event()
        self._tasks = anyio.create_task_group()
        try:
            self._socket = await _connect(self._url, self._token)
        except (OSError, TimeoutError, InvalidHandshake) as error:
            raise _connection_error(self._url, error) from error
        try:
            self._connected.set()
            await self._send(SessionOpen(format=self._format, resumable=self._resumable))
            self._info = await self._receive_opened()
        except BaseException:
            await self._close_socket()
            raise
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._read)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The task group is not shown the error: it would wrap it in a group, and the caller of
        # `async with DuplexClient` has no group in mind.
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
        for context in list(self._contexts.values()):
            await self._leave(context)
        await self._close_socket()

    async def _close_socket(self) -> None:
        with anyio.CancelScope(shield=True):  # bounded by the socket's close timeout
            await self._socket.close()

    async def _receive_opened(self) -> SessionOpened:
        try:
            message = SERVER_MESSAGE.validate_json(await self._socket.recv())
        except ConnectionClosed as error:
            raise _connection_error(self._url, error) from error
        except ValidationError as error:
            raise ConnectionLost(f"{self._url} sent what this client cannot read") from error
        if isinstance(message, ErrorEvent):
            raise _error_of(message)
        if not isinstance(message, SessionOpened):
            raise ConnectionLost(f"{self._url} answered session.open with {message.type}")
        return message

    async def _open(self, request: ContextOpen, player: Player | None) -> Context:
        context = Context(self, request.context, player)
        self._contexts[context.name] = context
        try:
            await self._send(request)
        except BaseException:
            await self._leave(context)
            raise
        if player is not None:
            self._tasks.start_soon(self._report, context, player)
        return context

    async def _report(self, context: Context, player: Player) -> None:
        """Tell the server what was heard, while it may go by it."""
        told = 0
        with suppress(SpeechError):  # the session is over
            while not context.left:
                await anyio.sleep(1 / self.info.frame_rate)
                if not context.left and (heard := player.playhead) > told:
                    await context.played(heard)
                    told = heard

    async def _interrupt(self, context: Context, played_ms: float | None) -> _Asked:
        await self._until_connected()
        asked = _Asked(context)
        self._interrupts.append(asked)
        context._drop_waiting()
        await self._write(Interrupt(context=context.name, played_ms=played_ms))
        return asked

    async def _send(self, message: ClientMessage) -> None:
        """Raises the error that ended the session."""
        await self._until_connected()
        await self._write(message)

    async def _until_connected(self) -> None:
        while not self._connected.is_set():  # again: waiting lets the reader run, too
            await self._connected.wait()
        if self._lost is not None:
            raise self._lost

    async def _write(self, message: ClientMessage) -> None:
        """What a break swallows is sent again after it; so it is, too, if this is cancelled."""
        data = message.model_dump_json(warnings=False)
        self._sent.append(data)
        self._sent_count += 1
        with suppress(ConnectionClosed):  # the reader sees it too, and knows what to do
            await self._socket.send(data)

    async def _leave(self, context: Context) -> None:
        """Nobody reads this context any more; cancel it if the server still speaks."""
        if self._contexts.pop(context.name, None) is None:
            return
        if context.opened is not None:
            self._by_handle.pop(context.opened.handle, None)
        context._inbox.close()
        context._items.close()
        if context.result is None and self._lost is None:
            with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True), suppress(SpeechError):
                await self._send(Cancel(context=context.name))

    # -- the reader ----------------------------------------------------------------------------

    async def _read(self) -> None:
        lost: SpeechError = ConnectionLost("the client was closed")
        try:
            lost = await self._listen()
        finally:
            self._end(lost)

    def _end(self, lost: SpeechError) -> None:
        """Nothing comes any more: whoever waits learns why, once what had come is read."""
        self._lost = lost
        self._connected.set()
        for asked in self._interrupts:
            asked.answer = lost
            asked.came.set()
        for context in self._contexts.values():
            context._inbox.close()

    async def _listen(self) -> SpeechError:
        """Hand out what comes; why it ended."""
        while True:
            try:
                async for data in self._socket:
                    if isinstance(data, str):
                        await self._on_message(data)
                    else:
                        await self._on_frame(decode(data))
                return ConnectionLost(f"{self._url} closed the connection")
            except ConnectionClosed as closed:
                error = _connection_error(self._url, closed)
                # A closing handshake is meant; only a connection that broke is made again.
                if closed.rcvd is not None or not self._resumable:
                    return error
            except (WireError, ValidationError) as unreadable:
                text = f"{self._url} sent what this client cannot read: {unreadable}"
                return ConnectionLost(text)
            except SpeechError as fatal:
                return fatal
            if (refusal := await self._resume(error)) is not None:
                return refusal

    async def _resume(self, lost: SpeechError) -> SpeechError | None:
        """Connect again, while the server keeps the session; why that did not work."""
        self._connected = anyio.Event()
        info = self.info
        resume = Resume(session=info.session, token=info.resume_token, seq=self._seq)
        with anyio.move_on_after(info.limits.resume_s):
            while True:
                try:
                    self._socket = await _connect(self._url, self._token)
                    await self._socket.send(SessionOpen(resume=resume).model_dump_json())
                    again = await self._receive_opened()
                    missed = self._sent_count - again.received
                    if not 0 <= missed <= len(self._sent):
                        return ConnectionLost(f"{lost}; too much was lost on the way to go on")
                    for data in list(self._sent)[len(self._sent) - missed :]:
                        await self._socket.send(data)
                    self._connected.set()
                    return None
                except ServerError as refused:
                    return ConnectionLost(str(refused))
                except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed, ConnectionLost):
                    await anyio.sleep(_RETRY_S)
        return lost

    async def _on_message(self, data: str) -> None:
        """Raises an error that ends the session."""
        message = SERVER_MESSAGE.validate_json(data)
        self._seq = getattr(message, "seq", self._seq)
        context = self._contexts.get(getattr(message, "context", None) or "")
        match message:
            case ErrorEvent(fatal=True):
                raise _error_of(message)
            case ErrorEvent():
                error = _error_of(message)
                if message.code != "unknown_context" or not self._answer(message.context, error):
                    await self._deliver(context, error)
            case ContextOpened() if context is not None:
                self._by_handle[message.handle] = context
                context.opened = message
            case ContextInterrupted():
                self._answer(message.context, message)
                await self._deliver(context, message)
            case ContextDone() | Marks() | ContextFlushed():
                await self._deliver(context, message)
            case _:
                pass

    async def _on_frame(self, frame: WireFrame) -> None:
        self._seq = frame.seq
        context = self._by_handle.get(frame.context)
        if frame.kind in (Kind.AUDIO, Kind.CODES) and context is not None:
            if frame.encoding not in (Encoding.PCM_S16LE, Encoding.CODES_U16):
                raise WireError(f"audio in encoding {frame.encoding}, which was not asked for")
            await self._deliver(context, frame)

    def _answer(self, name: str | None, answer: ContextInterrupted | SpeechError) -> bool:
        """To the first interrupt of the context that waits for one, if there is any."""
        asked = next((a for a in self._interrupts if a.context.name == name), None)
        if asked is None:
            return False
        self._interrupts.remove(asked)
        if isinstance(answer, ContextInterrupted):
            asked.context.epoch = answer.epoch
        asked.answer = answer
        asked.came.set()
        return True

    async def _deliver(self, context: Context | None, item: _Item) -> None:
        """Messages of a context that was left concern nobody, nor do the frames that come between
        an interrupt and its answer."""
        if context is None:
            return
        if isinstance(item, WireFrame | Marks) and any(
            asked.context is context for asked in self._interrupts
        ):
            return
        # Broken or closed: it was left while this waited.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await context._inbox.send(item)


def _connect(url: str, token: str | None) -> connect:
    headers = {"Authorization": f"Bearer {token}"} if token else None
    options: dict[str, Any] = {
        "subprotocols": [Subprotocol(SUBPROTOCOL)],
        "additional_headers": headers,
        "compression": None,
        "close_timeout": _CLOSE_TIMEOUT_S,
        "ping_timeout": _PING_TIMEOUT_S,
    }
    if url.startswith("unix:"):
        return unix_connect(url.removeprefix("unix:"), "ws://localhost/v1/duplex", **options)
    return connect(_websocket_url(url), **options)


def _websocket_url(url: str) -> str:
    """The duplex endpoint meant by a URL or `host:port`. Raises ValueError."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    scheme = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise ValueError(f"not a server's address: {url!r}; try host:port or unix:/path.sock")
    path = parts.path if parts.path.strip("/") else "/v1/duplex"
    query = f"?{parts.query}" if parts.query else ""
    return f"{scheme}://{parts.netloc}{path}{query}"


def _connection_error(url: str, error: Exception) -> SpeechError:
    url = url.partition("?")[0]  # a token may be behind it
    if isinstance(error, InvalidStatus):
        status, body = error.response.status_code, bytes(error.response.body or b"")
        try:
            refusal = json.loads(body)["error"]
            return ServerError(str(refusal["code"]), f"{url} refused: {refusal['message']}")
        except (ValueError, KeyError, TypeError):
            return ServerError("refused", f"{url} refused with status {status}")
    if isinstance(error, ConnectionClosed):
        if error.rcvd is None:
            return ConnectionLost(f"the connection to {url} broke")
        closed = f"{error.rcvd.code} {error.rcvd.reason}".strip()
        return ConnectionLost(f"{url} closed the connection: {closed}")
    return ConnectionLost(f"no connection to {url}: {error}")


def _error_of(event: ErrorEvent) -> SpeechError:
    """The error of that code from the runtime's tree, else a ServerError."""
    kind = _BY_CODE.get(event.code, partial(ServerError, event.code))
    return kind(event.message, param=event.param, retry_after=event.retry_after)


_BY_CODE: dict[str, Callable[..., SpeechError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, SpeechError)
    and kind.__init__ is SpeechError.__init__
}
