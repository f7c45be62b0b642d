"""elevenlabs: URL, voice, formats: the single-context websocket, which it opens over TLS only."""

import base64
import json
import sys

from elevenlabs.client import ElevenLabs

url, voice, *formats = sys.argv[1:]
client = ElevenLabs(base_url=url, api_key="nobody-asks-for-this-key")
answer = {}
for format in formats:
    audio = client.text_to_speech.convert_realtime(
        voice_id=voice,
        text=iter(["Hello there ", "my friend."]),
        model_id="wren",
        output_format=format,
    )
    answer[format] = base64.b64encode(b"".join(audio)).decode()
print(json.dumps(answer))
