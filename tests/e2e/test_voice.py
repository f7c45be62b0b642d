"""Wren through the real server: many at once say what each would alone, and it is understood."""

from __future__ import annotations

import anyio
import numpy as np
import pytest
from numpy.typing import NDArray

from omni_speak.streams.client import DuplexClient
from tests.whisper import transcribe, word_errors, words

pytestmark = pytest.mark.anyio

# As Whisper writes them: numbers and names it spells its own way would count as errors.
SENTENCES = (
    "Hello, thanks for calling. How may I help you?",
    "The weather is going to be sunny tomorrow morning.",
    "I forgot my keys at home this morning.",
    "Please bring your passport and your boarding card.",
    "What time does the last bus leave?",
    "The children were playing football in the park.",
    "Thank you very much for your help.",
    "I think the blue shirt looks better on you.",
)


async def speak(client: DuplexClient, seed: int) -> NDArray[np.int16]:
    frames = [frame.pcm async for frame in client.speak(SENTENCES[seed], seed=seed)]
    return np.concatenate(frames)


async def test_many_at_once_say_what_each_says_alone_and_are_understood(server_url: str) -> None:
    together: dict[int, NDArray[np.int16]] = {}
    async with DuplexClient(server_url) as client:
        alone = [await speak(client, seed) for seed in range(len(SENTENCES))]

        async def keep(seed: int) -> None:
            together[seed] = await speak(client, seed)

        async with anyio.create_task_group() as tasks:
            for seed in range(len(SENTENCES)):
                tasks.start_soon(keep, seed)
        rate = client.info.sample_rate

    for seed, pcm in enumerate(alone):
        assert together[seed].shape == pcm.shape
        # Batched arithmetic may round the last bit of a sample the other way.
        np.testing.assert_allclose(together[seed], pcm, atol=2, rtol=0)

    heard = [transcribe(pcm, rate) for pcm in alone]
    errors = sum(word_errors(said, text) for said, text in zip(SENTENCES, heard, strict=True))
    total = sum(len(words(sentence)) for sentence in SENTENCES)
    assert errors <= 0.15 * total, heard
