"""The ASGI app, and uvicorn around it: one port for HTTP, the duplex websocket and metrics.

The engine starts in the background, so that `/healthz` (alive) answers while `/readyz` (worth
sending requests to) still says no. A shutdown turns readiness off, closes the listener, lets
streams finish up to a limit, ends the rest with a reason, and then stops the engine.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import anyio
import uvicorn
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Match, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket
from uvicorn._types import ASGIReceiveEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from omni_speak.runtime.errors import InvalidRequest, SpeechError
from omni_speak.runtime.request import EngineInfo
from omni_speak.streams.access import Access, Policy
from omni_speak.streams.dialects import (
    cartesia,
    deepgram,
    elevenlabs,
    openai_speech,
    vllm_omni_realtime,
    vllm_omni_stream,
)
from omni_speak.streams.dialects.native import SUBPROTOCOL, NativeDialect
from omni_speak.streams.dialects.openai_speech import error_response, openai_error
from omni_speak.streams.errors import TellError
from omni_speak.streams.messages import Limits, Refused
from omni_speak.streams.service import Activity, EngineFactory, Service, service_of
from omni_speak.streams.speaking import Engine
from omni_speak.streams.websocket import Conversation, conversation

logger = logging.getLogger(__name__)

SEND_BUFFER_BYTES = 64 * 1024
KEEP_ALIVE_S = 75

WEB = Path(__file__).parent / "web"
PAGE_HEADERS = {
    "content-security-policy": "default-src 'self'",  # its files are all ours
    "cache-control": "no-cache",  # kept, but only used after asking: an upgrade is seen at once
}


def engine_factory(**config: Any) -> EngineFactory:
    """Makes a real engine with `EngineConfig(**config)`. Torch and vLLM are imported, and `config`
    is checked (InvalidRequest), when the factory is called."""

    def make() -> AbstractAsyncContextManager[Engine]:
        from omni_speak.runtime.engine import EngineConfig, SpeechEngine

        try:
            return SpeechEngine(EngineConfig(**config))
        except ValidationError as error:
            first = error.errors()[0]
            raise InvalidRequest(
                ": ".join([*map(str, first["loc"]), first["msg"].removeprefix("Value error, ")])
            ) from None

    return make


class Answers(NamedTuple):
    """What a dialect answers, and how it tells an error."""

    routes: Sequence[BaseRoute]
    tell_error: TellError


DIALECTS = {
    "openai": Answers(openai_speech.ROUTES, error_response),
    "elevenlabs": Answers(elevenlabs.ROUTES, elevenlabs.error_response),
    "cartesia": Answers(cartesia.ROUTES, cartesia.error_response),
    "deepgram": Answers(deepgram.ROUTES, deepgram.error_response),
    "vllm-omni": Answers([*vllm_omni_realtime.ROUTES, *vllm_omni_stream.ROUTES], error_response),
}


def create_app(
    factory: EngineFactory,
    *,
    dialects: Iterable[str] = tuple(DIALECTS),
    limits: Limits | None = None,
    policy: Policy | None = None,
    send_timeout: float = 60.0,
) -> Starlette:
    """The app around the engine that `factory` makes; its `state.service` is a Service.

    Beside our own protocol it answers those of `dialects`. `send_timeout` seconds without taking a
    byte, and a client is given up.
    """
    service = Service(factory, limits or Limits(), send_timeout)
    answered = [DIALECTS[name] for name in dialects]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = Starlette(
        routes=[
            WebSocketRoute("/v1/duplex", conversation(_duplex, error_response, name="duplex")),
            *(route for dialect in answered for route in dialect.routes),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            Route("/", page),
            Mount("/web", _Page(directory=WEB)),
        ],
        exception_handlers={
            SpeechError: _on_speech_error,
            HTTPException: _on_http_error,
            ClientDisconnect: _on_left,
            Exception: _on_bug,
        },
        lifespan=lifespan,
    )
    app.state.service = service
    app.add_middleware(Access, policy=policy or Policy(), tell_error=partial(_teller, answered))
    app.add_middleware(_Counted, activity=service.activity)
    return app


def _teller(answered: Iterable[Answers], scope: Scope) -> TellError:
    """How an error is told to who asks for this."""
    for dialect in answered:
        if any(route.matches(scope)[0] is not Match.NONE for route in dialect.routes):
            return dialect.tell_error
    return error_response


async def page(request: Request) -> Response:
    """The demo page."""
    return FileResponse(WEB / "index.html", headers=PAGE_HEADERS)


async def healthz(request: Request) -> Response:
    return JSONResponse({"status": "alive"})


async def readyz(request: Request) -> Response:
    reason = service_of(request).unready
    if reason is None:
        return JSONResponse({"status": "ready"})
    return JSONResponse({"status": "unready", "reason": reason}, status_code=503)


async def metrics(request: Request) -> Response:
    content_type = "text/plain; version=0.0.4; charset=utf-8"
    return Response(service_of(request).metrics.render(), media_type=content_type)


async def _on_speech_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SpeechError)
    return error_response(error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return openai_error(error.status_code, error.detail, None, None)


async def _on_left(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # in the middle of its body; nobody is there to read this


async def _on_bug(request: Request, error: Exception) -> Response:
    return openai_error(500, "internal error", None, "internal_error")


class _Page(StaticFiles):
    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(PAGE_HEADERS)
        return response


class _Counted:
    """ASGI middleware that counts every request and connection as activity."""

    def __init__(self, app: ASGIApp, activity: Activity) -> None:
        self._app = app
        self._activity = activity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._activity if scope["type"] != "lifespan" else nullcontext():
            await self._app(scope, receive, send)


# -- WS /v1/duplex -----------------------------------------------------------------------------


def _duplex(websocket: WebSocket, info: EngineInfo) -> Conversation:
    offered = websocket.scope["subprotocols"]
    if offered and SUBPROTOCOL not in offered:
        message = f"no subprotocol in common; there is {SUBPROTOCOL}"
        raise Refused("unknown_subprotocol", message, param="sec-websocket-protocol")
    return Conversation(NativeDialect(), subprotocol=SUBPROTOCOL if offered else None)


# -- uvicorn around the app --------------------------------------------------------------------


class _WebSocketProtocol(WebSocketsSansIOProtocol):
    """Uvicorn's, but it tells no transport to read on that is closed: TLS's would raise."""

    async def receive(self) -> ASGIReceiveEvent:
        if self.transport.is_closing():
            self.read_paused = False
        return await super().receive()


class _Server(uvicorn.Server):
    """Uvicorn, with a shutdown that lets streams finish and exits with 0."""

    def __init__(self, config: uvicorn.Config, service: Service, drain_s: float) -> None:
        super().__init__(config)
        self._service = service
        self._drain_s = drain_s
        self._signals = 0
        self._loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not uvicorn's own: that raises the signal again at the end, and the exit code with it.
        # A signal may come in the middle of anything, so the rest is left to the loop.
        self._signals += 1
        if self._signals > 1:
            logger.warning("second signal: exiting now")
            os._exit(128 + sig)
        self._loop.call_soon_threadsafe(self.stop)

    def stop(self) -> None:
        self.should_exit = True
        # Readiness at once; uvicorn looks at its flag ten times a second.
        self._service.drain.asked.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        self.stop()
        drain, activity = self._service.drain, self._service.activity
        with anyio.move_on_after(self._drain_s):
            await activity.none()
        drain.over.set()
        with anyio.move_on_after(1.0):  # for the reasons of those that are cut off to get out
            await activity.none()
        await super().shutdown(sockets)


async def serve(
    factory: EngineFactory,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    uds: str | Path | None = None,
    limits: Limits | None = None,
    dialects: Iterable[str] = tuple(DIALECTS),
    policy: Policy | None = None,
    tls: tuple[Path, Path] | None = None,
    idle_timeout_s: float | None = None,
    drain_s: float = 10.0,
    send_timeout: float = 60.0,
    on_listening: Callable[[str], None] = lambda url: None,
    on_ready: Callable[[], None] = lambda: None,
    stop: anyio.Event | None = None,
) -> None:
    """Serve on `host`:`port` (0 for any free one), or on the Unix socket `uds`, mode 0600; over TLS
    with the files of a certificate and its key.

    `send_timeout` is how long a client may take no byte, or leave a ping unanswered, before it is
    given up; pings go out every third of it. A Unix socket left behind by a server that was killed
    is replaced.

    Shuts down, draining, on SIGTERM or SIGINT, when `stop` is set, or after `idle_timeout_s`
    seconds without a request or connection; a second signal ends the process at once. Raises
    OSError if the address is taken, InvalidRequest if `tls` is no certificate and its key, and what
    the engine raised if it could not start. `on_listening` gets the URL once it is bound;
    `on_ready` follows when requests are welcome.
    """
    app = create_app(
        factory, dialects=dialects, limits=limits, policy=policy, send_timeout=send_timeout
    )
    service: Service = app.state.service
    config = uvicorn.Config(
        app,
        ws=_WebSocketProtocol,
        ws_max_size=service.limits.message_bytes,
        ws_per_message_deflate=False,  # audio does not compress
        ws_ping_interval=send_timeout / 3,
        ws_ping_timeout=send_timeout,  # the answer waits behind what was not taken yet
        ssl_certfile=tls and tls[0],
        ssl_keyfile=tls and tls[1],
        # A client that speaks now and then need not connect anew each time.
        timeout_keep_alive=KEEP_ALIVE_S,
        log_config=_LOGGING,
        access_log=False,
        timeout_graceful_shutdown=1,
        lifespan="on",
    )
    try:
        config.load()  # reads the certificate
    except ssl.SSLError as error:
        assert tls is not None
        raise InvalidRequest(
            f"{tls[0]} and {tls[1]} must be a certificate and its key, as PEM: {error.reason}"
        ) from None
    if config.ssl is not None:
        # websockets' threaded client, which ElevenLabs' and Deepgram's packages use, reads a ticket
        # in one thread while it writes its request in another: OpenSSL may lose the request.
        config.ssl.num_tickets = 0
    listener, url = _listen(host, port, uds)
    if tls is not None:
        url = url.replace("http:", "https:")
    server = _Server(config, service, drain_s)
    with listener:
        try:
            logger.info("listening on %s", url)
            on_listening(url)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_call_when, service.ready, on_ready)
                tasks.start_soon(_call_when, service.failed, server.stop)
                if stop is not None:
                    tasks.start_soon(_call_when, stop, server.stop)
                if idle_timeout_s is not None:
                    tasks.start_soon(_stop_when_idle, server, service, idle_timeout_s)
                await server.serve(sockets=[listener])
                tasks.cancel_scope.cancel()
        finally:
            if uds is not None:
                Path(uds).unlink(missing_ok=True)  # noqa: ASYNC240  the loop is idle now
    if service.failure is not None:
        raise service.failure


async def _call_when(event: anyio.Event, action: Callable[[], None]) -> None:
    await event.wait()
    action()


async def _stop_when_idle(server: _Server, service: Service, seconds: float) -> None:
    await service.activity.none_for(seconds)
    logger.info("idle for %g s", seconds)
    server.stop()


def _listen(host: str, port: int, uds: str | Path | None) -> tuple[socket.socket, str]:
    if uds is None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
        # Connections inherit it. Left to itself the kernel takes megabytes off a socket whose peer
        # reads slowly: minutes of audio, and behind them the ping that asks whether it lives.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        name = f"[{host}]" if ":" in host else host
        return listener, f"http://{name}:{listener.getsockname()[1]}"
    _remove_stale(Path(uds))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(os.fspath(uds))
        listener.listen()
    except OSError as error:
        listener.close()
        raise OSError(error.errno, error.strerror, os.fspath(uds)) from None
    finally:
        os.umask(before)
    return listener, f"unix:{uds}"


def _remove_stale(uds: Path) -> None:
    """A socket that nobody listens on any more: its server was killed."""
    if not uds.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(uds))
        except ConnectionRefusedError:
            uds.unlink(missing_ok=True)


class _NotRefusals(logging.Filter):
    """Uvicorn takes a websocket refused with a status and a body for one left half open."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "without completing handshake" not in record.getMessage()


# Standard output may be an audio pipe of whoever started us: everything goes to standard error.
_LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "filters": {"not_refusals": {"()": _NotRefusals}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "plain",
            "stream": "ext://sys.stderr",
            "filters": ["not_refusals"],
        }
    },
    "loggers": {
        "omni_speak": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "uvicorn": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
    },
}
