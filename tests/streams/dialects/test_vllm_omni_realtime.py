"""vLLM-Omni's duplex websocket: the pure dialect, and over a real socket what goes wrong."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import anyio
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from omni_speak.streams.access import Policy
from tests.streams.conftest import Running, serving
from tests.streams.dialects.test_dialects import dial, hear, silence, tell
from tests.streams.fake_engine import SAMPLES

pytestmark = pytest.mark.anyio

PATH = "/v1/realtime?duplex=1"


async def opened(socket: Any, **session: Any) -> dict[str, Any]:
    await tell(socket, type="session.update", session=session)
    created = await hear(socket)
    assert created["type"] == "session.created"
    return created


async def hear_until(socket: Any, kind: str) -> list[dict[str, Any]]:
    heard: list[dict[str, Any]] = []
    with anyio.fail_after(10):
        while not heard or heard[-1]["type"] != kind:
            heard.append(await hear(socket))
    return heard


def audio(heard: list[dict[str, Any]]) -> bytes:
    kind = "response.output_audio.delta"
    return b"".join(b64decode(message["delta"]) for message in heard if message["type"] == kind)


async def test_a_session_has_the_voice_and_the_sound_asked_for(server: Running) -> None:
    async with dial(server, PATH) as socket:
        output = {"output": {"sample_rate_hz": 16000}}
        created = await opened(socket, voice="bob", output_audio_format="pcm16", audio=output)
        assert created["session"]["voice"] == "bob" and created["resume_token"]
        await tell(socket, type="input.text.append", text="Hello there.")
        await tell(socket, type="response.create")
        heard = await hear_until(socket, "response.done")
        assert len(audio(heard)) == 2 * 2 * SAMPLES * 16 // 24
        assert {m["sample_rate_hz"] for m in heard if "sample_rate_hz" in m} == {16000}
        numbers = [message["server_event_seq"] for message in heard]
        assert numbers == sorted(set(numbers)) and numbers[0] == 1
        await tell(socket, type="session.close")
        assert (await hear(socket))["type"] == "session.closed"
        with pytest.raises(ConnectionClosed):
            await hear(socket)
        assert socket.close_code == 1000


async def test_a_session_can_change_its_voice_but_not_its_sound(server: Running) -> None:
    async with dial(server, PATH) as socket:
        await opened(socket)
        await tell(socket, type="session.update", session={"voice": "bob"})
        assert (await hear(socket))["session"]["voice"] == "bob"
        await tell(socket, type="session.update", session={"output_audio_format": "g711_ulaw"})
        assert (await hear(socket))["error"]["code"] == "format_fixed"


@pytest.mark.parametrize(
    ("session", "code"),
    [
        ({"model": "another"}, "model_not_found"),
        ({"voice": "zoe"}, "unknown_voice"),
        ({"modalities": ["text"]}, "invalid_message"),
        ({"instructions": "Whisper."}, "invalid_message"),
        ({"turn_detection": {"type": "server_vad"}}, "invalid_message"),
        ({"misspelt": 1}, "unknown_field"),
    ],
)
async def test_what_a_session_cannot_be_is_refused_and_it_can_be_opened_again(
    server: Running, session: dict[str, Any], code: str
) -> None:
    async with dial(server, PATH) as socket:
        await tell(socket, type="session.update", session=session)
        error = (await hear(socket))["error"]
        assert (error["code"], error["param"]) == (code, f"session.{next(iter(session))}")
        await opened(socket)


@pytest.mark.parametrize(
    "data",
    ["{", "[]", b"\x00", '{"type": "input_audio_buffer.append", "audio": ""}', '{"type": "x"}'],
)
async def test_a_malformed_message_leaves_the_session_usable(
    server: Running, data: str | bytes
) -> None:
    async with dial(server, PATH) as socket:
        await opened(socket)
        await socket.send(data)
        assert (await hear(socket))["type"] == "error"
        await tell(socket, type="input.text.append", text="Hello.")
        await tell(socket, type="input.commit")
        assert audio(await hear_until(socket, "response.done"))


async def test_text_behind_a_commit_waits_for_done_or_barges_in(server: Running) -> None:
    async with dial(server, PATH) as socket:
        await opened(socket)
        await tell(socket, type="input.commit")
        assert (await hear(socket))["error"]["code"] == "input_audio_buffer_commit_empty"
        await tell(socket, type="input.text.append", text="Say #endless")
        await tell(socket, type="input.commit")
        await tell(socket, type="input.text.append", text="More.")
        error = (await hear_until(socket, "error"))[-1]["error"]
        assert error["code"] == "conversation_already_has_active_response"
        await tell(socket, type="playback.ack", played_ms=160, response_id="resp_1")
        await tell(socket, type="barge_in")
        heard = await hear_until(socket, "response.done")
        assert heard[-2]["type"] == "conversation.item.truncated"
        assert heard[-1]["response"]["status"] == "cancelled"
        await tell(socket, type="input.text.append", text="More.")
        await tell(socket, type="input.commit")
        heard = await hear_until(socket, "response.done")
        assert heard[-1]["response_id"] == "resp_2" and len(audio(heard)) == 2 * SAMPLES
    await silence(server)


async def test_a_cancelled_response_is_done(server: Running) -> None:
    async with dial(server, PATH) as socket:
        await opened(socket)
        await tell(socket, type="input.text.append", text="Say #endless")
        await tell(socket, type="response.cancel", response_id="resp_9")
        await tell(socket, type="input.commit")
        await hear_until(socket, "response.output_audio.delta")
        await tell(socket, type="response.cancel", response_id="resp_1")
        done = (await hear_until(socket, "response.done"))[-1]
        assert done["response"]["status"] == "cancelled"
    await silence(server)


async def test_a_session_that_is_resumed_goes_on_byte_for_byte(server: Running) -> None:
    text = "One two #frames=40 three."
    async with dial(server, PATH) as socket:
        created = await opened(socket)
        await tell(socket, type="input.text.append", text=text)
        await tell(socket, type="input.commit")
        heard = [await hear(socket) for _ in range(9)]
        socket.transport.abort()
    async with dial(server, PATH) as socket:
        await tell(
            socket,
            type="session.resume",
            session_id=created["session_id"],
            resume_token=created["resume_token"],
            last_received_server_event_seq=heard[-1]["server_event_seq"],
        )
        assert (await hear(socket))["type"] == "session.resumed"
        heard += await hear_until(socket, "response.done")
        numbers = [message["server_event_seq"] for message in heard]
        assert numbers == sorted(set(numbers))
        words = "".join(m["delta"] for m in heard if "transcript" in m["type"])
        assert words == text and len(audio(heard)) == 2 * 40 * SAMPLES


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_a_session_is_not_resumed_without_its_token(server: Running, token: str) -> None:
    async with dial(server, PATH) as socket, dial(server, PATH) as thief:
        session = (await opened(socket))["session_id"]
        await tell(thief, type="session.resume", session_id=session, resume_token=token)
        assert (await hear(thief))["error"]["code"] == "invalid_session_resume"
        await tell(socket, type="input.text.append", text="Hello.")
        await tell(socket, type="input.commit")
        assert audio(await hear_until(socket, "response.done"))


async def test_only_duplex_is_answered_and_only_with_a_key() -> None:
    async with serving(policy=Policy(tokens=("a-token-long-enough",))) as server:
        key = {"authorization": "Bearer a-token-long-enough"}
        for path, headers, status in ((PATH, {}, 401), ("/v1/realtime", key, 400)):
            with pytest.raises(InvalidStatus) as refused:
                await dial(server, path, additional_headers=headers)
            assert refused.value.response.status_code == status
        async with dial(server, PATH, additional_headers=key):
            pass
