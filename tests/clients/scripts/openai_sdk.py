"""openai: raw, streamed, SSE, and what is wrong."""

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
for format in ("pcm", "wav", "mp3", "opus", "flac", "aac"):
    whole = speech.create(**ask, response_format=format)
    answer[format] = {
        "type": whole.response.headers["content-type"],
        "head": whole.content[:4].hex(),
        "sha": hashlib.sha256(whole.content).hexdigest(),
    }
with speech.with_streaming_response.create(**ask, response_format="pcm") as response:
    streamed = b"".join(response.iter_bytes())
answer["streamed"] = hashlib.sha256(streamed).hexdigest()

audio, usage = b"", None
with speech.with_streaming_response.create(
    **ask, response_format="pcm", stream_format="sse"
) as response:
    import base64

    for line in response.iter_lines():
        if not line.startswith("data: "):
            continue
        event = json.loads(line[6:])
        if event["type"] == "speech.audio.delta":
            audio += base64.b64decode(event["audio"])
        else:
            usage = event["usage"]
answer["sse"], answer["usage"] = hashlib.sha256(audio).hexdigest(), usage

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
