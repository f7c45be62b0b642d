"""vllm-omni's DuplexClient: URL, maybe a key; turns, a barge-in, a connection that breaks while it
speaks, text slower than its speech, and what is wrong. Its answer is there when it vanishes, in the
middle of a speech that has no end."""

import asyncio
import hashlib
import importlib.util
import json
import os
import sys

# The package's own __init__ imports its server, which needs torch; its client does not.
package = importlib.util.find_spec("vllm_omni")
sys.modules["vllm_omni"] = importlib.util.module_from_spec(package)
from vllm_omni.clients.duplex import (  # noqa: E402
    ConnectionResumed,
    DuplexClient,
    DuplexConnectionError,
    DuplexProtocolError,
    ReconnectPolicy,
    SessionConfig,
)

url = "?token=".join(sys.argv[1:]).replace("http", "ws")
config = SessionConfig(voice="Ada")
reconnect = ReconnectPolicy(backoff_s=(0.0, 0.01))


def connect(config=config):
    return DuplexClient(url, model="fake", config=config, reconnect=reconnect)


async def say(client, *pieces, pause=0.0):
    for piece in pieces:
        await client.send({"type": "input.text.append", "text": piece})
        await asyncio.sleep(pause)
    await client.commit()


async def hear(client, response):
    audio = b""
    async for chunk in response.audio():
        audio += chunk
        await client.ack_playback(response.played_ms, response_id=response.response_id)
    done = response.done_event.raw["response"]["status"]
    sha = hashlib.sha256(audio).hexdigest()
    return {"sha": sha, "bytes": len(audio), "words": response.transcript, "status": done}


async def turns():
    async with connect() as client:
        responses = client.responses()
        heard = []
        for pieces in (("Hello ", "there, ", "my friend."), ("Another one.",)):
            await say(client, *pieces)
            heard.append(await hear(client, await anext(responses)))
        return heard


async def barge_in():
    async with connect() as client:
        responses, events = client.responses(), client.events()
        told = asyncio.ensure_future(anext(e async for e in events if "truncated" in e.type))
        await say(client, "Say #endless")
        response = await anext(responses)
        await anext(response.audio())
        await client.ack_playback(80, response_id=response.response_id)
        await client.send({"type": "barge_in"})
        interrupted = await told
        cut = await hear(client, response)
        await say(client, "Yes?")
        again = await hear(client, await anext(responses))
        heard = [interrupted.raw["audio_end_ms"], interrupted.raw["text_remaining"]]
        return {"heard": heard, "cut": cut["status"], "again": again}


async def broken():
    async with connect() as client:
        responses = client.responses()
        resumed = asyncio.ensure_future(
            anext(e async for e in client.events() if isinstance(e, ConnectionResumed))
        )
        await client.send({"type": "input.text.append", "text": "One two three #frames=60 four. "})
        await client.commit(final=False)
        response = await anext(responses)
        chunks = response.audio()
        size = len(await anext(chunks))
        client._ws.transport.abort()
        await resumed
        await say(client, "The end.")
        size += sum([len(chunk) async for chunk in chunks])
        return {"bytes": size, "words": response.transcript}


async def slow():
    async with connect() as client:
        await say(client, "Five six. Seven ", "eight. Nine ", "ten.", pause=0.3)
        return await hear(client, await anext(client.responses()))


async def unknown_voice():
    try:
        async with connect(SessionConfig(voice="nosuchvoice")):
            pass
    except (DuplexConnectionError, DuplexProtocolError) as error:
        return [type(error).__name__, str(error)]


async def vanish():
    async with connect() as client:
        await say(client, "Left #endless")
        await anext((await anext(client.responses())).audio())
        os._exit(0)


async def refused(ask):
    async with connect() as client:
        await ask(client)
        try:
            await hear(client, await anext(client.responses()))
        except DuplexProtocolError as error:
            return [error.raw["error"]["type"], error.code]


async def main():
    return {
        "turns": await turns(),
        "barge_in": await barge_in(),
        "broken": await broken(),
        "audio": await refused(lambda client: client.append_audio(b"\0\0")),
        "full": await refused(lambda client: say(client, "Too #crowd many")),
        "malformed": await refused(lambda client: say(client, 5)),
        "slow": await slow(),
        "voice": await unknown_voice(),
    }


try:
    print(json.dumps(asyncio.run(main())), flush=True)
    asyncio.run(vanish())
except DuplexConnectionError as error:
    print(json.dumps({"not let in": str(error)}))
