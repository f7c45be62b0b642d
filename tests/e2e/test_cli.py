"""The first command of the README, as a newcomer types it: text in, a WAV that says it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import soundfile

from tests.whisper import transcribe, word_errors

SENTENCE = "Hello! I am speaking to you, one frame at a time."


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A user without a warm engine; the one that a test starts is ended."""
    folder = tmp_path_factory.mktemp("r")
    yield os.environ | {"XDG_RUNTIME_DIR": str(folder)}
    for lock in folder.rglob("*.lock"):
        with suppress(ProcessLookupError):  # those that failed to start are gone
            os.kill(int(lock.read_text()), signal.SIGTERM)


def cli(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "omni_speak.streams.cli", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def test_say_says_the_sentence(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "hello.wav"
    done = cli(environment, "say", SENTENCE, "-o", str(path), "--seed", "1", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    samples, rate = soundfile.read(path, dtype="float32")
    assert len(samples) == report["frames"] * 1920
    heard = transcribe(samples, rate)
    assert word_errors(SENTENCE, heard) <= 2, heard

    # The engine is warm now, and says the same with the same seed.
    again = tmp_path / "again.wav"
    done = cli(environment, "say", SENTENCE, "-o", str(again), "--seed", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert again.read_bytes() == path.read_bytes()


def test_without_a_daemon(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "hello.wav"
    done = cli(environment, "Hello there.", "--no-daemon", "-o", str(path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert soundfile.info(path).duration > 0.4


@pytest.mark.parametrize("options", [[], ["--no-daemon"]])
def test_D25_a_missing_model_is_one_line(
    environment: dict[str, str], tmp_path: Path, options: list[str]
) -> None:
    missing = tmp_path / "nowhere"
    out = str(tmp_path / "x.wav")
    done = cli(environment, "say", "hi", "--model", str(missing), "-o", out, *options)
    assert done.returncode in (1, 2)
    (line,) = done.stderr.splitlines()
    assert f"{missing}/config.json does not exist" in line


def test_doctor_finds_a_working_engine(environment: dict[str, str]) -> None:
    done = cli(environment, "doctor")
    assert done.returncode == 0, done.stdout
    for name in ("omni-speak:", "torch:", "vllm:", "voice:", "warm engine:"):
        assert name in done.stdout
