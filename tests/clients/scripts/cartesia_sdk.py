"""cartesia: a context whose text comes in pieces."""

import json
import sys

from cartesia import Cartesia

url = sys.argv[1]
client = Cartesia(
    api_key="nobody-asks-for-this-key",
    base_url=url,
    websocket_base_url=url.replace("http", "ws"),
)
audio, words = b"", []
with client.tts.websocket_connect() as connection:
    context = connection.context(
        model_id="wren",
        voice={"mode": "id", "id": "Ada"},
        output_format={"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000},
        add_timestamps=True,
    )
    for piece in ("Hello there ", "my friend."):
        context.push(piece)
    context.no_more_inputs()
    for event in context.receive():
        if event.type == "chunk":
            audio += event.audio
        elif event.type == "timestamps":
            words += event.word_timestamps.words
print(json.dumps({"bytes": len(audio), "words": words}))
