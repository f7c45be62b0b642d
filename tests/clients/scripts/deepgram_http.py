"""deepgram-sdk: the plain call of both versions, in several encodings, and what is wrong."""

import hashlib
import json
import sys

from deepgram import DeepgramClient
from deepgram.core.api_error import ApiError
from deepgram.environment import DeepgramClientEnvironment

url = sys.argv[1]
names = DeepgramClientEnvironment.__init__.__code__.co_varnames[1:]
environment = DeepgramClientEnvironment(**dict.fromkeys(names, url))
client = DeepgramClient(api_key="nobody-asks-for-this-key", environment=environment)
ask = {"text": "Hello there. Good day.", "model": "Ada"}
FORMATS = {
    "mp3": {},
    "wav": {"encoding": "linear16"},
    "pcm": {"encoding": "linear16", "container": "none", "speed": 1.5},
    "mulaw": {"encoding": "mulaw", "container": "none"},
    "opus": {"encoding": "opus"},
}

answer = {}
for version in (client.speak.v1, client.speak.v2):
    for name, change in FORMATS.items():
        with version.audio.with_raw_response.generate(**ask, **change) as response:
            audio = b"".join(response.data)
            headers = response.headers
        answer[name] = {
            "type": headers["content-type"],
            "sha": hashlib.sha256(audio).hexdigest(),
            "bytes": len(audio),
            "head": audio[:4].hex(),
            "seed": int(headers["x-seed"]),
        }
for name, change in {"voice": {"model": "nosuchvoice"}, "text": {"text": ""}}.items():
    try:
        b"".join(client.speak.v1.audio.generate(**(ask | change)))
    except ApiError as error:
        answer[name] = [error.status_code, error.body["err_code"]]
print(json.dumps(answer))
