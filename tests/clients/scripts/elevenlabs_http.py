"""elevenlabs: the plain HTTP calls, in several formats, and what is wrong."""

import base64
import hashlib
import json
import sys

from elevenlabs import VoiceSettings
from elevenlabs.client import ElevenLabs
from elevenlabs.core.api_error import ApiError

client = ElevenLabs(base_url=sys.argv[1], api_key="nobody-asks-for-this-key")
speech = client.text_to_speech
ask = {"voice_id": "Ada", "text": "Hello there. Good day.", "model_id": "wren", "seed": 7}
FORMATS = ("pcm_24000", "mp3_44100_128", "opus_48000_64", "ulaw_8000", "wav_24000")


def told(audio: bytes, characters: str = "") -> dict:
    sha = hashlib.sha256(audio).hexdigest()
    return {"sha": sha, "bytes": len(audio), "head": audio[:4].hex(), "characters": characters}


answer = {name: told(b"".join(speech.convert(**ask, output_format=name))) for name in FORMATS}
answer["stream"] = told(b"".join(speech.stream(**ask, output_format="pcm_24000")))
fast = speech.convert(**ask, output_format="pcm_24000", voice_settings=VoiceSettings(speed=1.2))
answer["fast"] = told(b"".join(fast))
timed = speech.convert_with_timestamps(**ask, output_format="pcm_24000")
characters = "".join(timed.alignment.characters)
answer["timed"] = told(base64.b64decode(timed.audio_base_64), characters)
audio, characters, chunks, ends = b"", "", 0, [0.0]
for chunk in speech.stream_with_timestamps(**ask, output_format="pcm_24000"):
    audio, chunks = audio + base64.b64decode(chunk.audio_base_64), chunks + 1
    if chunk.alignment is not None:
        characters += "".join(chunk.alignment.characters)
        ends += chunk.alignment.character_end_times_seconds
answer["stream_timed"] = told(audio, characters)
answer["chunks"], answer["in_order"], answer["end"] = chunks, ends == sorted(ends), ends[-1]
for name, change in {"voice": {"voice_id": "nosuchvoice"}, "text": {"text": ""}}.items():
    try:
        b"".join(speech.convert(**(ask | change)))
    except ApiError as error:
        answer[name] = [error.status_code, error.body["detail"]["status"]]
print(json.dumps(answer))
