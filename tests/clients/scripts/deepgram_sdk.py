"""deepgram-sdk, version 1 of speak: word by word, then Flush."""

import json
import sys

from deepgram import DeepgramClient
from deepgram.environment import DeepgramClientEnvironment

url = sys.argv[1]
ws = url.replace("http", "ws")
names = DeepgramClientEnvironment.__init__.__code__.co_varnames[1:]
environment = DeepgramClientEnvironment(**{name: url if name == "base" else ws for name in names})
client = DeepgramClient(api_key="nobody-asks-for-this-key", environment=environment)
audio, told = 0, []
with client.speak.v1.connect(model="Ada", encoding="linear16", sample_rate=24000) as socket:
    for word in ("Hello", "there", "my", "friend."):
        socket._send({"type": "Speak", "text": word})
    socket._send({"type": "Flush"})
    for message in socket:
        if isinstance(message, bytes):
            audio += len(message)
            continue
        told.append(message.type)
        if message.type == "Flushed":
            break
print(json.dumps({"bytes": audio, "told": told}))
