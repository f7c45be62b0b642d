"""Published clients that speak ElevenLabs' protocols."""

from __future__ import annotations

from pathlib import Path

import pytest

from omni_speak.streams.access import self_signed
from tests.clients.conftest import Running, run_client
from tests.streams.conftest import serving
from tests.streams.fake_engine import SAMPLES

pytestmark = [pytest.mark.anyio, pytest.mark.clients]


async def test_livekit_speaks_in_two_contexts_at_once(server: Running) -> None:
    heard = await run_client("livekit", "livekit_stream.py", server, "elevenlabs", "Ada")
    # Two texts one after the other, then the same two at once.
    assert [said["bytes"] for said in heard["said"]] == [2 * 4 * SAMPLES] * 4
    texts = ["Hello there my friend.", "Another one speaks meanwhile."] * 2
    assert [said["words"] for said in heard["said"]] == [text.split() for text in texts]
    assert not server.engine.running


async def test_the_sdk_streams_text_over_tls(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path, "localhost")
    async with serving(tls=(certificate, key)) as server:
        trusted = {"SSL_CERT_FILE": str(certificate)}
        heard = await run_client("sdk", "elevenlabs_sdk.py", server, **trusted)
    assert heard == {"bytes": 2 * 4 * SAMPLES}
