"""The words that the real voice tells with its times make up the text, in every dialect that tells
them."""

from __future__ import annotations

import json
import re

import anyio
import pytest
from websockets.asyncio.client import connect

from tests.streams.dialects.speakers import (
    Cartesia,
    ElevenLabs,
    ElevenLabsSingle,
    OmniRealtime,
    OmniStreamTimed,
    Speaker,
)

pytestmark = pytest.mark.anyio

TEXT = "He said: “Well-known, I think — don’t you?” Mr. O'Neil paid $6.25 at 8 a.m. (e.g. for tea)."


@pytest.mark.parametrize(
    "kind", [ElevenLabs, ElevenLabsSingle, Cartesia, OmniStreamTimed, OmniRealtime]
)
async def test_the_words_make_up_the_text(server_url: str, kind: type[Speaker]) -> None:
    speaker = kind(voice="wren")
    heard = ""
    async with connect(server_url.replace("http", "ws") + speaker.path, proxy=None) as socket:
        for message in speaker.hello():
            await socket.send(json.dumps(message))
        for piece in TEXT.split(" "):
            await socket.send(json.dumps(speaker.say("a", piece + " ")))
        await socket.send(json.dumps(speaker.end("a")))
        with anyio.fail_after(30):
            ended = False
            while not ended:
                told = speaker.read(await socket.recv())
                assert told.problem is None
                heard, ended = heard + told.text, told.ended
    if kind is OmniStreamTimed:  # which tells the words alone, without what is around them
        assert re.sub(r"\W+", "", heard) == re.sub(r"\W+", "", TEXT)
    else:
        assert heard.split() == TEXT.split()
