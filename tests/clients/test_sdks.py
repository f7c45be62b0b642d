"""The services' own published packages, unmodified."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Running, run_client
from tests.streams.fake_engine import SAMPLES

pytestmark = [pytest.mark.anyio, pytest.mark.clients]


async def test_deepgram_hears_a_turn(server: Running) -> None:
    heard = await run_client("sdk", "deepgram_sdk.py", server)
    assert heard == {"bytes": 2 * 4 * SAMPLES, "told": ["Metadata", "Flushed"]}


async def test_cartesia_hears_a_context_and_its_words(server: Running) -> None:
    heard = await run_client("sdk", "cartesia_sdk.py", server)
    assert heard["bytes"] == 2 * 4 * SAMPLES
    assert heard["words"] == ["Hello", "there", "my", "friend."]
