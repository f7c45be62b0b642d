"""The page in a real browser, against a real server."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import AsyncIterator

import numpy as np
import pytest
from numpy.typing import NDArray

from omni_speak.streams.access import Policy
from omni_speak.streams.client import AudioFrame, DuplexClient
from omni_speak.streams.messages import Marks
from tests.e2e.browser import Page, browsing
from tests.streams.cable import Cable
from tests.streams.conftest import Running, serving

pytestmark = pytest.mark.anyio

LONG = "One two three four five six seven eight nine ten #frames=40"
STATE = "document.body.dataset.state"
SPEECH = "import('/web/page.js').then(({speech}) => speech)"

# Keeps every sample that leaves the page's player, as the audio thread sees it.
TAP = """
import('/web/page.js').then(async ({player}) => {
  const code = `registerProcessor("tap", class extends AudioWorkletProcessor {
    process([[input]]) { if (input) this.port.postMessage(input.slice()); return true; }
  })`;
  const audio = player.node.context;
  const module = new Blob([code], {type: "text/javascript"});
  await audio.audioWorklet.addModule(URL.createObjectURL(module));
  const tap = new AudioWorkletNode(audio, "tap", {numberOfOutputs: 0});
  window.tapped = [];
  tap.port.onmessage = ({data}) => window.tapped.push(data);
  player.node.connect(tap);
})
"""
TAPPED = """
(() => {
  const bytes = new Uint8Array(Float32Array.from(tapped.flatMap(part => [...part])).buffer);
  let text = '';
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
})()
"""


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with browsing() as page:
        yield page
        assert page.errors == []


@pytest.fixture
async def server() -> AsyncIterator[Running]:
    async with serving() as running:
        yield running


async def visit(page: Page, url: str) -> None:
    await page.go(url)
    await page.until("document.querySelector('#connection').dataset.state === 'open'")


async def speak(page: Page, text: str, *, by_word: bool = False) -> None:
    await page.run("document.querySelector('#text').select()")
    await page.click("#text")
    await page.run("document.querySelector('#text').select()")
    await page.type(text)
    if by_word:
        await page.click("#by-word")
    await page.click("#speak")


async def tapped(page: Page) -> NDArray[np.int16]:
    """What was played, without the silence around it."""
    samples = np.frombuffer(b64decode(await page.run(TAPPED)), dtype="<f4")
    return np.trim_zeros(np.round(samples * 32768).astype(np.int16))


async def spoken(url: str, text: str, seed: int) -> NDArray[np.int16]:
    """What the server says to a client of another kind."""
    async with DuplexClient(url) as client:
        frames = [frame.pcm async for frame in client.speak(text, seed=seed)]
    return np.trim_zeros(np.concatenate(frames))


async def lit(page: Page) -> list[str]:
    words = await page.run(
        "[...document.querySelectorAll('#reading .heard')].map(word => word.textContent)"
    )
    assert isinstance(words, list)
    return words


async def test_what_the_server_said_is_what_is_played_and_words_light_up(
    page: Page, server: Running
) -> None:
    await page.call("Page.setBypassCSP", enabled=True)  # for the tap
    await visit(page, server.url)
    await speak(page, "Once, to make the player.")
    await page.until(f"{STATE} === 'finished'")
    await page.run(TAP)
    await page.click("#edit")
    await speak(page, LONG)
    await page.until("document.querySelectorAll('#reading .heard').length >= 2")
    assert len(await lit(page)) < 11  # they follow the ear, not the network
    await page.until(f"{STATE} === 'finished'")
    assert await lit(page) == LONG.split()
    assert await page.run("document.querySelector('#reading').textContent") == LONG
    seed = (await page.run(SPEECH))["opened"]["seed"]
    heard = await tapped(page)
    assert np.abs(heard.astype(int)).max() > 1000
    assert np.array_equal(heard, await spoken(server.url, LONG, seed))


async def test_text_word_by_word_is_heard_before_its_end_is_written(
    page: Page, server: Running
) -> None:
    text = "One two. Three four. Five six. Seven eight. Nine ten. Eleven twelve."
    await visit(page, server.url)
    await speak(page, text, by_word=True)
    await page.until("document.querySelectorAll('#reading .heard').length >= 2")
    assert text.startswith(written := await page.run("reading.textContent"))
    assert len(written) < len(text)
    await page.until(f"{STATE} === 'finished'")
    assert await lit(page) == text.split()
    assert server.engine.heard > 0  # the page told the server how far it was


async def test_an_interrupt_shows_what_was_heard_and_the_rest_can_follow(
    page: Page, server: Running
) -> None:
    await visit(page, server.url)
    await speak(page, LONG)
    await page.until("document.querySelectorAll('#reading .heard').length >= 3")
    await page.click("#interrupt")
    await page.until(f"{STATE} === 'interrupted'")
    spoken = await page.run("document.querySelector('#text-spoken').textContent")
    remaining = await page.run("document.querySelector('#text-remaining').textContent")
    assert spoken + remaining == LONG
    assert spoken.startswith("One two three")
    assert remaining.endswith("#frames=40")
    assert spoken.split() == await lit(page)
    assert "player" in await page.run("document.querySelector('#heard-how').innerText")
    await page.click("#go-on")
    await page.until(f"{STATE} === 'finished'")
    assert await lit(page) == remaining.split()


async def test_text_that_still_comes_is_kept_for_after_an_interrupt(
    page: Page, server: Running
) -> None:
    text = "One two. Three four. Five six. Seven eight. Nine ten. Eleven twelve."
    await visit(page, server.url)
    await speak(page, text, by_word=True)
    await page.until("document.querySelectorAll('#reading .heard').length >= 2")
    await page.click("#interrupt")
    await page.until(f"{STATE} === 'interrupted'")
    spoken = await page.run("document.querySelector('#text-spoken').textContent")
    remaining = await page.run("document.querySelector('#text-remaining').textContent")
    assert spoken + remaining == text
    # The context was still open, and goes on in its next epoch.
    await page.click("#go-on")
    await page.until(f"{STATE} === 'finished'")
    speech = await page.run(SPEECH)
    assert (speech["context"], speech["epoch"]) == ("page-1", 1)
    assert "".join(await lit(page)).endswith("twelve.")


async def test_a_connection_that_is_cut_is_made_again_and_the_text_is_said_once(
    page: Page, server: Running
) -> None:
    await page.call("Page.setBypassCSP", enabled=True)
    async with Cable.to(server.url) as cable:
        await visit(page, cable.url)
        await speak(page, "Once, to make the player.")
        await page.until(f"{STATE} === 'finished'")
        await page.run(TAP)
        await page.click("#edit")
        # Words are still to be written, and audio still to come, each time.
        text = "One two. Three four. Five six. Seven eight. Nine ten. Eleven twelve."
        await speak(page, text, by_word=True)
        for words in (2, 6):
            await page.until(f"document.querySelectorAll('#reading .heard').length >= {words}")
            plugs = cable.plugs
            cable.cut()
            await page.until("document.querySelector('#connection').dataset.state === 'lost'")
            await page.until("document.querySelector('#connection').dataset.state === 'open'")
            assert cable.plugs > plugs
        await page.until(f"{STATE} === 'finished'")
        assert await page.run("reading.textContent") == text
        assert "".join(await lit(page)) == text.replace(" ", "")
        assert await page.run("document.querySelector('#notice').textContent") == ""
        seed = (await page.run(SPEECH))["opened"]["seed"]
        # It waited for text in between; silence is not what was said.
        played, said = await tapped(page), await spoken(server.url, text, seed)
        assert np.array_equal(played[played != 0], said[said != 0])


async def test_a_token_is_asked_for(page: Page) -> None:
    token = "a-token-for-the-page"
    async with serving(policy=Policy(tokens=(token,))) as server:
        await page.go(server.url)
        await page.until("!document.querySelector('#access').hidden")
        await page.click("#token")
        await page.type("not-the-right-token")
        await page.click("#access button")
        await page.until("document.querySelector('#connection').dataset.state === 'token'")
        await page.run("document.querySelector('#token').select()")
        await page.type(token)
        await page.click("#access button")
        await page.until("document.querySelector('#connection').dataset.state === 'open'")
        await speak(page, "One two.")
        await page.until(f"{STATE} === 'finished'")
        assert await lit(page) == ["One", "two."]


async def test_an_error_is_shown_and_the_page_goes_on(page: Page, server: Running) -> None:
    await visit(page, server.url)
    await speak(page, "#crowd")
    await page.until("document.querySelector('#notice').textContent.includes('full')")
    await page.click("#edit")
    await speak(page, "One two.")
    await page.until(f"{STATE} === 'finished'")
    assert await lit(page) == ["One", "two."]
    assert await page.run("document.querySelector('#notice').textContent") == ""


async def test_the_jitter_buffer(page: Page, server: Running) -> None:
    """Gaps by pts are silence, older epochs are dropped, what runs dry waits longer: by hand, in
    blocks of 100 samples at 1 kHz, so that its delay of 80 ms is one block."""
    await page.go(server.url)
    script = """
    import('/web/jitter.js').then(({JitterBuffer}) => {
      const buffer = new JitterBuffer(1000), heard = [];
      const pull = () => { const block = new Float32Array(100); buffer.pull(block);
        heard.push([...new Set(block)].join()); };
      const push = (epoch, pts, value, context = "a") =>
        buffer.push({context, epoch, pts, samples: new Float32Array(100).fill(value)});
      buffer.begin("a");
      pull();                                // nothing came
      push(0, 0, 1); push(0, 100, 9, "b");
      pull(); pull();                        // the delay, then sound
      push(0, 200, 2);
      pull(); pull(); pull();                // the gap, sound, and it has run dry
      const before = buffer.played;
      push(0, 300, 3); buffer.stop(); push(0, 400, 4);
      pull();                                // dropped
      push(1, 500, 5); push(0, 600, 6);
      pull(); pull(); pull();                // the delay is two blocks now; then sound
      pull();                                // dry
      buffer.finish(600);
      return JSON.stringify([heard.join(" "), before, buffer.played, buffer.ended, buffer.delay]);
    })
    """
    result = json.loads(await page.run(script))
    assert result == ["0 0 1 0 2 0 0 0 0 5 0", 300, 600, True, 0.32]


async def test_with_the_real_voice(page: Page, server_url: str) -> None:
    text = "Hello! I am speaking to you, one frame at a time."
    await page.call("Page.setBypassCSP", enabled=True)
    await visit(page, server_url)
    await speak(page, "Hello.")
    await page.until(f"{STATE} === 'finished'")
    await page.run(TAP)
    await page.click("#edit")
    await speak(page, text)
    await page.until(f"{STATE} === 'finished'", seconds=40)
    speech = await page.run(SPEECH)
    said, marked = [], []
    async with DuplexClient(server_url) as client:
        context = await client.open_context(seed=speech["opened"]["seed"])
        await context.append(text)
        await context.end()
        async for event in context.events():
            if isinstance(event, AudioFrame):
                said.append(event.pcm)
            elif isinstance(event, Marks):
                marked += [word.text for word in event.words]
    assert [word.strip("!,.") for word in await lit(page)] == marked
    played, whole = await tapped(page), np.trim_zeros(np.concatenate(said))
    assert np.array_equal(played[played != 0], whole[whole != 0])
