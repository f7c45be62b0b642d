"""Who may not come in, or finds the engine full, gets the error of the service's own package."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from omni_speak.streams.access import Policy, self_signed
from omni_speak.streams.messages import ContextOpen, SessionOpen
from tests.clients.conftest import Running, run_client
from tests.streams.conftest import serving

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

KEY, OTHER = "a-token-long-enough", "another-one-of-them"


@pytest.fixture
async def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """Over TLS, which one of the clients insists on."""
    certificate, key = self_signed(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    policy = Policy(tokens=(KEY, OTHER), streams=2)
    async with serving(policy=policy, tls=(certificate, key)) as server:
        yield server


async def errors(server: Running, key: str, text: str = "Hello.") -> dict[str, Any]:
    return await run_client("sdk", "refusals.py", server, key, text)


async def test_a_wrong_key(guarded: Running) -> None:
    assert await errors(guarded, "not-one-of-the-tokens") == {
        "openai": ["AuthenticationError", 401, "unauthorized"],
        "elevenlabs": ["ApiError", 401, "unauthorized"],
        "elevenlabs websocket": ["InvalidStatus", 401, "unauthorized"],
        "cartesia": ["AuthenticationError", 401, "unauthorized"],
        "cartesia websocket": ["InvalidStatus", 401, "unauthorized"],
        "deepgram": ["ApiError", 401, "UNAUTHORIZED"],
        # Its own check looks for an older class of this error.
        "deepgram websocket": ["InvalidStatus", 401, "UNAUTHORIZED"],
        "deepgram websocket 2": ["InvalidStatus", 401, "UNAUTHORIZED"],
    }


async def test_too_many_streams(guarded: Running) -> None:
    code = "limit_reached"
    url = guarded.websocket_url.replace("https:", "wss:")
    async with connect(f"{url}?token={KEY}") as socket:
        for message in (SessionOpen(), ContextOpen(context="a"), ContextOpen(context="b")):
            await socket.send(message.model_dump_json())
            await socket.recv()
        told = await errors(guarded, KEY)
    assert {error[1] for error in told.values()} <= {429, 1013}
    assert told["openai"] == ["RateLimitError", 429, code]
    assert told["elevenlabs"] == ["ApiError", 429, code]
    assert told["cartesia"] == ["RateLimitError", 429, code]
    assert told["cartesia websocket"] == ["error", 429, code]
    assert told["deepgram"] == ["ApiError", 429, code.upper()]


async def test_a_full_engine(guarded: Running) -> None:
    assert await errors(guarded, KEY, "Too #crowd many") == {
        "openai": ["InternalServerError", 503, "overloaded"],
        "elevenlabs": ["ApiError", 503, "overloaded"],
        "elevenlabs websocket": ["ApiError", 1013, "overloaded"],
        "cartesia": ["InternalServerError", 503, "overloaded"],
        "cartesia websocket": ["error", 503, "overloaded"],
        "deepgram": ["ApiError", 503, "OVERLOADED"],
        "deepgram websocket": ["ConnectionClosedError", 1013, "the engine is full"],
        "deepgram websocket 2": ["ConnectionClosedError", 1013, "the engine is full"],
    }
