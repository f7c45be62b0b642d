"""ElevenLabs' multi-context protocol through livekit's plugin: two contexts at the same time."""

import asyncio
import json
import sys

import aiohttp
from livekit.plugins import elevenlabs


async def main() -> None:
    async with aiohttp.ClientSession() as session:
        tts = elevenlabs.TTS(
            base_url=f"{sys.argv[1]}/v1",
            api_key="nobody-asks-for-this-key",
            voice_id=sys.argv[2],
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
                    for word in event.frame.userdata.get("lk.timed_transcripts", []):
                        words.append(str(word))
            return {"bytes": len(audio), "words": words}

        try:
            texts = ["Hello there my friend.", "Another one speaks meanwhile."]
            print(json.dumps({"said": await asyncio.gather(*map(say, texts))}))
        finally:
            await tts.aclose()


asyncio.run(main())
