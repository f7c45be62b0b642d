"""What must hold for every dialect alike, over a real socket: a happy run, a barge-in, contexts
that overlap, wrong keys, unknown voices, malformed messages, clients that vanish, text that is
slower than its speech; and always the samples that our own protocol gives."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from omni_speak.streams.access import Policy
from tests.streams.conftest import Running, native_audio, serving
from tests.streams.dialects.speakers import (
    CALLS,
    SPEAKERS,
    TEXT,
    Call,
    Cartesia,
    Deepgram,
    DeepgramV2,
    ElevenLabs,
    ElevenLabsSingle,
    Speaker,
    Told,
)
from tests.streams.fake_engine import SAMPLES

pytestmark = pytest.mark.anyio

every_speaker = pytest.mark.parametrize("kind", SPEAKERS)
every_call = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
TOKEN = "a-token-long-enough"


class Talk:
    """A connection, in a dialect. `heard` is all that was told so far."""

    def __init__(self, socket: ClientConnection, speaker: Speaker) -> None:
        self.socket, self.speaker = socket, speaker
        self.heard: list[Told] = []

    async def say(self, text: str, context: str = "a") -> None:
        await self._send(self.speaker.say(context, text))

    async def end(self, context: str = "a") -> None:
        await self._send(self.speaker.end(context))

    async def stop(self, context: str = "a") -> None:
        await self._send(self.speaker.stop(context))

    async def _send(self, message: dict[str, Any]) -> None:
        await self.socket.send(json.dumps(message))

    async def until(self, met: Callable[[Told], bool]) -> None:
        """Hear at least one message, up to one that meets this."""
        with anyio.fail_after(10):
            while True:
                self.heard.append(self.speaker.read(await self.socket.recv()))
                if met(self.heard[-1]):
                    return

    async def ended(self, context: str = "a") -> None:
        own = context if self.speaker.many else None
        await self.until(lambda told: told.ended and told.context == own)

    def audio(self, context: str = "a") -> bytes:
        own = context if self.speaker.many else None
        return b"".join(told.audio for told in self.heard if told.context == own)

    def words(self, context: str = "a") -> list[str]:
        own = context if self.speaker.many else None
        return "".join(told.text for told in self.heard if told.context == own).split()


@asynccontextmanager
async def talk(server: Running, speaker: Speaker, **options: Any) -> AsyncIterator[Talk]:
    url = server.url.replace("http", "ws") + speaker.path
    async with connect(url, proxy=None, **options) as socket:
        talk = Talk(socket, speaker)
        if speaker.greets:
            talk.speaker.read(await socket.recv())
        yield talk


async def silence(server: Running) -> None:
    with anyio.fail_after(10):
        while server.engine.running:
            await anyio.lowlevel.checkpoint()


# -- websockets --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "speaker",
    [
        ElevenLabs(),
        ElevenLabs("pcm_s16le", 16_000),
        ElevenLabs("mulaw", 8000),
        ElevenLabsSingle(),
        ElevenLabsSingle("alaw", 8000),
        Cartesia(),
        Cartesia("pcm_f32le", 44_100),
        Cartesia("mulaw", 8000),
        Deepgram(),
        Deepgram("mulaw", 8000),
        Deepgram("alaw", 16_000),
        DeepgramV2(),
        DeepgramV2("pcm_s16le", 48_000),
    ],
    ids=repr,
)
async def test_a_text_in_pieces_is_the_samples_and_the_words_of_our_own_protocol(
    server: Running, speaker: Speaker
) -> None:
    pieces = ["Hello ", "there, ", "my friend. ", "Good ", "day!"]
    async with talk(server, speaker) as client:
        for piece in pieces:
            await client.say(piece)
        await client.end()
        await client.ended()
    asked = replace(server.engine.asked[-1], text="".join(pieces))
    assert client.audio() == await native_audio(server, asked, speaker.format, speaker.rate)  # type: ignore[arg-type]
    if speaker.aligned:
        assert client.words() == "".join(pieces).split()


@every_speaker
async def test_text_that_is_slower_than_its_speech_is_waited_for(
    server: Running, kind: Callable[..., Speaker]
) -> None:
    # A sentence is spoken once the next begins: each piece is two frames more.
    pieces = ["One two. Three ", "four. Five ", "six."]
    async with talk(server, kind()) as client:
        for count, piece in enumerate(pieces, 1):
            await client.say(piece)
            if count == len(pieces):
                await client.end()
            while len(client.audio()) < 2 * SAMPLES * 2 * count:  # then there is nothing to speak
                await client.until(lambda told: True)
                assert not client.heard[-1].ended
            assert len(client.audio()) == 2 * SAMPLES * 2 * count
        await client.ended()
    asked = replace(server.engine.asked[-1], text="".join(pieces))
    assert client.audio() == await native_audio(server, asked)
    assert len({request.seed for request in server.engine.asked[-2:]}) == 1  # one voice, natively


@pytest.mark.parametrize("kind", [Cartesia, Deepgram, DeepgramV2])
async def test_a_barge_in_ends_what_is_heard_and_the_next_text_is_whole(
    server: Running, kind: Callable[..., Speaker]
) -> None:
    speaker = kind()
    async with talk(server, speaker) as client:
        await client.say("Say #endless")
        await client.end()
        await client.until(lambda told: bool(told.audio))
        await client.stop()
        await client.until(lambda told: told.stopped)
        client.heard.clear()
        await client.say("Good day!", "b")
        await client.end("b")
        await client.ended("b")
        assert len(client.audio("b")) == 2 * 2 * SAMPLES
        assert not client.audio("a") or not speaker.many
    await silence(server)


@pytest.mark.parametrize("kind", [ElevenLabs, Cartesia])
async def test_overlapping_contexts_are_each_the_samples_of_our_own_protocol(
    server: Running, kind: Callable[..., Speaker]
) -> None:
    texts = {"a": ["One two ", "three. ", "Four."], "b": ["Another ", "text. ", "Speaks."]}
    async with talk(server, kind()) as client:
        for i in range(3):
            for context, pieces in texts.items():
                await client.say(pieces[i], context)
        for context in texts:
            await client.end(context)
        with anyio.fail_after(10):
            while sum(told.ended for told in client.heard) < 2:
                await client.until(lambda told: told.ended)
    by_text = {request.text.split()[0]: request for request in server.engine.asked[-2:]}
    for context, pieces in texts.items():
        asked = replace(by_text[pieces[0].split()[0]], text="".join(pieces))
        assert client.audio(context) == await native_audio(server, asked)
        assert client.words(context) == "".join(pieces).split()


@every_speaker
async def test_a_wrong_key_is_refused_at_the_door(kind: Callable[..., Speaker]) -> None:
    async with serving(policy=Policy(tokens=(TOKEN,))) as server:
        for headers in ({}, {"xi-api-key": "another-long-token"}):
            with pytest.raises(InvalidStatus) as refused:
                async with talk(server, kind(), additional_headers=headers):
                    pass
            assert refused.value.response.status_code == 401
        for headers in (
            {"xi-api-key": TOKEN},
            {"x-api-key": TOKEN},
            {"authorization": f"Token {TOKEN}"},
        ):
            async with talk(server, kind(), additional_headers=headers):
                pass


@pytest.mark.parametrize("kind", [ElevenLabs, ElevenLabsSingle])
async def test_an_unknown_voice_of_the_path_is_told_and_closes(
    server: Running, kind: Callable[..., Speaker]
) -> None:
    async with talk(server, kind(voice="zoe")) as client:
        message = json.loads(await client.socket.recv())
        assert message["error"] == "unknown_voice" and "Ada" in message["message"]
        with pytest.raises(ConnectionClosed):
            await client.socket.recv()


@pytest.mark.parametrize("kind", [Deepgram, DeepgramV2])
async def test_an_unknown_voice_of_the_query_is_refused_at_the_door(
    server: Running, kind: Callable[..., Speaker]
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with talk(server, kind(voice="zoe")):
            pass
    assert refused.value.response.status_code == 400
    assert b"ada" in refused.value.response.body


async def test_an_unknown_voice_of_a_message_leaves_the_connection_usable(server: Running) -> None:
    async with talk(server, Cartesia(voice="zoe")) as client:
        await client.say("Hello.")
        await client.until(lambda told: told.problem == "unknown_voice")
        client.speaker.voice = "Ada"
        await client.say("Hello.")
        await client.end()
        await client.ended()
        assert len(client.audio()) == 2 * SAMPLES


@every_speaker
@pytest.mark.parametrize("data", ["{", "[]", "5", '{"misspelt": 1}', b"\x00\x01"])
async def test_a_malformed_message_leaves_other_streams_untouched(
    server: Running, kind: Callable[..., Speaker], data: str | bytes
) -> None:
    speaker = kind()
    async with talk(server, kind()) as other, talk(server, speaker) as client:
        await other.say("Hello there. ")
        await client.socket.send(data)
        await client.until(lambda told: told.problem is not None)
        if not isinstance(speaker, ElevenLabsSingle):  # whose connection is one stream
            await client.say("Good day!", "b")
            await client.end("b")
            await client.ended("b")
            assert len(client.audio("b")) == 2 * 2 * SAMPLES
        await other.end()
        await other.ended()
        assert len(other.audio()) == 2 * 2 * SAMPLES


@every_speaker
async def test_a_client_that_vanishes_leaves_nothing(
    server: Running, kind: Callable[..., Speaker]
) -> None:
    async with talk(server, kind()) as client:
        await client.say("Say #endless. Then")
        await client.until(lambda told: bool(told.audio))
        client.socket.transport.abort()
    await silence(server)


# -- plain calls -------------------------------------------------------------------------------


@every_call
async def test_a_call_is_the_samples_and_the_words_of_our_own_protocol(
    server: Running, call: Call
) -> None:
    async with server.http() as http:
        response = await http.post(call.path, json=call.body)
    assert response.status_code == 200, response.text
    audio, text = call.read(response.content)
    asked = replace(server.engine.asked[-1], text=TEXT)
    assert asked.seed == int(response.headers["x-seed"])
    assert audio == await native_audio(server, asked, call.format, call.rate)  # type: ignore[arg-type]
    assert text is None or text.split() == TEXT.split()


@every_call
async def test_calls_at_the_same_time_do_not_mix(server: Running, call: Call) -> None:
    answers: list[int] = []

    async def ask() -> None:
        async with server.http() as http:
            answers.append(len(call.read((await http.post(call.path, json=call.body)).content)[0]))

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(ask)
    assert answers[0] == answers[1] > 0


@every_call
async def test_a_call_with_a_wrong_key_is_refused(call: Call) -> None:
    async with serving(policy=Policy(tokens=(TOKEN,))) as server, server.http() as http:
        for headers, status in (({}, 401), ({"x-api-key": TOKEN}, 200)):
            response = await http.post(call.path, json=call.body, headers=headers)
            assert response.status_code == status


@every_call
async def test_a_call_for_an_unknown_voice_is_told_those_there_are(
    server: Running, call: Call
) -> None:
    path, body = call.asking("zoe")
    async with server.http() as http:
        response = await http.post(path, json=body)
    assert response.status_code == (400 if "speak" in path.split("/")[2] else 404)
    assert "ada" in response.text.lower()


@every_call
@pytest.mark.parametrize("data", ["{", "[]", "5", '{"misspelt": 1}', b"\xff\x00"])
async def test_a_malformed_body_is_refused_and_the_next_call_answered(
    server: Running, call: Call, data: str | bytes
) -> None:
    async with server.http() as http:
        assert (await http.post(call.path, content=data)).status_code == 400
        assert (await http.post(call.path, json=call.body)).status_code == 200


@every_call
async def test_a_caller_that_vanishes_leaves_nothing(server: Running, call: Call) -> None:
    body = json.loads(json.dumps(call.body).replace(TEXT, "Say #endless"))
    async with server.http() as http, anyio.create_task_group() as tasks:

        async def ask() -> None:
            await http.post(call.path, json=body)

        tasks.start_soon(ask)
        with anyio.fail_after(10):
            while not server.engine.running:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    await silence(server)
