"""ElevenLabs' text-to-speech: a websocket of many contexts, or of one, and the plain HTTP calls.

Texts of a websocket get a space between them where they have none. `close_context` lets a context
that was flushed be spoken to its end, and cuts off one that was not; `isFinal` follows.
`close_socket` does so with all. Of the voice settings `speed` is honoured; what tunes a model of
theirs is taken without effect, and so is the name of theirs as `model_id`. With
`apply_text_normalization` "off" text is read as it stands; "auto" and "on" are the same here.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, cast, get_args

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from omni_speak.runtime.errors import InvalidRequest, SpeechError
from omni_speak.runtime.request import EngineInfo
from omni_speak.streams.dialect import Reply, Texts
from omni_speak.streams.dialects.text import Char, Foreign, Transcript, parse, separated
from omni_speak.streams.encoder import OPUS_RATES, EncodedFormat, Encoder
from omni_speak.streams.errors import close_code_of, error_json
from omni_speak.streams.http_speech import Plain, Speech, endpoint, read_body
from omni_speak.streams.messages import (
    SAMPLE_RATES,
    AudioFormat,
    Cancel,
    ClientMessage,
    Close,
    ContextDone,
    ContextOpen,
    ContextOpened,
    ErrorEvent,
    Marks,
    Refused,
    SampleRate,
    ServerMessage,
    SessionClose,
    SessionOpen,
    SessionOpened,
    TextAppend,
    TextEnd,
    TextFlush,
    Word,
)
from omni_speak.streams.speaking import Engine, SpokenResult, speak_text
from omni_speak.streams.websocket import Conversation, conversation
from omni_speak.streams.wire import WireFrame

_ENCODINGS: dict[str, EncodedFormat] = {
    "pcm": "pcm_s16le",
    "mp3": "mp3",
    "opus": "ogg_opus",
    "ulaw": "mulaw",
    "alaw": "alaw",
    "wav": "wav",
}
_CONTAINERS = ("mp3", "ogg_opus", "wav")
DEFAULT_FORMAT = "mp3_44100_128"
SINGLE = "0"

Normalization = Literal["auto", "on", "off"]


class VoiceSettings(Foreign):
    speed: float | None = None
    stability: float | None = None
    similarity_boost: float | None = None
    style: float | None = None
    use_speaker_boost: bool | None = None


class Incoming(Foreign):
    text: str | None = None
    context_id: str | None = None
    voice_settings: VoiceSettings | None = None
    generation_config: dict[str, Any] | None = None
    pronunciation_dictionary_locators: list[Any] | None = None
    try_trigger_generation: bool | None = None
    flush: bool = False
    close_context: bool = False
    close_socket: bool = False
    xi_api_key: str | None = None
    authorization: str | None = None


class Body(Foreign):
    """What the HTTP calls are sent."""

    text: str
    voice_settings: VoiceSettings | None = None
    seed: int | None = None
    model_id: str | None = None
    language_code: str | None = None
    pronunciation_dictionary_locators: list[Any] | None = None
    previous_text: str | None = None
    next_text: str | None = None
    previous_request_ids: list[str] | None = None
    next_request_ids: list[str] | None = None
    use_pvc_as_ivc: bool | None = None
    apply_text_normalization: Normalization | None = None
    apply_language_text_normalization: bool | None = None


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """`pcm_24000`, `mp3_44100_128`, …: an encoding and a rate; a bit rate has no effect."""

    encoding: EncodedFormat
    rate: SampleRate

    @classmethod
    def named(cls, name: str) -> OutputFormat:
        """Raises InvalidRequest."""
        codec, _, rest = name.partition("_")
        rate = rest.partition("_")[0]
        rates = OPUS_RATES if codec == "opus" else SAMPLE_RATES
        if codec not in _ENCODINGS or rate not in map(str, rates):
            raise InvalidRequest(
                f"output_format must be one of {', '.join(_ENCODINGS)}, then _ and one of "
                f"{', '.join(map(str, rates))}; got {name[:40]!r}",
                param="output_format",
            )
        return cls(_ENCODINGS[codec], cast(SampleRate, int(rate)))

    @property
    def in_container(self) -> bool:
        return self.encoding in _CONTAINERS


@dataclass(slots=True)
class _Context:
    transcript: Transcript = field(default_factory=Transcript)
    opened: bool = False
    flushed: bool = False
    ended: bool = False
    encoder: Encoder | None = None
    alignment: list[Char] = field(default_factory=list)


class ElevenLabsDialect:
    """See `dialect.Dialect`. `multi`: contexts have names; otherwise there is one, and the
    connection ends with it."""

    def __init__(
        self,
        voice: str,
        format: OutputFormat,
        *,
        multi: bool,
        sync_alignment: bool = False,
        normalise: bool = True,
    ) -> None:
        self._voice = voice
        self._format = format
        self._multi = multi
        self._sync_alignment = sync_alignment
        self._normalise = normalise
        self._texts: Texts
        self._contexts: dict[str, _Context] = {}
        self._names: dict[int, str] = {}
        self._rate = 0
        self._begun = False
        self._closing = False

    def open(self, texts: Texts) -> Sequence[ClientMessage | Reply]:
        self._texts = texts
        return []

    def receive(self, data: str | bytes) -> Sequence[ClientMessage | Reply]:
        if self._closing:
            return []
        message = parse(Incoming, data)
        understood = self._understood(message)
        if self._begun:
            return understood
        # Not earlier: some clients miss an error that comes before they said something.
        self._begun = True
        return [self._session(), *understood]

    def _session(self) -> SessionOpen:
        if self._format.in_container:  # made here, of the model's own samples
            return SessionOpen(voice=self._voice, format="pcm_f32le", resumable=False)
        format = cast(AudioFormat, self._format.encoding)
        rate = self._format.rate
        return SessionOpen(voice=self._voice, format=format, sample_rate=rate, resumable=False)

    def _understood(self, message: Incoming) -> Sequence[ClientMessage | Reply]:
        if message.close_socket:
            return self._close_socket()
        name = (message.context_id or "default") if self._multi else SINGLE
        if len(name) > 64:
            raise Refused(
                "invalid_message", "context_id may have 64 characters", param="context_id"
            )
        if message.close_context:
            return self._close_context(name, flush=message.flush)
        if message.text is None and not message.flush:
            raise Refused("invalid_message", "text is missing", param="text", context=name)
        return self._text(name, message)

    def _close_context(self, name: str, *, flush: bool = False) -> list[ClientMessage | Reply]:
        context = self._contexts.get(name)
        if context is None or context.ended:
            return []
        context.ended = True
        return [TextEnd(context=name) if context.flushed or flush else Cancel(context=name)]

    def _close_socket(self) -> list[ClientMessage | Reply]:
        self._closing = True
        ends = [message for name in self._contexts for message in self._close_context(name)]
        return ends if self._contexts else [SessionClose()]

    def _text(self, name: str, message: Incoming) -> list[ClientMessage | Reply]:
        text = message.text or ""
        context = self._contexts.get(name)
        if context is not None and context.ended:
            raise Refused("text_ended", "this context was closed", context=name)
        answer: list[ClientMessage | Reply] = []
        before = self._texts(name) if context is not None else ""
        if context is None:
            if not text and self._multi:  # keeps the connection alive
                return []
            context = self._contexts[name] = _Context()
            speed = _speed(message.voice_settings)
            answer.append(ContextOpen(context=name, speed=speed, normalise=self._normalise))
        if text.strip():
            answer.append(TextAppend(context=name, text=separated(before, text)))
        if message.flush:
            context.flushed = True
            answer.append(TextFlush(context=name))
        if not text and not self._multi:
            context.ended = True
            answer.append(TextEnd(context=name))
        return answer

    def send(self, event: ServerMessage | WireFrame) -> Sequence[str | bytes | Close]:
        told = self._told(event)
        return [*told, Close(1000, "")] if self._closing and not self._contexts else told

    def _told(self, event: ServerMessage | WireFrame) -> list[str | bytes | Close]:
        match event:
            case SessionOpened():
                self._rate = event.sample_rate
            case ContextOpened():
                self._names[event.handle] = event.context
                self._contexts[event.context].opened = True
                if self._format.in_container:
                    self._contexts[event.context].encoder = Encoder(
                        self._format.encoding, self._rate, self._format.rate
                    )
            case Marks():
                context = self._contexts[event.context]
                context.transcript.append(event.text)
                context.alignment += context.transcript.chars(event.words)
            case WireFrame():
                name = self._names[event.context]
                encoder = self._contexts[name].encoder
                payload = bytes(event.payload)
                if encoder is not None:
                    payload = encoder.encode(np.frombuffer(payload, "<f4"))
                return self._audio(name, payload)
            case ContextDone():
                return self._done(event)
            case ErrorEvent():
                return self._error(event)
        return []

    def _audio(self, name: str, payload: bytes) -> list[str | bytes | Close]:
        context = self._contexts[name]
        if not payload and not context.alignment:
            return []
        alignment = self._alignment(context)
        message: dict[str, Any] = {"contextId": name} if self._multi else {}
        message["audio"] = b64encode(payload).decode()
        message["alignment"] = message["normalizedAlignment"] = alignment
        return [json.dumps(message)]

    def _alignment(self, context: _Context) -> dict[str, Any] | None:
        chars, context.alignment = context.alignment, []
        if not chars:
            return None
        base = 0.0 if self._sync_alignment else chars[0].start_ms
        starts = [round(char.start_ms - base) for char in chars]
        ends = [round(char.end_ms - base) for char in chars]
        return {
            "chars": [char.text for char in chars],
            "charStartTimesMs": starts,
            "charDurationsMs": [end - start for start, end in zip(starts, ends, strict=True)],
        }

    def _done(self, event: ContextDone) -> list[str | bytes | Close]:
        name = event.context
        context = self._contexts[name]
        context.transcript.append(event.text)
        if event.complete:
            context.alignment += context.transcript.rest()
        tail = context.encoder.flush() if context.encoder is not None else b""
        told = self._audio(name, tail)
        del self._contexts[name]
        if not self._multi:
            return [*told, json.dumps({"audio": None, "isFinal": True}), Close(1000, "")]
        return [*told, json.dumps({"contextId": name, "isFinal": True})]

    def _error(self, event: ErrorEvent) -> list[str | bytes | Close]:
        if event.code == "unknown_context":  # why it was not opened, or ended, was told
            return []
        message: dict[str, Any] = {"contextId": event.context} if self._multi else {}
        code = close_code_of(event)
        message |= {"error": event.code, "message": event.message, "code": code}
        told: list[str | bytes | Close] = [json.dumps(message)]
        name = event.context
        if name in self._contexts and not self._contexts[name].opened:
            del self._contexts[name]
        if (self._begun and self._rate == 0) or not self._multi:
            told.append(Close(code, event.message))
        return told


def _begin(websocket: WebSocket, info: EngineInfo, *, multi: bool) -> Conversation:
    query = websocket.query_params
    dialect = ElevenLabsDialect(
        websocket.path_params["voice"],
        OutputFormat.named(query.get("output_format", DEFAULT_FORMAT)),
        multi=multi,
        sync_alignment=query.get("sync_alignment") == "true",
        normalise=_normalise(query.get("apply_text_normalization", "auto")),
    )
    return Conversation(dialect, idle_s=_seconds(query.get("inactivity_timeout", "20")))


def _speed(settings: VoiceSettings | None) -> float:
    return 1.0 if settings is None or settings.speed is None else settings.speed


def _seconds(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 180:
        raise InvalidRequest(
            "inactivity_timeout must be 1 to 180 seconds", param="inactivity_timeout"
        )
    return int(text)


def _normalise(asked: str) -> bool:
    if asked not in get_args(Normalization):
        raise InvalidRequest(
            f"apply_text_normalization must be auto, on or off, got {asked[:40]!r}",
            param="apply_text_normalization",
        )
    return asked != "off"


# -- plain HTTP --------------------------------------------------------------------------------


class _Timed:
    """JSON objects with audio and when each character is heard, see `Shape`: one a line as they
    are made, or where `whole` a single one."""

    def __init__(self, text: str, *, whole: bool) -> None:
        self.media_type = "application/json"
        self._transcript = Transcript(text)
        self._whole = whole
        self._audio = b""
        self._chars: list[Char] = []

    def block(self, audio: bytes, words: Sequence[Word]) -> bytes:
        self._audio += audio
        self._chars += self._transcript.chars(words)
        return b"" if self._whole else self._told()

    def end(self, audio: bytes, result: SpokenResult) -> bytes:
        self._audio += audio
        self._chars += self._transcript.rest()
        return self._told()

    def _told(self) -> bytes:
        if not self._audio and not self._chars:
            return b""
        audio, self._audio = self._audio, b""
        chars, self._chars = self._chars, []
        alignment = chars and {
            "characters": [char.text for char in chars],
            "character_start_times_seconds": [round(char.start_ms / 1000, 3) for char in chars],
            "character_end_times_seconds": [round(char.end_ms / 1000, 3) for char in chars],
        }
        told = {
            "audio_base64": b64encode(audio).decode(),
            "alignment": alignment or None,
            "normalized_alignment": alignment or None,
        }
        return json.dumps(told).encode() + b"\n"


async def _ask(request: Request, engine: Engine, *, timed: bool, whole: bool) -> Speech:
    body = await read_body(request, Body)
    format = OutputFormat.named(request.query_params.get("output_format", DEFAULT_FORMAT))
    stream = speak_text(
        engine,
        body.text,
        voice=request.path_params["voice"],
        speed=_speed(body.voice_settings),
        seed=body.seed,
        normalise=body.apply_text_normalization != "off",
    )
    encoding, rate = format.encoding, format.rate
    shape = _Timed(body.text, whole=whole) if timed else Plain(encoding, rate)
    return Speech(body.text, stream, encoding, rate, shape, whole)


def error_response(error: SpeechError) -> Response:
    """An error in ElevenLabs' shape."""
    told = {"status": error.code, "message": error.message, "param": error.param}
    return error_json(error, {"detail": told})


def _post(path: str, *, timed: bool = False, whole: bool = False) -> Route:
    ask = partial(_ask, timed=timed, whole=whole)
    answer = endpoint(ask, error_response, name="elevenlabs")
    return Route(f"/v1/text-to-speech/{{voice}}{path}", answer, methods=["POST"])


def _websocket(path: str, *, multi: bool) -> WebSocketRoute:
    answer = conversation(partial(_begin, multi=multi), error_response, name="elevenlabs")
    return WebSocketRoute(f"/v1/text-to-speech/{{voice}}{path}", answer)


ROUTES: list[BaseRoute] = [
    _websocket("/multi-stream-input", multi=True),
    _websocket("/stream-input", multi=False),
    _post(""),
    _post("/stream"),
    _post("/with-timestamps", timed=True, whole=True),
    _post("/stream/with-timestamps", timed=True),
]
