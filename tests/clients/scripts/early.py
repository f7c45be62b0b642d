"""elevenlabs, cartesia, deepgram: URL; the first bytes of a text that has no end, by its plain call
in every format, and how many come before it leaves."""

import json
import sys

from cartesia import Cartesia
from deepgram import DeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from elevenlabs.client import ElevenLabs

url, key, text = sys.argv[1], "nobody-asks-for-this-key", "Say #endless"
names = DeepgramClientEnvironment.__init__.__code__.co_varnames[1:]
places = DeepgramClientEnvironment(**dict.fromkeys(names, url))
deepgram = DeepgramClient(api_key=key, environment=places).speak
elevenlabs = ElevenLabs(base_url=url, api_key=key).text_to_speech
cartesia = Cartesia(base_url=url, api_key=key).tts.with_streaming_response


def first(chunks):
    size = len(next(chunk for chunk in chunks if chunk))
    chunks.close()
    return size


def of_cartesia(**format):
    voice = {"mode": "id", "id": "Ada"}
    ask = {"model_id": "any", "transcript": text, "voice": voice, "output_format": format}
    with cartesia.generate(**ask) as response:
        return first(response.iter_bytes())


answer = {
    f"elevenlabs {format}": first(elevenlabs.stream("Ada", text=text, output_format=format))
    for format in (
        *("pcm_8000", "pcm_16000", "pcm_22050", "pcm_24000", "pcm_44100", "pcm_48000"),
        *("mp3_22050_32", "mp3_44100_64", "mp3_44100_128", "mp3_44100_192"),
        *("opus_48000_32", "opus_48000_64", "opus_48000_128", "ulaw_8000", "alaw_8000"),
    )
}
for encoding in ("pcm_s16le", "pcm_f32le", "pcm_mulaw", "pcm_alaw"):
    for container in ("raw", "wav"):
        format = {"container": container, "encoding": encoding, "sample_rate": 24000}
        answer[f"cartesia {encoding} {container}"] = of_cartesia(**format)
mp3 = {"container": "mp3", "sample_rate": 44100, "bit_rate": 128000}
answer["cartesia mp3"] = of_cartesia(**mp3)
for version, speak in (("v1", deepgram.v1), ("v2", deepgram.v2)):
    for encoding in ("linear16", "mulaw", "alaw", "mp3", "opus", "flac", "aac"):
        chunks = speak.audio.generate(text=text, model="Ada", encoding=encoding)
        answer[f"deepgram {version} {encoding}"] = first(chunks)
print(json.dumps(answer))
