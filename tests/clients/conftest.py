"""A real server beside the test, and other people's clients in environments of their own.

A client's script gets the server's URL as its argument and prints one JSON object."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Protocol

import anyio
import pytest

from tests.streams.conftest import Running, server

ROOT = Path(__file__).parents[2]
CLIENTS = Path(__file__).parent


class Served(Protocol):
    url: str


async def run_client(
    environment: str, script: str, server: Served, *arguments: str, **variables: str
) -> dict[str, Any]:
    """What tests/clients/scripts/`script` printed, run with `variables` in its
    environment; its failure is the test's."""
    python = ROOT / ".clients" / environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python} is not there; scripts/test-clients makes it")
    command = [str(python), str(CLIENTS / "scripts" / script), server.url, *arguments]
    with anyio.fail_after(60):
        done = await anyio.run_process(command, check=False, env=os.environ | variables)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


__all__ = ["Running", "server"]
