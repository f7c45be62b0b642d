"""vLLM-Omni's own client, unmodified."""

from __future__ import annotations

import pytest

from omni_speak.streams.access import Policy
from tests.clients.conftest import Running, run_client
from tests.streams.conftest import serving
from tests.streams.fake_engine import SAMPLES

pytestmark = [pytest.mark.anyio, pytest.mark.clients]


async def test_the_duplex_client_talks_interrupts_and_comes_back(server: Running) -> None:
    heard = await run_client("vllm_omni", "vllm_omni_duplex.py", server)
    assert heard["turns"] == [
        {"bytes": 2 * 4 * SAMPLES, "words": "Hello there, my friend.", "status": "completed"},
        {"bytes": 2 * 2 * SAMPLES, "words": "Another one.", "status": "completed"},
    ]
    assert heard["barge_in"]["heard"] == [80, "Say #endless"]
    assert heard["barge_in"]["cut"] == "cancelled"
    assert heard["barge_in"]["again"]["words"] == "Yes?"
    words = "One two three #frames=60 four. The end."
    assert heard["broken"] == {"bytes": 2 * (60 + 2) * SAMPLES, "words": words}
    assert heard["audio"] == ["invalid_request_error", "invalid_message"]
    assert heard["full"] == ["server_error", "overloaded"]
    assert not server.engine.running


async def test_a_key_goes_into_its_address() -> None:
    key = "a-token-long-enough"
    async with serving(policy=Policy(tokens=(key,))) as server:
        heard = await run_client("vllm_omni", "vllm_omni_duplex.py", server)
        assert "401" in heard["not let in"]
        heard = await run_client("vllm_omni", "vllm_omni_duplex.py", server, key)
        assert [turn["status"] for turn in heard["turns"]] == ["completed"] * 2
