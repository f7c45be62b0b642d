"""`omni-speak say`: one text, spoken by a warm engine, a server or this process, into a file, a
pipe or the loudspeaker."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import ExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from fcntl import ioctl
from pathlib import Path
from termios import FIONREAD
from time import monotonic
from typing import Any, Protocol, Self, get_args

import anyio
import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from omni_speak.runtime.errors import InvalidRequest, NothingToSay, SpeechError, TextTooLong
from omni_speak.runtime.request import MAX_LEAD_MS, SpeechRequest
from omni_speak.streams.audio import AudioFormat, AudioWriter, to_s16le
from omni_speak.streams.daemon import connect
from omni_speak.streams.messages import DEFAULT_LEAD_MS

Pcm = NDArray[np.float32]
Show = Callable[[str], None]

STDOUT = 1
"""Audio goes to the descriptor itself: nothing is left in a buffer when a pipe breaks."""

# Players that take raw samples on their standard input, best first.
PLAYERS = {
    "pw-play": "pw-play --rate={rate} --channels=1 --format=s16 -",
    "paplay": "paplay --raw --rate={rate} --channels=1 --format=s16le",
    "aplay": "aplay -q -t raw -r {rate} -c 1 -f S16_LE -",
    "ffplay": "ffplay -nodisp -autoexit -loglevel error -f s16le -ar {rate} -i -",
}


class NoPlayer(SpeechError):
    """Nothing here can play sound."""

    code = "no_player"


class Incomplete(SpeechError):
    """The engine stopped before the text's end."""

    code = "incomplete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What was asked for on the command line."""

    request: SpeechRequest
    model: str
    lexicon: Path | None
    server: str | None
    in_process: bool
    output: str | None
    play: bool
    json: bool
    started: float


def read_text(words: Sequence[str], file: Path | None) -> str:
    """The text of arguments, of standard input (`-`) or of a file.

    Raises InvalidRequest if there is not exactly one of them, or if it is not UTF-8.
    """
    text = " ".join(words)
    if bool(words) == (file is not None):
        raise InvalidRequest("give a text, or - for standard input, or --file FILE", param="text")
    if file is not None:
        return _decode(file.read_bytes(), str(file))
    if text == "-":
        if sys.stdin is None:
            raise InvalidRequest("standard input is closed", param="text")
        return _decode(sys.stdin.buffer.read(), "standard input")
    try:
        text.encode()  # an argument's stray bytes arrive as lone surrogates
    except UnicodeEncodeError:
        raise InvalidRequest("the text is not valid UTF-8", param="text") from None
    return text


def _decode(data: bytes, source: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"{source} is not valid UTF-8 (byte {error.start} is 0x{data[error.start]:02x})",
            param="text",
        ) from None


def run(job: Job) -> None:
    """Speak, then report. Raises SpeechError and OSError; what was heard until then is kept."""
    check_output(job)
    if not job.request.text.strip():
        raise NothingToSay("the text is empty", param="text")
    report = anyio.run(_speak, job)
    if job.json:
        print(json.dumps(asdict(report)), file=sys.stderr if _on_stdout(job) else sys.stdout)
    if report.finish_reason != "stop":
        raise Incomplete(f"the speech is incomplete: it ended by {report.finish_reason!r}")


def _on_stdout(job: Job) -> bool:
    return job.output == "-" or (job.output is None and not job.play)


def _max_lead_ms(job: Job) -> int | None:
    if job.play:
        return DEFAULT_LEAD_MS
    return MAX_LEAD_MS if _on_stdout(job) else None  # what reads a pipe may play it


def check_output(job: Job) -> None:
    """Refuse now what would otherwise fail after seconds of engine start."""
    if _on_stdout(job):
        if sys.stdout is None or sys.stdout.isatty():
            where = "a terminal" if sys.stdout else "a closed stdout"
            raise InvalidRequest(
                f"not writing audio to {where}: give -o FILE, --play, or redirect stdout",
                param="output",
            )
    elif job.output is not None:
        path = Path(job.output)
        if path.suffix.lower().lstrip(".") not in get_args(AudioFormat):
            known = ", ".join(f".{name}" for name in get_args(AudioFormat))
            raise InvalidRequest(
                f"cannot write {path}: its name must end in {known}", param="output"
            )
        if not path.parent.is_dir():
            raise InvalidRequest(f"cannot write {path}: no such folder", param="output")
    if job.play:
        find_player()


# -- where the speech comes from ---------------------------------------------------------------


class Speech(Protocol):
    """What a server's client and an engine's text stream have in common."""

    @property
    def result(self) -> Any: ...
    def __aiter__(self) -> AsyncGenerator[Any]: ...


@asynccontextmanager
async def open_speech(job: Job, sinks: Sinks, show: Show) -> AsyncIterator[tuple[int, Speech]]:
    """The sample rate of what will speak, and the text about to be spoken into `sinks`."""
    ask = job.request
    if not job.in_process:
        async with connect(
            job.model,
            job.server,
            lexicon=job.lexicon,
            on_start=lambda: show("starting the engine…"),
        ) as client:
            check_length(ask.text, client.info.limits.text_chars)
            yield (
                client.info.sample_rate,
                client.speak(
                    ask.text,
                    player=sinks if job.play else None,
                    voice=ask.voice,
                    speed=ask.speed,
                    seed=ask.seed,
                    max_lead_ms=_max_lead_ms(job),
                ),
            )
        return
    # Here, because a warm engine or a server needs none of it.
    from omni_speak.streams.server import engine_factory
    from omni_speak.streams.speaking import speak_text

    show("loading the engine…")
    # In a thread: the imports take seconds, in which Ctrl-C is to be heard.
    make = engine_factory(model=job.model, lexicon=job.lexicon)
    async with await anyio.to_thread.run_sync(make, abandon_on_cancel=True) as engine:
        yield (
            engine.info.sample_rate,
            speak_text(engine, ask.text, voice=ask.voice, speed=ask.speed, seed=ask.seed),
        )


def check_length(text: str, limit: int) -> None:
    """The server checks too, but would speak what fits first. Raises TextTooLong."""
    if len(text) > limit:
        raise TextTooLong(
            f"the text has {len(text)} characters, at most {limit} are allowed", param="text"
        )


# -- where it goes -----------------------------------------------------------------------------


def find_player() -> list[str]:
    """The command of the best player on PATH, its rate still open. Raises NoPlayer."""
    for name, command in PLAYERS.items():
        if shutil.which(name):
            return command.split()
    raise NoPlayer(
        f"no player on PATH (looked for {', '.join(PLAYERS)}); use -o FILE to write a file"
    )


class Player:
    """Plays float samples through another program."""

    def __init__(self, sample_rate: int) -> None:
        self._command = [word.format(rate=sample_rate) for word in find_player()]
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self._sample_rate = sample_rate
        self._started = monotonic()
        self._written = 0

    @property
    def playhead(self) -> int:
        """Samples heard, at most: what the program has taken, and no faster than sound goes."""
        assert self._process.stdin is not None
        in_pipe = array("i", [0])
        with suppress(ValueError):  # closed: what is left of it is on its way to the loudspeaker
            ioctl(self._process.stdin, FIONREAD, in_pipe)
        elapsed = int((monotonic() - self._started) * self._sample_rate)
        return max(0, min(self._written - in_pipe[0] // 2, elapsed))

    def write(self, pcm: Pcm) -> None:
        """Blocks at the speed of sound. Raises NoPlayer with the program's own words."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(to_s16le(pcm))
            self._process.stdin.flush()
            self._written += len(pcm)
        except BrokenPipeError:
            raise self._failure() from None

    def finish(self) -> None:
        """Wait until everything is heard. Raises NoPlayer."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._process.wait() != 0:
            raise self._failure()

    def _failure(self) -> NoPlayer:
        assert self._process.stderr is not None
        said = self._process.stderr.read().decode(errors="replace").strip().splitlines()
        reason = said[-1] if said else f"it ended with code {self._process.wait()}"
        return NoPlayer(f"{self._command[0]} could not play: {reason}; use -o FILE instead")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        self._process.kill()
        self._process.wait()
        self._process.stderr.close()
        with suppress(BrokenPipeError):
            self._process.stdin.close()


class Sinks:
    """Every place one job's audio goes to, opened with its first frame. `playhead` is how much of
    it was heard."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._file: AudioWriter | None = None
        self._player: Player | None = None
        self._stack = ExitStack()
        self.samples = 0

    @property
    def playhead(self) -> int:
        return self._player.playhead if self._player is not None else self.samples

    def open(self, sample_rate: int) -> None:
        if self._job.output is not None or not self._job.play:
            self._file = self._stack.enter_context(_open_file(self._job.output, sample_rate))
        if self._job.play:
            self._player = self._stack.enter_context(Player(sample_rate))

    def write(self, pcm: Pcm) -> None:
        if self._file is not None:
            self._file.write(pcm)
        if self._player is not None:
            self._or_only_write(lambda player: player.write(pcm))
        self.samples += len(pcm)

    def finish(self) -> None:
        if self._player is not None:
            self._or_only_write(Player.finish)

    def _or_only_write(self, play: Callable[[Player], None]) -> None:
        """A file that is also being written is worth going on for without sound."""
        assert self._player is not None
        try:
            play(self._player)
        except NoPlayer as error:
            if self._file is None:
                raise
            print(f"omni-speak: {error}", file=sys.stderr)
            self._player = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _open_file(output: str | None, sample_rate: int) -> AudioWriter:
    if output is None:
        return AudioWriter(STDOUT, sample_rate, "pcm")
    return AudioWriter(STDOUT if output == "-" else output, sample_rate)


# -- speaking ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Report:
    """`first_audio_ms` from the start of the command until the first frame was written,
    `real_time_factor` the seconds it took to speak one second of sound."""

    first_audio_ms: float
    real_time_factor: float
    audio_s: float
    frames: int
    seed: int
    finish_reason: str


def progress() -> Show:
    """Shows one changing line where somebody sees it; the empty line ends it."""
    if not sys.stderr.isatty():
        return lambda line: None
    return lambda line: print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


async def _speak(job: Job) -> Report:
    show, sinks = progress(), Sinks(job)
    try:
        async with open_speech(job, sinks, show) as (sample_rate, speech):
            return await _speak_into(sinks, job, sample_rate, speech, show)
    finally:
        show("")


async def _speak_into(
    sinks: Sinks, job: Job, sample_rate: int, speech: Speech, show: Show
) -> Report:
    asked, first = monotonic(), None
    with sinks:
        async with aclosing(speech.__aiter__()) as frames:
            async for frame in frames:
                if first is None:
                    sinks.open(sample_rate)
                # In a thread, because a pipe or a player takes it at its own pace, and the
                # connection must be answered meanwhile.
                await anyio.to_thread.run_sync(
                    sinks.write, as_float(frame.pcm), abandon_on_cancel=True
                )
                first = first or monotonic()
                show(f"{sinks.samples / sample_rate:.1f} s spoken")
        done = monotonic()
        if first is None:
            raise NothingToSay("the text holds nothing that can be spoken", param="text")
        await anyio.to_thread.run_sync(sinks.finish, abandon_on_cancel=True)
    result, samples = speech.result, sinks.samples
    return Report(
        first_audio_ms=round((first - job.started) * 1000, 1),
        real_time_factor=round((done - asked) * sample_rate / samples, 3),
        audio_s=round(samples / sample_rate, 3),
        frames=result.frames,
        seed=result.seed,
        finish_reason=result.reason,
    )


def as_float(pcm: NDArray[np.int16] | Pcm) -> Pcm:
    """Samples in -1..1, whether a server or an engine of this process made them."""
    samples = pcm.astype(np.float32, copy=False)
    return samples / np.float32(32767) if pcm.dtype == np.int16 else samples
