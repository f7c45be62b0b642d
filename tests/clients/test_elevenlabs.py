"""Published clients that speak ElevenLabs' protocols."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from pathlib import Path

import pytest

from omni_speak.runtime.request import SpeechRequest
from omni_speak.streams.access import self_signed
from tests.clients.conftest import Running, decoded, run_client
from tests.streams.conftest import native_audio, serving
from tests.streams.fake_engine import SAMPLES

pytestmark = [pytest.mark.anyio, pytest.mark.clients]


FILES = {
    "mp3_44100_128": (44_100, 1152 / 44.1),
    "mp3_22050_32": (22_050, 576 / 22.05),
    "opus_48000_64": (48_000, 20),
}
"""Their sample rate, and how many milliseconds an encoder takes at once."""


async def test_livekit_speaks_in_two_contexts_at_once(server: Running) -> None:
    heard = await run_client("livekit", "livekit_stream.py", server, "elevenlabs", "Ada")
    # Two texts one after the other, then the same two at once.
    assert [said["bytes"] for said in heard["said"]] == [2 * 4 * SAMPLES] * 4
    texts = ["Hello there my friend.", "Another one speaks meanwhile."] * 2
    assert [said["words"] for said in heard["said"]] == [text.split() for text in texts]
    assert heard["after"] == {"bytes": 2 * 2 * SAMPLES, "words": ["Yes,", "what?"]}
    assert not server.engine.running


async def test_the_sdk_hears_plain_calls_with_and_without_timestamps(server: Running) -> None:
    text = "Hello there. Good day."
    heard = await run_client("sdk", "elevenlabs_http.py", server)
    pcm = await native_audio(server, SpeechRequest(text=text, voice="Ada", seed=7))
    sha = hashlib.sha256(pcm).hexdigest()
    for call in ("pcm_24000", "stream", "timed", "stream_timed"):
        assert heard[call]["sha"] == sha
    assert heard["timed"]["characters"] == heard["stream_timed"]["characters"] == text
    assert heard["chunks"] == 4 and heard["in_order"] and heard["end"] <= 4 * 0.08
    assert heard["mp3_44100_128"]["head"].startswith("ff")
    assert bytes.fromhex(heard["opus_48000_64"]["head"]) == b"OggS"
    assert bytes.fromhex(heard["wav_24000"]["head"]) == b"RIFF"
    assert heard["ulaw_8000"]["bytes"] == 4 * SAMPLES // 3
    assert heard["voice"] == [404, "unknown_voice"]
    assert heard["text"] == [400, "nothing_to_say"]


async def test_the_sdk_streams_text_over_tls_in_every_format(
    server: Running, tmp_path: Path
) -> None:
    certificate, key = self_signed(tmp_path, "localhost")
    async with serving(tls=(certificate, key)) as secure:
        trusted = {"SSL_CERT_FILE": str(certificate)}
        heard = await run_client(
            "sdk", "elevenlabs_sdk.py", secure, "Ada", "pcm_24000", "ulaw_8000", *FILES, **trusted
        )
    audio = {name: b64decode(data) for name, data in heard.items()}
    pcm, ulaw, *_ = (asked for asked in secure.engine.asked if asked.text.startswith("Hello"))
    assert audio["pcm_24000"] == await native_audio(server, pcm)
    assert audio["ulaw_8000"] == await native_audio(server, ulaw, "mulaw", 8000)
    for name, (rate, block_ms) in FILES.items():
        ms = 1000 * len(decoded(audio[name], rate)) / rate
        # An encoder looks ahead by a block or two, and fills the last one.
        assert 4 * 80 <= ms <= 4 * 80 + 3 * block_ms, name
