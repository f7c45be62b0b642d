"""vLLM-Omni's speech: its fields over HTTP, each honoured or refused, and its websocket."""

from __future__ import annotations

import io
import json
from base64 import b64decode
from typing import Any

import anyio
import av
import pytest
import soundfile
from websockets.exceptions import ConnectionClosed

from omni_speak.runtime.request import SpeechRequest
from omni_speak.streams.audio import to_s16le
from tests.streams.conftest import Running
from tests.streams.dialects.test_dialects import dial, hear, silence, tell
from tests.streams.fake_engine import SAMPLES, frame_of

pytestmark = pytest.mark.anyio

SPEECH, STREAM = "/v1/audio/speech", "/v1/audio/speech/stream"


def expected(text: str, frames: int, **request: Any) -> bytes:
    asked = SpeechRequest(text=text, **({"voice": "Ada", "seed": 7} | request))
    return b"".join(to_s16le(frame_of(asked, i).pcm) for i in range(frames))


async def post(server: Running, **body: Any) -> Any:
    body = {"input": "Hello there.", "seed": 7, "response_format": "pcm"} | body
    async with server.http() as http:
        return await http.post(SPEECH, json=body)


# -- POST /v1/audio/speech ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "field",
    [
        {"language": "auto"},
        {"language": "English"},
        {"language": "en"},
        {"task_type": "CustomVoice"},
        {"max_new_tokens": 100},
        {"initial_codec_chunk_frames": 1},
        {"extra_params": {}},
        {"sample_rate": 24000},
        {"stream": False},
        {"stream": True, "stream_format": "audio"},
        {"word_timestamps": True},
    ],
)
async def test_fields_that_ask_for_what_is_done_anyway(server: Running, field: Any) -> None:
    answer = await post(server, **field)
    assert answer.status_code == 200 and answer.content == expected("Hello there.", 2)


@pytest.mark.parametrize(
    ("field", "param"),
    [
        ({"language": "Klingon"}, "language"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"initial_codec_chunk_frames": 8}, "initial_codec_chunk_frames"),
        ({"extra_params": {"seed": 1}}, "extra_params"),
        ({"sample_rate": 12345}, "sample_rate"),
        ({"sample_rate": 44100, "response_format": "opus"}, "sample_rate"),
        ({"word_timestamps": True, "stream": True}, "word_timestamps"),
        ({"word_timestamps": True, "stream_format": "sse"}, "word_timestamps"),
        ({"task_type": "Base"}, "task_type"),
    ],
)
async def test_fields_that_ask_for_what_is_not_there(
    server: Running, field: Any, param: str
) -> None:
    answer = await post(server, **field)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param
    assert not server.engine.running


async def test_the_sample_rate_asked_for_is_what_comes(server: Running) -> None:
    for stream in (True, False):
        fields = {"stream_format": "audio", "stream": stream, "sample_rate": 48000}
        answer = await post(server, response_format="wav", **fields)
        assert answer.headers["x-sample-rate"] == "48000"
        pcm, rate = soundfile.read(io.BytesIO(answer.content))
        assert (len(pcm), rate) == (2 * 2 * SAMPLES, 48000)


async def test_stream_alone_means_events(server: Running) -> None:
    answer = await post(server, stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line]
    audio = b"".join(b64decode(event.get("audio", "")) for event in events)
    assert audio == expected("Hello there.", 2)


async def test_max_new_tokens_bounds_the_frames(server: Running) -> None:
    answer = await post(server, input="one two three four five", max_new_tokens=3, stream=False)
    assert answer.headers["x-finish-reason"] == "length"
    assert answer.content == expected("one two three four five", 3)


async def test_the_words_are_told_in_a_header_if_they_fit(server: Running) -> None:
    words = json.loads((await post(server, word_timestamps=True)).headers["x-word-timestamps"])
    assert [word["word"] for word in words] == ["Hello", "there."]
    assert 0 <= words[0]["start_ms"] < words[0]["end_ms"] <= words[1]["end_ms"] <= 160
    answer = await post(server, input="word " * 200, word_timestamps=True)
    assert "x-word-timestamps" not in answer.headers
    assert "limit=4096" in answer.headers["x-word-timestamps-omitted"]


# -- WS /v1/audio/speech/stream ----------------------------------------------------------------


async def utterance(socket: Any) -> tuple[list[dict[str, Any]], bytes]:
    """What is told up to the next session.done, and the binary audio."""
    told: list[dict[str, Any]] = []
    audio = b""
    with anyio.fail_after(10):
        while not told or told[-1]["type"] != "session.done":
            message = await socket.recv()
            if isinstance(message, bytes):
                audio += message
            else:
                told.append(json.loads(message))
    return told, audio


async def configure(socket: Any, **config: Any) -> None:
    base = {"type": "session.config", "voice": "Ada", "seed": 7}
    await tell(socket, **(base | {"response_format": "pcm", "stream_audio": True} | config))


async def say(socket: Any, *pieces: str) -> None:
    for piece in pieces:
        await tell(socket, type="input.text", text=piece)
    await tell(socket, type="input.done")


async def test_utterances_follow_each_other_and_are_our_own_audio(server: Running) -> None:
    async with dial(server, STREAM) as socket:
        await configure(socket)
        await say(socket, "Hello ", "there.")
        await say(socket, "One.")
        await say(socket)
        for number, (text, frames) in enumerate([("Hello there.", 2), ("One.", 1)]):
            told, audio = await utterance(socket)
            assert [each["type"] for each in told] == ["audio.start", "audio.done", "session.done"]
            assert {each["utterance_index"] for each in told} == {number}
            assert (told[0]["format"], told[0]["sample_rate"]) == ("pcm", 24000)
            assert audio == expected(text, frames)
            assert (told[1]["total_bytes"], told[1]["error"]) == (len(audio), False)
        told, audio = await utterance(socket)
        assert told == [{"type": "session.done", "utterance_index": 2, "total_sentences": 0}]
        await tell(socket, type="session.close")
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1000


@pytest.mark.parametrize("format", ["wav", "flac", "mp3", "opus"])
async def test_without_stream_audio_one_file_comes(server: Running, format: str) -> None:
    async with dial(server, STREAM) as socket:
        await configure(socket, response_format=format, stream_audio=False)
        await say(socket, "Hello there.")
        assert (await hear(socket))["type"] == "audio.start"
        file = await socket.recv()
        assert (await hear(socket))["total_bytes"] == len(file)
        with av.open(io.BytesIO(file)) as container:
            frames = list(container.decode(audio=0))
        assert sum(frame.samples / frame.sample_rate for frame in frames) >= 0.159
        if format == "wav":
            assert file[44:] == expected("Hello there.", 2)


async def test_word_timestamps_come_behind_the_audio_as_json(server: Running) -> None:
    async with dial(server, STREAM) as socket:
        await configure(socket, word_timestamps=True)
        await say(socket, "Hello there.")
        told, binary = await utterance(socket)
        chunks = [each for each in told if each["type"] == "audio.chunk"]
        assert not binary and told[0]["word_timestamps"]
        audio = b"".join(b64decode(chunk["audio_b64"]) for chunk in chunks)
        assert audio == expected("Hello there.", 2)
        assert [chunk["chunk_end_ms"] for chunk in chunks] == [80, 160, 160]
        *others, last = [chunk["timestamps"] for chunk in chunks]
        assert others == [None, None]
        assert [word["word"] for word in last] == ["Hello", "there."]


async def test_a_config_can_change_between_utterances(server: Running) -> None:
    async with dial(server, STREAM) as socket:
        await configure(socket)
        await tell(socket, type="input.text", text="Hello.")
        await configure(socket, voice="bob")
        error = await hear(socket)
        assert (error["type"], error["code"]) == ("error", "utterance_in_progress")
        await tell(socket, type="input.done")
        assert (await utterance(socket))[1] == expected("Hello.", 1)
        await configure(socket, voice="bob", seed=8, speed=1.5)
        await say(socket, "Hello.")
        assert (await utterance(socket))[1] == expected("Hello.", 1, voice="bob", seed=8, speed=1.5)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"model": "another"}, "model_not_found"),
    ({"language": "Klingon"}, "invalid_request"),
    ({"word_timestamps": True, "stream_audio": False}, "invalid_message"),
    ({"ref_audio": "data:"}, "invalid_message"),
    ({"task_type": "Base"}, "invalid_message"),
    ({"max_new_tokens": 5}, "invalid_message"),
    ({"misspelt": 1}, "unknown_field"),
]


@pytest.mark.parametrize(("config", "code"), [({"voice": "zoe"}, "unknown_voice"), *WRONG])
async def test_a_first_config_that_cannot_be_is_told_and_ends_the_connection(
    server: Running, config: Any, code: str
) -> None:
    async with dial(server, STREAM) as socket:
        await configure(socket, **config)
        await say(socket, "Hello.")
        error = await hear(socket)
        assert (error["type"], error["code"]) == ("error", code)
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1008


async def test_text_before_any_config_is_told_and_ends_the_connection(server: Running) -> None:
    async with dial(server, STREAM) as socket:
        await tell(socket, type="input.text", text="Too early.")
        assert (await hear(socket))["code"] == "session_not_configured"
        with pytest.raises(ConnectionClosed):
            await socket.recv()


@pytest.mark.parametrize(("config", "code"), WRONG)
async def test_another_config_that_cannot_be_leaves_the_one_before(
    server: Running, config: Any, code: str
) -> None:
    async with dial(server, STREAM) as socket:
        await configure(socket, task_type="CustomVoice")
        await configure(socket, **config)
        error = await hear(socket)
        assert (error["type"], error["code"]) == ("error", code)
        await say(socket, "Hello.")
        assert (await utterance(socket))[1] == expected("Hello.", 1)


@pytest.mark.parametrize(
    "data", ["{", "[]", b"\0", '{"type": "x"}', '{"type": "input.text", "text": 5}']
)
async def test_a_malformed_message_leaves_the_connection_usable(
    server: Running, data: str | bytes
) -> None:
    async with dial(server, STREAM) as socket:
        await configure(socket)
        await socket.send(data)
        assert (await hear(socket))["type"] == "error"
        await say(socket, "Hello.")
        assert (await utterance(socket))[1] == expected("Hello.", 1)


async def test_an_utterance_that_fails_leaves_the_next_one_alone(server: Running) -> None:
    async with dial(server, STREAM) as socket:
        await configure(socket)
        await say(socket, "Too #crowd many")
        await configure(socket, speed=9.0)
        await say(socket, "Too fast.")
        await configure(socket)
        await say(socket, "Hello.")
        for _ in range(2):
            told, audio = await utterance(socket)
            assert not audio and told[0]["type"] == "error" and told[-2]["error"] is True
        assert (await utterance(socket))[1] == expected("Hello.", 1)


async def test_closing_speaks_what_is_ended_and_drops_what_is_not(server: Running) -> None:
    async with dial(server, STREAM) as socket:
        await configure(socket)
        await say(socket, "Hello.")
        await tell(socket, type="input.text", text="Say #endless. And ")
        await tell(socket, type="session.close")
        assert (await utterance(socket))[1] == expected("Hello.", 1)
        assert (await utterance(socket))[0][-2]["error"] is True
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1000
    await silence(server)


async def test_a_client_that_vanishes_leaves_nothing(server: Running) -> None:
    async with dial(server, STREAM) as socket:
        await configure(socket)
        await say(socket, "Say #endless")
        await socket.recv()
        socket.transport.abort()
    await silence(server)
