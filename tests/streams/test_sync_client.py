"""SyncDuplexClient from a thread of its own, over real sockets."""

from __future__ import annotations

import subprocess
import sys
from threading import Thread

import anyio
import anyio.to_thread
import pytest

from omni_speak.runtime.errors import TextTooLong, UnknownVoice
from omni_speak.runtime.request import SpeechRequest
from omni_speak.streams.audio import to_s16le
from omni_speak.streams.client import AudioFrame, ConnectionLost
from omni_speak.streams.messages import ContextFlushed, Marks
from omni_speak.streams.sync_client import SyncContext, SyncDuplexClient
from tests.streams.cable import Cable
from tests.streams.conftest import Running
from tests.streams.fake_engine import SAMPLES, frame_of

pytestmark = pytest.mark.anyio

TEXT = "  Hello there,  dear friend. And  more."


def expected_pcm(text: str, seed: int, frames: int) -> bytes:
    request = SpeechRequest(text=text, voice="Ada", seed=seed)
    return b"".join(to_s16le(frame_of(request, i).pcm) for i in range(frames))


async def idle(server: Running) -> None:
    with anyio.fail_after(5):
        while server.engine.running:
            await anyio.lowlevel.checkpoint()


async def test_a_whole_text(server: Running) -> None:
    def speak() -> bytes:
        with SyncDuplexClient(server.url) as client:
            assert client.info.model == "fake"
            next(iter(client.speak("Go on #endless")))  # left at once
            speech = client.speak("One two three.", seed=3)
            assert speech.result is None
            pcm = b"".join(frame.pcm.tobytes() for frame in speech)
            assert speech.result is not None and speech.result.frames == 3
            assert speech.opened is not None and speech.opened.seed == 3
            return pcm

    assert await anyio.to_thread.run_sync(speak) == expected_pcm("One two three.", 3, 3)
    await idle(server)


async def test_text_written_by_one_thread_while_another_listens(server: Running) -> None:
    def write(context: SyncContext) -> None:
        for word in TEXT.split(" "):
            context.append(word + " ")
        context.flush()
        context.end()

    def speak() -> tuple[list[str], int, int]:
        with SyncDuplexClient(server.url) as client:
            context = client.open_context(seed=1)
            writer = Thread(target=write, args=[context])
            writer.start()
            words, samples, flushed = [], 0, 0
            for event in context.events():
                match event:
                    case AudioFrame():
                        samples += len(event.pcm)
                    case Marks():
                        words += [word.text for word in event.words]
                    case ContextFlushed():
                        flushed += 1
            writer.join()
            assert context.result is not None and context.result.samples == samples
            return words, samples, flushed

    words, samples, flushed = await anyio.to_thread.run_sync(speak)
    assert words == TEXT.split()
    assert samples > 0
    assert flushed == 1


async def test_interrupt_acks_and_cancel(server: Running) -> None:
    class Player:
        playhead = 0

    def speak() -> None:
        player = Player()
        with SyncDuplexClient(server.url) as client:
            context = client.open_context(player=player)
            context.append(TEXT + " #endless")
            context.flush()
            frames = iter(context)
            while server.engine.heard != SAMPLES:
                player.playhead = next(frames).pts and SAMPLES
            context.played(2 * SAMPLES)
            while server.engine.heard != 2 * SAMPLES:
                next(frames)
            told = context.interrupt(played_ms=279.9)
            assert told.text_spoken == "  Hello there,  dear"
            context.append("Yes #endless")
            context.flush()
            assert next(frames).epoch == 1
            context.cancel()
            assert all(frame.epoch == 1 for frame in frames)
            assert context.result is not None and context.result.reason == "cancelled"

    await anyio.to_thread.run_sync(speak)
    await idle(server)


async def test_a_connection_that_breaks_costs_nothing(server: Running) -> None:
    text = "Say it all #frames=100"

    def speak(url: str) -> bytes:
        with SyncDuplexClient(url) as client:
            return b"".join(frame.pcm.tobytes() for frame in client.speak(text, seed=7))

    async with Cable.to(server.url) as cable:
        cable.bytes_left = 100_000
        assert await anyio.to_thread.run_sync(speak, cable.url) == expected_pcm(text, 7, 100)
        assert cable.plugs == 2


async def test_errors_are_those_of_the_async_client(server: Running) -> None:
    def speak() -> None:
        with pytest.raises(ConnectionLost), SyncDuplexClient("127.0.0.1:1"):
            pass
        with pytest.raises(RuntimeError, match="not connected"):
            SyncDuplexClient(server.url).speak("Hello?")
        with SyncDuplexClient(server.url) as client:
            with pytest.raises(UnknownVoice, match="Ada, bob"):
                list(client.speak("Hello?", voice="nobody"))
            with pytest.raises(TextTooLong):
                list(client.speak("x" * 20_001))
            assert len(list(client.speak("One two."))) == 2

    await anyio.to_thread.run_sync(speak)


async def test_closing_wakes_a_thread_that_listens(server: Running) -> None:
    def speak() -> list[str]:
        said = []

        def listen(context: SyncContext) -> None:
            try:
                for _ in context:
                    said.append("frame")
            except ConnectionLost as lost:
                said.append(lost.message)

        with SyncDuplexClient(server.url) as client:
            context = client.open_context()
            context.append("One.")
            context.flush()
            listener = Thread(target=listen, args=[context])
            listener.start()
            while not said:
                client.info  # noqa: B018  something to do
        listener.join(5)
        return said

    with anyio.fail_after(10):
        said = await anyio.to_thread.run_sync(speak, abandon_on_cancel=True)
    assert said == ["frame", "the client was closed"]


CTRL_C = """
import os, signal, sys, threading
from omni_speak.streams.sync_client import SyncDuplexClient

with SyncDuplexClient(sys.argv[1]) as client:
    context = client.open_context()  # waits for text that never comes
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        for frame in context:
            pass
    except KeyboardInterrupt:
        print(len(list(client.speak("One two."))))
    for frame in client.speak("Go on #endless"):
        os.kill(os.getpid(), signal.SIGINT)
"""


async def test_ctrl_c_ends_what_is_waited_for(server: Running) -> None:
    with anyio.fail_after(20):
        done = await anyio.run_process([sys.executable, "-c", CTRL_C, server.url], check=False)
    assert done.stdout == b"2\n"
    assert done.stderr.splitlines()[-1] == b"KeyboardInterrupt"
    assert b"RuntimeError" not in done.stderr and b"ignored" not in done.stderr
    assert done.returncode == -2
    await idle(server)


def test_it_needs_neither_torch_nor_vllm() -> None:
    check = (
        "import sys, omni_speak.streams.sync_client;assert not {'torch', 'vllm'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
