"""The warm engine: whose it is, when it is stale, and who starts it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from omni_speak.runtime.errors import InvalidRequest
from omni_speak.streams import daemon
from omni_speak.streams.daemon import NoDaemon, Place, check_private, connect, private_folder

pytestmark = pytest.mark.anyio

# The daemon's own `main`, around the fake engine.
FAKE_DAEMON = """
import omni_speak.streams.server as server
from omni_speak.streams import daemon
from tests.streams.fake_engine import FakeEngine

server.engine_factory = lambda **config: FakeEngine
daemon.main()
"""


@pytest.fixture(autouse=True)
def runtime_folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    folder = tmp_path_factory.mktemp("r")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The daemons that were started, with the fake engine; ended with the test."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(place: Place, model: str, lexicon: Path | None) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", FAKE_DAEMON, model, str(place.socket)]
        with place.log.open("ab") as log:
            processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        return processes[-1]

    monkeypatch.setattr(daemon, "start", start)
    yield processes
    for process in processes:
        process.terminate()
        process.wait(10)


async def test_the_first_starts_it_and_the_next_find_it(
    started: list[subprocess.Popen[bytes]],
) -> None:
    waits = 0

    def on_start() -> None:
        nonlocal waits
        waits += 1

    async with connect("wren", on_start=on_start) as client:
        assert client.info.model == "fake"
    assert waits > 0
    waits = 0
    async with connect("wren", on_start=on_start):
        pass
    assert (len(started), waits) == (1, 0)
    assert oct(Place.of("wren").socket.stat().st_mode)[-3:] == "600"


async def test_two_at_once_share_one(started: list[subprocess.Popen[bytes]]) -> None:
    async def speak() -> None:
        async with connect("wren") as client:
            assert [frame async for frame in client.speak("hi there")]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(speak)
        tasks.start_soon(speak)
    with anyio.fail_after(20):
        while len([process for process in started if process.poll() is None]) > 1:
            await anyio.sleep(0.01)
    async with connect("wren"):
        pass


async def test_a_stale_socket_is_taken_over(started: list[subprocess.Popen[bytes]]) -> None:
    place = Place.of("wren")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place.socket))
    async with connect("wren") as client:
        assert client.info.model == "fake"


async def test_a_daemon_that_was_killed_is_replaced(
    started: list[subprocess.Popen[bytes]],
) -> None:
    async with connect("wren"):
        pass
    started[0].kill()
    started[0].wait(10)
    assert Place.of("wren").socket.exists()
    async with connect("wren"):
        pass
    assert len(started) == 2


async def test_a_failed_start_tells_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(place: Place, model: str, lexicon: Path | None) -> subprocess.Popen[bytes]:
        place.log.write_text("loading\nno weights in /nowhere\n")
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"])

    monkeypatch.setattr(daemon, "start", start)
    with pytest.raises(NoDaemon, match="did not start: no weights in /nowhere"):
        async with connect("wren"):
            pass


# -- privacy -----------------------------------------------------------------------------------


def test_the_folder_is_private(runtime_folder: Path) -> None:
    folder = private_folder()
    assert folder == runtime_folder / "omni-speak"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_without_a_runtime_folder_the_cache_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    assert private_folder() == tmp_path / "c/omni-speak/run"


def test_a_path_too_long_for_a_socket_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    assert private_folder() == tmp_path / "c/omni-speak/run"


def test_a_folder_open_to_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    with pytest.raises(NoDaemon, match="chmod 700"):
        check_private(tmp_path)


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(NoDaemon, match="not a directory"):
        check_private(tmp_path / "link")


def test_anothers_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    us = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: us + 1)
    with pytest.raises(NoDaemon, match="another user"):
        check_private(tmp_path)


def test_the_key_follows_model_and_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = daemon.fingerprint("wren")
    assert daemon.fingerprint("wren") == key
    assert daemon.fingerprint(str(tmp_path)) != key
    monkeypatch.setattr(daemon, "version", lambda _: "9.9.9")
    assert daemon.fingerprint("wren") != key


def test_the_key_follows_what_the_lexicon_says(tmp_path: Path) -> None:
    lexicon = tmp_path / "words.tsv"
    keys = {daemon.fingerprint("wren")}
    for line in ("Ng\tɪŋ", "Ng\tɛŋ"):
        lexicon.write_text(line, "utf-8")
        keys.add(daemon.fingerprint("wren", lexicon))
    assert len(keys) == 3


async def test_a_server_reads_its_own_lexicon(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="omni-speak serve") as caught:
        async with connect("wren", "http://localhost:1", lexicon=tmp_path / "words.tsv"):
            pass
    assert caught.value.param == "lexicon"
