"""vLLM-Omni's speech websocket: utterance after utterance over one connection.

Text is spoken as it comes, whatever `split_granularity` asks for: an utterance is one run of
speech, so it has one sentence, number 0. It ends with `input.done`. What belongs to an utterance is
told when the one before it is done; it waits here, up to `MAX_WAITING_BYTES`. Whose first
`session.config` is refused is told and sent away.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from pydantic import ConfigDict, Field
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from omni_speak.runtime.errors import ModelNotFound
from omni_speak.runtime.request import MAX_SEED, EngineInfo
from omni_speak.streams.audio import wav_header
from omni_speak.streams.dialect import Reply, Texts
from omni_speak.streams.dialects.openai_speech import (
    ENCODINGS,
    check_language,
    check_model,
    error_response,
    word_timestamp,
)
from omni_speak.streams.dialects.text import Foreign, parse
from omni_speak.streams.encoder import Encoder
from omni_speak.streams.errors import close_code_of
from omni_speak.streams.messages import (
    DEFAULT_LEAD_MS,
    POLICY_VIOLATION,
    Cancel,
    ClientMessage,
    Close,
    ContextDone,
    ContextOpen,
    ContextOpened,
    ErrorEvent,
    Marks,
    Refused,
    ServerMessage,
    SessionClose,
    SessionOpen,
    SessionOpened,
    TextAppend,
    TextEnd,
    Word,
)
from omni_speak.streams.websocket import Conversation, conversation
from omni_speak.streams.wire import WireFrame

MAX_WAITING_BYTES = 4 * 1024 * 1024


class Head(Foreign):
    model_config = ConfigDict(extra="ignore")

    type: Literal["session.config", "input.text", "input.done", "session.close"]


class Text(Foreign):
    type: Literal["input.text"]
    text: str


class Config(Foreign):
    """What is only ever null is theirs, and not here; a voice of the model's own is what they call
    a custom one."""

    type: Literal["session.config"] = "session.config"
    model: str | None = None
    voice: str | None = None
    language: str | None = None
    response_format: Literal["wav", "pcm", "flac", "mp3", "opus", "aac"] = "wav"
    speed: float = Field(1.0, allow_inf_nan=False)
    seed: int | None = Field(None, ge=0, le=MAX_SEED)
    stream_audio: bool = False
    word_timestamps: bool = False
    split_granularity: Literal["none", "sentence", "clause"] = "none"
    initial_codec_chunk_frames: Literal[1] | None = None
    max_new_tokens: None = None
    task_type: Literal["CustomVoice"] | None = None
    instructions: None = None
    ref_audio: None = None
    ref_text: None = None
    x_vector_only_mode: None = None
    speaker_embedding: None = None
    non_streaming_mode: None = None


@dataclass(slots=True)
class _Utterance:
    """`whole` is its audio where that is sent at once; `waiting` what cannot be told yet."""

    number: int
    config: Config
    encoder: Encoder | None = None
    started: bool = False
    failed: bool = False
    done: bool = False
    total_bytes: int = 0
    samples: int = 0
    chunks: int = 0
    words: list[Word] = field(default_factory=list)
    whole: bytearray = field(default_factory=bytearray)
    waiting: list[str | bytes] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"utterance-{self.number}"


class SpeechStreamDialect:
    """See `dialect.Dialect`."""

    def __init__(self, info: EngineInfo) -> None:
        self._info = info
        self._texts: Texts
        self._config: Config | None = None
        self._opened = False
        self._count = 0
        self._speaking: _Utterance | None = None
        """Whose text has not ended."""
        self._utterances: deque[_Utterance] = deque()
        self._names: dict[int, str] = {}
        self._closing = False

    def open(self, texts: Texts) -> Sequence[ClientMessage | Reply]:
        self._texts = texts
        return []

    # What the client said

    def receive(self, data: str | bytes) -> Sequence[ClientMessage | Reply]:
        kind = parse(Head, data).type
        if self._closing:
            return []
        match kind:
            case "session.config":
                return self._configure(parse(Config, data))
            case "input.text":
                return self._append(parse(Text, data).text)
            case "input.done":
                return self._end()
            case "session.close":
                return self._close()

    def _configure(self, config: Config) -> list[ClientMessage | Reply]:
        if self._speaking is not None:
            text = "an utterance is in progress; send input.done first"
            raise Refused("utterance_in_progress", text, param="type")
        try:
            check_model(config.model, self._info)
        except ModelNotFound as error:
            raise Refused(error.code, error.message, param=error.param) from None
        check_language(config.language, self._info)
        if config.word_timestamps and not config.stream_audio:
            text = "word_timestamps needs stream_audio"
            raise Refused("invalid_message", text, param="word_timestamps")
        before, self._config = self._config, config
        if before is not None:
            return []
        # Every format is made here, of the model's own samples: an utterance may have another.
        return [SessionOpen(voice=config.voice, format="pcm_f32le", resumable=False)]

    def _append(self, text: str) -> list[ClientMessage | Reply]:
        config = self._configured()
        if not text:
            return []
        begin: list[ClientMessage | Reply] = []
        if self._speaking is None:
            self._speaking = self._begin(config)
            begin.append(
                ContextOpen(
                    context=self._speaking.name,
                    voice=config.voice,
                    speed=config.speed,
                    seed=config.seed,
                    max_lead_ms=DEFAULT_LEAD_MS if config.stream_audio else None,
                )
            )
        return [*begin, TextAppend(context=self._speaking.name, text=text)]

    def _begin(self, config: Config) -> _Utterance:
        utterance = _Utterance(self._count, config)
        self._count += 1
        self._utterances.append(utterance)
        return utterance

    def _end(self) -> list[ClientMessage | Reply]:
        utterance, self._speaking = self._speaking, None
        if utterance is not None:
            return [TextEnd(context=utterance.name)]
        utterance = self._begin(self._configured())
        utterance.done = True
        told = self._tell(utterance, [_session_done(utterance, sentences=0)])
        if utterance is self._utterances[0]:
            self._utterances.popleft()
        return [Reply(data) for data in told if not isinstance(data, Close)]

    def _close(self) -> list[ClientMessage | Reply]:
        """What is being spoken is spoken to its end; a text that has not ended is dropped."""
        self._closing = True
        if self._speaking is not None:
            return [Cancel(context=self._speaking.name)]
        return [] if self._utterances else [SessionClose()]

    def _configured(self) -> Config:
        if self._config is None:
            raise Refused("session_not_configured", "send session.config first", param="type")
        return self._config

    # How the client is told

    def send(self, event: ServerMessage | WireFrame) -> Sequence[str | bytes | Close]:
        match event:
            case SessionOpened():
                self._opened = True
            case ContextOpened():
                self._names[event.handle] = event.context
            case Marks():
                self._utterance(event.context).words += event.words
            case WireFrame():
                utterance = self._utterance(self._names[event.context])
                samples = np.frombuffer(event.payload, "<f4")
                return self._tell(utterance, self._audio(utterance, samples))
            case ContextDone():
                utterance = self._utterance(event.context)
                utterance.failed |= not event.complete
                return self._done(utterance)
            case ErrorEvent():
                return self._error(event)
        return []

    def _utterance(self, name: str) -> _Utterance:
        return next(each for each in self._utterances if each.name == name)

    def _audio(self, utterance: _Utterance, samples: np.ndarray[Any, Any]) -> list[str | bytes]:
        """Of the samples, or of the last of them where there are none."""
        rate, format = self._info.sample_rate, ENCODINGS[utterance.config.response_format]
        if utterance.encoder is None:
            in_one = format == "wav" and not utterance.config.stream_audio
            utterance.encoder = Encoder("pcm_s16le" if in_one else format, rate, rate)
        encoder = utterance.encoder
        data = encoder.encode(samples) if len(samples) else encoder.flush()
        start, utterance.samples = utterance.samples, utterance.samples + len(samples)
        if not utterance.config.stream_audio:
            utterance.whole += data
            return []
        utterance.total_bytes += len(data)
        told = self._start(utterance)
        if not data:
            return told
        return [*told, self._chunk(utterance, data, start) if _timed(utterance) else data]

    def _start(self, utterance: _Utterance) -> list[str | bytes]:
        if utterance.started:
            return []
        utterance.started = True
        start = {
            **_place("audio.start", utterance),
            "sentence_text": self._texts(utterance.name),
            "format": utterance.config.response_format,
            "sample_rate": self._info.sample_rate,
        }
        return [json.dumps(start | ({"word_timestamps": True} if _timed(utterance) else {}))]

    def _chunk(
        self,
        utterance: _Utterance,
        data: bytes,
        start: int,
        timestamps: list[dict[str, Any]] | None = None,
    ) -> str:
        number, utterance.chunks = utterance.chunks, utterance.chunks + 1
        rate = self._info.sample_rate
        return json.dumps(
            {
                **_place("audio.chunk", utterance),
                "chunk_id": number,
                "chunk_start_ms": round(1000 * start / rate),
                "chunk_end_ms": round(1000 * utterance.samples / rate),
                "sample_rate": rate,
                "audio_b64": b64encode(data).decode(),
                "timestamps": timestamps,
            }
        )

    def _done(self, utterance: _Utterance) -> list[str | bytes | Close]:
        told = [] if utterance.samples == 0 else self._audio(utterance, np.empty(0, np.float32))
        told += self._start(utterance)
        if _timed(utterance):
            times = [word_timestamp(word) for word in utterance.words]
            told.append(self._chunk(utterance, b"", 0, times))
        if utterance.whole and not utterance.failed:
            header = b""
            if utterance.config.response_format == "wav":
                header = wav_header(self._info.sample_rate, len(utterance.whole))
            told.append(header + bytes(utterance.whole))
            utterance.total_bytes = len(header) + len(utterance.whole)
        end = {"total_bytes": utterance.total_bytes, "error": utterance.failed}
        told.append(json.dumps(_place("audio.done", utterance) | end))
        told.append(_session_done(utterance, sentences=1))
        utterance.done = True
        return [*self._tell(utterance, told), *self._go_on()]

    def _go_on(self) -> list[str | bytes | Close]:
        """What waited for the utterances that are done."""
        told: list[str | bytes | Close] = []
        while self._utterances and self._utterances[0].done:
            self._utterances.popleft()
            if self._utterances:
                told += self._utterances[0].waiting
                self._utterances[0].waiting = []
        if self._closing and not self._utterances:
            told.append(Close(1000, ""))
        return told

    def _tell(
        self, utterance: _Utterance, messages: Sequence[str | bytes]
    ) -> list[str | bytes | Close]:
        if utterance is self._utterances[0]:
            return list(messages)
        utterance.waiting += messages
        if sum(len(data) for each in self._utterances for data in each.waiting) > MAX_WAITING_BYTES:
            return [Close(POLICY_VIOLATION, "too much was asked for before it could be spoken")]
        return []

    def _error(self, event: ErrorEvent) -> list[str | bytes | Close]:
        if event.code == "unknown_context":  # why it was not opened, or ended, was told
            return []
        told = json.dumps(
            {"type": "error", "message": event.message, "code": event.code, "param": event.param}
        )
        if not self._opened:  # or a client that is refused waits for its audio
            return [told, Close(close_code_of(event), event.message)]
        utterance = next((u for u in self._utterances if u.name == event.context), None)
        if utterance is None:
            return [told]
        if utterance.name in self._names.values():
            return self._tell(utterance, [told])
        utterance.failed = True  # it was never opened
        return [*self._tell(utterance, [told]), *self._done(utterance)]


def _timed(utterance: _Utterance) -> bool:
    return utterance.config.word_timestamps


def _place(kind: str, utterance: _Utterance) -> dict[str, Any]:
    return {"type": kind, "utterance_index": utterance.number, "sentence_index": 0}


def _session_done(utterance: _Utterance, *, sentences: int) -> str:
    return json.dumps(
        {
            "type": "session.done",
            "utterance_index": utterance.number,
            "total_sentences": sentences,
        }
    )


def _begin(websocket: WebSocket, info: EngineInfo) -> Conversation:
    return Conversation(SpeechStreamDialect(info))


ROUTES = [
    WebSocketRoute(
        "/v1/audio/speech/stream", conversation(_begin, error_response, name="vllm-omni")
    )
]
