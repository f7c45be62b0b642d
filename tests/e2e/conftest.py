"""The real server, once for all end-to-end tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

SERVE = """
import anyio
from functools import partial
from omni_speak.streams.server import engine_factory, serve

anyio.run(partial(
    serve, engine_factory(model="wren"), port=0,
    on_listening=lambda url: print(url, flush=True), on_ready=lambda: print("ready", flush=True),
))
"""


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert process.stdout.readline().strip() == "ready", "the server did not start"
        yield url
    finally:
        process.terminate()
        assert process.wait(60) == 0
