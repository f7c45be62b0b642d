"""livekit's published plugins, unmodified."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Running, run_client
from tests.streams.fake_engine import SAMPLES

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
