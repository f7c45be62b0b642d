"""elevenlabs: the single-context websocket, which it opens over TLS only."""

import json
import sys

from elevenlabs.client import ElevenLabs

client = ElevenLabs(base_url=sys.argv[1], api_key="nobody-asks-for-this-key")
audio = b"".join(
    client.text_to_speech.convert_realtime(
        voice_id="Ada",
        text=iter(["Hello there ", "my friend."]),
        model_id="wren",
        output_format="pcm_24000",
    )
)
print(json.dumps({"bytes": len(audio)}))
