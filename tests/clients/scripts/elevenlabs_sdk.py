"""elevenlabs: the single-context websocket, which it opens over TLS only, in several formats."""

import base64
import json
import sys

from elevenlabs.client import ElevenLabs

client = ElevenLabs(base_url=sys.argv[1], api_key="nobody-asks-for-this-key")
answer = {}
for format in ("pcm_24000", "ulaw_8000", "mp3_44100_128", "mp3_22050_32", "opus_48000_64"):
    audio = client.text_to_speech.convert_realtime(
        voice_id="Ada",
        text=iter(["Hello there ", "my friend."]),
        model_id="wren",
        output_format=format,
    )
    answer[format] = base64.b64encode(b"".join(audio)).decode()
print(json.dumps(answer))
