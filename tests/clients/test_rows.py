"""What must hold for every service's own package alike: what tests/streams/dialects/test_matrix has
for small clients of ours, over TLS, which one of the packages insists on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from omni_speak.streams.access import self_signed
from tests.clients.conftest import Running, run_client
from tests.streams.conftest import native_audio, serving
from tests.streams.fake_engine import SAMPLES, FakeEngine

pytestmark = [pytest.mark.anyio, pytest.mark.clients]


@dataclass(frozen=True)
class Package:
    """`voice` and `malformed`: what it raises for a voice that is not there, and for a field that
    is misspelt or whatever else can be wrong in its hands. `timed`: it is told of words."""

    client: str
    voice: list[Any]
    malformed: list[Any]
    timed: bool = False
    in_pieces: bool = False


VOICE, FIELD, QUERY = "unknown_voice", "invalid_request", "INVALID_REQUEST"
API_VOICE, API_FIELD = ["ApiError", 404, VOICE], ["ApiError", 400, FIELD]
NOT_FOUND, BAD_REQUEST = ["NotFoundError", 404, VOICE], ["BadRequestError", 400, FIELD]
BAD_QUERY, DENIED = ["BadRequestError", 400, QUERY], ["InvalidStatus", 400, QUERY]
WARNING = ["Warning", 2 * SAMPLES, "INVALID_MESSAGE"]
PACKAGES = [
    Package("openai", NOT_FOUND, BAD_REQUEST),
    Package("openai-sse", NOT_FOUND, BAD_REQUEST),
    Package("elevenlabs-http", API_VOICE, API_FIELD),
    Package("elevenlabs-http-timed", API_VOICE, API_FIELD, timed=True),
    Package("elevenlabs", ["ApiError", 1008, VOICE], ["InvalidStatus", 400, FIELD], in_pieces=True),
    Package("cartesia-bytes", NOT_FOUND, BAD_REQUEST),
    Package("cartesia-sse", NOT_FOUND, BAD_REQUEST, timed=True),
    Package("cartesia", ["error", 404, VOICE], ["error", 400, "invalid_message"], True, True),
    Package("deepgram-http", BAD_QUERY, BAD_QUERY),
    Package("deepgram-http-2", BAD_QUERY, BAD_QUERY),
    Package("deepgram", DENIED, WARNING, in_pieces=True),
    Package("deepgram-2", DENIED, WARNING, in_pieces=True),
]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.client)
async def test_every_row(server: Running, tmp_path: Path, package: Package) -> None:
    certificate, key = self_signed(tmp_path, "localhost")
    engine = FakeEngine(patience_s=0.0)  # a place is given back as soon as text is late
    async with serving(engine, tls=(certificate, key)) as secure:
        trusted = {"SSL_CERT_FILE": str(certificate)}
        told = await run_client("sdk", "rows.py", secure, package.client, "Ada", **trusted)
        with anyio.fail_after(10):  # it vanished while it was spoken to
            while engine.running:
                await anyio.lowlevel.checkpoint()

    async def expected(text: str) -> dict[str, Any]:
        """What our own protocol says, asked for the same."""
        first = text.split()[0]
        asked = [each for each in engine.asked if each.text.startswith(first)][-1]
        audio = await native_audio(server, replace(asked, text=text))
        words = text.split() if package.timed else []
        return {"sha": hashlib.sha256(audio).hexdigest(), "words": words}

    assert told["happy"] == await expected("Hello there, my friend. Good day!")
    assert told["barge-in"] == await expected("After that.")
    assert told["voice"] == package.voice
    assert told["malformed"] == package.malformed
    assert told["next"] == await expected("Next, please.")
    assert ("slow" in told) == package.in_pieces
    if package.in_pieces:
        assert told["slow"] == await expected("One two. Three four. Five six.")
    for text, heard in zip(
        ("First two three.", "Second text."), told.get("overlapping", []), strict=False
    ):
        assert heard == await expected(text)
    assert ("overlapping" in told) == (package.client == "cartesia")
