"""Chromium without a window, driven over the DevTools protocol: just what the page's tests need."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest
from websockets.asyncio.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
    "--hide-scrollbars",
    "--window-size=1100,900",
    "--remote-debugging-port=0",
)


class Page:
    """A tab. `errors` are exceptions that its scripts threw and did not catch."""

    def __init__(self, socket: ClientConnection) -> None:
        self.errors: list[str] = []
        self._socket = socket
        self._session: str | None = None
        self._numbers = itertools.count(1)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        await self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(await self._socket.recv())
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(answer["params"]["exceptionDetails"])[:800])
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    async def open(self) -> None:
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", flatten=True, **target)
        self._session = attached["sessionId"]
        await self.call("Page.enable")
        await self.call("Runtime.enable")

    async def go(self, url: str) -> None:
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def run(self, script: str) -> Any:
        """The value of an expression, which may be a promise."""
        done = await self.call(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    async def until(self, condition: str, seconds: float = 20) -> None:
        with anyio.move_on_after(seconds):
            while not await self.run(condition):
                await anyio.sleep(0.02)
            return
        seen = await self.run("document.body.innerText")
        pytest.fail(f"{condition} has not come true; the page shows\n{seen}\n{self.errors}")

    async def click(self, selector: str) -> None:
        """As a person does: with the mouse, in the middle of what is there."""
        box = await self.run(
            f"(() => {{ const r = document.querySelector({selector!r}).getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2, r.width] })()"
        )
        assert box[2] > 0, f"{selector} is not shown"
        at = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
        await self.call("Input.dispatchMouseEvent", type="mousePressed", **at)
        await self.call("Input.dispatchMouseEvent", type="mouseReleased", **at)

    async def type(self, text: str) -> None:
        """Into what has the focus."""
        await self.call("Input.insertText", text=text)

    async def screenshot(self) -> bytes:
        """PNG."""
        return b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])


@asynccontextmanager
async def browsing(*flags: str) -> AsyncIterator[Page]:
    """A fresh browser with one tab. A missing browser is a failure, not a reason to skip."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.fail(f"none of {', '.join(NAMES)} is on PATH; on Debian: apt-get install chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(  # noqa: ASYNC220  returns at once
            [program, *FLAGS, *flags, f"--user-data-dir={profile}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            with anyio.fail_after(60):
                url = await anyio.to_thread.run_sync(_devtools, process, abandon_on_cancel=True)
            async with connect(url, max_size=None, compression=None, proxy=None) as socket:
                page = Page(socket)
                await page.open()
                yield page
        finally:
            process.terminate()
            process.wait()


def _devtools(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if found := re.search(r"ws://\S+", line):
            return found[0]
    raise AssertionError(f"the browser did not start: {''.join(said)[-2000:]}")
