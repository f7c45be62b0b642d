"""DuplexClient and the duplex endpoint together, over real sockets."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as websocket_server

from omni_speak.runtime.errors import (
    EngineDead,
    InvalidRequest,
    NoAudio,
    Overloaded,
    TextTooLong,
    UnknownVoice,
)
from omni_speak.runtime.request import SpeechRequest
from omni_speak.streams.audio import to_s16le
from omni_speak.streams.client import (
    QUEUE,
    AudioFrame,
    CodesFrame,
    ConnectionLost,
    DuplexClient,
    ServerError,
    Speech,
)
from omni_speak.streams.messages import (
    ContextDone,
    ContextOpened,
    FramesPerMessage,
    Limits,
    Marks,
    SessionOpened,
)
from omni_speak.streams.wire import Kind, WireFrame, encode
from tests.streams.cable import Cable
from tests.streams.conftest import Running, serving
from tests.streams.fake_engine import SAMPLES, FakeEngine, frame_of

pytestmark = pytest.mark.anyio


async def frames_of_speech(speech: Speech) -> list[AudioFrame]:
    return [frame async for frame in speech]


async def exhaust(frames: AsyncIterator[object]) -> None:
    async for _ in frames:
        pass


def expected_pcm(text: str, seed: int, frames: int, voice: str = "Ada") -> bytes:
    request = SpeechRequest(text=text, voice=voice, seed=seed)
    return b"".join(to_s16le(frame_of(request, i).pcm) for i in range(frames))


async def idle(engine: FakeEngine) -> None:
    """Until the engine holds nothing; a request leaves it some loop turns after its client."""
    with anyio.fail_after(5):
        while engine.running:
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("count", [1, 4, 25, 50, 54, 79])
async def test_every_frame_once_and_one_end(server: Running, count: int) -> None:
    text = f"Say #frames={count}"
    async with DuplexClient(server.url) as client:
        speech = client.speak(text, seed=11)
        frames = await frames_of_speech(speech)
    assert [f.tick for f in frames] == list(range(count))
    assert [f.pts for f in frames] == [i * SAMPLES for i in range(count)]
    pcm = np.concatenate([f.pcm for f in frames])
    assert pcm.dtype == np.int16
    assert pcm.tobytes() == expected_pcm(text, 11, count)
    assert speech.result is not None
    assert (speech.result.frames, speech.result.samples) == (count, count * SAMPLES)
    assert (speech.result.reason, speech.result.seed, speech.result.complete) == ("stop", 11, True)


async def test_all_ways_to_write_the_address(server: Running, tmp_path: Path) -> None:
    host = server.url.removeprefix("http://")
    for url in (host, server.url, f"ws://{host}/v1/duplex", f"ws://{host}"):
        async with DuplexClient(url) as client:
            assert client.info.voices == ("Ada", "bob")
            assert len(await frames_of_speech(client.speak("One two."))) == 2
    async with serving(uds=tmp_path / "s.sock") as unix:
        assert unix.url.startswith("unix:")
        async with DuplexClient(unix.url) as client:
            assert len(await frames_of_speech(client.speak("One two."))) == 2
    assert not (tmp_path / "s.sock").exists()


async def test_many_at_once_on_one_connection(server: Running) -> None:
    texts = [f"Number {n} #frames={3 + n}" for n in range(8)]
    heard: dict[str, bytes] = {}

    async def hear(client: DuplexClient, text: str) -> None:
        frames = await frames_of_speech(client.speak(text, seed=5, voice="BOB"))
        heard[text] = b"".join(f.pcm.tobytes() for f in frames)

    async with DuplexClient(server.url) as client, anyio.create_task_group() as tasks:
        for text in texts:
            tasks.start_soon(hear, client, text)
    assert heard == {t: expected_pcm(t, 5, 3 + n, "bob") for n, t in enumerate(texts)}


async def test_a_drawn_seed_speaks_the_same_again(server: Running) -> None:
    async with DuplexClient(server.url) as client:
        first = client.speak("Once more.")
        heard = await frames_of_speech(first)
        assert first.result is not None
        again = await frames_of_speech(client.speak("Once more.", seed=first.result.seed))
    assert [f.pcm.tobytes() for f in heard] == [f.pcm.tobytes() for f in again]


async def test_text_in_pieces_sounds_like_the_whole(server: Running) -> None:
    text = "Dr. Ng paid $6.25 at 8 a.m. for tea. Then she left."
    async with DuplexClient(server.url) as client:
        whole = await frames_of_speech(client.speak(text, seed=3))
        context = await client.open_context(seed=3)
        for character in text:
            await context.append(character)
        await context.end()
        pieces = [frame async for frame in context]
    assert [f.pcm.tobytes() for f in pieces] == [f.pcm.tobytes() for f in whole]
    assert context.result is not None
    assert context.result.segments == 2


async def test_flushed_text_is_spoken_while_the_context_stays_open(server: Running) -> None:
    async with DuplexClient(server.url) as client:
        context = await client.open_context()
        await context.append("Half a")
        await context.flush()
        frames = context.__aiter__()
        assert [(await anext(frames)).tick for _ in range(2)] == [0, 1]
        await context.append(" sentence.")
        await context.end()
        assert [frame.tick async for frame in frames] == [2]


@pytest.mark.parametrize("frames_per_message", [1, 8, "auto"])
async def test_all_that_was_flushed_is_heard_before_more_text_comes(
    server: Running, frames_per_message: FramesPerMessage
) -> None:
    async with DuplexClient(server.url) as client:
        context = await client.open_context(frames_per_message=frames_per_message)
        frames = context.__aiter__()
        for text in ("One two three four five six seven.", "Eight nine."):
            await context.append(text)
            await context.flush()
            heard = 0
            with anyio.fail_after(5):
                while heard < len(text.split()) * SAMPLES:
                    heard += len((await anext(frames)).pcm)
        await context.end()
        assert [frame async for frame in frames] == []


async def test_null_is_told_to_the_server(server: Running) -> None:
    async with DuplexClient(server.url) as client:
        await frames_of_speech(client.speak("For a file.", max_lead_ms=None))
        await frames_of_speech(client.speak("For a listener."))
    assert [request.max_lead_ms for request in server.engine.asked[-2:]] == [None, 2000]


async def test_text_is_normalised_unless_the_context_says_no(server: Running) -> None:
    async with DuplexClient(server.url) as client:
        await frames_of_speech(client.speak("**One.**"))
        speech = client.speak("**One.** Two.", normalise=False)
        await frames_of_speech(speech)
        assert speech.opened is not None and not speech.opened.normalise
        with pytest.raises(ServerError, match="normalise"):
            await frames_of_speech(client.speak("One.", normalise="no"))  # type: ignore[arg-type]
    assert [request.normalise for request in server.engine.asked[-2:]] == [True, False]


async def test_leaving_early_frees_the_engine_and_the_connection_goes_on(server: Running) -> None:
    async with DuplexClient(server.url) as client:
        async for _ in client.speak("Go on #endless"):
            break
        await idle(server.engine)
        with anyio.move_on_after(0.05):
            async for _ in client.speak("Go on #endless"):
                pass
        await idle(server.engine)
        assert len(await frames_of_speech(client.speak("Still here."))) == 2
        assert not client._contexts


async def test_D15_cancel_ends_with_its_reason_and_no_late_frame(server: Running) -> None:
    async with DuplexClient(server.url) as client:
        context = await client.open_context()
        await context.append("Go on #endless")
        await context.end()
        frames = [f async for f in context if f.tick != 3 or await context.cancel() is None]
    assert context.result is not None
    assert (context.result.reason, context.result.complete) == ("cancelled", False)
    assert context.result.frames == len(frames)
    await idle(server.engine)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"voice": "zoe"}, UnknownVoice, "Ada, bob"),
        ({"voice": ""}, UnknownVoice, "Ada, bob"),
        ({"voice": 5}, ServerError, "voice"),
        ({"speed": 9.0}, InvalidRequest, "0.5 to 2.0"),
        ({"speed": float("nan")}, ServerError, "speed"),
        ({"seed": -1}, ServerError, "seed"),
        ({"temperature": 99.0}, ServerError, "temperature"),
        ({"text": "a" * 20_001}, TextTooLong, "20000"),
        ({"text": "\ud800"}, InvalidRequest, "Unicode"),
        ({"text": "#eos"}, NoAudio, "before its first frame"),
        ({"text": "#crowd"}, Overloaded, "full"),
    ],
)
async def test_errors_are_typed_and_leave_the_connection_usable(
    server: Running, arguments: dict[str, object], error: type[Exception], says: str
) -> None:
    async with DuplexClient(server.url) as client:
        with pytest.raises(error, match=says):
            await frames_of_speech(client.speak(**({"text": "Hello."} | arguments)))  # type: ignore[arg-type]
        assert len(await frames_of_speech(client.speak("Fine now."))) == 2
    assert not server.engine.running


@pytest.mark.parametrize("text", ["", "   \t\n", "?!...", "🎉", "**", "\u200b\u200b"])
async def test_D09_nothing_to_say_is_a_clean_end(server: Running, text: str) -> None:
    async with DuplexClient(server.url) as client:
        speech = client.speak(text)
        assert await frames_of_speech(speech) == []
        assert speech.result is not None
        assert (speech.result.reason, speech.result.segments) == ("stop", 0)
        assert len(await frames_of_speech(client.speak("Fine now."))) == 2


async def test_one_that_ends_at_once_does_not_disturb_the_others(server: Running) -> None:
    outcomes: list[int | str] = []

    async def hear(client: DuplexClient, text: str) -> None:
        try:
            outcomes.append(len(await frames_of_speech(client.speak(text))))
        except NoAudio:
            outcomes.append("no audio")

    async with DuplexClient(server.url) as client, anyio.create_task_group() as tasks:
        for text in ["#frames=20"] * 2 + ["#eos"] + ["#frames=20"] * 2:
            tasks.start_soon(hear, client, text)
    assert sorted(map(str, outcomes)) == ["20"] * 4 + ["no audio"]


async def test_a_spent_budget_is_never_a_plain_success(server: Running) -> None:
    async with DuplexClient(server.url) as client:
        speech = client.speak("On and on #length")
        await frames_of_speech(speech)
    assert speech.result is not None
    assert (speech.result.reason, speech.result.complete) == ("length", False)


async def test_a_dead_engine_is_told_and_refuses_the_next() -> None:
    async with serving() as server:
        async with DuplexClient(server.url) as client:
            with pytest.raises(Exception, match="died"):
                await frames_of_speech(client.speak("#die #frames=5"))
        with pytest.raises(ServerError, match="died") as refused:
            async with DuplexClient(server.url):
                pass
        assert refused.value.code == "engine_dead"


async def test_D11_it_skips_unknown_kinds_and_joins_samples_cut_in_two() -> None:
    pcm = bytes(range(200)) * 20
    opened = SessionOpened(
        session="s",
        resume_token="t",
        resumed=False,
        received=0,
        codebook_size=1024,
        model="other",
        format="pcm_s16le",
        frames_per_message=1,
        sample_rate=24_000,
        frame_rate=12.5,
        samples_per_frame=1920,
        codebooks=4,
        voices=("Ada",),
        voice="Ada",
        speed_range=(0.5, 2.0),
        limits=Limits(),
    )

    async def other_server(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(opened.model_dump_json())
        name = json.loads(await socket.recv())["context"]
        context = ContextOpened(
            context=name,
            handle=9,
            voice="Ada",
            speed=1.0,
            seed=1,
            temperature=None,
            max_lead_ms=2000,
            starve_timeout_ms=30_000,
            frames_per_message=1,
            normalise=True,
            format="pcm_s16le",
            sample_rate=24_000,
        )
        await socket.send(context.model_dump_json())
        start = 0
        for tick, size in enumerate([1, 3, 2731, 905, 360]):
            payload = pcm[start : start + size]
            start += size
            for kind in (77, Kind.AUDIO):
                frame = WireFrame(
                    kind=kind, encoding=0, context=9, seq=0, tick=tick, pts=0, payload=payload
                )
                await socket.send(encode(frame))
        done = ContextDone(
            context=name,
            reason="stop",
            text="",
            frames=5,
            samples=2000,
            segments=1,
            complete=True,
        )
        await socket.send(done.model_dump_json())
        await socket.wait_closed()

    async with websocket_server(other_server, "127.0.0.1", 0) as listening:
        port = next(iter(listening.sockets)).getsockname()[1]
        async with DuplexClient(f"127.0.0.1:{port}") as client:
            frames = await frames_of_speech(client.speak("x"))
    assert [f.tick for f in frames] == [0, 1, 2, 3, 4]
    assert b"".join(f.pcm.tobytes() for f in frames) == pcm


TEXT = "  Hello there,  dear friend. And  more."


async def test_words_cite_the_text_as_it_was_sent(server: Running) -> None:
    async with DuplexClient(server.url) as client:
        context = await client.open_context()
        for character in TEXT:
            await context.append(character)
        await context.end()
        heard, words, last = 0, [], 0.0
        async for event in context.events():
            if isinstance(event, AudioFrame):
                heard += len(event.pcm)
            elif isinstance(event, Marks):
                for word in event.words:
                    assert last <= word.start_ms < word.end_ms
                    assert word.end_ms > heard / 24  # no later than the audio
                    assert word.text == TEXT[word.start_char : word.end_char]
                    words.append(word.text)
                    last = word.end_ms
    assert words == TEXT.split()


async def test_the_words_are_the_same_however_the_text_came(server: Running) -> None:
    text = "Dr. Ng paid $6.25 at 8 a.m. for 47.2 grams, e.g. tea. Then she left."
    told = []
    async with DuplexClient(server.url) as client:
        for pieces in ([text], re.findall(r"\S+\s*", text), list(text)):
            context = await client.open_context(seed=1)
            for piece in pieces:
                await context.append(piece)
            await context.end()
            events = [event async for event in context.events()]
            words = [event.words for event in events if isinstance(event, Marks)]
            told.append((words, context.result))
    assert told[0] == told[1] == told[2]
    assert [word.text for words in told[0][0] for word in words] == text.split()
    assert told[0][1] is not None and told[0][1].segments == 2


async def test_an_interrupt_tells_what_was_heard_and_the_context_goes_on(server: Running) -> None:
    async with DuplexClient(server.url) as client:
        context = await client.open_context()
        await context.append(TEXT + " #endless")
        await context.end()
        frames = context.__aiter__()
        for _ in range(9):
            await anext(frames)
        told = await context.interrupt(played_ms=279.9)
        assert (told.heard_ms, told.heard_by) == (279.9, "offset")
        assert told.text_spoken + told.text_remaining == TEXT + " #endless"
        assert told.text_spoken == "  Hello there,  dear"
        await context.append("Yes?")
        await context.flush()
        assert (await anext(frames)).epoch == 1
        await context.played(samples=0)
        await context.interrupt()
        await context.append("Good bye.")
        await context.end()
        assert [frame.epoch async for frame in frames] == [2, 2]
    assert not server.engine.running


async def test_an_interrupt_of_what_is_done_but_not_read_still_ends_the_iteration(
    server: Running,
) -> None:
    async with DuplexClient(server.url) as client:
        context = await client.open_context(max_lead_ms=None)
        await context.append("One two three.")
        await context.end()
        frames = aiter(context)
        await anext(frames)
        await idle(server.engine)
        speech = client.speak("What comes after it.")
        assert len(await frames_of_speech(speech)) == 4
        told = await context.interrupt(played_ms=80)
        assert told.text_spoken + told.text_remaining == "One two three."
        with anyio.fail_after(5):
            await exhaust(frames)
        assert context.result is not None and context.result.reason == "stop"


async def test_an_interrupt_reaches_a_context_whose_frames_nobody_reads(server: Running) -> None:
    async with DuplexClient(server.url) as client:
        context = await client.open_context(max_lead_ms=None)
        await context.append("Go on #endless")
        await context.flush()
        while context._inbox.statistics().current_buffer_used < QUEUE:
            await anyio.sleep(0.01)
        with anyio.fail_after(5):
            told = await context.interrupt()
        assert told.text_spoken + told.text_remaining == "Go on #endless"
        await context.cancel()
        assert [frame async for frame in context] == []


async def test_a_file_s_speech_is_not_held_back(server: Running) -> None:
    async with DuplexClient(server.url) as client:
        speech = client.speak("One two.", max_lead_ms=None)
        await frames_of_speech(speech)
        assert speech.opened is not None and speech.opened.max_lead_ms is None


async def test_what_is_done_and_read_but_still_playing_can_be_interrupted(server: Running) -> None:
    async with DuplexClient(server.url) as client:
        context = await client.open_context()
        await context.append("One two three.")
        await context.end()
        assert len([frame async for frame in context]) == 3
        with anyio.fail_after(5):
            told = await context.interrupt(played_ms=90)
            assert (told.text_spoken, told.text_remaining) == ("One", " two three.")
            for number in range(16):  # the server forgets who is done for long
                await frames_of_speech(client.speak(f"Number {number}"))
            with pytest.raises(ServerError, match="no such context") as refused:
                await context.interrupt()
        assert refused.value.code == "unknown_context"


async def test_any_number_of_old_frames_may_be_before_the_answer(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omni_speak.streams.client.QUEUE", 4)
    async with DuplexClient(server.url) as client:
        context = await client.open_context(max_lead_ms=None)
        await context.append("Go on #endless")
        await context.flush()
        with anyio.fail_after(20):
            while server.engine.frames < 80:  # most of them in the buffers on the way
                await anyio.sleep(0.01)
            await context.interrupt()
        await context.cancel()
        assert [frame async for frame in context] == []


class FakePlayer:
    """Has played what it was given, when told to."""

    playhead = 0


async def test_a_player_s_playhead_is_told_by_itself(server: Running) -> None:
    player = FakePlayer()
    async with DuplexClient(server.url) as client:
        context = await client.open_context(player=player)
        await context.append("Go on and on #endless")
        await context.flush()
        frames = aiter(context)
        for playhead in (SAMPLES, 4 * SAMPLES + 960):
            player.playhead = playhead
            with anyio.fail_after(5):
                while server.engine.heard != playhead:
                    await anext(frames)
        for _ in range(4):
            frame = await anext(frames)
        player.playhead = frame.pts + 240
        told = await context.interrupt()
        assert (told.heard_by, told.heard_ms) == ("offset", player.playhead / 24)
        # What comes next is counted from there on, and so are its acks.
        await context.append("Yes #endless")
        await context.flush()
        frame = await anext(frames)
        player.playhead = frame.pts + SAMPLES
        with anyio.fail_after(5):
            while server.engine.heard != SAMPLES:
                await anext(frames)


async def test_acks_go_on_after_a_break(server: Running) -> None:
    player = FakePlayer()
    async with Cable.to(server.url) as cable, DuplexClient(cable.url) as client:
        context = await client.open_context(player=player)
        await context.append("Go on #endless")
        await context.flush()
        frames = aiter(context)
        for plugs in (1, 2):
            await anext(frames)
            player.playhead += SAMPLES
            with anyio.fail_after(5):
                while server.engine.heard != player.playhead:
                    await anext(frames)
            assert cable.plugs == plugs
            cable.cut()


async def test_an_interrupt_during_a_break_is_answered_after_it(server: Running) -> None:
    async with Cable.to(server.url) as cable, DuplexClient(cable.url) as client:
        context = await client.open_context()
        await context.append(TEXT + " #endless")
        await context.end()
        frames = aiter(context)
        for _ in range(9):
            await anext(frames)
        cable.cut()
        with anyio.fail_after(10):
            told = await context.interrupt(played_ms=279.9)
            assert told.text_spoken == "  Hello there,  dear"
            await context.append("Yes?")
            await context.end()
            assert [frame.epoch async for frame in frames] == [1]
        assert cable.plugs == 2


async def test_cancelled_in_the_middle_of_speech_of_a_break_and_of_an_interrupt(
    server: Running,
) -> None:
    async with Cable.to(server.url) as cable, DuplexClient(cable.url) as client:
        context = await client.open_context()
        await context.append("Go on #endless")
        await context.flush()
        with anyio.CancelScope() as scope:
            async for _ in context:
                scope.cancel()
        assert scope.cancelled_caught
        await idle(server.engine)

        another = await client.open_context()
        await another.append(TEXT + " #endless")
        await another.flush()
        frames = aiter(another)
        await anext(frames)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await another.interrupt()
        # It was not sent, or nobody waits for its answer: the next is right all the same.
        with anyio.fail_after(5):
            assert (await another.interrupt(played_ms=0)).text_spoken == ""
        await another.append("Yes?")
        await another.end()
        assert len([frame async for frame in frames]) == 1

    async with Cable.to(server.url) as cable:
        with anyio.CancelScope() as scope:
            async with DuplexClient(cable.url) as client:
                async for _ in client.speak("Go on #endless"):
                    cable.unplug()
                    scope.cancel()
        assert scope.cancelled_caught


async def test_a_session_that_cannot_be_resumed_is_an_error(server: Running) -> None:
    async with serving(limits=Limits(resume_s=0.3)) as server:
        async with Cable.to(server.url) as cable, DuplexClient(cable.url) as client:
            speech = client.speak("Go on #endless")
            frames = aiter(speech)
            await anext(frames)
            cable.unplug()
            with pytest.raises(ConnectionLost, match="broke"):
                await exhaust(frames)
            with pytest.raises(ConnectionLost, match="broke"):
                await client.open_context()
        await idle(server.engine)


async def test_the_end_of_the_session_reaches_every_context_with_its_reason(
    server: Running,
) -> None:
    async with DuplexClient(server.url) as client:
        unread = await client.open_context()
        other = client.speak("Go on #endless")
        frames = aiter(other)
        await anext(frames)
        with pytest.raises(EngineDead):
            await frames_of_speech(client.speak("Now it dies #die"))
        with pytest.raises(EngineDead):
            await exhaust(frames)
        with pytest.raises(EngineDead):
            await exhaust(unread.events())
        with pytest.raises(EngineDead):
            await unread.interrupt()


async def test_a_closed_client_leaves_nobody_waiting(server: Running) -> None:
    async with anyio.create_task_group() as tasks, DuplexClient(server.url) as client:
        context = await client.open_context()
        await context.append("One two.")
        await context.flush()
        frames = aiter(context)
        for _ in range(2):
            await anext(frames)

        async def wait() -> None:
            with pytest.raises(ConnectionLost, match="was closed"):
                await exhaust(frames)

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()


async def test_acks_reach_the_engine(server: Running) -> None:
    async with DuplexClient(server.url) as client:
        context = await client.open_context()
        await context.append("Go on #endless")
        await context.flush()
        frames = context.__aiter__()
        frame = await anext(frames)
        await context.played(frame.pts + len(frame.pcm))
        async for _ in frames:
            if server.engine.heard:
                break
    assert server.engine.heard == SAMPLES


async def test_codes_in_place_of_samples(server: Running) -> None:
    async with DuplexClient(server.url, codes=True) as client:
        context = await client.open_context(seed=3)
        await context.append("One two three.")
        await context.end()
        frames = [event async for event in context.events() if isinstance(event, CodesFrame)]
    request = SpeechRequest(text="One two three.", voice="Ada", seed=3)
    expected = np.stack([frame_of(request, i).codes for i in range(3)])
    assert np.array_equal(np.concatenate([f.codes for f in frames]), expected)
    assert [f.key for f in frames] == [True, False, False]


@pytest.mark.parametrize("after", [2_000, 5_000, 20_000, 100_000, 300_000, 385_000])
async def test_a_connection_that_breaks_costs_nothing(server: Running, after: int) -> None:
    text = "Say it all #frames=100"
    async with Cable.to(server.url) as cable, DuplexClient(cable.url) as client:
        cable.bytes_left = after
        speech = client.speak(text, seed=7)
        frames = await frames_of_speech(speech)
    assert cable.plugs == 2
    assert b"".join(f.pcm.tobytes() for f in frames) == expected_pcm(text, 7, 100)
    assert speech.result is not None and speech.result.complete
    assert len(client._sent) == client._sent_count


async def test_text_sent_while_the_connection_breaks_arrives_once(server: Running) -> None:
    words = [f"word{i}" for i in range(60)]
    async with Cable.to(server.url) as cable, DuplexClient(cable.url) as client:
        context = await client.open_context()
        heard: list[str] = []

        async def write() -> None:
            for i, word in enumerate(words):
                if i % 20 == 10:
                    cable.cut()
                await context.append(word + " ")
                await anyio.lowlevel.checkpoint()
            await context.end()

        async with anyio.create_task_group() as writing:
            writing.start_soon(write)
            async for event in context.events():
                if isinstance(event, Marks):
                    heard += [word.text for word in event.words]
    assert cable.plugs > 1
    assert heard == words


async def test_text_sent_as_the_client_learns_of_the_break_waits_for_the_next_connection(
    server: Running,
) -> None:
    async with DuplexClient(server.url) as client:
        context = await client.open_context()
        client._socket.transport.abort()
        for _ in range(20):
            await context.append("word ")
        await context.end()
        assert len([frame async for frame in context]) == 20


async def test_a_token_in_the_address_is_not_told() -> None:
    with pytest.raises(ConnectionLost) as lost:
        async with DuplexClient("ws://127.0.0.1:1/v1/duplex?token=correct-horse-battery"):
            pass
    assert "127.0.0.1:1" in str(lost.value)
    assert "horse" not in str(lost.value)


async def test_nobody_there() -> None:
    for url in ("127.0.0.1:1", "unix:/nonexistent.sock"):
        with pytest.raises(ConnectionLost, match="no connection"):
            async with DuplexClient(url):
                pass
    with pytest.raises(ValueError, match="host:port"):
        async with DuplexClient("ftp://x"):
            pass


async def test_a_server_that_goes_away_is_an_error_not_an_end(server: Running) -> None:
    async with DuplexClient(server.url) as client:
        speech = client.speak("#endless")
        frames = speech.__aiter__()
        await anext(frames)
        server.stop.set()
        with pytest.raises(ConnectionLost, match="shut down"):
            await exhaust(frames)
        assert speech.result is not None
        assert (speech.result.reason, speech.result.complete) == ("shutdown", False)
        with pytest.raises(ConnectionLost, match="1012"):
            await frames_of_speech(client.speak("Hello?"))


async def test_an_error_in_the_body_comes_out_as_it_is(server: Running) -> None:
    async def fail() -> None:
        async with DuplexClient(server.url) as client:
            async for frame in client.speak("#endless"):
                assert frame.tick / 0

    with pytest.raises(ZeroDivisionError):
        await fail()
    await idle(server.engine)


def test_the_client_needs_neither_torch_nor_vllm() -> None:
    check = (
        "import sys, omni_speak.streams.client, omni_speak.streams.server;"
        "assert not {'torch', 'vllm'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
