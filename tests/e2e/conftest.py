"""The real server, once for all end-to-end tests."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

SERVE = """
import anyio, json, sys
from functools import partial
from omni_speak.streams.server import engine_factory, serve

engine, options = json.loads(sys.argv[1])
anyio.run(partial(
    serve, engine_factory(model="wren", **engine), port=0, **options,
    on_listening=lambda url: print(url, flush=True), on_ready=lambda: print("ready", flush=True),
))
"""


@contextmanager
def serving(engine: dict[str, Any], **options: Any) -> Iterator[str]:
    """A server in a process of its own, with this EngineConfig and options of `serve`."""
    arguments = [sys.executable, "-c", SERVE, json.dumps([engine, options])]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert process.stdout.readline().strip() == "ready", "the server did not start"
        yield url
    finally:
        process.terminate()
        assert process.wait(60) == 0


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    with serving({}) as url:
        yield url
