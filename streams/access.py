"""Who may come in, and from where: bearer tokens, each with its allowance, and origins.

An ASGI middleware before everything else. Where no tokens are set, everybody may come in, but a
page of another site still may not use a visitor's server.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, urlencode, urlsplit

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from omni_speak.runtime.errors import SpeechError
from omni_speak.streams.allowance import Allowance
from omni_speak.streams.errors import (
    OriginNotAllowed,
    TellError,
    Unauthorized,
    UnsupportedEncoding,
)
from omni_speak.streams.service import ALLOWANCE

TOKENS_VARIABLE = "OMNI_SPEAK_TOKENS"
TOKEN_SUBPROTOCOL = "omni-speak.token."
"""Browsers cannot set headers of a websocket; they offer this and the token as a subprotocol."""

PUBLIC = ("/", "/healthz", "/readyz")
PUBLIC_FOLDER = "/web/"
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")
_TOKEN_HEADERS = ("xi-api-key", "x-api-key")
_TOKEN_PARAMETERS = ("token", "api_key")


@dataclass(frozen=True, slots=True)
class Policy:
    """`tokens` none: no token is asked for. `origins`: pages that may connect beside the server's
    own (with tokens at any name of it, without at its address or localhost); `*` is any. Each token
    has an Allowance of `streams` and `text_rate` characters a minute; without tokens nobody is
    limited."""

    tokens: tuple[str, ...] = field(default=(), repr=False)
    origins: tuple[str, ...] = ()
    streams: int = 64
    text_rate: int = 240_000


def read_tokens(path: Path | None, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """One token a line from the file (# starts a comment), else from OMNI_SPEAK_TOKENS, divided by
    commas; none where neither is set.

    Raises OSError if the file cannot be read, ValueError if it holds none, or one that is none; the
    message never holds a token.
    """
    if path is not None:
        source, lines = str(path), path.read_text().splitlines()
        tokens = [token for line in lines if (token := line.split("#")[0].strip())]
        if not tokens:
            raise ValueError(f"{source} holds no token")
    else:
        source = TOKENS_VARIABLE
        tokens = [token.strip() for token in environment.get(source, "").split(",") if token]
    for at, token in enumerate(tokens, 1):
        if not _TOKEN.fullmatch(token):
            raise ValueError(
                f"token {at} of {source} must be 16 to 200 of A-Z a-z 0-9 . _ ~ -, "
                f"and has {len(token)} characters"
            )
    return tuple(tokens)


class Access:
    """The middleware. A request that may not come in gets 401, 403 or 415 and a reason, as
    `tell_error` has it for whom it asks; a websocket gets the same in place of its handshake."""

    def __init__(
        self, app: ASGIApp, policy: Policy, tell_error: Callable[[Scope], TellError]
    ) -> None:
        self._app = app
        self._policy = policy
        self._tell_error = tell_error
        self._allowances = {
            _digest(token): Allowance(policy.streams, policy.text_rate) for token in policy.tokens
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or is_public(scope["path"]):
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        allowance = self._allowance(connection)
        refusal = self._refusal(connection, allowance)
        # In place: the server that made the scope logs its query.
        scope["query_string"] = _without_token(connection)
        scope[ALLOWANCE] = allowance
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            response = self._tell_error(scope)(refusal)
            if scope["type"] == "websocket":
                await WebSocket(scope, receive, send).send_denial_response(response)
            else:
                await response(scope, receive, send)

    def _allowance(self, connection: HTTPConnection) -> Allowance | None:
        """Of the token that the connection came with; None if it is none of ours. Looks at every
        one, so that how long it takes tells nothing of which is close."""
        if not self._allowances:
            return Allowance()
        offered = _digest(offered_token(connection))
        found = None
        for digest, allowance in self._allowances.items():
            if hmac.compare_digest(digest, offered):
                found = allowance
        return found

    def _refusal(
        self, connection: HTTPConnection, allowance: Allowance | None
    ) -> SpeechError | None:
        headers = connection.headers
        origin = headers.get("origin")
        if origin is not None and not self._may_come_from(origin, headers.get("host", "")):
            message = "pages of this origin may not connect; the server names those that may"
            return OriginNotAllowed(message, param="origin")
        if headers.get("content-encoding", "identity") != "identity":
            message = "a body must not be compressed"
            return UnsupportedEncoding(message, param="content-encoding")
        if allowance is None:
            return Unauthorized(
                "a token is needed, and none that is known came: as 'Authorization: Bearer …', "
                f"'xi-api-key', 'x-api-key', the subprotocol '{TOKEN_SUBPROTOCOL}…' or '?token='",
                param="authorization",
            )
        return None

    def _may_come_from(self, origin: str, host: str) -> bool:
        allowed = self._policy.origins
        if "*" in allowed or origin in allowed:
            return True
        try:
            page, own = urlsplit(origin), urlsplit(f"//{host}")
            # Anybody may make a name of theirs mean this machine, and serve a page under it. Such
            # a page has no token.
            return page.netloc == own.netloc and (bool(self._policy.tokens) or _is_here(own))
        except ValueError:
            return False


def is_public(path: str) -> bool:
    """The page, and what tells whether the server is there."""
    return path in PUBLIC or path.startswith(PUBLIC_FOLDER)


def offered_token(connection: HTTPConnection) -> str:
    """The token a client came with, or nothing."""
    headers = connection.headers
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() in ("bearer", "token"):
        return token.strip()
    for name in _TOKEN_HEADERS:
        if name in headers:
            return headers[name]
    for protocol in connection.scope.get("subprotocols", ()):
        if protocol.startswith(TOKEN_SUBPROTOCOL):
            return str(protocol.removeprefix(TOKEN_SUBPROTOCOL))
    for name in _TOKEN_PARAMETERS:
        if name in connection.query_params:
            return connection.query_params[name]
    return ""


def _is_here(host: SplitResult) -> bool:
    """An address or localhost: nothing that a name server is asked for. Raises ValueError."""
    return host.hostname == "localhost" or bool(ip_address(host.hostname or ""))


def _without_token(connection: HTTPConnection) -> bytes:
    rest = [
        (name, value)
        for name, value in connection.query_params.multi_items()
        if name not in _TOKEN_PARAMETERS
    ]
    return urlencode(rest).encode()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def self_signed(folder: Path, host: str) -> tuple[Path, Path]:
    """A certificate for `host` and its key, made in `folder` by `openssl` unless they are there.

    Raises OSError if there is no openssl or it fails.
    """
    certificate, key = folder / "cert.pem", folder / "key.pem"
    if not (certificate.exists() and key.exists()):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        kind = "IP" if re.fullmatch(r"[0-9.]+|.*:.*", host) else "DNS"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-noenc", "-days", "365"]
        command += ["-subj", f"/CN={host}"]
        command += ["-addext", f"subjectAltName=DNS:localhost,IP:127.0.0.1,{kind}:{host}"]
        command += ["-keyout", str(key), "-out", str(certificate)]
        # The key must not be anybody else's to read, not for a moment.
        made = subprocess.run(command, capture_output=True, text=True, check=False, umask=0o077)
        if made.returncode:
            raise OSError(f"openssl could not make a certificate: {made.stderr.strip()[-300:]}")
    return certificate, key
