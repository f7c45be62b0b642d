"""A real server beside the test, and other people's clients in environments of their own.

A client's script gets the server's URL as its argument and prints one JSON object."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any, Protocol

import anyio
import av
import numpy as np
import pytest
from numpy.typing import NDArray

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


def decoded(file: bytes, rate: int) -> NDArray[Any]:
    """Its samples, which must be mono and at this rate."""
    with av.open(io.BytesIO(file)) as container:
        frames = list(container.decode(audio=0))
    assert {(frame.sample_rate, frame.layout.name) for frame in frames} == {(rate, "mono")}
    return np.concatenate([frame.to_ndarray()[0] for frame in frames])


__all__ = ["Running", "server"]
