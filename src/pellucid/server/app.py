"""The ASGI application: which path leads to what, and what lives as long as the server does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from starlette.exceptions import HTTPException
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from ..errors import ErrorInfo, ErrorKind
from ..models import Asked
from ..protocols import openresponses
from ..transport import Transport
from . import chat_completions, http, plain
from .config import Config
from .connection import connections
from .openresponses import routes as responses
from .openresponses.routes import SPOKEN as RESPONSES
from .services import LocalModelService, Services

SPOKEN = [*RESPONSES, *chat_completions.SPOKEN]
"""What clients can be pointed at."""

_KIND_OF_STATUS: dict[int, ErrorKind] = {404: "not_found"}


class Gateway:
    """The application. Streams pass through nothing that stands between a read and its write."""

    def __init__(self, services: Services) -> None:
        self.services = services

        @asynccontextmanager
        async def lifespan(app: Any) -> AsyncIterator[None]:
            await services.start()
            try:
                yield
            finally:
                await services.stop()

        self._router = Router(
            [*responses(services), *chat_completions.routes(services), *plain.routes(services, SPOKEN)],
            redirect_slashes=False,
            lifespan=lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            preflight = self.services.guard.cors.preflight(scope)
            if preflight is not None:
                await send({"type": "http.response.start", "status": 204, "headers": preflight})
                await send({"type": "http.response.body"})
                return
        scope["app"] = self
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:
            await self._no_route(scope, send, error)

    async def _no_route(self, scope: Scope, send: Send, error: HTTPException) -> None:
        path = scope["path"]
        if error.status_code == 405:
            message = f"{scope['method']} is not allowed on {path}"
        elif error.status_code == 404:
            message = f"there is nothing at {path}; this gateway speaks {', '.join(SPOKEN)}"
        else:
            message = str(error.detail)
        info = ErrorInfo(_KIND_OF_STATUS.get(error.status_code, "invalid_request"), message)
        headers = [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
        headers += self.services.guard.cors.headers(scope)
        await http.send_json(send, error.status_code, openresponses.error_body(info), headers)


def create_app(
    config: Config,
    local: LocalModelService | None = None,
    transport: Transport | None = None,
    more: Iterable[Asked] = (),
) -> Gateway:
    """The gateway as an ASGI application. `more` models (agents, say) are served under their own names.

    Raises `ConfigError` for what the configuration names and cannot be had.
    """
    return Gateway(Services(config, local, transport, more))


def settings_of(config: Config) -> dict[str, Any]:
    """How uvicorn is to serve the application."""
    return {
        "host": config.server.host,
        "port": config.server.port,
        "http": connections(config.server.request_seconds, config.server.unread_seconds),
        "ws": "websockets-sansio",
        "ws_max_size": config.server.max_body_bytes,
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
