"""Version 2 of Deepgram's speak over a real socket: what an interrupt tells, and the warnings."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import ClientConnection, connect

from omni_speak.streams.dialects.deepgram_v2 import DeepgramV2Dialect
from omni_speak.streams.messages import Limits, SessionOpen
from tests.streams.conftest import Running, serving
from tests.streams.fake_engine import SAMPLES

pytestmark = pytest.mark.anyio

PATH = "/v2/speak?encoding=linear16&sample_rate=24000"


def dial(server: Running) -> connect:
    return connect(server.url.replace("http", "ws") + PATH, proxy=None)


async def tell(socket: ClientConnection, *messages: dict[str, Any]) -> None:
    for message in messages:
        await socket.send(json.dumps(message))


async def hear(socket: ClientConnection, kind: str) -> tuple[dict[str, Any], int]:
    """The next message of this kind, and how many bytes of audio came before it."""
    audio = 0
    with anyio.fail_after(10):
        while True:
            data = await socket.recv()
            if isinstance(data, bytes):
                audio += len(data)
            elif (message := json.loads(data))["type"] == kind:
                return message, audio


def turn(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"type": "Speak", "text": text}, {"type": "Flush"}


def interrupt(at_ms: int) -> dict[str, Any]:
    return {"type": "Interrupt", "playback_offset": {"type": "time_ms", "value": at_ms}}


async def warned(socket: ClientConnection) -> str:
    code: str = (await hear(socket, "Warning"))[0]["code"]
    return code


async def test_what_cannot_be_done_is_warned_of(server: Running) -> None:
    async with dial(server) as socket:
        await tell(socket, {"type": "Interrupt"})
        assert await warned(socket) == "NO_AUDIO_GENERATED"
        await tell(socket, {"type": "Flush"})
        assert await warned(socket) == "NO_ACTIVE_SPEECH"
        await tell(socket, *turn("?!"))
        assert await warned(socket) == "NO_SYNTHESIZABLE_TEXT"
        assert (await hear(socket, "SpeechMetadata"))[0]["audio_duration_ms"] == 0
        await tell(socket, *turn("One two three."))
        await hear(socket, "SpeechMetadata")
        await tell(socket, interrupt(100))
        await hear(socket, "SpeechInterrupted")
        await tell(socket, interrupt(100))
        assert await warned(socket) == "INVALID_INTERRUPT_OFFSET"


def test_one_interrupt_is_handled_at_a_time() -> None:
    dialect = DeepgramV2Dialect(SessionOpen(), 1.0, (0.5, 2.0))
    dialect.open(lambda turn: "")
    dialect.receive(json.dumps(turn("One.")[0]))
    dialect._made_audio = True
    dialect.receive('{"type": "Interrupt"}')
    (reply,) = dialect.receive('{"type": "Interrupt"}')
    assert json.loads(reply.data)["code"] == "INTERRUPT_IN_PROGRESS"  # type: ignore[union-attr]


async def test_an_interrupt_drops_what_waits_and_positions_go_on_from_it(server: Running) -> None:
    async with dial(server) as socket:
        await tell(socket, *turn("One two."), *turn("Say #endless"), *turn(" Never heard."))
        await hear(socket, "SpeechMetadata")
        await hear(socket, "SpeechStarted")
        await tell(socket, interrupt(100))  # the listener is still in the first turn
        heard, _ = await hear(socket, "SpeechInterrupted")
        assert (heard["text_spoken"], heard["text_remaining"]) == (
            "One",
            " two.Say #endless Never heard.",
        )
        assert heard["metadata"]["audio_duration_ms"] == 2 * 80
        await tell(socket, *turn("Four five six."))
        assert (await hear(socket, "SpeechMetadata"))[1] == 2 * 3 * SAMPLES
        await tell(socket, interrupt(100 + 130))  # 130 ms into this turn
        heard, _ = await hear(socket, "SpeechInterrupted")
        assert (heard["text_spoken"], heard["text_remaining"]) == ("Four five", " six.")
        await tell(socket, {"type": "Close"})
        total, _ = await hear(socket, "SessionMetadata")
        assert total["total_audio_duration_ms"] == 230
    assert not server.engine.running


async def test_text_that_was_refused_is_in_no_turn() -> None:
    async with serving(limits=Limits(text_chars=30)) as server, dial(server) as socket:
        for text in ("One two.", " Say #endless"):
            (speak, flush), (too_long, _) = turn(text), turn(" Too long." * 9)
            await tell(socket, speak, too_long, flush)
        assert await warned(socket) == "TEXT_TOO_LONG"
        metadata, _ = await hear(socket, "SpeechMetadata")
        assert metadata["input_character_count"] == len("One two.")
        await hear(socket, "SpeechStarted")
        await tell(socket, interrupt(100))
        heard, _ = await hear(socket, "SpeechInterrupted")
        assert (heard["text_spoken"], heard["text_remaining"]) == ("One", " two. Say #endless")
        await tell(socket, {"type": "Close"})
        total, _ = await hear(socket, "SessionMetadata")
        assert total["total_input_character_count"] == len("One two. Say #endless")


async def test_an_interrupt_without_an_offset_splits_nothing(server: Running) -> None:
    async with dial(server) as socket:
        await tell(socket, *turn("Say #endless"))
        await hear(socket, "SpeechStarted")
        with anyio.fail_after(10):
            while not isinstance(await socket.recv(), bytes):
                pass
        await tell(socket, {"type": "Interrupt"})
        heard, _ = await hear(socket, "SpeechInterrupted")
        assert heard["audio_played_ms"] == heard["metadata"]["audio_duration_ms"] > 0
        assert "text_spoken" not in heard and "text_remaining" not in heard
