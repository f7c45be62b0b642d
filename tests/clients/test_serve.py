"""`serve` as it is typed, with the real voice, and a published client that insists on TLS."""

from __future__ import annotations

import os
import re
import ssl
import sys
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.abc
import httpx
import numpy as np
import pytest
from anyio.streams.text import TextReceiveStream

from tests.clients.conftest import run_client

pytestmark = [pytest.mark.anyio, pytest.mark.clients]


@dataclass
class Served:
    url: str


async def test_tls_self_signed_and_dialects(tmp_path: Path) -> None:
    options = ["--port", "0", "--tls-self-signed", str(tmp_path), "--dialects", "elevenlabs"]
    command = [sys.executable, "-m", "omni_speak.streams.cli", "serve", *options]
    async with await anyio.open_process(command, env=os.environ) as process:
        try:
            server = Served(await _ready(process))
            certificate = str(tmp_path / "cert.pem")
            trust = ssl.create_default_context(cafile=certificate)
            async with httpx.AsyncClient(
                base_url=server.url, verify=trust, trust_env=False
            ) as http:
                assert (await http.post("/tts/bytes", json={})).status_code == 404
                assert (await http.post("/v1/audio/speech", json={})).status_code == 404
            heard = await run_client(
                "sdk", "elevenlabs_sdk.py", server, "wren", "pcm_24000", SSL_CERT_FILE=certificate
            )
        finally:
            process.terminate()
            with anyio.fail_after(30):
                assert await process.wait() == 0
    samples = np.frombuffer(b64decode(heard["pcm_24000"]), "<i2")
    assert len(samples) % 1920 == 0 and len(samples) > 24_000 // 2
    assert np.abs(samples).max() > 1000  # it is not silence


async def _ready(process: anyio.abc.Process) -> str:
    """The URL, once the log says that requests are welcome."""
    assert process.stderr is not None
    logged = ""
    with anyio.fail_after(60):
        async for text in TextReceiveStream(process.stderr):
            logged += text
            if found := re.search(r"listening on (https://\S+)\n.* ready: ", logged, re.DOTALL):
                return found[1]
    raise AssertionError(f"the server ended: {logged}")
