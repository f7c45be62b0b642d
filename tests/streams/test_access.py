"""Who is let in, over real sockets."""

from __future__ import annotations

import ssl
from pathlib import Path

import anyio
import httpx
import pytest
from anyio.streams.tls import TLSAttribute
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode

from omni_speak.streams import server as server_module
from omni_speak.streams.access import TOKEN_SUBPROTOCOL, Policy, read_tokens
from omni_speak.streams.access import self_signed as make_certificate
from omni_speak.streams.messages import Limits
from tests.streams.conftest import Running, serving

pytestmark = pytest.mark.anyio

TOKEN, OTHER = "correct-horse-battery", "staple-and-much-more"
VOICES = "/v1/audio/voices"


async def status(server: Running, path: str = VOICES, **headers: str) -> int:
    async with server.http() as http:
        return (await http.get(path, headers=headers)).status_code


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {TOKEN}"},
        {"authorization": f"bearer {TOKEN}"},
        {"authorization": f"Token {OTHER}"},
        {"xi-api-key": TOKEN},
        {"x-api-key": OTHER},
    ],
)
async def test_a_token_in_any_header_lets_in(headers: dict[str, str]) -> None:
    async with serving(policy=Policy(tokens=(TOKEN, OTHER))) as server:
        assert await status(server, **headers) == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": TOKEN},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"xi-api-key": ""},
    ],
)
async def test_no_token_or_a_wrong_one_does_not(headers: dict[str, str]) -> None:
    async with serving(policy=Policy(tokens=(TOKEN,))) as server:
        assert await status(server, **headers) == 401
        assert await status(server, "/metrics", **headers) == 401
        assert await status(server, "/healthz", **headers) == 200
        assert await status(server, "/readyz", **headers) == 200


async def test_browsers_offer_it_as_a_subprotocol_or_in_the_query() -> None:
    async with serving(policy=Policy(tokens=(TOKEN,))) as server:
        offers = ["omni-speak.v1", TOKEN_SUBPROTOCOL + TOKEN]
        async with connect(server.websocket_url, subprotocols=offers) as socket:  # type: ignore[arg-type]
            assert socket.subprotocol == "omni-speak.v1"
        async with connect(f"{server.websocket_url}?token={TOKEN}"):
            pass
        with pytest.raises(InvalidStatus) as refused:
            async with connect(server.websocket_url):
                pass
        assert refused.value.response.status_code == 401
        assert TOKEN.encode() not in refused.value.response.body


async def test_pages_of_other_sites_stay_out_unless_named() -> None:
    async with serving(policy=Policy(origins=("https://friend.example",))) as server:
        assert await status(server, origin="https://friend.example") == 200
        assert await status(server, origin=server.url) == 200
        assert await status(server, origin="https://foe.example") == 403
        assert await status(server, origin="null") == 403
        assert await status(server, origin="http://[") == 403
        with pytest.raises(InvalidStatus):
            async with connect(server.websocket_url, origin="https://foe.example"):  # type: ignore[arg-type]
                pass


async def test_a_page_whose_name_was_made_to_mean_this_machine_stays_out() -> None:
    """DNS rebinding: its origin and the server's host are the same name then."""
    foe = {"host": "foe.example:8080", "origin": "http://foe.example:8080"}
    async with serving() as server:
        assert await status(server, **foe) == 403
        for name in ("localhost:8080", "127.0.0.1:8080", "[::1]:8080"):
            assert await status(server, host=name, origin=f"http://{name}") == 200
    async with serving(policy=Policy(origins=("http://foe.example:8080",))) as server:
        assert await status(server, **foe) == 200
    async with serving(policy=Policy(tokens=(TOKEN,))) as server:  # which such a page has not
        assert await status(server, **foe, **{"x-api-key": TOKEN}) == 200


async def test_nothing_is_compressed_so_nothing_can_swell(server: Running) -> None:
    async with connect(server.websocket_url, compression="deflate", proxy=None) as socket:
        assert socket.response is not None
        assert "sec-websocket-extensions" not in socket.response.headers


async def test_compressed_bodies_are_refused(server: Running) -> None:
    assert await status(server, **{"content-encoding": "gzip"}) == 415


def test_tokens_come_from_the_file_else_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# who\n{TOKEN} # hers\n\n  {OTHER}\n")
    environment = {"OMNI_SPEAK_TOKENS": f"{OTHER},"}
    assert read_tokens(file, environment) == (TOKEN, OTHER)
    assert read_tokens(None, environment) == (OTHER,)
    assert read_tokens(None, {}) == ()
    file.write_text("# nobody\n")
    with pytest.raises(ValueError, match="holds no token"):
        read_tokens(file)
    file.write_text("hunter2")
    with pytest.raises(ValueError, match=r"token 1 of .* 16 to 200") as refused:
        read_tokens(file)
    assert "hunter2" not in str(refused.value)


async def test_no_token_is_logged(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("omni_speak", "uvicorn"):
        monkeypatch.setitem(server_module._LOGGING["loggers"][name], "level", "INFO")
    policy = Policy(tokens=(TOKEN,))
    async with serving(policy=policy) as server:
        await status(server, **{"x-api-key": TOKEN})
        await status(server, f"{VOICES}?api_key={OTHER}")
        async with connect(f"{server.websocket_url}?token={TOKEN}") as socket:
            await socket.send("{")
            await socket.recv()
        with pytest.raises(InvalidStatus):
            async with connect(f"{server.websocket_url}?token={OTHER}"):
                pass
    logged = capfd.readouterr().err
    assert "/v1/duplex" in logged
    assert TOKEN not in logged
    assert OTHER not in logged
    assert TOKEN not in repr(policy)


async def test_tls_with_a_certificate_of_our_own(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path / "tls", "127.0.0.1")
    assert key.stat().st_mode & 0o777 == 0o600
    made = certificate.read_bytes()
    assert make_certificate(tmp_path / "tls", "127.0.0.1") == (certificate, key)
    assert certificate.read_bytes() == made
    trust = ssl.create_default_context(cafile=str(certificate))
    async with serving(tls=(certificate, key)) as server:
        assert server.url.startswith("https://")
        async with httpx.AsyncClient(verify=trust, trust_env=False) as http:
            assert (await http.get(server.url + VOICES)).status_code == 200
        url = server.url.replace("https:", "wss:") + "/v1/duplex"
        async with connect(url, ssl=trust):
            pass


async def test_nothing_comes_over_tls_before_a_client_has_asked(tmp_path: Path) -> None:
    """A ticket would, and threaded clients on Pythons before 3.13 then lose what they send."""
    certificate, key = make_certificate(tmp_path, "127.0.0.1")
    trust = ssl.create_default_context(cafile=str(certificate))
    async with serving(tls=(certificate, key)) as server:
        port = int(server.url.rpartition(":")[2])
        async with await anyio.connect_tcp(
            "127.0.0.1", port, ssl_context=trust, tls_standard_compatible=False
        ) as stream:
            await stream.send(b"GET /healthz HTTP/1.1\r\nHost: us\r\n\r\n")
            assert (await stream.receive()).startswith(b"HTTP/1.1 200")
            session = stream.extra(TLSAttribute.ssl_object).session
            assert session is not None and not session.has_ticket


async def test_a_connection_over_tls_breaks_behind_messages_that_wait(tmp_path: Path) -> None:
    tls = make_certificate(tmp_path / "tls", "127.0.0.1")
    trust = ssl.create_default_context(cafile=str(tls[0]))
    ping = Frame(Opcode.TEXT, b'{"type":"ping"}').serialize(mask=True)
    async with serving(tls=tls, limits=Limits(resume_s=0.05)) as server:
        async with connect(
            server.url.replace("https:", "wss:") + "/v1/duplex", ssl=trust
        ) as socket:
            await socket.send('{"type":"session.open"}')
            await socket.recv()
            socket.transport.write(500 * ping)
            socket.transport.close()
        async with httpx.AsyncClient(verify=trust, trust_env=False) as http:
            with anyio.fail_after(10):
                while "omni_speak_sessions 0.0" not in (seen := await metrics(http, server)):
                    await anyio.sleep(0.01)
    assert 'omni_speak_requests_total{door="duplex",outcome="closed"} 1.0' in seen


async def metrics(http: httpx.AsyncClient, server: Running) -> str:
    return (await http.get(server.url + "/metrics")).text
