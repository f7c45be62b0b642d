"""What goes into the engine and what comes out. Light on purpose: no torch, no vLLM."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from omni_speak.runtime.errors import InvalidRequest, TextTooLong, UnknownVoice

MAX_SEED = 2**53 - 1
"""Largest seed: what every JSON reader keeps exactly."""

MAX_LEAD_MS = 3_600_000
"""Largest bound on a stream's lead: in effect none, for a listener who may keep what comes."""

MIN_LEAD_MS = 200
"""Least bound on a stream's lead: a few frames, or the next one could not come in time."""

ACK_TIMEOUT_S = 30.0
"""A listener who told what was heard and says nothing for so long is counted by the wall clock."""

FinishReason = Literal["stop", "length", "starved", "abort", "error"]


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """One utterance to speak.

    `voice` None is the model's default; `speed` 1.0 is the voice's own rate; `seed` None draws a
    fresh one (reported in the result); `temperature` 0.0 is greedy, None the model's default;
    `max_frames` None derives the frame budget from the text's length. `max_lead_ms` holds the
    stream while it is that far ahead of its listener; None is a file: nobody hears it while it is
    made, so it comes as fast as those with listeners leave room for. `starve_timeout_s`: a stream
    whose text is open ends after that long without. `normalise` reads a text as a reader would:
    Markdown, emoji and the like are not read out, numbers and abbreviations are spoken in full;
    without, it is read as it stands.
    """

    text: str
    _: KW_ONLY
    voice: str | None = None
    speed: float = 1.0
    seed: int | None = None
    temperature: float | None = None
    max_frames: int | None = None
    max_lead_ms: int | None = None
    starve_timeout_s: float = 30.0
    normalise: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One tick of one stream: `codes` uint16 [Q], `pcm` float32 [samples_per_frame] in -1..1,
    `pts` the media time of its first sample, in samples, `token` what the talker sampled."""

    index: int
    codes: NDArray[np.uint16]
    pcm: NDArray[np.float32]
    pts: int
    token: int


@dataclass(frozen=True, slots=True)
class SpeechResult:
    """How a stream ended: `stop` (the model ended it), `length` (the frame budget was spent, so
    the audio is incomplete) or `starved` (its text was left open and none came in time). `seed`
    speaks the same request again."""

    finish_reason: FinishReason
    frames: int
    seed: int


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What a client may know of the engine: declared in `session.opened` and `/v1/audio/voices`.

    `sample_rate` Hz, `frame_rate` Hz, `samples_per_frame` = sample_rate / frame_rate,
    `codebooks` per frame of `codebook_size` entries, `max_text_chars` per request.
    With `open_text` a text may go on while it is spoken. `languages`: the names, and codes, that a
    request may call its language by.
    """

    model: str
    voices: tuple[str, ...]
    default_voice: str
    sample_rate: int
    frame_rate: float
    samples_per_frame: int
    codebooks: int
    codebook_size: int
    max_text_chars: int
    speed_range: tuple[float, float]
    open_text: bool = False
    languages: tuple[str, ...] = ()


def check_request(request: SpeechRequest, info: EngineInfo) -> SpeechRequest:
    """Hold a request to what the engine offers; returns it with the voice's own spelling.

    Raises `InvalidRequest` (or a subclass) naming the field, its fault and what is allowed.
    """
    if not isinstance(request.text, str):
        raise InvalidRequest(
            f"text must be a string, got {type(request.text).__name__}", param="text"
        )
    if len(request.text) > info.max_text_chars:
        raise TextTooLong(
            f"text has {len(request.text)} characters; at most {info.max_text_chars} are allowed",
            param="text",
        )
    low, high = info.speed_range
    _check_number("speed", request.speed, low, high)
    if request.temperature is not None:
        _check_number("temperature", request.temperature, 0.0, 2.0)
    if request.seed is not None:
        _check_int("seed", request.seed, 0, MAX_SEED)
    if request.max_frames is not None:
        _check_int("max_frames", request.max_frames, 1, 1_000_000)
    if request.max_lead_ms is not None:
        _check_int("max_lead_ms", request.max_lead_ms, MIN_LEAD_MS, MAX_LEAD_MS)
    _check_number("starve_timeout_s", request.starve_timeout_s, 0.0, 86_400.0)
    if not isinstance(request.normalise, bool):
        raise InvalidRequest(
            f"normalise must be true or false, got {request.normalise!r}", param="normalise"
        )
    return replace(request, voice=_find_voice(request.voice, info))


def _find_voice(voice: str | None, info: EngineInfo) -> str:
    if voice is None:
        return info.default_voice
    for known in info.voices:
        if isinstance(voice, str) and known.casefold() == voice.casefold():
            return known
    raise UnknownVoice(f"no voice {voice!r}; voices: {', '.join(info.voices)}", param="voice")


def _check_number(name: str, value: object, low: float, high: float) -> None:
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not good or not low <= value <= high:  # type: ignore[operator]  # NaN fails, as it should
        raise InvalidRequest(
            f"{name} must be a number from {low} to {high}, got {value!r}", param=name
        )


def _check_int(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidRequest(
            f"{name} must be an integer from {low} to {high}, got {value!r}", param=name
        )
