"""What must hold for every dialect alike, over a real socket: a happy run, a barge-in, contexts
that overlap, wrong keys, unknown voices, malformed messages, clients that vanish, text that is
slower than its speech, a full engine; and always the samples that our own protocol gives.

A row is a test, a column what it is run over: every speaker, or those whose protocol has it; why
the others do not is said with them, in `speakers`. A plain call has one text, all at once, and
ends with its connection: nothing overlaps, comes late, or is interrupted otherwise."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import anyio
import anyio.lowlevel
import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from omni_speak.streams.access import Policy
from omni_speak.streams.messages import ContextOpen, Limits, SessionOpen
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
    OmniRealtime,
    OmniStream,
    OmniStreamTimed,
    Speaker,
    Told,
    events_of,
)
from tests.streams.fake_engine import SAMPLES, FakeEngine

pytestmark = pytest.mark.anyio

every_speaker = pytest.mark.parametrize("kind", SPEAKERS)
every_call = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
FRAME_S = 0.08
TOKEN, OTHER = "a-token-long-enough", "another-one-of-them"


class Talk:
    """A connection, in a dialect. `heard` is all that was told so far."""

    def __init__(self, socket: ClientConnection, speaker: Speaker) -> None:
        self.socket, self.speaker = socket, speaker
        self.heard: list[Told] = []

    async def say(self, text: str, context: str = "a") -> None:
        await self._send(self.speaker.say(context, text))

    async def end(self, context: str = "a") -> None:
        await self._send(self.speaker.end(context))

    async def greet(self) -> None:
        for message in self.speaker.hello():
            await self._send(message)

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

    async def nothing(self, seconds: float) -> None:
        """Hear no audio, and no end, this long."""
        with anyio.move_on_after(seconds):
            while True:
                self.heard.append(self.speaker.read(await self.socket.recv()))
                assert not self.heard[-1].audio and not self.heard[-1].ended

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
        await talk.greet()
        if speaker.greets:
            await talk.until(lambda told: True)
        yield talk


async def refused(server: Running, speaker: Speaker, **headers: str) -> tuple[int, str]:
    """The status that its handshake gets, and the code in the body."""
    with pytest.raises(InvalidStatus) as error:
        async with talk(server, speaker, additional_headers=headers):
            pass
    response = error.value.response
    assert response.body is not None
    return response.status_code, speaker.refusal(json.loads(response.body))


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
        OmniStream(),  # whose format is pcm_s16le at the model's rate, or a file's
        OmniStreamTimed(),
        OmniRealtime(),
        OmniRealtime("pcm_f32le", 16_000),
        OmniRealtime("mulaw", 8000),
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


@pytest.mark.parametrize("kind", [kind for kind in SPEAKERS if not kind.one_stream])
async def test_a_piece_that_is_refused_moves_no_word_behind_it(
    kind: Callable[..., Speaker],
) -> None:
    # Of the two that are parted, neither has the space: the one between them had.
    pieces = ["Hello there,", " friend. ", "Good day!"]
    if kind in (ElevenLabs, Deepgram):
        pieces[1] = "friend. "
    async with serving(limits=Limits(text_chars=50)) as server:
        async with talk(server, kind()) as client:
            for piece in pieces:
                await client.say(piece)
                await client.say("A piece that is far too long for what is left of it. ")
            await client.end()
            await client.ended()
        text = "Hello there, friend. Good day!"
        expected = await native_audio(server, replace(server.engine.asked[-1], text=text))
    assert client.audio() == expected
    assert [told.problem for told in client.heard if told.problem] == ["text_too_long"] * 3
    if client.speaker.aligned:
        assert client.words() == text.split()


async def another_is_served(client: Talk) -> None:
    await client.say("Good day!", "b")
    await client.end("b")
    await client.until(lambda told: bool(told.audio))
    await client.ended("b")
    assert len(client.audio("b")) == 2 * 2 * SAMPLES


@every_speaker
@pytest.mark.parametrize("patience_s", [None, 0.0], ids=["in-place", "place-given-back"])
async def test_text_that_is_slower_than_its_speech_is_waited_for(
    kind: Callable[..., Speaker], patience_s: float | None
) -> None:
    # A sentence is spoken once the next begins: each piece is two frames more.
    pieces = ["One two. Three ", "four. Five ", "six."]
    async with serving(FakeEngine(patience_s=patience_s)) as server:
        warmed_up = len(server.engine.asked)
        async with talk(server, kind()) as client:
            for count, piece in enumerate(pieces, 1):
                await client.say(piece)
                if count == len(pieces):
                    await client.end()
                while len(client.audio()) < 2 * SAMPLES * 2 * count:  # nothing more to speak
                    await client.until(lambda told: True)
                    assert not client.heard[-1].ended
                assert len(client.audio()) == 2 * SAMPLES * 2 * count
                if count < len(pieces):
                    await client.nothing(2.5 * FRAME_S)  # of what was said the listener heard all
            await client.ended()
        spoken = server.engine.asked[warmed_up:]
        asked = replace(spoken[-1], text="".join(pieces))
        assert client.audio() == await native_audio(server, asked)
        assert len(spoken) == (1 if patience_s is None else len(pieces))
        assert len({request.seed for request in spoken}) == 1  # one voice


@pytest.mark.parametrize("kind", [kind for kind in SPEAKERS if kind.stops])
@pytest.mark.parametrize("text", ["still-comes", "has-ended"])
async def test_a_barge_in_ends_what_is_heard_and_the_next_text_is_whole(
    server: Running, kind: Callable[..., Speaker], text: str
) -> None:
    if (kind, text) == (ElevenLabs, "has-ended"):
        pytest.skip("what was flushed is spoken to its end")
    speaker = kind()
    async with talk(server, speaker) as client:
        await client.say("Say #endless. Then")
        if text == "has-ended":
            await client.end()
        await client.until(lambda told: bool(told.audio))
        await client.stop()
        await client.until(lambda told: told.stopped)
        assert "Then" not in client.words()
        client.heard.clear()
        await client.say("Good day!", "b")
        await client.end("b")
        await client.ended("b")
        assert len(client.audio("b")) == 2 * 2 * SAMPLES
        assert not client.audio("a") or not speaker.many
    await silence(server)


async def test_a_context_that_is_left_alone_is_not_in_the_way_of_the_next(server: Running) -> None:
    async with talk(server, ElevenLabs()) as client:
        await client.say("Say #endless")
        await client.end()
        await client.until(lambda told: bool(told.audio))
        await client.say("Good day!", "b")
        await client.end("b")
        await client.ended("b")
        assert len(client.audio("b")) == 2 * 2 * SAMPLES
    await silence(server)


@pytest.mark.parametrize("kind", [kind for kind in SPEAKERS if kind.many])
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


@pytest.mark.parametrize("kind", [Deepgram, DeepgramV2, OmniStream, OmniStreamTimed])
async def test_what_is_sent_behind_a_text_is_heard_behind_it(
    server: Running, kind: Callable[..., Speaker]
) -> None:
    texts = ["One two three.", "Four."]
    async with talk(server, kind()) as client:
        for text in texts:
            await client.say(text)
            await client.end()
        for _ in texts:
            await client.ended()
    expected = [await native_audio(server, asked) for asked in server.engine.asked[-2:]]
    assert client.audio() == b"".join(expected)


@every_speaker
async def test_who_may_not_come_in_is_told_in_the_words_of_the_service(
    kind: Callable[..., Speaker],
) -> None:
    policy = Policy(tokens=(TOKEN,))
    async with serving(policy=policy) as server:
        assert await refused(server, kind()) == (401, "unauthorized")
        wrong = {"xi-api-key": "another-long-token"}
        assert await refused(server, kind(), **wrong) == (401, "unauthorized")
        foreign = {"origin": "https://foe.example", "x-api-key": TOKEN}
        assert await refused(server, kind(), **foreign) == (403, "origin_not_allowed")
        server.engine.alive = False
        assert await refused(server, kind(), **{"x-api-key": TOKEN}) == (503, "engine_dead")


@every_speaker
async def test_every_service_s_header_brings_a_key(kind: Callable[..., Speaker]) -> None:
    async with serving(policy=Policy(tokens=(TOKEN,))) as server:
        for headers in (
            {"xi-api-key": TOKEN},
            {"x-api-key": TOKEN},
            {"authorization": f"Token {TOKEN}"},
            {"authorization": f"Bearer {TOKEN}"},
        ):
            async with talk(server, kind(), additional_headers=headers):
                pass


@pytest.mark.parametrize("kind", [ElevenLabs, ElevenLabsSingle])
@pytest.mark.parametrize("voice", ["zoe", 40 * "ゾエ"], ids=["short", "long"])
async def test_an_unknown_voice_of_the_path_is_told_and_closes(
    server: Running, kind: Callable[..., Speaker], voice: str
) -> None:
    async with talk(server, kind(voice=quote(voice))) as client:
        await client.say("Hello.")
        message = json.loads(await client.socket.recv())
        assert message["error"] == "unknown_voice" and "Ada" in message["message"]
        with pytest.raises(ConnectionClosed):
            await client.socket.recv()
        assert client.socket.close_code == 1008


@pytest.mark.parametrize("kind", [Deepgram, DeepgramV2])
async def test_an_unknown_voice_of_the_query_is_refused_at_the_door(
    server: Running, kind: Callable[..., Speaker]
) -> None:
    assert await refused(server, kind(voice="zoe")) == (400, "invalid_request")


async def test_an_unknown_voice_of_a_first_message_is_told_and_closes(server: Running) -> None:
    async with talk(server, OmniStream(voice="zoe")) as client:
        await client.until(lambda told: told.problem == "unknown_voice")
        with pytest.raises(ConnectionClosed):
            await client.socket.recv()
        assert client.socket.close_code == 1008


@pytest.mark.parametrize("kind", [Cartesia, OmniRealtime])
async def test_an_unknown_voice_of_a_message_leaves_the_connection_usable(
    server: Running, kind: Callable[..., Speaker]
) -> None:
    async with talk(server, kind(voice="zoe")) as client:
        if not client.speaker.hello():
            await client.say("Hello.")
        while not client.heard or client.heard[-1].problem != "unknown_voice":
            await client.until(lambda told: True)
        client.speaker.voice = "Ada"
        await client.greet()
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
        if not speaker.one_stream:
            await client.say("Good day!", "b")
            await client.end("b")
            await client.ended("b")
            assert len(client.audio("b")) == 2 * 2 * SAMPLES
        await other.end()
        await other.ended()
        assert len(other.audio()) == 2 * 2 * SAMPLES


@every_speaker
async def test_a_full_engine_is_told_as_something_to_try_again(
    server: Running, kind: Callable[..., Speaker]
) -> None:
    speaker = kind()
    problem, code = speaker.full
    async with talk(server, speaker) as client:
        await client.say("Too #crowd many")
        await client.end()
        await client.until(lambda told: told.problem == problem)
        if code is not None:
            with pytest.raises(ConnectionClosed), anyio.fail_after(10):
                await client.socket.recv()
            assert client.socket.close_code == code
            return
        await another_is_served(client)


@every_speaker
@pytest.mark.parametrize("text", ["?!... ", "😀", " \t"])
async def test_a_text_with_nothing_to_say_ends_like_any_other(
    server: Running, kind: Callable[..., Speaker], text: str
) -> None:
    speaker = kind()
    async with talk(server, speaker) as client:
        await client.say(text)
        if not text.isspace():  # of which not every protocol makes a context
            await client.end()
            await client.ended()
            assert not client.audio()
        if not speaker.one_stream:
            await another_is_served(client)


@every_speaker
@pytest.mark.parametrize("way", ["aborts", "closes"])
async def test_a_client_that_vanishes_leaves_nothing(
    kind: Callable[..., Speaker], way: str
) -> None:
    # A session that could be resumed would wait for its client a while.
    async with serving(limits=Limits(resume_s=0.0)) as server:
        async with talk(server, kind()) as client:
            await client.say("Say #endless. Then")
            await client.until(lambda told: bool(told.audio))
            if way == "aborts":
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
async def test_a_caller_who_may_not_come_in_is_told_in_the_words_of_the_service(call: Call) -> None:
    policy = Policy(tokens=(TOKEN, OTHER), streams=1)
    async with serving(policy=policy) as server, server.http() as http:

        async def refused(**headers: str) -> tuple[int, str]:
            response = await http.post(call.path, json=call.body, headers=headers)
            assert ("retry-after" in response.headers) == (response.status_code in (429, 503))
            assert ("www-authenticate" in response.headers) == (response.status_code == 401)
            return response.status_code, call.refusal(response.json())

        key = {"x-api-key": TOKEN}
        assert await refused() == (401, "unauthorized")
        assert await refused(**(key | {"origin": "https://foe.example"})) == (
            403,
            "origin_not_allowed",
        )
        async with connect(server.websocket_url, additional_headers=key, proxy=None) as socket:
            for message in (SessionOpen(), ContextOpen(context="a")):
                await socket.send(message.model_dump_json())
                await socket.recv()
            assert await refused(**key) == (429, "limit_reached")
        other = {"x-api-key": OTHER}
        assert (await http.post(call.path, json=call.body, headers=other)).status_code == 200
        server.engine.alive = False
        assert await refused(**other) == (503, "engine_dead")


@every_call
async def test_a_full_engine_tells_a_caller_to_try_again(server: Running, call: Call) -> None:
    body = json.loads(json.dumps(call.body).replace(TEXT, "Too #crowd many"))
    async with server.http() as http:
        response = await http.post(call.path, json=body)
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert call.refusal(response.json()) == "overloaded"


@every_call
async def test_a_call_for_an_unknown_voice_is_told_those_there_are(
    server: Running, call: Call
) -> None:
    path, body = call.asking("zoe")
    async with server.http() as http:
        response = await http.post(path, json=body)
    by_query = call.refusal is Deepgram.refusal
    expected = (400, "invalid_request") if by_query else (404, "unknown_voice")
    assert (response.status_code, call.refusal(response.json())) == expected
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
async def test_a_call_in_whose_middle_the_engine_dies_does_not_seem_whole(
    server: Running, call: Call
) -> None:
    body = json.loads(json.dumps(call.body).replace(TEXT, "One #die two."))
    async with server.http() as http:
        if call.breaks == "body":
            with pytest.raises(httpx.RemoteProtocolError):
                await http.post(call.path, json=body)
            return
        response = await http.post(call.path, json=body)
    if call.breaks == "status":
        assert response.status_code == 503
        assert call.refusal(response.json()) == "engine_dead"
    else:
        *made, last = events_of(response.content)
        assert any("chunk" in event["type"] or "delta" in event["type"] for event in made)
        assert call.refusal(last) == "engine_dead"


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
