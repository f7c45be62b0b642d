"""What a token may have spoken at once, and a minute: the arithmetic, and every door."""

from __future__ import annotations

import json
from typing import Any

import anyio
import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect

from omni_speak.runtime.errors import LimitReached
from omni_speak.streams.access import Policy
from omni_speak.streams.allowance import Allowance, TokenBucket
from omni_speak.streams.client import DuplexClient
from omni_speak.streams.messages import Limits
from tests.streams.conftest import Running, serving
from tests.streams.test_session import OPEN, speech, tell

pytestmark = pytest.mark.anyio

TOKEN, OTHER = "correct-horse-battery", "staple-and-much-more"
ENDLESS = {"input": "Go on #endless", "response_format": "pcm"}


def test_a_bucket_gives_all_or_nothing_and_fills_with_time() -> None:
    now = [0.0]
    bucket = TokenBucket(rate=10, size=20, clock=lambda: now[0])
    assert bucket.take(15) == 0
    assert bucket.take(15) == 1.0
    assert bucket.take(5) == 0
    now[0] = 1.5
    assert bucket.take(15) == 0
    now[0] = 100.0
    assert bucket.take(20) == 0


def test_more_than_a_bucket_holds_is_had_once_it_is_full_and_is_owed_then() -> None:
    now = [0.0]
    bucket = TokenBucket(rate=10, size=20, clock=lambda: now[0])
    assert bucket.take(50) == 0
    assert bucket.take(1) == 3.1
    now[0] = 3.0
    assert bucket.take(50) == 2.0
    now[0] = 5.0
    assert bucket.take(50) == 0


def test_what_is_refused_does_not_count() -> None:
    allowance = Allowance(streams=1, text_rate=600, clock=lambda: 0.0)
    allowance.take_text(590)
    for _ in range(3):
        with pytest.raises(LimitReached, match="600 characters a minute") as refused:
            allowance.take_text(20)
        assert (refused.value.retry_after, refused.value.param) == (1.0, "text")
    with allowance.stream():
        for _ in range(3):
            with pytest.raises(LimitReached, match="1 streams"):
                allowance.open_stream()
    with allowance.stream():
        pass


# Over real sockets


def headers(token: str = TOKEN) -> dict[str, str]:
    return {"x-api-key": token}


def duplex(server: Running, token: str = TOKEN) -> connect:
    return connect(server.websocket_url, additional_headers=headers(token), proxy=None)


async def event(socket: ClientConnection, kind: str) -> dict[str, Any]:
    """The next of that kind."""
    with anyio.fail_after(5):
        async for data in socket:
            if isinstance(data, str) and json.loads(data)["type"] == kind:
                return dict(json.loads(data))
    raise AssertionError(f"no {kind} came")


async def speak(server: Running, text: str, token: str = TOKEN) -> httpx.Response:
    async with server.http() as http:
        return await http.post("/v1/audio/speech", json={"input": text}, headers=headers(token))


async def test_limits_are_declared_to_who_has_a_token() -> None:
    policy = Policy(tokens=(TOKEN,), streams=3, text_rate=600)
    async with serving(policy=policy) as server, duplex(server) as socket:
        await tell(socket, OPEN)
        limits = (await event(socket, "session.opened"))["limits"]
        assert (limits["streams"], limits["text_rate"]) == (3, 600)
    async with serving() as server, connect(server.websocket_url, proxy=None) as socket:
        await tell(socket, OPEN)
        limits = (await event(socket, "session.opened"))["limits"]
        assert (limits["streams"], limits["text_rate"]) == (None, None)


async def test_streams_are_contexts_and_bodies_of_a_token_not_its_connections() -> None:
    policy = Policy(tokens=(TOKEN, OTHER), streams=2)
    async with (
        serving(policy=policy) as server,
        server.http() as http,
        duplex(server) as one,
        duplex(server) as two,
        duplex(server) as three,
    ):
        for socket in (one, two, three):
            await tell(socket, OPEN)
        await tell(one, *speech("Go on #endless"))
        await event(one, "context.opened")
        body = http.stream("POST", "/v1/audio/speech", json=ENDLESS, headers=headers())
        async with body as response:
            assert response.status_code == 200
            await tell(two, {"type": "context.open", "context": "b"})
            refused = await event(two, "error")
            assert (refused["code"], refused["context"]) == ("limit_reached", "b")
            assert (refused["fatal"], refused["retry_after"]) == (False, 1.0)
            assert "2 streams" in refused["message"]
            again = await speak(server, "Hello.")
            assert (again.status_code, again.headers["retry-after"]) == (429, "1")
            assert again.json()["error"]["code"] == "limit_reached"
            assert (await speak(server, "Hello.", OTHER)).status_code == 200
        await tell(one, {"type": "cancel", "context": "a"})
        await event(one, "context.done")
        await tell(three, *speech("Three words now."))
        assert (await event(three, "context.done"))["complete"]


@pytest.mark.parametrize("resumable", [True, False])
async def test_a_connection_that_breaks_gives_its_streams_back(resumable: bool) -> None:
    policy = Policy(tokens=(TOKEN,), streams=1)
    async with serving(policy=policy, limits=Limits(resume_s=0.05)) as server:
        async with duplex(server) as socket:
            await tell(socket, OPEN | {"resumable": resumable}, *speech("Go on #endless"))
            await event(socket, "context.opened")
            assert (await speak(server, "Hello.")).status_code == 429
            socket.transport.abort()
        with anyio.fail_after(5):
            while (await speak(server, "Hello.")).status_code == 429:
                await anyio.lowlevel.checkpoint()


async def test_text_over_the_rate_is_refused_and_says_when_to_come_back() -> None:
    policy = Policy(tokens=(TOKEN, OTHER), text_rate=60)
    async with serving(policy=policy) as server, duplex(server) as socket:
        assert (await speak(server, "x" * 50)).status_code == 200
        refused = await speak(server, "x" * 20)
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 10
        assert (await speak(server, "x" * 20, OTHER)).status_code == 200
        await tell(socket, OPEN, {"type": "context.open", "context": "a"})
        await tell(socket, {"type": "text.append", "context": "a", "text": "y" * 30})
        error = await event(socket, "error")
        assert (error["code"], error["context"], error["param"]) == ("limit_reached", "a", "text")
        assert 0 < error["retry_after"] <= 20
        await tell(socket, {"type": "text.append", "context": "a", "text": "Hi!"})
        await tell(socket, {"type": "text.end", "context": "a"})
        done = await event(socket, "context.done")
        assert (done["complete"], done["frames"]) == (True, 1)


async def test_the_python_client_raises_it_with_the_time_to_wait() -> None:
    async with (
        serving(policy=Policy(tokens=(TOKEN,), text_rate=60)) as server,
        DuplexClient(server.url, token=TOKEN) as client,
    ):
        assert client.info.limits.text_rate == 60
        frames = [frame async for frame in client.speak("x" * 60)]
        with pytest.raises(LimitReached, match="60 characters a minute") as refused:
            frames += [frame async for frame in client.speak("y" * 30)]
        assert refused.value.retry_after is not None and 0 < refused.value.retry_after <= 30
        assert len(frames) == 1


async def test_other_services_clients_are_told_in_their_own_words() -> None:
    policy = Policy(tokens=(TOKEN,), text_rate=60)
    async with serving(policy=policy) as server, server.http() as http:
        await speak(server, "x" * 60)
        eleven = await http.post(
            "/v1/text-to-speech/Ada", json={"text": "Hello there."}, headers=headers()
        )
        assert (eleven.status_code, "retry-after" in eleven.headers) == (429, True)
        assert eleven.json()["detail"]["status"] == "limit_reached"
        deepgram = await http.post(
            "/v1/speak?model=Ada", json={"text": "Hello there."}, headers=headers()
        )
        assert deepgram.status_code == 429
        url = server.url.replace("http:", "ws:") + "/tts/websocket?cartesia_version=2025-04-16"
        async with connect(url, additional_headers=headers(), proxy=None) as socket:
            asked = {
                "model_id": "any",
                "transcript": "Hello there.",
                "voice": {"mode": "id", "id": "Ada"},
                "context_id": "a",
                "output_format": {
                    "container": "raw",
                    "encoding": "pcm_s16le",
                    "sample_rate": 24000,
                },
            }
            await tell(socket, asked)
            told = await event(socket, "error")
            assert (told["status_code"], told["error_code"]) == (429, "limit_reached")
