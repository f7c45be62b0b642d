"""The user's warm engine: a server of one's own on a Unix socket that nobody else can reach.

`connect` finds it or starts it; the process itself is `python -m omni_speak.streams.daemon MODEL`.
It holds a lock for as long as it lives, which decides everything: of two that start at once the
second leaves, and a socket whose lock is free is stale. It ends itself after ten idle minutes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import monotonic

import anyio

from omni_speak.runtime.errors import InvalidRequest, SpeechError
from omni_speak.streams.client import ConnectionLost, DuplexClient, ServerError

IDLE_TIMEOUT_S = 600.0
START_TIMEOUT_S = 120.0
POLL_S = 0.05
_MAX_SOCKET_PATH = 107  # bytes in a sockaddr_un, less the final zero


class NoDaemon(SpeechError):
    """The warm engine cannot be started; the message says why."""

    code = "no_daemon"


@dataclass(frozen=True, slots=True)
class Place:
    """Where one warm engine lives: one per model and lexicon, in each state of the installation."""

    socket: Path

    @classmethod
    def of(cls, model: str, lexicon: Path | None = None) -> Place:
        return cls(private_folder() / f"{fingerprint(model, lexicon)}.sock")

    @property
    def lock(self) -> Path:
        return self.socket.with_suffix(".lock")

    @property
    def log(self) -> Path:
        return self.socket.with_suffix(".log")


def fingerprint(model: str, lexicon: Path | None = None) -> str:
    """Differs where another model, lexicon, installation or version of the files would speak
    otherwise. Raises OSError if the lexicon cannot be read."""
    package = Path(__file__).parent.parent
    newest = max(
        entry.stat().st_mtime_ns
        for folder in ("runtime", "streams", "models")
        for entry in (package / folder).rglob("*")
        if entry.suffix in {".py", ".json", ".safetensors", ".tsv"}
    )
    parts = [resolved(model), version("omni-speak"), sys.prefix, str(package), str(newest)]
    words = (
        b"" if lexicon is None else os.fsencode(lexicon.resolve()) + b"\0" + lexicon.read_bytes()
    )
    return hashlib.sha256("\0".join(parts).encode() + b"\0" + words).hexdigest()[:16]


def resolved(model: str) -> str:
    """A directory under its full name: the daemon runs in another."""
    return str(Path(model).resolve()) if Path(model).is_dir() else model


def private_folder() -> Path:
    """A folder that is the user's alone, made if need be. Raises NoDaemon if it is not."""
    for folder in _candidates():
        if len(os.fsencode(folder)) + len("/0123456789abcdef.sock") > _MAX_SOCKET_PATH:
            continue
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            continue
        check_private(folder)
        return folder
    raise NoDaemon("no folder for the warm engine's socket; use --no-daemon or --server")


def _candidates() -> list[Path]:
    runtime, cache = os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("XDG_CACHE_HOME")
    return [
        *([Path(runtime) / "omni-speak"] if runtime and Path(runtime).is_dir() else []),
        Path(cache or Path.home() / ".cache") / "omni-speak" / "run",
        Path(tempfile.gettempdir()) / f"omni-speak-{os.getuid()}",
    ]


def check_private(folder: Path) -> None:
    """Raises NoDaemon unless `folder` itself, no link to it, is ours and closed to others."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NoDaemon(f"{folder} is not a directory; remove it")
    if found.st_uid != os.getuid():
        raise NoDaemon(f"{folder} belongs to another user; not speaking through it")
    if found.st_mode & 0o077:
        raise NoDaemon(f"{folder} is open to other users; make it private: chmod 700 {folder}")


# -- the client's side -------------------------------------------------------------------------


@asynccontextmanager
async def connect(
    model: str,
    server: str | None = None,
    *,
    lexicon: Path | None = None,
    on_start: Callable[[], None] = lambda: None,
) -> AsyncIterator[DuplexClient]:
    """A client of `server`, with OMNI_SPEAK_TOKEN's token, or else of the user's warm engine of
    `model` that reads words as `lexicon` says, started if there is none (`on_start` is called when
    that has to be waited for).

    Raises NoDaemon if it does not start, InvalidRequest for a server with a lexicon, which is for
    the server to read, and what the client raises.
    """
    if server is not None and lexicon is not None:
        raise InvalidRequest(
            "a server reads its own lexicon: give it to `omni-speak serve`", param="lexicon"
        )
    async with AsyncExitStack() as stack:
        if server is None:
            place = Place.of(model, lexicon)
            client = await _enter_warm(stack, place, resolved(model), lexicon, on_start)
        else:
            client = await _enter(stack, server)
        yield client


async def _enter(stack: AsyncExitStack, server: str) -> DuplexClient:
    try:
        token = os.environ.get("OMNI_SPEAK_TOKEN")
        return await stack.enter_async_context(DuplexClient(server, token=token, resumable=False))
    except ValueError as error:
        raise InvalidRequest(str(error), param="server") from None
    except ServerError as error:
        if error.code == "unauthorized":
            text = f"{server} asks for a token: set OMNI_SPEAK_TOKEN to one that it knows"
            raise ServerError(error.code, text) from None
        raise


async def _enter_warm(
    stack: AsyncExitStack,
    place: Place,
    model: str,
    lexicon: Path | None,
    on_start: Callable[[], None],
) -> DuplexClient:
    process: subprocess.Popen[bytes] | None = None
    deadline = monotonic() + START_TIMEOUT_S
    while monotonic() < deadline:
        try:
            client = DuplexClient(f"unix:{place.socket}", resumable=False)
            return await stack.enter_async_context(client)
        except ConnectionLost:
            exit_code = process.poll() if process else 0
            if exit_code:
                raise NoDaemon(f"the engine did not start: {_last_words(place.log)}") from None
            if exit_code == 0:  # never started, or left because another one came first
                on_start()
                process = start(place, model, lexicon)
        except ServerError as error:
            if error.code != "unavailable":  # it is still loading, or on its way out
                raise
            on_start()
        await anyio.sleep(POLL_S)
    raise NoDaemon(f"the engine did not start within {START_TIMEOUT_S:g} s; see {place.log}")


def start(place: Place, model: str, lexicon: Path | None) -> subprocess.Popen[bytes]:
    """A process of its own session, so that neither Ctrl-C nor a closed terminal ends it."""
    words = [] if lexicon is None else [str(lexicon.resolve())]
    log = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "omni_speak.streams.daemon", model, str(place.socket), *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=place.socket.parent,
        )
    finally:
        os.close(log)


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"{lines[-1] if lines else 'it said nothing'} (see {log})"


# -- the daemon's side -------------------------------------------------------------------------


def main() -> None:
    """The warm engine itself: `MODEL SOCKET [LEXICON]` on the command line, its standard error the
    log."""
    model, place = sys.argv[1], Place(Path(sys.argv[2]))
    lexicon = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    if not hold(place.lock):
        return
    os.ftruncate(sys.stderr.fileno(), 0)  # only now: until then the log was another's
    place.socket.unlink(missing_ok=True)
    from omni_speak.streams.server import engine_factory, serve

    try:
        anyio.run(
            partial(
                serve,
                engine_factory(model=model, lexicon=lexicon),
                uds=place.socket,
                idle_timeout_s=IDLE_TIMEOUT_S,
            )
        )
    except SpeechError as error:
        sys.exit(str(error))
    # Taking torch and vLLM down module by module would take seconds, and hold the lock meanwhile.
    sys.stderr.flush()
    os._exit(0)


def hold(lock: Path) -> bool:
    """Take the lock until this process ends, and leave its number there for who wants to end it;
    False if another process has it."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return True


if __name__ == "__main__":
    main()
