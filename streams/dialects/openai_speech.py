"""OpenAI's speech endpoint: POST /v1/audio/speech, the lists beside it, and its shape of errors."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from omni_speak.runtime.errors import ModelNotFound, SpeechError
from omni_speak.runtime.request import MAX_SEED, EngineInfo
from omni_speak.streams.encoder import EncodedFormat
from omni_speak.streams.http_speech import (
    Plain,
    Shape,
    Speech,
    WholeWav,
    endpoint,
    error_json,
    read_body,
    server_sent,
    status_of,
)
from omni_speak.streams.messages import Word
from omni_speak.streams.service import service_of
from omni_speak.streams.speaking import Engine, SpokenResult, speak_text

HOSTED_VOICES = (
    *("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable"),
    *("marin", "nova", "onyx", "sage", "shimmer", "verse"),
)
_ENCODINGS: dict[str, EncodedFormat] = {
    "mp3": "mp3",
    "opus": "ogg_opus",
    "aac": "aac",
    "flac": "flac",
    "wav": "wav",
    "pcm": "pcm_s16le",
}


class VoiceId(BaseModel):
    id: str


class SpeechBody(BaseModel):
    """OpenAI's fields, those we honour. `stream` false waits for the whole and then tells its
    length; true sends audio as it is made."""

    model_config = ConfigDict(extra="forbid", strict=True)

    input: str
    model: str | None = None
    voice: str | VoiceId | None = None
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] = "mp3"
    stream_format: Literal["audio", "sse"] = "audio"
    speed: float = Field(1.0, allow_inf_nan=False)
    seed: int | None = Field(None, ge=0, le=MAX_SEED)
    temperature: float | None = Field(None, ge=0.0, le=2.0)
    stream: bool = True


async def _ask(request: Request, engine: Engine) -> Speech:
    body = await read_body(request, SpeechBody)
    if body.model is not None and body.model != engine.info.model:
        raise ModelNotFound(
            f"no model {body.model[:64]!r} here; there is {engine.info.model!r}", param="model"
        )
    stream = speak_text(
        engine,
        body.input,
        voice=_voice(body, engine.info),
        speed=body.speed,
        seed=body.seed,
        temperature=body.temperature,
    )
    rate = engine.info.sample_rate
    format: EncodedFormat = _ENCODINGS[body.response_format]
    shape: Shape = Plain(format, rate)
    if body.stream_format == "sse":
        shape = _Events(body.input)
    elif format == "wav" and not body.stream:
        format, shape = "pcm_s16le", WholeWav(rate)
    whole = not body.stream and body.stream_format == "audio"
    return Speech(body.input, stream, format, rate, shape, whole)


def _voice(body: SpeechBody, info: EngineInfo) -> str | None:
    """The hosted service's names are our voices in turn, where we have none of that name."""
    voice = body.voice.id if isinstance(body.voice, VoiceId) else body.voice
    own = [name.lower() for name in info.voices]
    if voice in HOSTED_VOICES and voice not in own:
        return info.voices[HOSTED_VOICES.index(voice) % len(info.voices)]
    return voice


class _Events:
    """Server-sent events, see `Shape`."""

    media_type = "text/event-stream"

    def __init__(self, text: str) -> None:
        self._text = text

    def block(self, audio: bytes, words: Sequence[Word]) -> bytes:
        if not audio:
            return b""
        return server_sent({"type": "speech.audio.delta", "audio": b64encode(audio).decode()})

    def end(self, audio: bytes, result: SpokenResult) -> bytes:
        sent, made = len(self._text), result.frames
        usage = {"input_tokens": sent, "output_tokens": made, "total_tokens": sent + made}
        done = server_sent({"type": "speech.audio.done", "usage": usage})
        return self.block(audio, ()) + done


async def models(request: Request) -> Response:
    info = service_of(request).ready_engine().info
    model = {"id": info.model, "object": "model", "created": 0, "owned_by": "omni-speak"}
    return JSONResponse({"object": "list", "data": [model]})


async def voices(request: Request) -> Response:
    info = service_of(request).ready_engine().info
    return JSONResponse(
        {
            "object": "list",
            "data": [
                {"id": voice, "object": "voice", "model": info.model} for voice in info.voices
            ],
            "default": info.default_voice,
            "sample_rate": info.sample_rate,
        }
    )


# -- errors ------------------------------------------------------------------------------------


def error_response(error: SpeechError) -> Response:
    """An error in OpenAI's shape."""
    # Ours says text, OpenAI's field is called input.
    param = "input" if error.param == "text" else error.param
    return error_json(error, _told(status_of(error), error.message, param, error.code))


def openai_error(status: int, message: str, param: str | None, code: str | None) -> Response:
    return JSONResponse(_told(status, message, param, code), status_code=status)


def _told(status: int, message: str, param: str | None, code: str | None) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


ROUTES = [
    Route("/v1/audio/speech", endpoint(_ask, error_response, name="http"), methods=["POST"]),
    Route("/v1/audio/voices", voices),
    Route("/v1/models", models),
]
