"""Fuzz what reads a client's bytes: the binary frame, our messages, the dialects, the HTTP body.

Each target runs in a process of its own, guided by coverage (atheris, libFuzzer) from the seeds
below and from what earlier runs found (`build/fuzz/TARGET`). Nothing may come out of a parser but
its own clean error, and a `Witness` sees what the session answers. An input that breaks that stays
in `build/fuzz`, to be replayed with `--replay FILE`.

In a conversation a line is a message; at an empty one every speaker makes a frame, or ends.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import atheris
import numpy as np
import typer

CHILD = sys.argv[1:2] == ["--child"]

with atheris.instrument_imports(include=["omni_speak.streams"]) if CHILD else nullcontext():
    from omni_speak.runtime.errors import InvalidRequest
    from omni_speak.runtime.request import EngineInfo
    from omni_speak.streams.allowance import Allowance
    from omni_speak.streams.dialect import Dialect, Reply
    from omni_speak.streams.dialects.cartesia import CartesiaDialect
    from omni_speak.streams.dialects.deepgram import DeepgramDialect
    from omni_speak.streams.dialects.deepgram_v2 import DeepgramV2Dialect
    from omni_speak.streams.dialects.elevenlabs import ElevenLabsDialect, OutputFormat
    from omni_speak.streams.dialects.native import NativeDialect
    from omni_speak.streams.dialects.openai_speech import SpeechBody
    from omni_speak.streams.dialects.text import parse
    from omni_speak.streams.dialects.vllm_omni_realtime import RealtimeDialect
    from omni_speak.streams.dialects.vllm_omni_stream import SpeechStreamDialect
    from omni_speak.streams.messages import AnyEvent, ClientMessage, Close, Limits, SessionOpen
    from omni_speak.streams.protocol import Abort, Effect, End, Journal, Say, Send, Session, Start
    from omni_speak.streams.segmenter import Segment
    from omni_speak.streams.speaking import SpokenFrame, SpokenWord
    from omni_speak.streams.wire import WireError, WireFrame, decode, encode

    # What it imports must be instrumented, too.
    from witness import Witness  # isort: skip

SAMPLES = 80
INFO = EngineInfo(
    model="fuzz",
    voices=("Ada", "bob"),
    default_voice="Ada",
    sample_rate=8000,
    frame_rate=100.0,
    samples_per_frame=SAMPLES,
    codebooks=2,
    codebook_size=16,
    max_text_chars=500,
    speed_range=(0.5, 2.0),
    open_text=True,
)
PCM = np.linspace(-1, 1, SAMPLES, dtype=np.float32)
CODES = np.zeros(2, np.uint16)


@dataclass(slots=True)
class Speaker:
    """Speaks each segment in one frame, that ends one word of it."""

    epoch: int
    segments: deque[Segment] = field(default_factory=deque)
    frames: int = 0
    ended: bool = False

    def frame(self) -> SpokenFrame:
        segment, pts = self.segments.popleft(), self.frames * SAMPLES
        word = SpokenWord(segment.start, segment.start + len(segment.text), pts, pts + SAMPLES)
        frame = SpokenFrame(self.frames, CODES, PCM, pts, 0, self.frames, self.frames == 0, (word,))
        self.frames += 1
        return frame


class Conversation:
    """A session and its dialect without sockets, as DuplexSession runs them."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._session = Session(
            INFO,
            Limits(contexts=3, text_chars=2000),
            Allowance(),
            session_id="s",
            resume_token="t",
            clock=lambda: 0.0,
            draw_seed=lambda: 7,
        )
        self._journal = Journal(10_000)
        self._witness = Witness()
        self._speakers: dict[int, Speaker] = {}
        self._closed = False
        self._take(dialect.open(self._session.text))

    def read(self, line: str) -> None:
        if self._closed:
            return
        if not line:
            for handle in list(self._speakers):
                self._speak(handle)
            return
        try:
            messages = self._dialect.receive(line)
        except InvalidRequest as error:
            self._carry_out(self._session.refuse(error))
        else:
            self._take(messages)

    def _take(self, messages: Sequence[ClientMessage | Reply]) -> None:
        for message in messages:
            if not isinstance(message, Reply):
                self._carry_out(self._session.handle(message))

    def _speak(self, handle: int) -> None:
        speaker = self._speakers.get(handle)
        if speaker is None:
            return
        if speaker.segments:
            self._carry_out(self._session.frame(handle, speaker.epoch, speaker.frame()))
        elif speaker.ended:
            del self._speakers[handle]
            done = self._session.finished(handle, speaker.epoch, "stop", speaker.frames)
            self._carry_out(done)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(event):
                    if isinstance(event, AnyEvent | WireFrame):
                        event = self._journal.add(event)
                    self._witness.see(event)
                    if any(isinstance(told, Close) for told in self._dialect.send(event)):
                        self._closed = True
                        return
                case Start(handle, epoch):
                    self._speakers[handle] = Speaker(epoch)
                case Say(handle, segment):
                    self._speakers[handle].segments.append(segment)
                case End(handle):
                    self._speakers[handle].ended = True
                case Abort(handle):
                    self._speakers.pop(handle, None)
                case Close():
                    self._closed = True


def converse(dialect: Callable[[], Dialect]) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        conversation = Conversation(dialect())
        for line in data.decode(errors="replace").split("\n")[:40]:
            conversation.read(line)

    return read


def read_wire(data: bytes) -> None:
    try:
        frame = decode(data)
    except WireError:
        return
    assert decode(encode(frame)) == frame


def read_body(data: bytes) -> None:
    with suppress(InvalidRequest, UnicodeDecodeError):
        parse(SpeechBody, data.decode())


TARGETS: dict[str, Callable[[bytes], None]] = {
    "wire": read_wire,
    "native": converse(NativeDialect),
    "elevenlabs": converse(
        lambda: ElevenLabsDialect("Ada", OutputFormat.named("pcm_8000"), multi=True)
    ),
    "elevenlabs-single": converse(
        lambda: ElevenLabsDialect("Ada", OutputFormat.named("ulaw_8000"), multi=False)
    ),
    "cartesia": converse(CartesiaDialect),
    "deepgram": converse(lambda: DeepgramDialect(SessionOpen(), 1.0)),
    "deepgram-2": converse(lambda: DeepgramV2Dialect(SessionOpen(), 1.0, INFO.speed_range)),
    "omni-stream": converse(lambda: SpeechStreamDialect(INFO)),
    "omni-realtime": converse(lambda: RealtimeDialect(INFO.model)),
    "openai": read_body,
}

_RAW = '{"container":"raw","encoding":"pcm_s16le","sample_rate":8000}'
SEEDS: dict[str, list[str]] = {
    "wire": ["\x16\x01\x01\x00\x01\x00\x00\x00\x05\x00\x00\x00\x02\x00\x00\x00" + 16 * "\x01"],
    "native": [
        "\n".join(
            [
                f'{{"type":"session.open","format":"{format}"}}',
                '{"type":"context.open","context":"a","max_lead_ms":null,"seed":3}',
                '{"type":"text.append","context":"a","text":"Dr. Ng left. Then she came."}',
                "",
                '{"type":"playback.ack","context":"a","samples":80}',
                *more,
                '{"type":"text.end","context":"a"}',
                *("", "", "", '{"type":"ping"}', '{"type":"session.close"}'),
            ]
        )
        for format in ("pcm_s16le", "codes_u16", "mulaw")
        for more in (
            ['{"type":"text.flush","context":"a"}', ""],
            ['{"type":"interrupt","context":"a","played_ms":5.0}'],
            ['{"type":"interrupt","context":"a"}', '{"type":"cancel","context":"a"}'],
        )
    ]
    + ['{"type":"session.open","resume":{"session":"s","token":"t","seq":3}}'],
    "elevenlabs": [
        '{"text":" ","context_id":"a","voice_settings":{"speed":1.1}}\n'
        '{"text":"Hello there.","context_id":"a","flush":true}\n\n\n'
        '{"context_id":"a","close_context":true}\n\n\n{"close_socket":true}',
        '{"text":""}\n{"text":"Well. "}\n{"close_context":true}\n\n{"text":"More. "}',
    ],
    "elevenlabs-single": [
        '{"text":" ","try_trigger_generation":true,"generation_config":{}}\n{"text":"Hello. "}\n'
        '\n{"text":"there","flush":true}\n{"text":""}\n\n\n'
    ],
    "cartesia": [
        '{"model_id":"m","transcript":"Hello. ","voice":{"mode":"id","id":"Ada"},"context_id":"a",'
        f'"output_format":{_RAW},"continue":true,"add_timestamps":true}}\n\n'
        '{"transcript":"More.","context_id":"a","continue":true,"flush":true}\n\n'
        '{"transcript":"","context_id":"a","continue":false}\n\n\n{"context_id":"a","cancel":true}'
    ],
    "deepgram": [
        '{"type":"Speak","text":"Hello"}\n{"type":"Speak","text":"there."}\n{"type":"Flush"}\n\n'
        '{"type":"Speak","text":"Again."}\n{"type":"Clear"}\n{"type":"Speak","text":"More."}\n'
        '{"type":"Close"}\n\n\n'
    ],
    "deepgram-2": [
        '{"type":"Speak","text":"Hello "}\n{"type":"Speak","text":"there."}\n{"type":"Flush"}\n\n'
        '{"type":"Configure","speed":1.5}\n{"type":"Speak","text":"Again."}\n{"type":"Flush"}\n\n'
        '{"type":"Interrupt","playback_offset":{"type":"time_ms","value":5}}\n'
        '{"type":"Speak","text":"More."}\n{"type":"Close"}\n\n\n'
    ],
    "omni-stream": [
        '{"type":"session.config","voice":"Ada","response_format":"pcm","stream_audio":true,'
        f'"word_timestamps":{timed},"seed":1}}\n{{"type":"input.text","text":"Hello there. "}}\n\n'
        '{"type":"input.done"}\n{"type":"input.text","text":"Again."}\n{"type":"input.done"}\n'
        '{"type":"session.config","speed":1.5}\n\n\n{"type":"session.close"}\n\n'
        for timed in ("true", "false")
    ],
    "omni-realtime": [
        '{"type":"session.update","session":{"voice":"Ada","output_audio_format":"pcm16"}}\n'
        '{"type":"input.text.append","text":"Hello there. "}\n\n'
        '{"type":"playback.ack","played_ms":5,"response_id":"resp_1"}\n{"type":"input.commit"}\n\n'
        f'{stop}\n\n{{"type":"input.text.append","text":"More."}}\n'
        '{"type":"response.create"}\n\n\n{"type":"session.close"}'
        for stop in ('{"type":"barge_in"}', '{"type":"response.cancel"}')
    ],
    "openai": [
        '{"input":"Hi.","model":"m","voice":{"id":"Ada"},"response_format":"mp3","speed":1.5,'
        '"stream_format":"sse","seed":1,"temperature":0.5,"stream":false}'
    ],
}

_DONE = re.compile(r"^Done (\d+) runs", re.MULTILINE)


def fuzz(target: str, runs: int, seconds: int) -> bool:
    """Whether it held; a line on how many inputs it read."""
    found = Path("build/fuzz") / target
    found.mkdir(parents=True, exist_ok=True)
    log = found.with_suffix(".log")
    with tempfile.TemporaryDirectory() as folder:
        seeds = Path(folder) / "seeds"
        seeds.mkdir()
        for i, seed in enumerate(SEEDS[target]):
            (seeds / str(i)).write_bytes(seed.encode("latin-1"))
        words = Path(folder) / "words"
        words.write_text("\n".join(dictionary(target)) + "\n")
        # By the wall clock: a machine with other work to do may stop us for a minute or two.
        options = [f"-runs={runs}", f"-max_total_time={seconds}", "-max_len=2000", "-timeout=300"]
        options += [f"-dict={words}", f"-artifact_prefix={found}-", str(found), str(seeds)]
        start = time.monotonic()
        with log.open("w") as output:
            command = [sys.executable, __file__, "--child", target, *options]
            code = subprocess.run(command, stdout=output, stderr=output, check=False).returncode
    text = log.read_text(errors="replace")
    read = max(map(int, _DONE.findall(text)), default=0)
    verdict = "clean" if code == 0 and read else f"BROKEN, see {log}"
    print(
        f"{target:<18} {read:>9} inputs {time.monotonic() - start:>5.0f} s  {verdict}", flush=True
    )
    return code == 0 and read > 0


def dictionary(target: str) -> list[str]:
    """The words of the target's seeds, as libFuzzer reads them."""
    words = set(re.findall(r'"[\w.]+"|true|false|null', " ".join(SEEDS[target])))
    return sorted(json.dumps(word) for word in words)


def child(target: str, options: list[str]) -> None:
    atheris.Setup([target, *options], TARGETS[target])
    atheris.Fuzz()


def main(
    targets: Annotated[list[str] | None, typer.Argument(help=", ".join(TARGETS))] = None,
    runs: Annotated[int, typer.Option(help="Inputs for each target.")] = 1_000_000,
    seconds: Annotated[int, typer.Option(help="At most so long for each; 0: no limit.")] = 0,
    replay: Annotated[Path | None, typer.Option(help="Read one input, in one target.")] = None,
) -> None:
    """Exits with 1 if an input broke a target."""
    chosen = targets or list(TARGETS)
    if unknown := set(chosen) - set(TARGETS):
        raise typer.BadParameter(f"no target {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    if replay is not None:
        for target in chosen:
            TARGETS[target](replay.read_bytes())
    else:
        held = [fuzz(target, runs, seconds) for target in chosen]  # all of them, before the verdict
        raise typer.Exit(0 if all(held) else 1)


if __name__ == "__main__":
    if CHILD:
        child(sys.argv[2], sys.argv[3:])
    else:
        typer.run(main)
