"""The snippets of docs/clients.md run, as they stand, with the published clients."""

from __future__ import annotations

import os
import re
from pathlib import Path

import anyio
import pytest

from omni_speak.streams.access import Policy, self_signed
from tests.clients.conftest import ROOT
from tests.streams.conftest import serving

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

TOKEN = "a-token-long-enough"
WITHOUT_TORCH = """
import importlib.util, sys

package = importlib.util.find_spec("vllm_omni")  # its own __init__ needs torch, its client does not
sys.modules["vllm_omni"] = importlib.util.module_from_spec(package)
"""

PAGE = (ROOT / "docs" / "clients.md").read_text()
SNIPPETS = [
    pytest.param(code, id=f"{section.split()[0]}-{number}")
    for section in PAGE.split("\n## ")
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", section, re.DOTALL))
]


@pytest.mark.parametrize("code", SNIPPETS)
async def test_snippet(tmp_path: Path, code: str) -> None:
    named = [name for name in ("livekit", "pipecat", "vllm_omni") if name in code]
    environment = named[0] if named else "sdk"
    if environment == "vllm_omni":
        code = WITHOUT_TORCH + code
    python = ROOT / ".clients" / environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python} is not there; scripts/test-clients makes it")
    certificate, key = self_signed(tmp_path, "localhost")
    tls = (certificate, key) if "https://" in code else None
    async with serving(tls=tls, policy=Policy(tokens=(TOKEN,))) as server:
        ours = {"8080": server.url.rsplit(":", 1)[1], "VOICE": "Ada", "MODEL": "fake", "KEY": TOKEN}
        for theirs, own in ours.items():
            code = code.replace(theirs, own)
        with anyio.fail_after(60):
            done = await anyio.run_process(
                [str(python), "-c", code],
                check=False,
                env=os.environ | {"SSL_CERT_FILE": str(certificate)},
            )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert done.stdout
    assert not re.search(rb"\b0 bytes|\[\]", done.stdout), "nothing was heard"
