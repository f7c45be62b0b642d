"""openai, elevenlabs, cartesia, deepgram: URL, key, text; what each raises, of its plain call and
of its websocket: the kind of error, the status, and the code in the body."""

import json
import sys

import cartesia
import openai
from deepgram import DeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from elevenlabs.client import ElevenLabs
from problems import Told, problem_of

url, key, text = sys.argv[1:4]
ws = url.replace("http", "ws")
once = {"max_retries": 0}
RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}


def of_openai():
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, **once)
    client.audio.speech.create(model="fake", voice="alloy", input=text)


def of_elevenlabs():
    speech = ElevenLabs(base_url=url, api_key=key).text_to_speech
    b"".join(speech.convert("Ada", text=text, request_options=once))


def of_elevenlabs_websocket():
    speech = ElevenLabs(base_url=url, api_key=key).text_to_speech
    b"".join(speech.convert_realtime("Ada", text=iter([text]), model_id="any"))


def of_cartesia():
    client = cartesia.Cartesia(base_url=url, api_key=key, **once)
    voice = {"mode": "id", "id": "Ada"}
    client.tts.generate(model_id="any", transcript=text, voice=voice, output_format=RAW)


def of_cartesia_websocket():
    client = cartesia.Cartesia(base_url=url, websocket_base_url=ws, api_key=key)
    with client.tts.websocket_connect() as connection:
        voice = {"mode": "id", "id": "Ada"}
        context = connection.context(model_id="any", voice=voice, output_format=RAW)
        context.push(text)
        context.no_more_inputs()
        (error,) = context.receive()
        raise Told(error.type, error.status_code, error.error_code)


def of_deepgram():
    b"".join(deepgram().speak.v1.audio.generate(text=text, model="Ada", request_options=once))


def of_deepgram_websocket(speak):
    with speak.connect(model="Ada", encoding="linear16", sample_rate=24000) as socket:
        socket._send({"type": "Speak", "text": text})
        socket._send({"type": "Flush"})
        for _ in socket:
            pass


def deepgram():
    names = DeepgramClientEnvironment.__init__.__code__.co_varnames[1:]
    places = {name: url if name == "base" else ws for name in names}
    return DeepgramClient(api_key=key, environment=DeepgramClientEnvironment(**places))


CALLS = {
    "openai": of_openai,
    "elevenlabs": of_elevenlabs,
    "elevenlabs websocket": of_elevenlabs_websocket,
    "cartesia": of_cartesia,
    "cartesia websocket": of_cartesia_websocket,
    "deepgram": of_deepgram,
    "deepgram websocket": lambda: of_deepgram_websocket(deepgram().speak.v1),
    "deepgram websocket 2": lambda: of_deepgram_websocket(deepgram().speak.v2),
}

print(json.dumps({name: problem_of(call) for name, call in CALLS.items()}))
