"""openai: raw, streamed, SSE, and what is wrong."""

import base64
import hashlib
import json
import sys

import openai

client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="nobody-asks-for-this-key")
ask = {
    "model": "fake",
    "voice": "alloy",
    "input": "Hello there. Good day.",
    "extra_body": {"seed": 7},
}
speech = client.audio.speech

answer = {"models": [model.id for model in client.models.list()]}
endless = ask | {"input": "Say #endless"}
for format in ("pcm", "wav", "mp3", "opus", "flac", "aac"):
    whole = speech.create(**ask, response_format=format)
    with speech.with_streaming_response.create(**endless, response_format=format) as response:
        early = next(response.iter_bytes())
    answer[format] = {
        "type": whole.response.headers["content-type"],
        "data": base64.b64encode(whole.content).decode(),
        "early": len(early),
    }
fast = speech.create(**ask, speed=1.5, response_format="pcm")
answer["fast"] = hashlib.sha256(fast.content).hexdigest()
with speech.with_streaming_response.create(**ask, response_format="pcm") as response:
    streamed = b"".join(response.iter_bytes())
answer["streamed"] = hashlib.sha256(streamed).hexdigest()


def events(**asked):
    with speech.with_streaming_response.create(
        **(ask | {"response_format": "pcm"} | asked)
    ) as response:
        for line in response.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line[6:])


stream = {"extra_body": {"seed": 7, "stream": True}}  # vLLM-Omni's field
for name, asked in {"sse": {"stream_format": "sse"}, "stream": stream}.items():
    *deltas, done = events(**asked)
    assert {delta["type"] for delta in deltas} == {"speech.audio.delta"}
    audio = b"".join(base64.b64decode(delta["audio"]) for delta in deltas)
    answer[name] = hashlib.sha256(audio).hexdigest()
    answer[f"{name} usage"] = done["usage"]
raw = speech.create(**(ask | stream), response_format="pcm", stream_format="audio")
answer["stream as audio"] = hashlib.sha256(raw.content).hexdigest()

for name, change in {
    "voice": {"voice": "nosuchvoice"},
    "model": {"model": "nosuchmodel"},
    "text": {"input": ""},
}.items():
    try:
        speech.create(**(ask | change))
    except openai.APIStatusError as error:
        answer[name] = [error.status_code, error.code]
print(json.dumps(answer))
