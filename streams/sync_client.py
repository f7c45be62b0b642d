"""SyncDuplexClient: the same speech for code that is not async.

    with SyncDuplexClient("127.0.0.1:8080") as client:
        for frame in client.speak("Hello!"):
            play(frame.pcm)

An event loop runs in a thread beside it, with a DuplexClient in it; every call waits for that
one's. Any thread may call: one appends text while another iterates.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Self, Unpack

from anyio.from_thread import BlockingPortal, start_blocking_portal

from omni_speak.streams.client import (
    AudioFrame,
    Context,
    ContextEvent,
    ContextOptions,
    DuplexClient,
    Player,
    Speech,
    SpokenSummary,
)
from omni_speak.streams.messages import ContextInterrupted, ContextOpened, SessionOpened


class SyncContext:
    """See Context: the same methods raise the same errors, once what they do is done."""

    def __init__(self, portal: BlockingPortal, context: Context) -> None:
        self._portal = portal
        self._context = context

    @property
    def opened(self) -> ContextOpened | None:
        return self._context.opened

    @property
    def result(self) -> SpokenSummary | None:
        return self._context.result

    def append(self, text: str) -> None:
        self._portal.call(self._context.append, text)

    def flush(self) -> None:
        self._portal.call(self._context.flush)

    def end(self) -> None:
        self._portal.call(self._context.end)

    def cancel(self) -> None:
        self._portal.call(self._context.cancel)

    def played(self, samples: int) -> None:
        self._portal.call(self._context.played, samples)

    def interrupt(self, played_ms: float | None = None) -> ContextInterrupted:
        return self._portal.call(self._context.interrupt, played_ms)

    def events(self) -> Iterator[ContextEvent]:
        try:
            while (event := self._portal.call(self._context.next_event)) is not None:
                yield event
        finally:
            if not self._context.left:  # else the portal may be gone, too
                self._portal.call(self._context.leave)

    def __iter__(self) -> Iterator[AudioFrame]:
        return (event for event in self.events() if isinstance(event, AudioFrame))


class SyncSpeech:
    """See Speech."""

    def __init__(self, portal: BlockingPortal, speech: Speech) -> None:
        self._portal = portal
        self._speech = speech

    @property
    def opened(self) -> ContextOpened | None:
        return self._speech.opened

    @property
    def result(self) -> SpokenSummary | None:
        return self._speech.result

    def __iter__(self) -> Iterator[AudioFrame]:
        yield from SyncContext(self._portal, self._portal.call(self._speech.begin))


class SyncDuplexClient:
    """See DuplexClient, for the arguments and errors, too."""

    def __init__(
        self, url: str, *, token: str | None = None, codes: bool = False, resumable: bool = True
    ) -> None:
        self._client = DuplexClient(url, token=token, codes=codes, resumable=resumable)
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None

    @property
    def info(self) -> SessionOpened:
        return self._client.info

    def speak(
        self, text: str, *, player: Player | None = None, **options: Unpack[ContextOptions]
    ) -> SyncSpeech:
        return SyncSpeech(self._connected(), self._client.speak(text, player=player, **options))

    def open_context(
        self, *, player: Player | None = None, **options: Unpack[ContextOptions]
    ) -> SyncContext:
        async def opening() -> Context:
            return await self._client.open_context(player=player, **options)

        portal = self._connected()
        return SyncContext(portal, portal.call(opening))

    def _connected(self) -> BlockingPortal:
        if self._portal is None:
            raise RuntimeError("the client is not connected; use `with SyncDuplexClient(...)`")
        return self._portal

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            stack.enter_context(portal.wrap_async_context_manager(self._client))
            self._portal, self._stack = portal, stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)
