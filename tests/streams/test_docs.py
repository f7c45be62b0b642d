"""The snippets of the documentation run, as they stand, against a server."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import anyio
import pytest

from tests.streams.conftest import Running

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).parents[2] / "docs"
SNIPPETS = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in [DOCS / "client.md"]
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("code", SNIPPETS)
async def test_snippet(server: Running, code: str) -> None:
    code = code.replace("127.0.0.1:8080", server.url.removeprefix("http://"))
    result = await anyio.run_process([sys.executable, "-c", code], check=False)
    assert result.returncode == 0, result.stderr.decode()
    assert result.stdout


async def test_every_metric_is_explained(server: Running) -> None:
    table = re.findall(
        r"^\| `(omni_speak_\w+)` \|", (DOCS / "operate.md").read_text(), re.MULTILINE
    )
    async with server.http() as http:
        told = (await http.get("/metrics")).text
    names = set(re.findall(r"^# TYPE (omni_speak_\w+)", told, re.MULTILINE))
    assert set(table) == {name for name in names if not name.endswith("_created")}
    assert len(table) == len(set(table))
