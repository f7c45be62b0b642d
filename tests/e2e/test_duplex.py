"""The real server, the real engine, the embedded voice: text in, frames out."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

from omni_speak.runtime.errors import UnknownVoice
from omni_speak.streams.client import AudioFrame, DuplexClient

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
