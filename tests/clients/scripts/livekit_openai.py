"""livekit's OpenAI plugin, which speaks whole texts: URL; its own format and samples, an
interruption and what is said after it, a model that is not there."""

import asyncio
import json
import sys

from livekit.agents import APIConnectOptions, APIStatusError
from livekit.plugins import openai

url = sys.argv[1]


def plugin(model="fake", **options):
    return openai.TTS(base_url=f"{url}/v1", api_key="any", model=model, voice="Ada", **options)


async def say(tts, **options):
    async with tts.synthesize("Hello there my friend.", **options) as stream:
        # The emitter may mark the end with a frame of silence.
        frames = [bytes(event.frame.data) async for event in stream]
        return sum(len(frame) for frame in frames if any(frame))


async def main():
    mp3, pcm, absent = plugin(), plugin(response_format="pcm"), plugin(model="absent")
    told = {"mp3": await say(mp3), "pcm": await say(pcm)}
    async with pcm.synthesize("Say #endless") as stream:
        await anext(aiter(stream))
    told["after"] = await say(pcm)
    try:
        await say(absent, conn_options=APIConnectOptions(max_retry=0))
    except APIStatusError as error:
        told["refused"] = error.status_code
    for tts in (mp3, pcm, absent):
        await tts.aclose()
    print(json.dumps(told))


asyncio.run(main())
