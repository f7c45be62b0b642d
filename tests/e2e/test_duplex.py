"""The real server, the real engine, the embedded voice: text in, frames out."""

from __future__ import annotations

import re
from itertools import pairwise

import anyio
import httpx
import numpy as np
import pytest

from omni_speak.models.wren.decoder import Decoder
from omni_speak.runtime.errors import UnknownVoice
from omni_speak.streams.audio import to_s16le
from omni_speak.streams.client import AudioFrame, CodesFrame, DuplexClient
from omni_speak.streams.messages import FramesPerMessage, Marks

pytestmark = pytest.mark.anyio

SENTENCE = "Hello! I am speaking to you, one frame at a time."


async def test_speech_arrives_frame_by_frame(server_url: str) -> None:
    async with DuplexClient(server_url) as client:
        info = client.info
        speech = client.speak(SENTENCE, seed=1)
        frames = [frame async for frame in speech]
    assert speech.result is not None
    assert (speech.result.reason, speech.result.segments) == ("stop", 2)
    assert [f.tick for f in frames] == list(range(len(frames)))
    assert {len(f.pcm) for f in frames} == {info.samples_per_frame}
    seconds = sum(len(f.pcm) for f in frames) / info.sample_rate
    assert 1.0 < seconds < 8.0
    assert np.abs(np.concatenate([f.pcm for f in frames]).astype(float)).max() > 1000


async def test_text_in_pieces_is_the_same_speech(server_url: str) -> None:
    async def pcm(frames: list[AudioFrame]) -> bytes:
        return b"".join(f.pcm.tobytes() for f in frames)

    async with DuplexClient(server_url) as client:
        whole = [frame async for frame in client.speak(SENTENCE, seed=1)]
        context = await client.open_context(seed=1)
        for character in SENTENCE:
            await context.append(character)
        await context.end()
        pieces = [frame async for frame in context]
    assert await pcm(pieces) == await pcm(whole)


async def test_http_is_the_same_speech(server_url: str) -> None:
    async with DuplexClient(server_url) as client:
        whole = [frame async for frame in client.speak(SENTENCE, seed=1)]
    body = {"input": SENTENCE, "seed": 1, "response_format": "pcm"}
    async with httpx.AsyncClient(base_url=server_url, trust_env=False, timeout=60) as http:
        response = await http.post("/v1/audio/speech", json=body)
    assert response.content == b"".join(f.pcm.tobytes() for f in whole)


async def test_leaving_early_and_bad_input_leave_it_usable(server_url: str) -> None:
    async with DuplexClient(server_url) as client:
        async for _ in client.speak(SENTENCE):
            break
        with pytest.raises(UnknownVoice):
            [frame async for frame in client.speak(SENTENCE, voice="nobody")]
        nothing = client.speak("?!...")
        assert [frame async for frame in nothing] == []
        assert [frame async for frame in client.speak("Still here.")]


async def test_words_are_marked_before_they_are_over_and_cite_the_text(server_url: str) -> None:
    text = "Dr. Ng paid $6.25 at 8 a.m. for tea.  Then she left."
    async with DuplexClient(server_url) as client:
        context = await client.open_context(seed=1)
        await context.append(text)
        await context.end()
        words, samples = [], 0
        async for event in context.events():
            if isinstance(event, Marks):
                words += event.words
                assert all(w.end_ms > samples * 1000 / client.info.sample_rate for w in event.words)
            elif isinstance(event, AudioFrame):
                samples += len(event.pcm)
    written = "Dr. Ng paid $6.25 at 8_a.m. for tea. Then she left.".split()  # "8 a.m." is one
    assert [w.text.strip(".") for w in words] == [w.strip(".").replace("_", " ") for w in written]
    assert all(text[w.start_char : w.end_char] == w.text for w in words)
    times = [t for w in words for t in (w.start_ms, w.end_ms)]
    assert times == sorted(times)


async def test_words_follow_each_other_and_only_a_written_pause_parts_them(
    server_url: str,
) -> None:
    text = "Then she left: alone, and quite (so they say) happy. Well, who would not be?"
    async with DuplexClient(server_url) as client:
        context = await client.open_context(seed=1)
        await context.append(text)
        await context.end()
        words, frames = [], []
        async for event in context.events():
            if isinstance(event, Marks):
                words += event.words
            elif isinstance(event, AudioFrame):
                frames.append(event.pcm.astype(float))
        frame_ms, rate = 1000 / client.info.frame_rate, client.info.sample_rate
    pcm = np.concatenate(frames)
    assert [w.text for w in words] == re.findall(r"\w+", text)

    def loudness(start_ms: float, end_ms: float) -> float:
        span = pcm[round(start_ms * rate / 1000) : round(end_ms * rate / 1000)]
        return float(np.sqrt(np.mean(span**2)))

    spoken = loudness(words[0].start_ms, words[-1].end_ms)
    assert words[0].start_ms <= frame_ms
    for word, following in pairwise(words):
        gap = following.start_ms - word.end_ms
        assert gap >= 0
        if text[word.end_char : following.start_char].isspace():
            assert gap <= 1.5 * frame_ms, following
        else:
            assert gap >= 1.5 * frame_ms, following
            assert loudness(word.end_ms, following.start_ms) < spoken / 4, following
    assert len(pcm) * 1000 / rate - words[-1].end_ms <= 2 * frame_ms


async def test_an_interrupt_splits_the_text_and_speech_goes_on(server_url: str) -> None:
    async with DuplexClient(server_url) as client:
        context = await client.open_context(seed=1)
        await context.append(SENTENCE)
        await context.end()
        frames = context.__aiter__()
        while (await anext(frames)).tick < 12:
            pass
        told = await context.interrupt(played_ms=900)
        assert (told.heard_ms, told.heard_by) == (900, "offset")
        assert told.text_spoken + told.text_remaining == SENTENCE
        assert told.text_spoken.startswith("Hello")
        assert told.text_remaining.endswith("one frame at a time.")
        await context.append("Yes, of course.")
        await context.end()
        assert {frame.epoch async for frame in frames} == {1}


async def test_codes_decoded_here_are_the_samples_the_server_sends(server_url: str) -> None:
    async with DuplexClient(server_url) as client:
        samples = np.concatenate([f.pcm async for f in client.speak(SENTENCE, seed=1)])
    decoder, decoded = Decoder(), []
    async with DuplexClient(server_url, codes=True) as client:
        context = await client.open_context(seed=1)
        await context.append(SENTENCE)
        await context.end()
        async for event in context.events():
            if isinstance(event, CodesFrame):
                decoded.append(decoder.feed(event.codes, key=event.key))
    assert to_s16le(np.concatenate(decoded)) == samples.tobytes()


async def test_codes_of_many_contexts_and_epochs_are_the_samples_too(server_url: str) -> None:
    async def sound(codes: bool) -> dict[tuple[int, int], bytes]:
        """By seed and epoch: a context that is interrupted before its speech begins and goes on,
        with starved silence between its sentences, beside another."""
        heard: dict[tuple[int, int], bytes] = {}

        async def one(seed: int) -> None:
            decoder = Decoder()
            context = await client.open_context(seed=seed, starve_timeout_ms=100)
            await context.interrupt()
            await context.append("One sentence. ")
            await context.flush()
            async for event in context.events():
                key = (seed, context.epoch)
                match event:
                    case AudioFrame():
                        heard[key] = heard.get(key, b"") + event.pcm.tobytes()
                    case CodesFrame():
                        pcm = to_s16le(decoder.feed(event.codes, key=event.key))
                        heard[key] = heard.get(key, b"") + pcm
                    case Marks() if event.words[-1].text.startswith("sentence"):
                        await anyio.sleep(1.0)  # it starves, and another request goes on
                        await context.append("And one more.")
                        await context.end()

        async with (
            DuplexClient(server_url, codes=codes) as client,
            anyio.create_task_group() as tasks,
        ):
            for seed in (1, 2):
                tasks.start_soon(one, seed)
        return heard

    samples, decoded = await sound(codes=False), await sound(codes=True)
    assert samples.keys() == decoded.keys() == {(1, 1), (2, 1)}
    for key, expected in samples.items():
        pcm = np.frombuffer(expected, "<i2").astype(int)
        assert len(decoded[key]) == len(expected)
        # Batched arithmetic may round the last bit of a sample the other way.
        np.testing.assert_allclose(np.frombuffer(decoded[key], "<i2"), pcm, atol=2, rtol=0)


async def test_markup_is_read_out_only_where_text_is_not_normalised(server_url: str) -> None:
    said: dict[bool, list[str]] = {}
    async with DuplexClient(server_url) as client:
        for normalise in (True, False):
            context = await client.open_context(seed=1, normalise=normalise, max_lead_ms=None)
            await context.append("*One* is here. And #2 follows.")
            await context.end()
            words = [e.words async for e in context.events() if isinstance(e, Marks)]
            said[normalise] = [word.text for batch in words for word in batch]
    assert said[True] == ["One", "is", "here", "And", "#", "2", "follows"]
    assert said[False] == ["*", "One", "*", "is", "here", "And", "#", "2", "follows"]


async def test_D02_every_message_size_is_the_same_sound(server_url: str) -> None:
    sizes: dict[FramesPerMessage, list[int]] = {}
    sounds: dict[FramesPerMessage, bytes] = {}
    for size in (1, 3, 8, "auto"):
        async with DuplexClient(server_url) as client:
            options = {"frames_per_message": size, "max_lead_ms": None}
            messages = [f.pcm async for f in client.speak(SENTENCE * 2, seed=1, **options)]
        sizes[size] = [len(pcm) for pcm in messages]
        sounds[size] = np.concatenate(messages).tobytes()
    assert set(sounds.values()) == {sounds[1]}
    assert len(sizes[1]) > len(sizes[3]) > len(sizes[8])
    assert sizes["auto"][0] < max(sizes["auto"])


@pytest.mark.parametrize("frames_per_message", [8, "auto"])
async def test_what_was_flushed_is_heard_whole_before_more_text_comes(
    server_url: str, frames_per_message: FramesPerMessage
) -> None:
    texts = ["I am here, and so are you. ", "Now we may go on."]
    heard: list[str] = []
    async with DuplexClient(server_url) as client:
        context = await client.open_context(seed=1, frames_per_message=frames_per_message)
        await context.append(texts[0])
        await context.flush()
        with anyio.fail_after(20):
            async for event in context.events():
                if isinstance(event, Marks):
                    heard += [word.text for word in event.words]
                    if event.words[-1].end_char == len("I am here, and so are you"):
                        await context.append(texts[1])
                        await context.end()
    assert heard == "I am here and so are you Now we may go on".split()
