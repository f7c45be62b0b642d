"""livekit's plugins, fed word by word: URL, plugin, voice; two texts one after the other, and at
the same time; then one that is interrupted, and what is said after it."""

import asyncio
import json
import sys

import aiohttp
from livekit.plugins import cartesia, deepgram, elevenlabs

url, plugin, voice = sys.argv[1:4]
TEXTS = ["Hello there my friend.", "Another one speaks meanwhile."]


async def main() -> None:
    async with aiohttp.ClientSession() as session:
        key = "nobody-asks-for-this-key"
        if plugin == "cartesia":
            tts = cartesia.TTS(base_url=url, api_key=key, voice=voice, http_session=session)
        elif plugin == "deepgram":
            tts = deepgram.TTS(
                base_url=f"{url}/v1/speak", api_key=key, model=voice, http_session=session
            )
        else:
            tts = elevenlabs.TTS(
                base_url=f"{url}/v1",
                api_key=key,
                voice_id=voice,
                encoding="pcm_24000",
                http_session=session,
            )

        async def say(text: str) -> dict:
            audio, words = b"", []
            async with tts.stream() as stream:
                for word in text.split(" "):
                    stream.push_text(word + " ")
                stream.end_input()
                async for event in stream:
                    audio += bytes(event.frame.data)
                    words += map(str, event.frame.userdata.get("lk.timed_transcripts", []))
            return {"bytes": len(audio), "words": "".join(words).split()}

        said = [await say(text) for text in TEXTS]
        said += await asyncio.gather(*map(say, TEXTS))

        async with tts.stream() as stream:
            stream.push_text("Say #endless")
            stream.end_input()
            await anext(aiter(stream))
        after = await say("Yes, what?")
        await tts.aclose()
        print(json.dumps({"said": said, "after": after}))


asyncio.run(main())
