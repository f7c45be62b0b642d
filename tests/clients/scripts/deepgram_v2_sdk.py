"""deepgram-sdk, version 2 of speak: a turn, a faster one, and one that is interrupted."""

import json
import sys

from deepgram import DeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from deepgram.speak.v2.types import (
    SpeakV2Configure,
    SpeakV2Interrupt,
    SpeakV2InterruptPlaybackOffset,
    SpeakV2Speak,
)

url = sys.argv[1]
ws = url.replace("http", "ws")
names = DeepgramClientEnvironment.__init__.__code__.co_varnames[1:]
environment = DeepgramClientEnvironment(**{name: url if name == "base" else ws for name in names})
client = DeepgramClient(api_key="nobody-asks-for-this-key", environment=environment)

with client.speak.v2.connect(model="Ada", encoding="linear16", sample_rate="24000") as socket:

    def hear(last: str) -> list:
        """Up to this message: the others' types, and how much audio came between them."""
        heard = []
        while True:
            message = socket.recv()
            if not isinstance(message, bytes):
                heard.append(message)
                if message.type == last:
                    return heard
            elif heard and isinstance(heard[-1], int):
                heard[-1] += len(message)
            else:
                heard.append(len(message))

    told = [each if isinstance(each, int) else each.type for each in hear("Connected")]
    for word in ("Hello ", "there ", "my ", "friend."):
        socket.send_speak(SpeakV2Speak(text=word))
    socket.send_flush()
    first = hear("SpeechMetadata")
    told += [each if isinstance(each, int) else each.type for each in first]
    socket.send_configure(SpeakV2Configure(speed=1.5))
    applied = hear("ConfigureSuccess")[-1].applied.speed
    socket.send_configure(SpeakV2Configure(speed=9))
    failure = hear("ConfigureFailure")[-1].code
    socket.send_interrupt(
        SpeakV2Interrupt(playback_offset=SpeakV2InterruptPlaybackOffset(value=200))
    )
    cut = hear("SpeechInterrupted")[-1]
    socket.send_close()
    total = hear("SessionMetadata")[-1]

answer = {
    "told": told,
    "metadata": first[-1].dict(),
    "applied": applied,
    "failure": failure,
    "interrupted": cut.dict(),
    "total": total.dict(),
}
print(json.dumps(answer))
