"""The published `openai` client."""

from __future__ import annotations

import hashlib
from base64 import b64decode

import pytest

from omni_speak.runtime.request import SpeechRequest
from omni_speak.streams.audio import to_s16le, wav_header
from tests.clients.conftest import Running, decoded, run_client
from tests.streams.fake_engine import frame_of

pytestmark = [pytest.mark.anyio, pytest.mark.clients]


TYPES = {
    "pcm": "audio/pcm; rate=24000; channels=1",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "aac": "audio/aac",
}


async def test_the_sdk_hears_every_format_and_both_streams(server: Running) -> None:
    heard = await run_client("sdk", "openai_sdk.py", server)
    files = {name: b64decode(heard[name]["data"]) for name in TYPES}
    assert {name: heard[name]["type"] for name in TYPES} == TYPES
    assert all(heard[name]["early"] > 0 for name in TYPES)  # of a text that has no end
    pcm = spoken()
    assert files["pcm"] == pcm and files["wav"] == wav_header(24_000) + pcm
    sha = hashlib.sha256(pcm).hexdigest()
    assert heard["streamed"] == heard["sse"] == sha
    assert heard["stream"] == heard["stream as audio"] == sha
    assert heard["fast"] == hashlib.sha256(spoken(speed=1.5)).hexdigest()
    usage = {"input_tokens": 22, "output_tokens": 4, "total_tokens": 26}
    assert heard["sse usage"] == heard["stream usage"] == usage
    assert decoded(files["flac"], 24_000).tobytes() == pcm
    for name, rate in (("mp3", 24_000), ("opus", 48_000), ("aac", 24_000)):
        # Opus always plays at 48 kHz; an encoder adds a few blocks of silence.
        seconds = len(decoded(files[name], rate)) / rate
        assert 4 * 0.08 <= seconds <= 4 * 0.08 + 0.15, name
    assert heard["models"] == ["fake"]


def spoken(speed: float = 1.0) -> bytes:
    return b"".join(
        to_s16le(frame_of(SpeechRequest(text=text, voice="Ada", seed=7, speed=speed), i).pcm)
        for text in ("Hello there.", "Good day.")
        for i in range(2)
    )


async def test_the_sdk_reads_our_errors(server: Running) -> None:
    heard = await run_client("sdk", "openai_sdk.py", server)
    assert heard["voice"] == [404, "unknown_voice"]
    assert heard["model"] == [404, "model_not_found"]
    assert heard["text"] == [400, "nothing_to_say"]
