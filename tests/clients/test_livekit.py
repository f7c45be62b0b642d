"""livekit's published plugins, unmodified."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from omni_speak.streams.access import Policy
from tests.clients.conftest import Running, run_client
from tests.streams.conftest import native_audio, serving
from tests.streams.fake_engine import SAMPLES, FakeEngine

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

TEXTS = ["Hello there my friend.", "Another one speaks meanwhile."] * 2


async def test_cartesia_tells_every_word(server: Running) -> None:
    heard = await run_client("livekit", "livekit_stream.py", server, "cartesia", "Ada")
    assert [said["bytes"] for said in heard["said"]] == [2 * 4 * SAMPLES] * 4
    assert [said["words"] for said in heard["said"]] == [text.split() for text in TEXTS]
    assert heard["after"] == {"bytes": 2 * 2 * SAMPLES, "words": ["Yes,", "what?"]}
    assert not server.engine.running


async def test_deepgram_speaks_every_turn(server: Running) -> None:
    heard = await run_client("livekit", "livekit_stream.py", server, "deepgram", "Ada")
    assert [said["bytes"] for said in heard["said"]] == [2 * 4 * SAMPLES] * 4
    assert heard["after"] == {"bytes": 2 * 2 * SAMPLES, "words": []}
    assert not server.engine.running


async def test_openai_speaks_whole_texts_and_is_interrupted(server: Running) -> None:
    heard = await run_client("livekit", "livekit_openai.py", server)
    assert heard["pcm"] == heard["after"] == 2 * 4 * SAMPLES
    assert heard["mp3"] >= heard["pcm"]  # the encoder adds silence at both ends
    assert heard["refused"] == 404
    assert not server.engine.running


KEY = "a-token-long-enough"
UNKNOWN_VOICE = {
    "openai": ["APIStatusError", 404],
    "elevenlabs": ["APIStatusError", 1008],
    "cartesia": ["APIError", None],  # it reads no status
    "deepgram": ["APIStatusError", 400],
}


@pytest.mark.parametrize("plugin", UNKNOWN_VOICE)
async def test_slow_text_and_what_is_wrong(server: Running, plugin: str) -> None:
    engine = FakeEngine(patience_s=0.0)  # a place is given back as soon as text is late
    async with serving(engine, policy=Policy(tokens=(KEY,))) as guarded:
        told = await run_client("livekit", "livekit_rows.py", guarded, plugin, "Ada", KEY)
        with anyio.fail_after(10):  # it vanished while it was spoken to
            while engine.running:
                await anyio.lowlevel.checkpoint()

    async def expected(text: str) -> dict[str, Any]:
        asked = [each for each in engine.asked if each.text.startswith(text.split()[0])][-1]
        audio = await native_audio(server, replace(asked, text=text))
        words = text.split() if plugin in ("elevenlabs", "cartesia") else []
        return {"sha": hashlib.sha256(audio).hexdigest(), "words": words}

    slow = "One two three four five six. Seven eight nine ten eleven. Twelve."
    assert told["slow"] == await expected(slow)
    assert told["next"] == await expected("Next, please.")
    assert told["voice"] == UNKNOWN_VOICE[plugin]
    assert told["key"] == ["APIStatusError", 401]
