"""The snippets of docs/clients.md run, as they stand, with the published clients."""

from __future__ import annotations

import os
import re
from pathlib import Path

import anyio
import pytest

from omni_speak.streams.access import self_signed
from tests.clients.conftest import ROOT
from tests.streams.conftest import serving

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

PAGE = (ROOT / "docs" / "clients.md").read_text()
SNIPPETS = [
    pytest.param(code, id=f"{section.split()[0]}-{number}")
    for section in PAGE.split("\n## ")
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", section, re.DOTALL))
]


@pytest.mark.parametrize("code", SNIPPETS)
async def test_snippet(tmp_path: Path, code: str) -> None:
    environment = "livekit" if "livekit" in code else "sdk"
    python = ROOT / ".clients" / environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python} is not there; scripts/test-clients makes it")
    certificate, key = self_signed(tmp_path, "localhost")
    async with serving(tls=(certificate, key) if "https://" in code else None) as server:
        port = server.url.rsplit(":", 1)[1]
        code = code.replace("localhost:8080", f"localhost:{port}").replace("VOICE", "Ada")
        with anyio.fail_after(60):
            done = await anyio.run_process(
                [str(python), "-c", code],
                check=False,
                env=os.environ | {"SSL_CERT_FILE": str(certificate)},
            )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert done.stdout
