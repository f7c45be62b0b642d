"""Other services' protocols as small clients, all with the same face: what the matrix runs over."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from omni_speak.streams.audio import WAV_HEADER_BYTES
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
    `greets`: the server answers `hello`, or speaks first. `aligned`: words come with their times.
    `stops`: a barge-in has a message. `one_stream`: a connection ends with what it speaks."""

    many: ClassVar[bool] = False
    greets: ClassVar[bool] = False
    aligned: ClassVar[bool] = False
    stops: ClassVar[bool] = False
    one_stream: ClassVar[bool] = False
    full: ClassVar[tuple[str, int | None]] = ("overloaded", None)
    """What is told when the engine is full, and what closes the connection; none where that ends
    the context alone."""

    def __init__(self, format: str = "pcm_s16le", rate: int = 24_000, voice: str = "Ada") -> None:
        self.format, self.rate, self.voice = format, rate, voice

    def __repr__(self) -> str:
        return f"{type(self).__name__}-{self.format}-{self.rate}"

    @property
    @abstractmethod
    def path(self) -> str: ...

    def hello(self) -> list[_Json]:
        """What is said first."""
        return []

    @abstractmethod
    def say(self, context: str, text: str) -> _Json: ...

    @abstractmethod
    def end(self, context: str) -> _Json: ...

    def stop(self, context: str) -> _Json:
        """The barge-in."""
        raise NotImplementedError("the protocol has none but to close the connection")

    @abstractmethod
    def read(self, data: str | bytes) -> Told: ...

    @staticmethod
    @abstractmethod
    def refusal(body: _Json) -> str:
        """The code in the body that refuses a handshake."""


class ElevenLabs(Speaker):
    """A barge-in closes a context that was not flushed; what was flushed is spoken to its end, and
    who is interrupted there ignores it and opens another context."""

    many, aligned, stops = True, True, True
    _call = "multi-stream-input"
    _names: ClassVar = {"pcm_s16le": "pcm", "mulaw": "ulaw", "alaw": "alaw"}

    @property
    def path(self) -> str:
        format = f"{self._names[self.format]}_{self.rate}"
        return f"/v1/text-to-speech/{self.voice}/{self._call}?output_format={format}"

    def say(self, context: str, text: str) -> _Json:
        return {"text": text, "context_id": context}

    def end(self, context: str) -> _Json:
        return {"context_id": context, "flush": True, "close_context": True}

    def stop(self, context: str) -> _Json:
        return {"context_id": context, "close_context": True}

    def read(self, data: str | bytes) -> Told:
        message = json.loads(data)
        final = message.get("isFinal", False)
        return Told(
            context=message.get("contextId"),
            audio=b64decode(message.get("audio") or ""),
            text="".join((message.get("alignment") or {"chars": []})["chars"]),
            ended=final,
            stopped=final,
            problem=message.get("error"),
        )

    @staticmethod
    def refusal(body: _Json) -> str:
        return str(body["detail"]["status"])


class ElevenLabsSingle(ElevenLabs):
    """Who is interrupted closes the connection."""

    many, stops = False, False
    one_stream = True
    full = ("overloaded", 1013)
    _call = "stream-input"

    def say(self, context: str, text: str) -> _Json:
        return {"text": text, "try_trigger_generation": True}

    def end(self, context: str) -> _Json:
        return {"text": ""}


class Cartesia(Speaker):
    many, aligned, stops = True, True, True
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

    @staticmethod
    def refusal(body: _Json) -> str:
        assert body["type"] == "error" and body["done"]
        return str(body["error_code"])


class Deepgram(Speaker):
    """Turns do not overlap: what is flushed waits for what was flushed before it."""

    greets, stops = True, True
    full = ("overloaded", 1013)
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
            problem=message["code"].lower() if kind in ("Warning", "Error") else None,
        )

    @staticmethod
    def refusal(body: _Json) -> str:
        return str(body["err_code"]).lower()


class DeepgramV2(Deepgram):
    full = ("net-0000", 1013)
    _version = "v2"
    _stop, _ended, _stopped = "Interrupt", "SpeechMetadata", "SpeechInterrupted"


def openai_refusal(body: _Json) -> str:
    return str(body["error"]["code"])


class OmniStream(Speaker):
    """Utterances do not overlap, and nothing interrupts one: who is interrupted closes the
    connection."""

    path = "/v1/audio/speech/stream"
    refusal = staticmethod(openai_refusal)

    def hello(self) -> list[_Json]:
        config = {"voice": self.voice, "response_format": "pcm", "stream_audio": True}
        return [{"type": "session.config", "word_timestamps": self.aligned, **config}]

    def say(self, context: str, text: str) -> _Json:
        return {"type": "input.text", "text": text}

    def end(self, context: str) -> _Json:
        return {"type": "input.done"}

    def read(self, data: str | bytes) -> Told:
        if isinstance(data, bytes):
            return Told(audio=data)
        message = json.loads(data)
        words = message.get("timestamps") or []
        return Told(
            audio=b64decode(message.get("audio_b64", "")),
            text="".join(word["word"] + " " for word in words),
            ended=message["type"] == "session.done",
            problem=message["code"] if message["type"] == "error" else None,
        )


class OmniStreamTimed(OmniStream):
    aligned = True


class OmniRealtime(Speaker):
    """One response is spoken at a time."""

    greets, aligned, stops = True, True, True
    path = "/v1/realtime?duplex=1"
    refusal = staticmethod(openai_refusal)
    _names: ClassVar = {"pcm_s16le": "pcm16", "mulaw": "g711_ulaw", "alaw": "g711_alaw"}

    def hello(self) -> list[_Json]:
        session = {
            "voice": self.voice,
            "output_audio_format": self._names.get(self.format, self.format),
            "audio": {"output": {"sample_rate_hz": self.rate}},
        }
        return [{"type": "session.update", "session": session}]

    def say(self, context: str, text: str) -> _Json:
        return {"type": "input.text.append", "text": text}

    def end(self, context: str) -> _Json:
        return {"type": "input.commit"}

    def stop(self, context: str) -> _Json:
        return {"type": "barge_in"}

    def read(self, data: str | bytes) -> Told:
        message = json.loads(data)
        kind = message["type"].removeprefix("response.")
        status = message["response"]["status"] if kind == "done" else None
        return Told(
            audio=b64decode(message["delta"] if kind == "output_audio.delta" else ""),
            text=message["delta"] if kind == "output_audio_transcript.delta" else "",
            ended=status in ("completed", "failed"),
            stopped=status == "cancelled",
            problem=message["error"]["code"] if kind == "error" else None,
        )


SPEAKERS: list[type[Speaker]] = [
    ElevenLabs,
    ElevenLabsSingle,
    Cartesia,
    Deepgram,
    DeepgramV2,
    OmniStream,
    OmniStreamTimed,
    OmniRealtime,
]


# -- plain calls -------------------------------------------------------------------------------

Breaks = Literal["body", "event", "status"]


@dataclass(frozen=True)
class Call:
    """A plain call for `TEXT`: its answer is audio, encoded as `format` at `rate`, that `read`
    finds in the body, and the text of the words whose times came, none where it has no times.
    `refusal` finds the code in the body of an error. `breaks`: how it is told that the engine died
    in the middle."""

    name: str
    path: str
    body: _Json
    read: Callable[[bytes], tuple[bytes, str | None]]
    refusal: Callable[[_Json], str]
    format: EncodedFormat = "pcm_s16le"
    rate: int = 24_000
    breaks: Breaks = "body"

    def asking(self, voice: str) -> tuple[str, _Json]:
        """Its path and body, where it asks for this voice."""
        body: _Json = json.loads(json.dumps(self.body).replace("Ada", voice))
        return self.path.replace("Ada", voice), body


TEXT = "Hello there, my friend. Good day!"


def _plain(body: bytes) -> tuple[bytes, str | None]:
    return body, None


def _wav(body: bytes) -> tuple[bytes, str | None]:
    return body[WAV_HEADER_BYTES:], None


def _openai_events(body: bytes) -> tuple[bytes, str | None]:
    events = events_of(body)
    assert events[-1]["type"] == "speech.audio.done"
    return b"".join(b64decode(event["audio"]) for event in events[:-1]), None


def _cartesia_events(body: bytes) -> tuple[bytes, str | None]:
    events = events_of(body)
    assert events[-1] == {"type": "done", "done": True, "status_code": 200, "context_id": None}
    told = [Cartesia().read(json.dumps(event)) for event in events]
    return b"".join(each.audio for each in told), "".join(each.text for each in told)


def _elevenlabs_lines(body: bytes) -> tuple[bytes, str | None]:
    lines = [json.loads(line) for line in body.splitlines()]
    characters = [line["alignment"]["characters"] for line in lines if line["alignment"]]
    audio = b"".join(b64decode(line["audio_base64"]) for line in lines)
    return audio, "".join("".join(each) for each in characters)


def events_of(body: bytes) -> list[_Json]:
    blocks = body.decode().strip().split("\n\n")
    return [json.loads(block.split("data: ")[1]) for block in blocks]


def _openai(name: str, read: Callable[[bytes], tuple[bytes, str | None]], **body: Any) -> Call:
    asked = {"input": TEXT, "voice": "Ada", "response_format": "pcm"} | body
    breaks: Breaks = "event" if read is _openai_events else "body"
    if body.get("stream") is False or body.get("word_timestamps"):
        breaks = "status"
    return Call(name, "/v1/audio/speech", asked, read, openai_refusal, breaks=breaks)


def _elevenlabs(
    call: str,
    read: Callable[[bytes], tuple[bytes, str | None]],
    output: str = "pcm_24000",
    format: EncodedFormat = "pcm_s16le",
    rate: int = 24_000,
) -> Call:
    path = f"/v1/text-to-speech/Ada{call}?output_format={output}"
    name, body = f"elevenlabs{call}-{output}", {"text": TEXT}
    breaks: Breaks = "status" if call == "/with-timestamps" else "body"
    return Call(name, path, body, read, ElevenLabs.refusal, format, rate, breaks)


def _cartesia(
    call: str,
    read: Callable[[bytes], tuple[bytes, str | None]],
    encoding: str = "pcm_s16le",
    format: EncodedFormat = "pcm_s16le",
    rate: int = 24_000,
) -> Call:
    container = "wav" if read is _wav else "raw"
    output = {"container": container, "encoding": encoding, "sample_rate": rate}
    body = {"transcript": TEXT, "voice": {"mode": "id", "id": "Ada"}, "output_format": output}
    if call == "sse":
        body["add_timestamps"] = True
    name, path = f"cartesia-{call}-{encoding}-{container}", f"/tts/{call}"
    breaks: Breaks = "event" if call == "sse" else "body"
    return Call(name, path, body, read, Cartesia.refusal, format, rate, breaks)


def _deepgram(
    version: str,
    encoding: str,
    format: EncodedFormat = "pcm_s16le",
    rate: int = 24_000,
    container: str = "none",
) -> Call:
    query = f"model=Ada&encoding={encoding}&container={container}&sample_rate={rate}"
    read = _wav if container == "wav" else _plain
    path = f"/{version}/speak?{query}"
    name, body = f"deepgram-{version}-{encoding}-{container}", {"text": TEXT}
    return Call(name, path, body, read, Deepgram.refusal, format, rate)


CALLS = [
    _openai("openai", _plain),
    _openai("openai-whole", _plain, stream=False),
    _openai("openai-wav", _wav, response_format="wav"),
    _openai("openai-whole-wav", _wav, response_format="wav", stream=False),
    _openai("openai-sse", _openai_events, stream_format="sse"),
    _openai("vllm-omni-sse", _openai_events, stream=True),
    _openai("vllm-omni-timed", _plain, word_timestamps=True),
    _elevenlabs("", _plain),
    _elevenlabs("/stream", _plain),
    _elevenlabs("/stream", _plain, "ulaw_8000", "mulaw", 8000),
    _elevenlabs("/stream", _wav, "wav_24000"),
    _elevenlabs("/with-timestamps", _elevenlabs_lines),
    _elevenlabs("/stream/with-timestamps", _elevenlabs_lines),
    _cartesia("bytes", _plain),
    _cartesia("bytes", _plain, "pcm_f32le", "pcm_f32le", 44_100),
    _cartesia("bytes", _wav, "pcm_mulaw", "mulaw", 8000),
    _cartesia("sse", _cartesia_events),
    _cartesia("sse", _cartesia_events, "pcm_alaw", "alaw", 8000),
    _deepgram("v1", "linear16"),
    _deepgram("v1", "mulaw", "mulaw", 8000),
    _deepgram("v1", "linear16", container="wav"),
    _deepgram("v2", "linear16", "pcm_s16le", 16_000),
]
