"""The services' own published packages, unmodified."""

from __future__ import annotations

import hashlib

import anyio
import anyio.lowlevel
import pytest

from omni_speak.runtime.request import SpeechRequest
from omni_speak.streams.audio import WAV_HEADER_BYTES, wav_header
from tests.clients.conftest import Running, run_client
from tests.streams.conftest import native_audio, serving
from tests.streams.fake_engine import SAMPLES

pytestmark = [pytest.mark.anyio, pytest.mark.clients]


async def test_deepgram_hears_a_turn(server: Running) -> None:
    heard = await run_client("sdk", "deepgram_sdk.py", server)
    assert heard == {"bytes": 2 * 4 * SAMPLES, "told": ["Metadata", "Flushed"]}


async def test_cartesia_hears_a_context_and_its_words(server: Running) -> None:
    heard = await run_client("sdk", "cartesia_sdk.py", server)
    assert heard["bytes"] == 2 * 4 * SAMPLES
    assert heard["words"] == ["Hello", "there", "my", "friend."]


async def test_cartesia_hears_plain_calls_in_every_container(server: Running) -> None:
    text = "Hello there. Good day."
    async with serving() as mortal:
        heard = await run_client("sdk", "cartesia_http.py", mortal)
    for call in ("raw", "sse"):
        asked = SpeechRequest(text=text, voice="Ada", speed=1.5, seed=heard[call]["seed"])
        assert heard[call]["sha"] == hashlib.sha256(await native_audio(server, asked)).hexdigest()
    assert heard["words"] == text.split()
    assert (heard["last"], heard["context"]) == ("done", "c")
    header = bytes.fromhex(heard["wav"]["head"])[:WAV_HEADER_BYTES]
    assert header == wav_header(44_100, encoding="pcm_f32le")
    assert heard["mp3"]["head"].startswith("ff")
    assert heard["voice"] == [404, "unknown_voice"]
    assert heard["text"] == [400, "nothing_to_say"]
    assert heard["broken"] == ["chunk", "error"]
    assert heard["why"] == [503, "engine_dead", "c"]


async def test_deepgram_hears_the_plain_call_of_both_versions(server: Running) -> None:
    text = "Hello there. Good day."
    heard = await run_client("sdk", "deepgram_http.py", server)
    asked = SpeechRequest(text=text, voice="Ada", speed=1.5, seed=heard["pcm"]["seed"])
    assert heard["pcm"]["sha"] == hashlib.sha256(await native_audio(server, asked)).hexdigest()
    asked = SpeechRequest(text=text, voice="Ada", seed=heard["mulaw"]["seed"])
    mulaw = await native_audio(server, asked, "mulaw", 8000)
    assert heard["mulaw"]["sha"] == hashlib.sha256(mulaw).hexdigest()
    assert heard["wav"]["bytes"] == WAV_HEADER_BYTES + 2 * 4 * SAMPLES
    assert heard["mp3"]["type"] == "audio/mpeg"
    assert bytes.fromhex(heard["opus"]["head"]) == b"OggS"
    assert heard["voice"] == [400, "INVALID_REQUEST"]
    assert heard["text"] == [400, "NOTHING_TO_SAY"]


async def test_deepgram_version_2_tells_what_was_heard(server: Running) -> None:
    heard = await run_client("sdk", "deepgram_v2_sdk.py", server)
    turn = ["SpeechStarted", 2 * 4 * SAMPLES, "Flushed", "SpeechMetadata"]
    assert heard["told"] == ["Connected", *turn]
    assert heard["metadata"]["audio_duration_ms"] == 4 * 80
    assert heard["metadata"]["input_character_count"] == len("Hello there my friend.")
    assert (heard["applied"], heard["failure"]) == (1.5, "SPEED_OUT_OF_RANGE")
    interrupted = heard["interrupted"]
    assert interrupted["audio_played_ms"] == 200
    assert (interrupted["text_spoken"], interrupted["text_remaining"]) == (
        "Hello there my",
        " friend.",
    )
    assert interrupted["metadata"]["speech_id"] == heard["metadata"]["speech_id"]
    assert heard["total"]["total_audio_duration_ms"] == 200


async def test_every_format_is_heard_before_the_text_was_spoken(server: Running) -> None:
    early = await run_client("sdk", "early.py", server)
    assert len(early) == 15 + 9 + 14 and min(early.values()) > 0
    with anyio.fail_after(10):  # it left each of them
        while server.engine.running:
            await anyio.lowlevel.checkpoint()
