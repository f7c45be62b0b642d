"""Deepgram's speak websocket, version 2: turns that tell their start and end, and interrupts that
tell what was heard.

A turn is what is spoken up to `Flush`; all its audio comes between `SpeechStarted` and
`SpeechMetadata`. `Interrupt` ends the turn that is heard and drops those behind it. Positions in
milliseconds count the audio of the session; after an interrupt they go on from where the listener
was. `Configure` changes the speed of the turns that begin after it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from omni_speak.streams.dialect import Reply, Texts
from omni_speak.streams.dialects.text import Foreign, parse
from omni_speak.streams.dialects.turns import Ended, Heard, Started, Turn, Turns
from omni_speak.streams.errors import close_code_of
from omni_speak.streams.messages import (
    POLICY_VIOLATION,
    TRY_AGAIN_LATER,
    ClientMessage,
    Close,
    ContextDone,
    ContextInterrupted,
    ContextOpened,
    ErrorEvent,
    Interrupt,
    Refused,
    ServerMessage,
    SessionClose,
    SessionOpen,
    SessionOpened,
)
from omni_speak.streams.wire import WireFrame

_SAMPLE_BYTES = {"pcm_s16le": 2, "mulaw": 1, "alaw": 1}


class Offset(Foreign):
    type: Literal["time_ms"] = "time_ms"
    value: float = Field(ge=0, allow_inf_nan=False)


class Incoming(Foreign):
    type: Literal["Speak", "Flush", "Interrupt", "Configure", "Close"]
    text: str | None = None
    speed: float | None = None
    playback_offset: Offset | None = None


@dataclass(frozen=True, slots=True)
class _Heard:
    """A turn whose audio begins `at` this position."""

    turn: Turn
    at: float


@dataclass(frozen=True, slots=True)
class _Interruption:
    """`unheard`: the texts of the turns behind `turn`. `split`: the client said where it is."""

    turn: Turn
    position: float
    unheard: str
    split: bool


class DeepgramV2Dialect:
    """See `dialect.Dialect`."""

    def __init__(
        self, session: SessionOpen, speed: float, speed_range: tuple[float, float]
    ) -> None:
        self._session = session
        self._speed = speed
        self._speed_range = speed_range
        self._texts: Texts
        self._bytes_per_ms = 0.0
        self._session_id = ""
        self._turns = Turns()
        self._heard: deque[_Heard] = deque()
        """Since the last interrupt: turns whose audio began, the one that is heard now last."""
        self._position = 0.0
        self._interrupted_at = -1.0
        self._interruption: _Interruption | None = None
        self._made_audio = False
        self._characters = 0
        self._closing = False

    def open(self, texts: Texts) -> Sequence[ClientMessage | Reply]:
        self._texts = texts
        return [self._session]

    # What the client said

    def receive(self, data: str | bytes) -> Sequence[ClientMessage | Reply]:
        message = parse(Incoming, data)
        self._count()
        match message.type:
            case "Speak":
                return self._speak(message.text)
            case "Flush":
                return self._turns.flush() or _warn("NO_ACTIVE_SPEECH", "no turn to flush")
            case "Interrupt":
                return self._interrupt(message.playback_offset)
            case "Configure":
                return [Reply(self._configure(message.speed))]
            case "Close":
                self._closing = True
                if self._turns:
                    return self._turns.flush()
                return [Reply(self._session_metadata()), SessionClose()]

    def _count(self) -> None:
        """The characters that were accepted of the last turn."""
        if (turn := self._turns.last) is not None:
            chars = len(self._texts(turn.name))
            self._characters += chars - turn.chars
            turn.chars = chars

    def _speak(self, text: str | None) -> Sequence[ClientMessage | Reply]:
        if text is None:
            raise Refused("invalid_message", "text is missing", param="text")
        return self._turns.speak(text, self._speed) if text else []

    def _configure(self, speed: float | None) -> str:
        low, high = self._speed_range
        if speed is not None and not low <= speed <= high:
            return _message(
                "ConfigureFailure",
                code="SPEED_OUT_OF_RANGE",
                field="speed",
                value=speed,
                description=f"speed must be from {low} to {high}",
            )
        if speed is not None:
            self._speed = speed
        return _message("ConfigureSuccess", applied={"speed": self._speed})

    def _interrupt(self, offset: Offset | None) -> Sequence[ClientMessage | Reply]:
        if self._interruption is not None:
            return _warn("INTERRUPT_IN_PROGRESS", "an earlier interrupt is still handled")
        if not self._made_audio:
            return _warn("NO_AUDIO_GENERATED", "there is no audio yet to interrupt")
        if offset is not None and offset.value <= self._interrupted_at:
            return _warn(
                "INVALID_INTERRUPT_OFFSET",
                f"playback_offset must be over {self._interrupted_at:g} ms: the last interrupt's",
            )
        position = self._position if offset is None else offset.value
        begun = [heard.turn for heard in self._heard]
        turns = [*begun, *(turn for turn in self._turns if turn not in begun)]
        if not turns:
            return _warn("NO_ACTIVE_SPEECH", "nothing was said since the last interrupt")
        which = max(0, sum(heard.at <= position for heard in self._heard) - 1)
        start = self._heard[which].at if self._heard else position
        turn = turns[which]
        unheard = "".join(self._texts(later.name) for later in turns[which + 1 :])
        self._interruption = _Interruption(turn, position, unheard, split=offset is not None)
        interrupt = Interrupt(context=turn.name, played_ms=max(0.0, position - start))
        return [interrupt, *self._turns.clear()]

    # What the session made

    def send(self, event: ServerMessage | WireFrame) -> Sequence[str | bytes | Close]:
        match event:
            case SessionOpened():
                return [self._connected(event)]
            case ContextOpened():
                return self._told(self._turns.opened(event))
            case WireFrame():
                return self._told(self._turns.audio(event))
            case ContextDone():
                return self._told(self._turns.done(event.context))
            case ContextInterrupted():
                return self._interrupted(event.text_spoken, event.text_remaining)
            case ErrorEvent():
                return self._error(event)
        return []

    def _connected(self, event: SessionOpened) -> str:
        self._bytes_per_ms = event.sample_rate * _SAMPLE_BYTES[event.format] / 1000
        self._heard = deque(maxlen=event.limits.contexts)  # as many can still be interrupted
        self._session_id = event.session
        return _message(
            "Connected",
            request_id=event.session,
            model_name=event.model,
            model_version=event.model,
            model_uuids=[event.model],
        )

    def _told(self, heard: Sequence[Heard]) -> list[str | bytes | Close]:
        told: list[str | bytes | Close] = []
        for item in heard:
            match item:
                case Started(turn):
                    self._heard.append(_Heard(turn, self._position))
                    told.append(_message("SpeechStarted", speech_id=self._speech_id(turn)))
                case bytes():
                    self._made_audio = True
                    self._position += len(item) / self._bytes_per_ms
                    told.append(item)
                case Ended(turn):
                    told += self._ended(turn)
        if self._turns.overfull:
            told.append(Close(POLICY_VIOLATION, "more was flushed than can be spoken in time"))
        elif self._closing and not self._turns:
            told += [self._session_metadata(), Close(1000, "")]
        return told

    def _ended(self, turn: Turn) -> list[str]:
        told = []
        if turn.sent == 0:
            told.append(_warning("NO_SYNTHESIZABLE_TEXT", "the turn has nothing to speak"))
        told.append(_message("Flushed", speech_id=self._speech_id(turn)))
        told.append(_message("SpeechMetadata", **self._metadata(turn)))
        return told

    def _interrupted(self, spoken: str, remaining: str) -> list[str | bytes | Close]:
        assert self._interruption is not None  # it is what was asked for
        interruption, self._interruption = self._interruption, None
        self._position = self._interrupted_at = interruption.position
        self._heard.clear()
        split: dict[str, Any] = {}
        if interruption.split:
            split = {"text_spoken": spoken, "text_remaining": remaining + interruption.unheard}
        interrupted = _message(
            "SpeechInterrupted",
            audio_played_ms=round(interruption.position),
            **split,
            metadata=self._metadata(interruption.turn),
        )
        return [interrupted, *self._told([])]

    def _error(self, event: ErrorEvent) -> list[str | bytes | Close]:
        name, interruption = event.context, self._interruption
        if event.code == "unknown_context":
            if interruption is not None and interruption.turn.name == name:  # it was never opened
                return self._interrupted("", "")
            return []  # why it ended was told
        code = close_code_of(event)
        problem = _warning(event.code.upper(), event.message)
        if code != POLICY_VIOLATION:
            problem = _message("Error", code="NET-0000", description=event.message)
        told = [problem, *self._told(self._turns.refused(name))]
        if code == TRY_AGAIN_LATER:  # or its client waits for audio of the turn
            told.append(Close(code, event.message))
        return told

    def _speech_id(self, turn: Turn) -> str:
        number = int(turn.name.removeprefix("turn-"))
        return f"dg_sp_{self._session_id[:6]}{number & 0xFFFFFF:06x}"

    def _metadata(self, turn: Turn) -> dict[str, Any]:
        return {
            "speech_id": self._speech_id(turn),
            "audio_duration_ms": round(turn.sent / self._bytes_per_ms),
            "input_character_count": turn.chars,
            "billable_character_count": turn.chars,
            "controls_applied": {
                "pronunciations_applied": 0,
                "breaks_applied": 0,
                "pronunciation_warnings": 0,
            },
        }

    def _session_metadata(self) -> str:
        return _message(
            "SessionMetadata",
            total_audio_duration_ms=round(self._position),
            total_input_character_count=self._characters,
            total_billable_character_count=self._characters,
        )


def _message(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields})


def _warning(code: str, description: str) -> str:
    return _message("Warning", code=code, description=description)


def _warn(code: str, description: str) -> list[ClientMessage | Reply]:
    return [Reply(_warning(code, description))]
