"""What only one of the other services' websockets has; what all have is in test_matrix."""

from __future__ import annotations

import io
import json
from base64 import b64decode
from typing import Any

import anyio
import anyio.lowlevel
import av
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.streams.conftest import Running, serving
from tests.streams.fake_engine import SAMPLES

pytestmark = pytest.mark.anyio

MULTI = "/v1/text-to-speech/Ada/multi-stream-input?output_format=pcm_24000"
SINGLE = "/v1/text-to-speech/Ada/stream-input?output_format=pcm_24000"
CARTESIA = "/tts/websocket"
DEEPGRAM = "/v1/speak?encoding=linear16&sample_rate=24000"
RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}


def dial(server: Running, path: str, **options: Any) -> connect:
    return connect(server.url.replace("http", "ws") + path, proxy=None, **options)


async def tell(socket: ClientConnection, **message: Any) -> None:
    await socket.send(json.dumps(message))


async def hear(socket: ClientConnection) -> dict[str, Any]:
    message = json.loads(await socket.recv())
    assert isinstance(message, dict)
    return message


async def hear_until(socket: ClientConnection, field: str) -> list[dict[str, Any]]:
    heard: list[dict[str, Any]] = []
    with anyio.fail_after(10):
        while not heard or not heard[-1].get(field):
            heard.append(await hear(socket))
    return heard


async def silence(server: Running) -> None:
    with anyio.fail_after(10):
        while server.engine.running:
            await anyio.lowlevel.checkpoint()


def cartesia(context: str, text: str, **more: Any) -> dict[str, Any]:
    voice = {"mode": "id", "id": "Ada"}
    return {"context_id": context, "transcript": text, "voice": voice, "output_format": RAW} | more


async def test_elevenlabs_alignment_is_the_text_and_texts_are_parted(server: Running) -> None:
    for sync in ("", "&sync_alignment=true"):
        async with dial(server, MULTI + sync) as socket:
            await tell(socket, text=" ", context_id="a")
            for text in ("Hello", "there,", "my friend. ", "Bye!"):
                await tell(socket, text=text, context_id="a")
            await tell(socket, context_id="a", flush=True, close_context=True)
            heard = await hear_until(socket, "isFinal")
        aligned = [message["alignment"] for message in heard[:-1] if message["alignment"]]
        assert "".join(c for a in aligned for c in a["chars"]) == "Hello there, my friend. Bye!"
        at = 0
        for alignment in aligned:
            begin = at if sync else 0
            assert alignment["charStartTimesMs"][0] == begin
            at = alignment["charStartTimesMs"][-1] + alignment["charDurationsMs"][-1]
        audio = b"".join(b64decode(message["audio"]) for message in heard[:-1])
        assert len(audio) == 2 * SAMPLES * 5


async def test_elevenlabs_text_normalization_can_be_off(server: Running) -> None:
    for asked, normalised in [("", True), ("auto", True), ("on", True), ("off", False)]:
        query = f"&apply_text_normalization={asked}" if asked else ""
        async with dial(server, SINGLE + query) as socket:
            await tell(socket, text="One. ")
            await tell(socket, text="")
            await hear_until(socket, "isFinal")
        assert server.engine.asked[-1].normalise == normalised
        async with server.http() as http:
            body = {"text": "One."} | ({"apply_text_normalization": asked} if asked else {})
            assert (await http.post("/v1/text-to-speech/Ada", json=body)).status_code == 200
            assert server.engine.asked[-1].normalise == normalised
            refused = await http.post(
                "/v1/text-to-speech/Ada", json={"text": "x", "apply_text_normalization": "perhaps"}
            )
            assert refused.status_code == 400
            assert "'auto', 'on' or 'off'" in refused.text
    with pytest.raises(InvalidStatus) as denied:
        async with dial(server, SINGLE + "&apply_text_normalization=perhaps"):
            pass
    assert b"auto, on or off" in denied.value.response.body


@pytest.mark.parametrize(
    ("format", "rate", "block"), [("mp3_44100_128", 44_100, 1152), ("opus_48000_64", 48_000, 960)]
)
async def test_elevenlabs_contexts_are_each_a_file_of_their_own(
    server: Running, format: str, rate: int, block: int
) -> None:
    texts = {"a": "One two. Three ", "b": "Four. Five six seven. "}
    files = dict.fromkeys(texts, b"")
    async with dial(server, MULTI.replace("pcm_24000", format)) as socket:
        for context, text in texts.items():
            await tell(socket, text=text, context_id=context)
        for context in texts:
            await tell(socket, context_id=context, flush=True, close_context=True)
        ended = 0
        with anyio.fail_after(10):
            while ended < len(texts):
                message = await hear(socket)
                files[message["contextId"]] += b64decode(message.get("audio") or "")
                ended += message.get("isFinal", False)
    for context, text in texts.items():
        with av.open(io.BytesIO(files[context])) as container:
            frames = list(container.decode(audio=0))
        assert {frame.sample_rate for frame in frames} == {rate}
        samples = sum(frame.samples for frame in frames)
        spoken = len(text.split()) * SAMPLES * rate // 24_000
        assert spoken <= samples <= spoken + 3 * block  # of which an encoder looks ahead


async def test_elevenlabs_a_name_that_was_used_is_refused_and_used_again(server: Running) -> None:
    async with dial(server, MULTI) as socket:
        for speed, told in ((1.0, "isFinal"), (9.0, "error"), (1.0, "isFinal")):
            await tell(socket, text="Hi. ", context_id="a", voice_settings={"speed": speed})
            if told == "isFinal":
                await tell(socket, context_id="a", flush=True, close_context=True)
            heard = await hear_until(socket, told)
            assert any(message.get("audio") for message in heard) == (told == "isFinal")


async def test_elevenlabs_closing_the_socket_lets_what_was_flushed_be_spoken(
    server: Running,
) -> None:
    async with dial(server, MULTI) as socket:
        await tell(socket, text="One two #frames=30. ", context_id="flushed", flush=True)
        await tell(socket, text="Say #endless. Then", context_id="not")
        heard = await hear_until(socket, "audio")
        await tell(socket, close_socket=True)
        await tell(socket, text="Too late.", context_id="c", flush=True)
        heard += [json.loads(data) async for data in socket]
        assert socket.close_code == 1000
    audio = {"flushed": 0, "not": 0}
    for message in heard:
        audio[message["contextId"]] += len(b64decode(message.get("audio") or ""))
    assert audio["flushed"] == 30 * 2 * SAMPLES
    assert sum(message.get("isFinal", False) for message in heard) == 2
    await silence(server)


async def test_cartesia_a_name_that_was_used_is_refused_and_used_again(server: Running) -> None:
    async with dial(server, CARTESIA) as socket:
        for speed, kinds in ((1.0, {"chunk", "done"}), (9.0, {"error"}), (1.0, {"chunk", "done"})):
            await tell(socket, **cartesia("a", "Hi.", generation_config={"speed": speed}))
            assert {message["type"] for message in await hear_until(socket, "done")} == kinds


async def test_elevenlabs_single_context_ends_the_connection(server: Running) -> None:
    async with dial(server, SINGLE) as socket:
        await tell(socket, text=" ", voice_settings={"speed": 1.0}, try_trigger_generation=True)
        await tell(socket, text="Hello there. ", try_trigger_generation=True)
        await tell(socket, text="")
        heard = await hear_until(socket, "isFinal")
        with pytest.raises(ConnectionClosed):
            await hear(socket)
        assert socket.close_code == 1000
    assert len(b"".join(b64decode(m["audio"]) for m in heard[:-1])) == 4 * SAMPLES


async def test_cartesia_cancel_ends_one_of_two_contexts(server: Running) -> None:
    async with dial(server, CARTESIA) as socket:
        await tell(socket, **cartesia("a", "Say #endless", **{"continue": False}))
        await tell(socket, **cartesia("b", "One two ", flush=True, **{"continue": True}))
        while (await hear(socket))["context_id"] != "a":
            pass
        await tell(socket, context_id="a", cancel=True)
        done = await hear_until(socket, "done")
        assert done[-1]["context_id"] == "a"
        await tell(socket, **cartesia("b", "three.", add_timestamps=True))
        rest = await hear_until(socket, "done")
        assert {message["context_id"] for message in rest} == {"b"}
        assert any(message.get("flush_done") for message in [*done, *rest])
    await silence(server)


@pytest.mark.parametrize(("delay", "words"), [(0, ["one", "two"]), (None, ["onetwo"])])
async def test_cartesia_parts_phrases_that_are_not_to_be_buffered(
    server: Running, delay: int | None, words: list[str]
) -> None:
    common: dict[str, Any] = {"max_buffer_delay_ms": delay, "add_timestamps": True}
    async with dial(server, CARTESIA) as socket:
        for text in ("one", "two"):
            await tell(socket, **cartesia("a", text, **common, **{"continue": True}))
        await tell(socket, **cartesia("a", "", **common))
        heard = await hear_until(socket, "done")
    told = [message["word_timestamps"] for message in heard if message["type"] == "timestamps"]
    assert [word for marks in told for word in marks["words"]] == words


async def test_cartesia_counts_flushes_and_says_which_a_chunk_is_of(server: Running) -> None:
    async with dial(server, CARTESIA) as socket:
        for text in ("One two ", "three "):
            await tell(socket, **cartesia("a", text, flush=True, **{"continue": True}))
        await tell(socket, **cartesia("a", "four."))
        heard = await hear_until(socket, "done")
    told = [(message["type"], message.get("flush_id")) for message in heard[:-1]]
    first = [("chunk", 1), ("chunk", 1), ("flush_done", 1)]
    assert told == [*first, ("chunk", 2), ("flush_done", 2), ("chunk", 3)]


async def test_deepgram_clear_is_a_barge_in_and_turns_do_not_mix(server: Running) -> None:
    async with dial(server, DEEPGRAM) as socket:
        assert (await hear(socket))["type"] == "Metadata"
        await tell(socket, type="Speak", text="Say #endless")
        await tell(socket, type="Flush")
        assert isinstance(await socket.recv(), bytes)
        await tell(socket, type="Clear")
        while isinstance(message := await socket.recv(), bytes):
            pass
        assert json.loads(message)["type"] == "Cleared"
        for text in ("One two.", "Three"):
            for word in text.split():
                await tell(socket, type="Speak", text=word)
            await tell(socket, type="Flush")
        await tell(socket, type="Close")
        heard = [data async for data in socket]
        sizes = [len(data) if isinstance(data, bytes) else json.loads(data) for data in heard]
        flushed = [{"type": "Flushed", "sequence_id": n} for n in range(2)]
        assert sizes == [2 * SAMPLES, 2 * SAMPLES, flushed[0], 2 * SAMPLES, flushed[1]]
        assert socket.close_code == 1000


async def test_empty_texts_keep_an_elevenlabs_connection_and_open_nothing(server: Running) -> None:
    async with dial(server, MULTI) as socket:
        await tell(socket, text="")
        await tell(socket, text="", context_id="a")
        await tell(socket, text="Hi", context_id="a", flush=True)  # or it waits for more
        heard = await hear_until(socket, "audio")
        await tell(socket, text="", context_id="a")
        await tell(socket, context_id="a", close_context=True)
        heard += await hear_until(socket, "isFinal")
    assert {message["contextId"] for message in heard} == {"a"}
    assert len(b"".join(b64decode(message.get("audio") or "") for message in heard)) == 2 * SAMPLES


async def test_an_idle_elevenlabs_connection_is_closed(server: Running) -> None:
    async with dial(server, MULTI + "&inactivity_timeout=1") as socket:
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1008


@pytest.mark.parametrize(
    "path", [MULTI.replace("pcm_24000", "pcm_1"), DEEPGRAM.replace("24000", "1")]
)
async def test_a_format_that_is_not_there_is_refused(server: Running, path: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await dial(server, path)
    assert refused.value.response.status_code == 400


async def test_deepgram_s_fields_that_we_do_not_have_are_refused(server: Running) -> None:
    for field in ("callback=http://x", "foo=bar"):
        with pytest.raises(InvalidStatus) as refused:
            await dial(server, f"{DEEPGRAM}&{field}")
        assert refused.value.response.status_code == 400
        async with server.http() as http:
            answer = await http.post(f"/v1/speak?{field}", json={"text": "Hello."})
        assert answer.status_code == 400
        assert f"no field '{field.partition('=')[0]}' in the query" in answer.json()["err_msg"]
    async with dial(server, f"{DEEPGRAM}&mip_opt_out=true&tag=a&tag=b"):
        pass


async def test_only_the_dialects_asked_for_are_answered() -> None:
    async with serving(dialects=["openai", "elevenlabs"]) as server:
        async with dial(server, MULTI), server.http() as http:
            assert (await http.get("/v1/models")).status_code == 200
        for path in (CARTESIA, DEEPGRAM):
            with pytest.raises(InvalidStatus):
                await dial(server, path)
