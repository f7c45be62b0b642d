"""vLLM-Omni's own client, unmodified."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from omni_speak.streams.access import Policy
from omni_speak.streams.messages import Limits
from tests.clients.conftest import Running, run_client
from tests.streams.conftest import native_audio, serving
from tests.streams.fake_engine import SAMPLES

pytestmark = [pytest.mark.anyio, pytest.mark.clients]


async def test_the_duplex_client_talks_interrupts_and_comes_back(server: Running) -> None:
    async with serving(limits=Limits(resume_s=2.0)) as own:
        heard = await run_client("vllm_omni", "vllm_omni_duplex.py", own)
        with anyio.fail_after(10):  # it vanished while it was spoken to
            while own.engine.running:
                await anyio.lowlevel.checkpoint()

    async def expected(text: str) -> dict[str, Any]:
        first = text.split()[0]
        asked = [each for each in own.engine.asked if each.text.startswith(first)][-1]
        audio = await native_audio(server, replace(asked, text=text))
        sha = hashlib.sha256(audio).hexdigest()
        return {"sha": sha, "bytes": len(audio), "words": text, "status": "completed"}

    assert heard["turns"][0] == await expected("Hello there, my friend.")
    assert heard["turns"][1] == await expected("Another one.")
    assert heard["slow"] == await expected("Five six. Seven eight. Nine ten.")
    assert heard["barge_in"]["heard"] == [80, "Say #endless"]
    assert heard["barge_in"]["cut"] == "cancelled"
    assert heard["barge_in"]["again"]["words"] == "Yes?"
    words = "One two three #frames=60 four. The end."
    assert heard["malformed"] == ["invalid_request_error", "invalid_message"]
    kind, message = heard["voice"]
    assert kind == "DuplexProtocolError" and "no voice 'nosuchvoice'" in message
    assert heard["broken"] == {"bytes": 2 * (60 + 2) * SAMPLES, "words": words}
    assert heard["audio"] == ["invalid_request_error", "invalid_message"]
    assert heard["full"] == ["server_error", "overloaded"]


async def test_a_key_goes_into_its_address() -> None:
    key = "a-token-long-enough"
    async with serving(policy=Policy(tokens=(key,))) as server:
        heard = await run_client("vllm_omni", "vllm_omni_duplex.py", server)
        assert "401" in heard["not let in"]
        heard = await run_client("vllm_omni", "vllm_omni_duplex.py", server, key)
        assert [turn["status"] for turn in heard["turns"]] == ["completed"] * 2
