"""Other services' protocols as small clients, all with the same face: what the matrix runs over."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from omni_speak.streams.encoder import EncodedFormat

_Json = dict[str, Any]


@dataclass(frozen=True)
class Told:
    """What one message of the server says. `text` is of words whose times came; `stopped`: a
    barge-in was answered."""

    context: str | None = None
    audio: bytes = b""
    text: str = ""
    ended: bool = False
    stopped: bool = False
    problem: str | None = None


# -- websockets --------------------------------------------------------------------------------


class Speaker(ABC):
    """A websocket's client; it makes messages and reads them. `many`: contexts at the same time.
    `greets`: the server speaks first. `aligned`: words come with their times."""

    many: ClassVar[bool] = False
    greets: ClassVar[bool] = False
    aligned: ClassVar[bool] = False

    def __init__(self, format: str = "pcm_s16le", rate: int = 24_000, voice: str = "Ada") -> None:
        self.format, self.rate, self.voice = format, rate, voice

    def __repr__(self) -> str:
        return f"{type(self).__name__}-{self.format}-{self.rate}"

    @property
    @abstractmethod
    def path(self) -> str: ...

    @abstractmethod
    def say(self, context: str, text: str) -> _Json: ...

    @abstractmethod
    def end(self, context: str) -> _Json: ...

    def stop(self, context: str) -> _Json:
        """The barge-in."""
        raise NotImplementedError("the protocol has none but to close the connection")

    @abstractmethod
    def read(self, data: str | bytes) -> Told: ...


class ElevenLabs(Speaker):
    many, aligned = True, True
    _call = "multi-stream-input"
    _names: ClassVar = {"pcm_s16le": "pcm", "mulaw": "ulaw", "alaw": "alaw"}

    @property
    def path(self) -> str:
        format = f"{self._names[self.format]}_{self.rate}"
        return f"/v1/text-to-speech/{self.voice}/{self._call}?output_format={format}"

    def say(self, context: str, text: str) -> _Json:
        return {"text": text, "context_id": context}

    def end(self, context: str) -> _Json:
        return {"context_id": context, "close_context": True}

    def read(self, data: str | bytes) -> Told:
        message = json.loads(data)
        return Told(
            context=message.get("contextId"),
            audio=b64decode(message.get("audio") or ""),
            text="".join((message.get("alignment") or {"chars": []})["chars"]),
            ended=message.get("isFinal", False),
            problem=message.get("error"),
        )


class ElevenLabsSingle(ElevenLabs):
    many = False
    _call = "stream-input"

    def say(self, context: str, text: str) -> _Json:
        return {"text": text, "try_trigger_generation": True}

    def end(self, context: str) -> _Json:
        return {"text": ""}


class Cartesia(Speaker):
    many, aligned = True, True
    path = "/tts/websocket"
    _names: ClassVar = {"mulaw": "pcm_mulaw", "alaw": "pcm_alaw"}

    def _asked(self, context: str, text: str, more: bool) -> _Json:
        return {
            "context_id": context,
            "transcript": text,
            "continue": more,
            "model_id": "sonic-3",
            "voice": {"mode": "id", "id": self.voice},
            "add_timestamps": True,
            "output_format": {
                "container": "raw",
                "encoding": self._names.get(self.format, self.format),
                "sample_rate": self.rate,
            },
        }

    def say(self, context: str, text: str) -> _Json:
        return self._asked(context, text, True)

    def end(self, context: str) -> _Json:
        return self._asked(context, "", False)

    def stop(self, context: str) -> _Json:
        return {"context_id": context, "cancel": True}

    def read(self, data: str | bytes) -> Told:
        message = json.loads(data)
        words = message.get("word_timestamps", {"words": []})["words"]
        done = message["type"] == "done"
        return Told(
            context=message["context_id"],
            audio=b64decode(message.get("data", "")),
            text="".join(word + " " for word in words),
            ended=done,
            stopped=done,
            problem=message.get("error_code"),
        )


class Deepgram(Speaker):
    greets = True
    _version = "v1"
    _names: ClassVar = {"pcm_s16le": "linear16"}
    _stop, _ended, _stopped = "Clear", "Flushed", "Cleared"

    @property
    def path(self) -> str:
        encoding = self._names.get(self.format, self.format)
        query = f"encoding={encoding}&sample_rate={self.rate}&model={self.voice}"
        return f"/{self._version}/speak?{query}"

    def say(self, context: str, text: str) -> _Json:
        return {"type": "Speak", "text": text}

    def end(self, context: str) -> _Json:
        return {"type": "Flush"}

    def stop(self, context: str) -> _Json:
        return {"type": self._stop}

    def read(self, data: str | bytes) -> Told:
        if isinstance(data, bytes):
            return Told(audio=data)
        message = json.loads(data)
        kind = message["type"]
        return Told(
            ended=kind == self._ended,
            stopped=kind == self._stopped,
            problem=message["code"] if kind == "Warning" else None,
        )


class DeepgramV2(Deepgram):
    _version = "v2"
    _stop, _ended, _stopped = "Interrupt", "SpeechMetadata", "SpeechInterrupted"


SPEAKERS: list[Callable[..., Speaker]] = [
    ElevenLabs,
    ElevenLabsSingle,
    Cartesia,
    Deepgram,
    DeepgramV2,
]


# -- plain calls -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A plain call for `TEXT`: its answer is audio, encoded as `format` at `rate`, that `read`
    finds in the body, and the text of the words whose times came, none where it has no times."""

    name: str
    path: str
    body: _Json
    read: Callable[[bytes], tuple[bytes, str | None]]
    format: EncodedFormat = "pcm_s16le"
    rate: int = 24_000

    def asking(self, voice: str) -> tuple[str, _Json]:
        """Its path and body, where it asks for this voice."""
        body: _Json = json.loads(json.dumps(self.body).replace("Ada", voice))
        return self.path.replace("Ada", voice), body


TEXT = "Hello there, my friend. Good day!"


def _plain(body: bytes) -> tuple[bytes, str | None]:
    return body, None


def _openai_events(body: bytes) -> tuple[bytes, str | None]:
    events = _events(body)
    assert events[-1]["type"] == "speech.audio.done"
    return b"".join(b64decode(event["audio"]) for event in events[:-1]), None


def _cartesia_events(body: bytes) -> tuple[bytes, str | None]:
    events = _events(body)
    assert events[-1] == {"type": "done", "done": True, "status_code": 200, "context_id": None}
    told = [Cartesia().read(json.dumps(event)) for event in events]
    return b"".join(each.audio for each in told), "".join(each.text for each in told)


def _elevenlabs_lines(body: bytes) -> tuple[bytes, str | None]:
    lines = [json.loads(line) for line in body.splitlines()]
    characters = [line["alignment"]["characters"] for line in lines if line["alignment"]]
    audio = b"".join(b64decode(line["audio_base64"]) for line in lines)
    return audio, "".join("".join(each) for each in characters)


def _events(body: bytes) -> list[_Json]:
    blocks = body.decode().strip().split("\n\n")
    return [json.loads(block.split("data: ")[1]) for block in blocks]


def _openai(name: str, read: Callable[[bytes], tuple[bytes, str | None]], **body: Any) -> Call:
    asked = {"input": TEXT, "voice": "Ada", "response_format": "pcm"} | body
    return Call(name, "/v1/audio/speech", asked, read)


def _elevenlabs(
    call: str,
    read: Callable[[bytes], tuple[bytes, str | None]],
    output: str = "pcm_24000",
    format: EncodedFormat = "pcm_s16le",
    rate: int = 24_000,
) -> Call:
    path = f"/v1/text-to-speech/Ada{call}?output_format={output}"
    return Call(f"elevenlabs{call}-{output}", path, {"text": TEXT}, read, format, rate)


def _cartesia(
    call: str,
    read: Callable[[bytes], tuple[bytes, str | None]],
    encoding: str = "pcm_s16le",
    format: EncodedFormat = "pcm_s16le",
    rate: int = 24_000,
) -> Call:
    output = {"container": "raw", "encoding": encoding, "sample_rate": rate}
    body = {"transcript": TEXT, "voice": {"mode": "id", "id": "Ada"}, "output_format": output}
    if call == "sse":
        body["add_timestamps"] = True
    return Call(f"cartesia-{call}-{encoding}", f"/tts/{call}", body, read, format, rate)


def _deepgram(
    version: str, encoding: str, format: EncodedFormat = "pcm_s16le", rate: int = 24_000
) -> Call:
    query = f"model=Ada&encoding={encoding}&container=none&sample_rate={rate}"
    path = f"/{version}/speak?{query}"
    return Call(f"deepgram-{version}-{encoding}", path, {"text": TEXT}, _plain, format, rate)


CALLS = [
    _openai("openai", _plain),
    _openai("openai-whole", _plain, stream=False),
    _openai("openai-sse", _openai_events, stream_format="sse"),
    _elevenlabs("", _plain),
    _elevenlabs("/stream", _plain),
    _elevenlabs("/stream", _plain, "ulaw_8000", "mulaw", 8000),
    _elevenlabs("/with-timestamps", _elevenlabs_lines),
    _elevenlabs("/stream/with-timestamps", _elevenlabs_lines),
    _cartesia("bytes", _plain),
    _cartesia("bytes", _plain, "pcm_f32le", "pcm_f32le", 44_100),
    _cartesia("sse", _cartesia_events),
    _cartesia("sse", _cartesia_events, "pcm_alaw", "alaw", 8000),
    _deepgram("v1", "linear16"),
    _deepgram("v1", "mulaw", "mulaw", 8000),
    _deepgram("v2", "linear16", "pcm_s16le", 16_000),
]
