"""The services' own packages, one of them through every row: URL, which, voice. Its answer is there
when it vanishes, in the middle of a speech that has no end.

A client speaks a text in pieces, `pause` seconds after one another, and gives audio as bytes and
words as text; to close what it gives is to leave."""

import base64
import hashlib
import json
import os
import sys
import time

import cartesia
import openai
from deepgram import DeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from deepgram.speak.v1.types import SpeakV1Text
from deepgram.speak.v2.types import (
    SpeakV2Interrupt,
    SpeakV2InterruptPlaybackOffset,
    SpeakV2Speak,
)
from elevenlabs.client import ElevenLabs
from problems import Told, problem_of

url, which, VOICE = sys.argv[1:4]
ws = url.replace("http", "ws")
KEY = "nobody-asks-for-this-key"
RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}
ENDLESS = "Left #endless. Then"


class Plain:
    """A plain call: a text is sent at once, and nothing but leaving interrupts it."""

    in_pieces = False

    def speak(self, *pieces, voice=VOICE, pause=0.0):
        yield from self.call("".join(pieces), voice)

    def malformed(self):
        """Whatever of a request can be wrong in this package's hands."""
        list(self.call("Hello.", VOICE, wrong=True))

    def barge_in(self):
        """And what is said after it."""
        leave(self.speak(ENDLESS))
        return heard(self.speak("After that."))


class OpenAI(Plain):
    stream_format = "audio"

    def __init__(self):
        self.speech = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0).audio.speech

    def call(self, text, voice, wrong=False):
        ask = {"model": "fake", "voice": voice, "input": text, "response_format": "pcm"}
        ask |= {"stream_format": self.stream_format, "extra_body": {"sped": 1} if wrong else {}}
        with self.speech.with_streaming_response.create(**ask) as response:
            yield from self.read(response)

    def read(self, response):
        yield from response.iter_bytes()


class OpenAIEvents(OpenAI):
    stream_format = "sse"

    def read(self, response):
        for line in response.iter_lines():
            if line.startswith("data: "):
                yield base64.b64decode(json.loads(line[6:]).get("audio", ""))


class ElevenLabsPlain(Plain):
    def __init__(self):
        self.speech = ElevenLabs(base_url=url, api_key=KEY).text_to_speech

    def call(self, text, voice, wrong=False):
        more = {"additional_body_parameters": {"sped": 1}} if wrong else {}
        yield from self.read(
            voice, text=text, output_format="pcm_24000", request_options={"max_retries": 0} | more
        )

    def read(self, voice, **ask):
        yield from self.speech.stream(voice, **ask)


class ElevenLabsTimed(ElevenLabsPlain):
    def read(self, voice, **ask):
        for chunk in self.speech.stream_with_timestamps(voice, **ask):
            yield base64.b64decode(chunk.audio_base_64)
            if chunk.alignment is not None:
                yield "".join(chunk.alignment.characters)


class ElevenLabsWebsocket(Plain):
    in_pieces = True

    def __init__(self):
        self.speech = ElevenLabs(base_url=url, api_key=KEY).text_to_speech

    def speak(self, *pieces, voice=VOICE, pause=0.0, format="pcm_24000"):
        yield from self.speech.convert_realtime(
            voice, text=spaced(pieces, pause), model_id="any", output_format=format
        )

    def malformed(self):
        list(self.speak("Hello.", format="pcm_1"))


class CartesiaBytes(Plain):
    def __init__(self):
        self.tts = cartesia.Cartesia(
            api_key=KEY, base_url=url, websocket_base_url=ws, max_retries=0
        ).tts

    def call(self, text, voice, wrong=False):
        yield from self.read(
            model_id="any",
            transcript=text,
            voice={"mode": "id", "id": voice},
            output_format=RAW,
            extra_body={"misspelt": 1} if wrong else {},
        )

    def read(self, **ask):
        with self.tts.with_streaming_response.generate(**ask) as response:
            yield from response.iter_bytes()


class CartesiaEvents(CartesiaBytes):
    def read(self, **ask):
        with self.tts.generate_sse(**ask, add_timestamps=True) as events:
            yield from map(self.told, events)

    def told(self, event):
        if event.type == "error":
            raise Told(event.type, event.status_code, event.error_code)
        if event.type == "timestamps":
            return "".join(word + " " for word in event.word_timestamps.words)
        return event.audio if event.type == "chunk" else b""


class CartesiaWebsocket(CartesiaEvents):
    in_pieces = True

    def context(self, connection, voice=VOICE):
        voice = {"mode": "id", "id": voice}
        return connection.context(
            model_id="any", voice=voice, output_format=RAW, add_timestamps=True
        )

    def speak(self, *pieces, voice=VOICE, pause=0.0):
        with self.tts.websocket_connect() as connection:
            yield from self.say(self.context(connection, voice), *pieces, pause=pause)

    def say(self, context, *pieces, pause=0.0):
        for piece in spaced(pieces, pause):
            context.push(piece)
        context.no_more_inputs()
        yield from map(self.told, context.receive())

    def malformed(self):
        with self.tts.websocket_connect() as connection:
            connection.send({"misspelt": 1})
            self.told(connection.recv())

    def barge_in(self):
        with self.tts.websocket_connect() as connection:
            context = self.context(connection)
            context.push(ENDLESS)
            events = context.receive()
            next(event for event in events if event.type == "chunk")
            context.cancel()
            assert [event.type for event in events][-1] == "done"
            return heard(self.say(self.context(connection), "After that."))

    def overlapping(self, *texts):
        with self.tts.websocket_connect() as connection:
            contexts = [self.context(connection) for _ in texts]
            for pieces in zip(*texts, strict=True):
                for context, piece in zip(contexts, pieces, strict=True):
                    context.push(piece)
            for context in contexts:
                context.no_more_inputs()
            return [heard(map(self.told, context.receive())) for context in contexts]


def deepgram():
    names = DeepgramClientEnvironment.__init__.__code__.co_varnames[1:]
    places = {name: url if name == "base" else ws for name in names}
    return DeepgramClient(api_key=KEY, environment=DeepgramClientEnvironment(**places)).speak


class DeepgramPlain(Plain):
    def __init__(self):
        self.service = deepgram().v1

    def call(self, text, voice, wrong=False):
        yield from self.service.audio.generate(
            text=text,
            model=voice,
            encoding="nonesuch" if wrong else "linear16",
            container="none",
            request_options={"max_retries": 0},
        )


class Deepgram2Plain(DeepgramPlain):
    def __init__(self):
        self.service = deepgram().v2


class DeepgramWebsocket(Plain):
    in_pieces = True
    ended, interrupted = "Flushed", "Cleared"

    def __init__(self):
        self.service = deepgram().v1

    def connect(self, voice=VOICE):
        return self.service.connect(model=voice, encoding="linear16", sample_rate="24000")

    def speak(self, *pieces, voice=VOICE, pause=0.0):
        with self.connect(voice) as socket:
            yield from self.say(socket, *pieces, pause=pause)

    def say(self, socket, *pieces, pause=0.0):
        for piece in spaced(pieces, pause):
            self.send(socket, piece)
        socket.send_flush()
        yield from self.until(socket, self.ended)

    def until(self, socket, kind):
        """The audio up to this message."""
        while True:
            message = socket.recv()
            if isinstance(message, bytes):
                yield message
            elif message.type == kind:
                return

    def send(self, socket, piece):
        socket.send_text(SpeakV1Text(text=piece))

    def interrupt(self, socket):
        socket.send_clear()

    def barge_in(self):
        with self.connect() as socket:
            self.send(socket, ENDLESS)
            next(self.until(socket, self.ended))
            self.interrupt(socket)
            list(self.until(socket, self.interrupted))
            return heard(self.say(socket, "After that."))

    def malformed(self):
        with self.connect() as socket:
            socket._send({"type": "Speek"})
            while (message := socket.recv()).type not in ("Warning", "Error"):
                pass
            # And the connection goes on.
            raise Told(message.type, len(b"".join(self.say(socket, "Well."))), message.code)


class Deepgram2Websocket(DeepgramWebsocket):
    ended, interrupted = "SpeechMetadata", "SpeechInterrupted"

    def __init__(self):
        self.service = deepgram().v2

    def send(self, socket, piece):
        socket.send_speak(SpeakV2Speak(text=piece))

    def interrupt(self, socket):
        offset = SpeakV2InterruptPlaybackOffset(value=40)
        socket.send_interrupt(SpeakV2Interrupt(playback_offset=offset))


def spaced(pieces, pause):
    for number, piece in enumerate(pieces):
        if number:
            time.sleep(pause)
        yield piece


def heard(told):
    audio, words = b"", ""
    for each in told:
        audio += each if isinstance(each, bytes) else b""
        words += each if isinstance(each, str) else ""
    return {"sha": hashlib.sha256(audio).hexdigest(), "words": words.split()}


def leave(stream):
    next(each for each in stream if isinstance(each, bytes) and each)
    stream.close()


CLIENTS = {
    "openai": OpenAI,
    "openai-sse": OpenAIEvents,
    "elevenlabs-http": ElevenLabsPlain,
    "elevenlabs-http-timed": ElevenLabsTimed,
    "elevenlabs": ElevenLabsWebsocket,
    "cartesia-bytes": CartesiaBytes,
    "cartesia-sse": CartesiaEvents,
    "cartesia": CartesiaWebsocket,
    "deepgram-http": DeepgramPlain,
    "deepgram-http-2": Deepgram2Plain,
    "deepgram": DeepgramWebsocket,
    "deepgram-2": Deepgram2Websocket,
}

client = CLIENTS[which]()
answer = {
    "happy": heard(client.speak("Hello there, ", "my friend. Good ", "day!")),
    "barge-in": client.barge_in(),
    "voice": problem_of(lambda: list(client.speak("Hello.", voice="nosuchvoice"))),
    "malformed": problem_of(client.malformed),
    "next": heard(client.speak("Next, please.")),
}
if client.in_pieces:
    answer["slow"] = heard(client.speak("One two. Three ", "four. Five ", "six.", pause=0.3))
if hasattr(client, "overlapping"):
    answer["overlapping"] = client.overlapping(["First two ", "three."], ["Second ", "text."])
print(json.dumps(answer), flush=True)
next(each for each in client.speak(ENDLESS) if isinstance(each, bytes) and each)
os._exit(0)
