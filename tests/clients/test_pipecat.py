"""pipecat's published services, unmodified."""

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
TIMED = ("elevenlabs", "elevenlabs-http", "cartesia")
UNTIMED = ("openai", "deepgram", "deepgram-http")


async def test_every_service_speaks_tells_its_words_and_is_interrupted(server: Running) -> None:
    heard = await run_client("pipecat", "pipecat_speak.py", server, "Ada")
    assert set(heard) == {*TIMED, *UNTIMED}
    for service, told in heard.items():
        assert told["errors"] == [], service
        for said, texts in TEXTS.items():
            words = " ".join(texts).split()
            size = 2 * SAMPLES * len(words)
            if (service, said) == ("deepgram", "after"):
                # pipecat takes what was under way when it cleared for the next text's.
                assert told[said].pop("bytes") >= size
            else:
                assert told[said].pop("bytes") == size, (service, said)
            timed = service in TIMED
            assert told[said] == {
                "words": words if timed else texts,
                "timed": len(words) if timed else 0,
                "in_order": True,
            }, (service, said)
    assert not server.engine.running
