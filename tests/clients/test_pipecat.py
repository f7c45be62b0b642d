"""pipecat's published services, unmodified, each in a pipeline of its own."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Running, run_client
from tests.streams.fake_engine import SAMPLES

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

TEXTS = {
    "spoken": ["Hello there my friend."],
    "turn": ["Good day to you.", "Another one speaks."],
    "after": ["Yes, what?"],
}


@pytest.mark.parametrize("service", ["elevenlabs", "elevenlabs-http", "cartesia"])
async def test_every_word_is_told_and_an_interruption_ends_it(
    server: Running, service: str
) -> None:
    heard = await run_client("pipecat", "pipecat_speak.py", server, service, "Ada")
    assert heard.pop("errors") == []
    for said, texts in TEXTS.items():
        words = " ".join(texts).split()
        size = 2 * SAMPLES * len(words)
        told = {"bytes": size, "words": words, "timed": len(words), "in_order": True}
        assert heard[said] == told
    assert not server.engine.running


@pytest.mark.parametrize(
    ("service", "voice"), [("openai", "alloy"), ("deepgram", "Ada"), ("deepgram-http", "Ada")]
)
async def test_every_text_is_heard_and_an_interruption_ends_it(
    server: Running, service: str, voice: str
) -> None:
    heard = await run_client("pipecat", "pipecat_speak.py", server, service, voice)
    assert heard.pop("errors") == []
    for said, texts in TEXTS.items():
        size = 2 * SAMPLES * len(" ".join(texts).split())
        assert heard[said]["words"] == texts
        # Of Deepgram's websocket, pipecat takes what was under way when it cleared as the next.
        cleared = said == "after" and service == "deepgram"
        assert heard[said]["bytes"] >= size if cleared else heard[said]["bytes"] == size
    assert not server.engine.running
