"""The HTTP doors over a real socket."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import anyio
import httpx
import numpy as np
import pytest
import soundfile

from omni_speak.runtime.request import SpeechRequest
from omni_speak.streams.audio import to_s16le, wav_header
from omni_speak.streams.dialects.openai_speech import HOSTED_VOICES
from omni_speak.streams.service import WARM_UP_STREAMS
from omni_speak.streams.speaking import SpokenResult, speak_text
from tests.streams.conftest import Running, serving
from tests.streams.fake_engine import SAMPLES, FakeEngine, frame_of

pytestmark = pytest.mark.anyio

SPEECH = "/v1/audio/speech"


async def post(server: Running, **body: Any) -> httpx.Response:
    asked = {"input": "Hello there.", "response_format": "wav"} | body
    async with server.http() as http:
        return await http.post(SPEECH, json=asked)


def expected_pcm(text: str, seed: int, frames: int) -> bytes:
    request = SpeechRequest(text=text, voice="Ada", seed=seed)
    return b"".join(to_s16le(frame_of(request, i).pcm) for i in range(frames))


@pytest.mark.parametrize("count", [1, 4, 25, 50, 54, 79])
async def test_streamed_and_whole_are_the_same_audio(server: Running, count: int) -> None:
    body = {"input": f"Say #frames={count}", "seed": 11, "response_format": "pcm"}
    streamed, whole = await post(server, **body), await post(server, **body, stream=False)
    assert streamed.content == whole.content == expected_pcm(body["input"], 11, count)  # type: ignore[arg-type]
    assert "content-length" not in streamed.headers
    assert whole.headers["x-finish-reason"] == "stop"


async def test_wav_has_one_header_first_and_nothing_after_the_samples(server: Running) -> None:
    response = await post(server, input="One. Two. Three.", seed=4)
    header, samples = response.content[:44], response.content[44:]
    assert header == wav_header(24_000)
    assert b"RIFF" not in samples
    assert samples == b"".join(expected_pcm(t, 4, 1) for t in ("One.", "Two.", "Three."))
    assert response.headers["content-type"] == "audio/wav"
    assert response.headers["x-sample-rate"] == "24000"
    pcm, rate = soundfile.read(io.BytesIO((await post(server, stream=False)).content))
    assert (len(pcm), rate) == (2 * SAMPLES, 24_000)


async def test_mp3_is_what_comes_unasked(server: Running) -> None:
    async with server.http() as http:
        response = await http.post(SPEECH, json={"input": "One two three."})
    assert response.headers["content-type"] == "audio/mpeg"
    pcm, rate = soundfile.read(io.BytesIO(response.content), dtype="float32")
    assert rate == 24_000 and len(pcm) >= 3 * SAMPLES


async def test_the_seed_is_told_and_speaks_the_same_again(server: Running) -> None:
    first = await post(server)
    again = await post(server, seed=int(first.headers["x-seed"]))
    assert first.content == again.content
    assert first.headers["x-request-id"] != again.headers["x-request-id"]
    assert first.content != (await post(server, seed=1, speed=1.5)).content


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"input": ""}, 400, "nothing_to_say", "input"),
        ({"input": " \t\n"}, 400, "nothing_to_say", "input"),
        ({"input": "?!..."}, 400, "nothing_to_say", "input"),
        ({"input": "🎉"}, 400, "nothing_to_say", "input"),
        ({"input": "\u200b"}, 400, "nothing_to_say", "input"),
        ({"input": 5}, 400, "invalid_request", "input"),
        ({"input": "a" * 20_001}, 400, "text_too_long", "input"),
        ({"voice": "zoe"}, 404, "unknown_voice", "voice"),
        ({"voice": ""}, 404, "unknown_voice", "voice"),
        ({"voice": {"id": "zoe"}}, 404, "unknown_voice", "voice"),
        ({"voice": 7}, 400, "invalid_request", "voice"),
        ({"voice": {}}, 400, "invalid_request", "voice"),
        ({"voice": {"id": 7}}, 400, "invalid_request", "voice"),
        ({"speed": 9}, 400, "invalid_request", "speed"),
        ({"speed": "1"}, 400, "invalid_request", "speed"),
        ({"seed": 1.5}, 400, "invalid_request", "seed"),
        ({"response_format": "mp4"}, 400, "invalid_request", "response_format"),
        ({"extra_body": {"seed": 1}}, 400, "invalid_request", "extra_body"),
        ({"sped": 1.0}, 400, "invalid_request", "sped"),
        ({"model": "tts-1"}, 404, "model_not_found", "model"),
        ({"input": "#eos"}, 500, "no_audio", None),
        ({"input": "#crowd"}, 503, "overloaded", None),
    ],
)
async def test_errors_come_before_the_first_frame(
    server: Running, body: dict[str, Any], status: int, code: str, param: str | None
) -> None:
    response = await post(server, **body)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert (error["code"], error["param"]) == (code, param)
    assert error["type"] == ("invalid_request_error" if status < 500 else "server_error")
    assert (await post(server)).status_code == 200
    assert not server.engine.running


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"", 400),
        (b"\xff\xfe", 400),
        (b'{"input": "\xff"}', 400),
        (b'{"input": "\\ud800"}', 400),
        (b"[1]", 400),
        (b"[" * 100_000, 400),
        (b'{"input": "' + b"a" * 1024 * 1024 + b'"}', 413),
    ],
)
async def test_malformed_bodies(server: Running, body: bytes, status: int) -> None:
    async with server.http() as http:
        response = await http.post(SPEECH, content=body)
    assert response.status_code == status
    assert response.json()["error"]["message"]
    assert server.engine.requests == sum(WARM_UP_STREAMS)


async def test_voice_names_in_any_case(server: Running) -> None:
    assert (await post(server, seed=1)).content == (await post(server, seed=1, voice="ADA")).content


@pytest.mark.parametrize("voice", HOSTED_VOICES)
async def test_the_hosted_voices_names_are_ours_in_turn(server: Running, voice: str) -> None:
    assert (await post(server, voice=voice)).status_code == 200
    ours = server.engine.info.voices
    assert server.engine.asked[-1].voice == ours[HOSTED_VOICES.index(voice) % len(ours)]


async def test_audio_cut_short_is_not_a_plain_success(server: Running) -> None:
    for text in ("On and on #length", "#die #frames=5"):
        with pytest.raises(httpx.RemoteProtocolError):
            await post(server, input=text)
    whole = await serving_whole("On and on #length")
    assert whole.headers["x-finish-reason"] == "length"


async def serving_whole(text: str) -> httpx.Response:
    async with serving() as server:
        return await post(server, input=text, stream=False)


async def test_a_client_that_leaves_frees_the_engine(server: Running) -> None:
    async with server.http() as http:
        async with http.stream("POST", SPEECH, json={"input": "#endless"}) as response:
            await anext(response.aiter_raw())
            assert server.engine.running
        with anyio.fail_after(5):
            while server.engine.running:
                await anyio.lowlevel.checkpoint()


async def test_a_client_that_does_not_read_holds_the_engine_and_is_given_up() -> None:
    async with (
        serving(send_timeout=0.2) as server,
        server.http() as http,
        http.stream("POST", SPEECH, json={"input": "#endless", "response_format": "pcm"}),
    ):
        with anyio.fail_after(5):
            while server.engine.running:
                await anyio.lowlevel.checkpoint()
        made = server.engine.frames
        assert made * SAMPLES * 2 < 16 * 1024 * 1024  # what the kernel buffers, and no more


async def test_lists(server: Running) -> None:
    async with server.http() as http:
        voices = (await http.get("/v1/audio/voices")).json()
        models = (await http.get("/v1/models")).json()
    assert [voice["id"] for voice in voices["data"]] == ["Ada", "bob"]
    assert voices["default"] == "Ada"
    assert [model["id"] for model in models["data"]] == ["fake"]


async def test_other_paths_and_methods_answer_in_the_same_shape(server: Running) -> None:
    async with server.http() as http:
        for response in (await http.get("/nope"), await http.get(SPEECH)):
            assert response.status_code in (404, 405)
            assert response.json()["error"]["type"] == "invalid_request_error"


async def test_metrics_count(server: Running) -> None:
    await post(server, input="One two three.")
    await post(server, voice="zoe")
    async with server.http() as http:
        lines = (await http.get("/metrics")).text.splitlines()
    assert 'omni_speak_frames_sent_total{door="http"} 3.0' in lines
    assert 'omni_speak_requests_total{door="http",outcome="stop"} 1.0' in lines
    assert "omni_speak_engine_alive 1.0" in lines
    assert "omni_speak_engine_running 0.0" in lines


async def test_the_same_over_a_unix_socket(tmp_path: Path) -> None:
    async with serving(uds=tmp_path / "s.sock") as server:
        assert (tmp_path / "s.sock").stat().st_mode & 0o777 == 0o600
        assert (await post(server, seed=1)).content[44:] == expected_pcm("Hello there.", 1, 2)


async def test_speak_text_in_process_is_the_same_audio(server: Running) -> None:
    text = "One. ?! Two #frames=3. Three."
    stream = speak_text(FakeEngine(), text, seed=4)
    frames = [frame async for frame in stream]
    assert [f.index for f in frames] == list(range(5))
    assert [f.pts for f in frames] == [i * SAMPLES for i in range(5)]
    assert [f.segment for f in frames] == [0, 1, 1, 1, 2]
    assert stream.result == SpokenResult("stop", 5, 5 * SAMPLES, 3, 4)
    response = await post(server, input=text, seed=4)
    assert response.content[44:] == to_s16le(np.concatenate([f.pcm for f in frames]))


async def test_D16_a_client_that_leaves_in_the_middle_of_its_body_is_no_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.sock"
    async with serving(uds=path), await anyio.connect_unix(path) as client:
        await client.send(
            f"POST {SPEECH} HTTP/1.1\r\nhost: here\r\ncontent-length: 9\r\n"
            "expect: 100-continue\r\n\r\n".encode()
        )
        assert b"100 Continue" in await client.receive()  # its body is being waited for
        await client.send(b"{")
    assert "ERROR" not in capfd.readouterr().err
