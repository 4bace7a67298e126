"""The ASGI application: routes, and what lives as long as the server does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from .. import __version__
from ..errors import ErrorInfo, ErrorKind
from ..models import Asked
from ..protocols.openresponses import error_body
from ..telemetry import log, place_of
from ..transport import Transport
from .catalog import Catalog
from .config import Config
from .connection import connections
from .openapi import document
from .responses import FAULT, ResponsesEndpoint


class LocalModelService(Asked, Protocol):
    """The embedded model, as the server needs it: it starts, says whether it is ready, and stops."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    @property
    def ready(self) -> bool: ...


class Gateway(Starlette):
    """The application, quiet: a fault of ours was answered and logged by `_fault`, without what it may quote.

    Streams do not pass through the framework's layers, each of which would stand between every read and its write.
    """

    streams: dict[tuple[str, str], ASGIApp]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            stream = self.streams.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
            if stream is not None:
                await stream(scope, receive, send)
            else:
                await super().__call__(scope, receive, send)
        except (Exception, asyncio.CancelledError) as error:
            if scope["type"] != "http":
                raise
            if stream is not None and isinstance(error, Exception):
                log.error("a fault while serving %s: %s", scope["path"], place_of(error))


def create_app(
    config: Config,
    local: LocalModelService | None = None,
    transport: Transport | None = None,
    more: Iterable[Asked] = (),
) -> Gateway:
    """The gateway as an ASGI application. `more` models (agents, say) are served under their own names."""
    door = transport or Transport(config.limits)
    catalog = Catalog(config, door, local, more)
    started = int(time.time())

    async def models(request: Request) -> Response:
        entries = [
            {"id": name, "object": "model", "created": started, "owned_by": catalog.find(name)[1].origin.provider}
            for name in catalog.names()
        ]
        return JSONResponse({"object": "list", "data": entries})

    async def index(request: Request) -> Response:
        return JSONResponse({"pellucid": __version__, "speaks": [*SPOKEN, "GET /v1/models", "GET /openapi.json"]})

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(request: Request) -> Response:
        if local is not None and not local.ready:
            return JSONResponse({"status": "loading", "detail": "the embedded model is loading"}, 503)
        return JSONResponse({"status": "ready"})

    openapi_document = document()

    async def openapi(request: Request) -> Response:
        return JSONResponse(openapi_document)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if local is not None:
            await local.start()
        try:
            yield
        finally:
            if local is not None:
                await local.stop()
            await door.aclose()

    responses = ResponsesEndpoint(config, catalog)
    gateway = Gateway(
        routes=[
            Route("/v1/responses", responses, methods=["POST"]),
            Route("/", index),
            Route("/v1/models", models),
            Route("/health", health),
            Route("/ready", ready),
            Route("/openapi.json", openapi),
        ],
        exception_handlers={HTTPException: _http_error, Exception: _fault},
        lifespan=lifespan,
    )
    gateway.streams = {("POST", "/v1/responses"): responses}
    return gateway


SPOKEN = ["POST /v1/responses"]
"""What clients can be pointed at."""

_KIND_OF_STATUS: dict[int, ErrorKind] = {404: "not_found", 405: "invalid_request"}


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        message = f"{request.method} is not allowed on {request.url.path}"
    elif error.status_code == 404:
        message = f"there is nothing at {request.url.path}; this gateway speaks {', '.join(SPOKEN)}"
    else:
        message = str(error.detail)
    info = ErrorInfo(_KIND_OF_STATUS.get(error.status_code, "invalid_request"), message)
    return JSONResponse(error_body(info), error.status_code, headers=error.headers)


async def _fault(request: Request, error: Exception) -> Response:
    log.error("a fault while serving %s %s: %s", request.method, request.url.path, place_of(error))
    return JSONResponse(error_body(FAULT), 500)


def settings_of(config: Config) -> dict[str, Any]:
    """How uvicorn is to serve the application."""
    return {
        "host": config.server.host,
        "port": config.server.port,
        "http": connections(config.server.request_seconds, config.server.unread_seconds),
        "loop": "uvloop",
        "log_level": "warning",
        "access_log": False,
        "proxy_headers": False,
        "server_header": False,
        "backlog": 4096,
        # Longer than the proxies before it keep theirs, so that it is never this end that closes on a new request.
        "timeout_keep_alive": 75,
        "timeout_graceful_shutdown": config.server.shutdown_seconds,
    }
