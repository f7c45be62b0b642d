"""The published `openai` client."""

from __future__ import annotations

import hashlib

import pytest

from omni_speak.runtime.request import SpeechRequest
from omni_speak.streams.audio import to_s16le
from tests.clients.conftest import Running, run_client
from tests.streams.fake_engine import frame_of

pytestmark = [pytest.mark.anyio, pytest.mark.clients]


async def test_the_sdk_hears_every_format_and_both_streams(server: Running) -> None:
    heard = await run_client("sdk", "openai_sdk.py", server)
    pcm = b"".join(
        to_s16le(frame_of(SpeechRequest(text=text, voice="Ada", seed=7), i).pcm)
        for text in ("Hello there.", "Good day.")
        for i in range(2)
    )
    sha = hashlib.sha256(pcm).hexdigest()
    assert heard["pcm"]["sha"] == heard["streamed"] == heard["sse"] == sha
    assert heard["stream"] == heard["stream as audio"] == sha
    usage = {"input_tokens": 22, "output_tokens": 4, "total_tokens": 26}
    assert heard["sse usage"] == heard["stream usage"] == usage
    heads = {name: bytes.fromhex(heard[name]["head"]) for name in ("wav", "opus", "flac")}
    assert heads == {"wav": b"RIFF", "opus": b"OggS", "flac": b"fLaC"}
    assert heard["mp3"]["head"].startswith("ff") and heard["aac"]["head"].startswith("fff")
    assert heard["mp3"]["type"] == "audio/mpeg"
    assert heard["models"] == ["fake"]


async def test_the_sdk_reads_our_errors(server: Running) -> None:
    heard = await run_client("sdk", "openai_sdk.py", server)
    assert heard["voice"] == [404, "unknown_voice"]
    assert heard["model"] == [404, "model_not_found"]
    assert heard["text"] == [400, "nothing_to_say"]
