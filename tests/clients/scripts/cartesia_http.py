"""cartesia: bytes in every container, server-sent events, and what is wrong."""

import hashlib
import json
import sys

import cartesia

client = cartesia.Cartesia(api_key="nobody-asks-for-this-key", base_url=sys.argv[1])
ask = {
    "model_id": "sonic-3",
    "transcript": "Hello there. Good day.",
    "voice": {"mode": "id", "id": "Ada"},
    "generation_config": {"speed": 1.5},
}
raw = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}
FORMATS = {
    "raw": raw,
    "wav": {"container": "wav", "encoding": "pcm_f32le", "sample_rate": 44100},
    "mp3": {"container": "mp3", "sample_rate": 44100, "bit_rate": 128000},
}


def told(audio: bytes, headers) -> dict:
    sha = hashlib.sha256(audio).hexdigest()
    return {"sha": sha, "head": audio[:48].hex(), "seed": int(headers["x-seed"])}


answer = {}
for name, format in FORMATS.items():
    spoken = client.tts.generate(**ask, output_format=format)
    answer[name] = told(spoken.read(), spoken.headers)
audio, words, kinds = b"", [], []
events = client.tts.generate_sse(**ask, output_format=raw, add_timestamps=True, context_id="c")
for event in events:
    kinds.append(event.type)
    if event.type == "chunk":
        audio += event.audio
    elif event.type == "timestamps":
        words += event.word_timestamps.words
answer["sse"] = told(audio, events.response.headers)
answer["words"], answer["last"], answer["context"] = words, kinds[-1], event.context_id
for name, change in {"voice": {"voice": "nosuchvoice"}, "text": {"transcript": "?"}}.items():
    try:
        client.tts.generate(**(ask | change), output_format=raw)
    except cartesia.APIStatusError as error:
        answer[name] = [error.status_code, error.body["error_code"]]
ask["transcript"] = "One #die two."  # and nothing can be asked for after that
broken = list(client.tts.generate_sse(**ask, output_format=raw, context_id="c"))
answer["broken"] = [event.type for event in broken]
answer["why"] = [broken[-1].status_code, broken[-1].error_code, broken[-1].context_id]
print(json.dumps(answer))
