"""The command line as a process with pipes, against a server around the fake engine (case D24)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import pytest
import soundfile

from omni_speak.streams.access import Policy
from omni_speak.streams.client import DuplexClient
from tests.streams.conftest import Running, serving

pytestmark = pytest.mark.anyio

CLI = [sys.executable, "-m", "omni_speak.streams.cli"]


@pytest.fixture
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with serving(uds=tmp_path_factory.mktemp("s") / "s.sock") as running:
        running.engine.frames = 0  # the warm-up does not count
        yield running


async def cli(
    *arguments: str | bytes, stdin: bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    with anyio.fail_after(30):
        return await anyio.run_process(
            [*CLI, *arguments],  # type: ignore[list-item]  # bytes are arguments, too
            input=stdin,
            check=False,
            env=os.environ | (env or {}),
        )


async def spoken(server: Running, text: str, seed: int) -> bytes:
    async with DuplexClient(server.url) as client:
        return b"".join([frame.pcm.tobytes() async for frame in client.speak(text, seed=seed)])


async def nothing_runs(server: Running) -> None:
    with anyio.fail_after(10):
        while server.engine.running:
            await anyio.sleep(0.01)


async def test_D24_only_samples_on_stdout(server: Running) -> None:
    done = await cli("-", "--server", server.url, "--seed", "7", stdin=b"hi there\n")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == await spoken(server, "hi there\n", 7)


async def test_D24_wav_down_a_pipe(server: Running) -> None:
    done = await cli("hi there", "--server", server.url, "--seed", "7", "-o", "-")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout[:4] == b"RIFF"
    assert done.stdout[44:] == await spoken(server, "hi there", 7)


@pytest.mark.parametrize("kind", ["wav", "flac", "ogg", "mp3"])
async def test_files(server: Running, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"out.{kind}"
    done = await cli("say", "one two three", "--server", server.url, "-o", str(path))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    samples, rate = soundfile.read(path)
    assert rate == 24_000
    assert len(samples) == pytest.approx(3 * 1920, abs=0 if kind != "mp3" else 2500)


async def test_json_tells_the_timings(server: Running, tmp_path: Path) -> None:
    where = ["--server", server.url, "--json", "--seed", "5"]
    done = await cli("one two three", *where, "-o", str(tmp_path / "out.wav"))
    report = json.loads(done.stdout)
    assert report["first_audio_ms"] > 0
    assert report["real_time_factor"] > 0
    assert (report["frames"], report["audio_s"], report["seed"]) == (3, 0.24, 5)
    piped = await cli("one two three", *where)
    assert len(piped.stdout) == 3 * 1920 * 2
    assert json.loads(piped.stderr)["frames"] == 3


async def test_text_from_a_file(server: Running, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("one two")
    done = await cli("say", "--file", str(path), "--server", server.url)
    assert len(done.stdout) == 2 * 1920 * 2


async def test_D24_a_pipe_closed_early_ends_it_quietly(server: Running) -> None:
    ours, theirs = os.pipe()
    command = [*CLI, "hi #endless", "--server", server.url]
    with anyio.fail_after(30):
        async with await anyio.open_process(command, stdout=theirs) as process:
            os.close(theirs)
            assert len(await anyio.to_thread.run_sync(os.read, ours, 1)) == 1
            os.close(ours)
            assert process.stderr is not None
            assert [chunk async for chunk in process.stderr] == []
            assert await process.wait() == 141
    await nothing_runs(server)


@pytest.mark.parametrize("read_on", [True, False])
async def test_D24_ctrl_c(server: Running, read_on: bool) -> None:
    command = [*CLI, "hi #endless", "--server", server.url]
    with anyio.fail_after(30):
        async with await anyio.open_process(command) as process, anyio.create_task_group() as tasks:
            assert process.stdout is not None
            assert process.stderr is not None
            await process.stdout.receive(1)
            if read_on:
                tasks.start_soon(drain, process.stdout)
            process.send_signal(signal.SIGINT)
            assert [chunk async for chunk in process.stderr] == []
            assert await process.wait() == 130
            tasks.cancel_scope.cancel()
    await nothing_runs(server)


async def drain(stream: anyio.abc.ByteReceiveStream) -> None:
    async for _ in stream:
        pass


async def test_D24_a_terminal_gets_no_samples(server: Running) -> None:
    ours, theirs = os.openpty()
    try:
        done = await anyio.run_process(
            [*CLI, "hi", "--server", server.url], stdout=theirs, check=False
        )
        os.set_blocking(ours, False)
        with pytest.raises(BlockingIOError):
            os.read(ours, 1)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 2
    assert b"give -o FILE, --play, or redirect stdout" in done.stderr
    assert server.engine.frames == 0


async def test_words_without_quotes_are_one_text(server: Running) -> None:
    done = await cli("say", "two", "words", "-o", "-", "--server", server.url, "--seed", "3")
    assert (done.returncode, done.stderr) == (0, b"")
    assert server.engine.asked[-1].text == "two words"


# -- players -----------------------------------------------------------------------------------


def player(folder: Path, script: str) -> dict[str, str]:
    """An environment in which `aplay` is the only player."""
    program = folder / "aplay"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": str(folder)}


async def test_play_hands_the_samples_to_a_player(server: Running, tmp_path: Path) -> None:
    # It has all of it some time before its end, as a loudspeaker's buffer has.
    take = f"/bin/cat > {tmp_path}/heard; /bin/sleep 0.5"
    env = player(tmp_path, f'echo "$@" > {tmp_path}/arguments; {take}')
    done = await cli("hi ho", "--play", "--server", server.url, "--seed", "3", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (tmp_path / "heard").read_bytes() == await spoken(server, "hi ho", 3)
    assert "-r 24000" in (tmp_path / "arguments").read_text()


async def test_play_tells_the_server_what_was_heard(server: Running, tmp_path: Path) -> None:
    # Takes a second's sound, and then no more.
    env = player(tmp_path, "/usr/bin/head -c 48000 > /dev/null; exec /bin/sleep 60")
    command = [*CLI, "hi #endless", "--play", "--server", server.url]
    with anyio.fail_after(30):
        async with await anyio.open_process(command, env=os.environ | env) as process:
            while server.engine.heard < 24_000 - 4096:  # head reads ahead
                await anyio.sleep(0.01)
            assert server.engine.heard <= 24_000 + 8192
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
    await nothing_runs(server)


async def test_D24_no_device(server: Running, tmp_path: Path) -> None:
    env = player(tmp_path, "echo 'aplay: no such device' >&2; exit 1")
    where = ["--server", server.url, "--play"]
    alone = await cli("hi #frames=50", *where, env=env)
    assert (alone.returncode, alone.stdout) == (1, b"")
    assert alone.stderr == (
        b"omni-speak: aplay could not play: aplay: no such device; use -o FILE instead\n"
    )
    path = tmp_path / "out.wav"
    both = await cli("hi #frames=50", *where, "-o", str(path), env=env)
    assert both.returncode == 0
    assert b"no such device" in both.stderr
    assert soundfile.info(path).frames == 50 * 1920
    await nothing_runs(server)


async def test_D24_no_player(server: Running, tmp_path: Path) -> None:
    done = await cli("hi", "--play", "--server", server.url, env={"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert b"no player on PATH" in done.stderr
    assert server.engine.frames == 0


# -- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "stdin", "says"),
    [
        ([""], b"", "the text is empty"),
        (["-"], b" \t\n", "the text is empty"),
        (["?!..."], b"", "nothing that can be spoken"),
        (["\N{PARTY POPPER}"], b"", "nothing that can be spoken"),
        (["hi", "--voice", "nobody"], b"", "voices: Ada, bob"),
        (["hi", "--voice", ""], b"", "voices: Ada, bob"),
        (["hi", "--speed", "9"], b"", "speed must be a number from 0.5 to 2.0"),
        (["hi", "--speed", "nan"], b"", "speed"),
        (["hi", "--seed", "-1"], b"", "seed"),
        (["-"], b"caf\xe9", "standard input is not valid UTF-8 (byte 3 is 0xe9)"),
        ([b"caf\xe9"], b"", "not valid UTF-8"),
        (["-"], b"a" * 2**20, "1048576 characters, at most"),
        (["say"], b"", "give a text"),
        (["hi", "--file", "other.txt"], b"", "give a text"),
        (["hi", "-o", "out.xyz"], b"", "must end in .wav"),
        (["hi", "-o", "no/such/folder.wav"], b"", "no such folder"),
        (["hi", "--server", "gopher://x"], b"", "not a server's address"),
        (["-5 degrees"], b"", "No such option"),
        (["hi", "--speed", "fast"], b"", "--speed"),
    ],
)
async def test_bad_input_is_one_line_and_code_2(
    server: Running, arguments: list[str | bytes], stdin: bytes, says: str
) -> None:
    where = [] if "--server" in arguments else ["--server", server.url]
    done = await cli(*arguments, *where, stdin=stdin)
    assert done.returncode == 2
    assert done.stdout == b""
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("omni-speak: ")
    assert says in line
    assert server.engine.frames == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--port", "99999"], "--port"),
        (["--dialects", "klingon"], "no dialect 'klingon'; there are openai"),
        (["--max-streams", "none"], "auto or a positive number"),
        (["--tls-cert", "missing.pem"], "missing.pem"),
        (["--tls-cert", __file__, "--tls-key", __file__], "certificate and its key, as PEM"),
        (["--tls-self-signed", __file__], "is a file"),
        (["--lexicon", "missing.tsv"], "does not exist; see --help"),
        (["--allow-origin", "example.com"], "https://example.com"),
        (["--allow-origin", "https://example.com/"], "https://example.com"),
        (["--uds", "no/such/folder.sock"], "no/such/folder.sock"),
        (["--tokens", "missing"], "missing"),
    ],
)
async def test_serve_refuses_what_it_cannot_do_in_one_line(arguments: list[str], says: str) -> None:
    done = await cli("serve", "--port", "0", *arguments)
    assert done.returncode in (1, 2)
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("omni-speak: ")
    assert says in line


@pytest.mark.parametrize(
    ("redirected", "says"),
    [("- <&-", "standard input is closed"), ("hi >&-", "a closed stdout: give -o FILE")],
)
async def test_closed_standard_streams(server: Running, redirected: str, says: str) -> None:
    where = f"--server {server.url}"
    done = await anyio.run_process(
        ["sh", "-c", f"exec {' '.join(CLI)} {where} {redirected}"], check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    assert says in line


async def test_all_standard_streams_closed(server: Running, tmp_path: Path) -> None:
    path = tmp_path / "out.wav"
    command = f"exec {' '.join(CLI)} 'one two' --server {server.url} -o {path} <&- >&- 2>&-"
    done = await anyio.run_process(["sh", "-c", command], check=False)
    assert done.returncode == 0
    assert soundfile.info(path).frames == 2 * 1920


async def test_a_token_comes_from_the_environment(tmp_path: Path) -> None:
    token = "a-token-for-the-command-line"
    async with serving(uds=tmp_path / "s.sock", policy=Policy(tokens=(token,))) as server:
        arguments = ["voices", "--server", server.url]
        unknown = await cli(*arguments, env={"OMNI_SPEAK_TOKEN": "0123456789abcdef"})
        assert unknown.returncode == 3
        (line,) = unknown.stderr.decode().splitlines()
        assert "asks for a token: set OMNI_SPEAK_TOKEN" in line
        known = await cli(*arguments, env={"OMNI_SPEAK_TOKEN": token})
        assert known.stdout == b"Ada\nbob\n"


async def test_a_server_that_is_busy_is_code_4(server: Running, tmp_path: Path) -> None:
    full = await cli("#crowd", "--server", server.url, "-o", str(tmp_path / "out.wav"))
    assert (full.returncode, full.stdout) == (4, b"")
    assert full.stderr == b"omni-speak: the engine is full\n"
    token = "a-token-for-the-command-line"
    policy = Policy(tokens=(token,), text_rate=3)
    async with serving(uds=tmp_path / "s.sock", policy=policy) as server:
        for _ in range(2):  # the first is taken, and has used up some minutes
            over = await cli("four", "--server", server.url, env={"OMNI_SPEAK_TOKEN": token})
    assert (over.returncode, over.stdout) == (4, b"")
    (line,) = over.stderr.decode().splitlines()
    assert "characters" in line


async def test_a_server_that_cannot_be_reached_is_code_5(server: Running, tmp_path: Path) -> None:
    for where in (f"unix:{tmp_path}/nobody.sock", "127.0.0.1:1"):
        done = await cli("hi", "--server", where)
        assert (done.returncode, done.stdout) == (5, b"")
        (line,) = done.stderr.decode().splitlines()
        assert line.startswith(f"omni-speak: no connection to {where}: ")
    async with anyio.create_task_group() as tasks:

        async def gone() -> None:
            while not server.engine.running:
                await anyio.sleep(0.01)
            server.stop.set()

        tasks.start_soon(gone)
        broken = await cli("#endless", "--server", server.url)
    assert broken.returncode == 5
    assert len(broken.stderr.splitlines()) == 1


async def test_what_is_not_the_inputs_fault_is_code_1(server: Running, tmp_path: Path) -> None:
    missing = await cli("say", "--file", str(tmp_path / "missing.txt"))
    assert missing.returncode == 1
    assert b"missing.txt" in missing.stderr
    path = tmp_path / "out.wav"
    cut = await cli("one #length", "--server", server.url, "-o", str(path))
    assert cut.returncode == 1
    assert b"incomplete" in cut.stderr
    assert soundfile.info(path).frames == 2 * 1920


async def test_voices_and_version(server: Running) -> None:
    voices = await cli("voices", "--server", server.url)
    assert voices.stdout == b"Ada\nbob\n"
    version = await cli("--version")
    assert version.stdout == b"omni-speak 0.1.0\n"
    assert (await cli("--help")).returncode == 0
    assert (await cli()).stdout == (await cli("--help")).stdout
