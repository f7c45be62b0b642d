"""livekit's plugins: URL, plugin, voice, key; a text slower than its speech, an unknown voice, a
wrong key. Its answer is there when it vanishes, in the middle of a speech that has no end."""

import asyncio
import hashlib
import json
import os
import sys

import aiohttp
from livekit.agents import APIConnectOptions, APIError
from livekit.plugins import cartesia, deepgram, elevenlabs, openai

url, plugin, VOICE, KEY = sys.argv[1:5]
ONCE = APIConnectOptions(max_retry=0)
PIECES = ("One two three four five six. ", "Seven eight nine ten eleven. ", "Twelve.")


def plugin_of(session, voice=VOICE, key=KEY):
    match plugin:
        case "elevenlabs":
            base, name = f"{url}/v1", {"voice_id": voice, "encoding": "pcm_24000"}
            return elevenlabs.TTS(base_url=base, api_key=key, http_session=session, **name)
        case "cartesia":
            return cartesia.TTS(base_url=url, api_key=key, voice=voice, http_session=session)
        case "deepgram":
            base = f"{url}/v1/speak"
            return deepgram.TTS(base_url=base, api_key=key, model=voice, http_session=session)
    base, format = f"{url}/v1", {"response_format": "pcm"}
    return openai.TTS(base_url=base, api_key=key, model="fake", voice=voice, **format)


async def events(tts, pieces, pause=0.0):
    """One whole text of a plugin that takes no pieces."""
    if plugin == "openai":
        async with tts.synthesize("".join(pieces), conn_options=ONCE) as stream:
            async for event in stream:
                yield event
        return
    async with tts.stream(conn_options=ONCE) as stream:

        async def push():
            for piece in pieces:
                stream.push_text(piece)
                await asyncio.sleep(pause)
            stream.end_input()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(push())
            async for event in stream:
                yield event


async def heard(tts, pieces, pause=0.0):
    audio, words = b"", []
    async for event in events(tts, pieces, pause):
        frame = bytes(event.frame.data)
        audio += frame if any(frame) else b""  # it may mark the end with silence
        words += map(str, event.frame.userdata.get("lk.timed_transcripts", []))
    return {"sha": hashlib.sha256(audio).hexdigest(), "words": "".join(words).split()}


async def problem_of(tts):
    try:
        await heard(tts, ["Hello there."])
    except ExceptionGroup as errors:
        return told(errors.exceptions[0])
    except APIError as error:
        return told(error)


def told(error):
    return [type(error).__name__, getattr(error, "status_code", None)]


async def main():
    async with aiohttp.ClientSession() as session:
        tts = plugin_of(session)
        answer = {
            "slow": await heard(tts, PIECES, pause=0.3),
            "voice": await problem_of(plugin_of(session, voice="nosuchvoice")),
            "key": await problem_of(plugin_of(session, key="not-one-of-the-tokens")),
            "next": await heard(tts, ["Next, please."]),
        }
        print(json.dumps(answer), flush=True)
        await anext(events(tts, ["Left #endless. Then this."]))
        os._exit(0)


asyncio.run(main())
