"""The ASGI application: which path leads to what, and what lives as long as the server does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from opentelemetry.trace import TracerProvider
from starlette.exceptions import HTTPException
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from ..asgi import http
from ..errors import ErrorInfo, ErrorKind
from ..models import ChatModel
from ..protocols import openresponses
from ..telemetry.lines import request_id
from ..upstream import UpstreamClient
from . import agui, chat, meta_routes, sessions, stateless
from .config import Config
from .observability import RequestTelemetry
from .openapi import build_document
from .openresponses import routes as responses
from .openresponses.routes import ADVERTISED_ROUTES as RESPONSES
from .services import LocalModelService, Services
from .spaces import routes as spaces
from .uvicorn_adapter import http_protocol_class, websocket_protocol_class

ADVERTISED_ROUTES = [
    *RESPONSES,
    *stateless.ADVERTISED_ROUTES,
    *agui.ADVERTISED_ROUTES,
    *chat.ADVERTISED_ROUTES,
    *spaces.ADVERTISED_ROUTES,
]
"""What clients can be pointed at."""

FINISH_SECONDS = 1.0
"""How long a server that cannot wait any longer waits for what it has cut short."""

_KIND_OF_STATUS: dict[int, ErrorKind] = {404: "not_found"}


class Gateway:
    """The application. Streams pass through nothing that stands between a read and its write."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._active_requests = 0

        @asynccontextmanager
        async def lifespan(app: Any) -> AsyncIterator[None]:
            await services.start()
            try:
                yield
            finally:
                await self._wait_for_requests()
                await services.stop()

        self.lifespan_context = lifespan(self)
        """To be entered once, by who serves it without ASGI's lifespan: what it raises is known as it is."""
        self._router = Router(
            [
                *responses(services),
                *stateless.routes(services),
                *agui.routes(services),
                *chat.routes(services),
                *spaces.routes(services),
                *sessions.routes(services),
                *meta_routes.routes(services, ADVERTISED_ROUTES, build_document()),
            ],
            redirect_slashes=False,
            lifespan=lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._router(scope, receive, send)
            return
        telemetry = scope["watch"] = self.services.telemetry.begin_request(scope)
        request_id.set(telemetry.id)
        scope["app"] = self
        scope["closing"] = self.services.is_closing
        self._active_requests += 1
        try:
            if scope["type"] == "http" and await self._answer_preflight(scope, send, telemetry):
                return
            await self._router(scope, receive, send)
        except HTTPException as error:
            await self._answer_no_route(scope, send, error, telemetry)
        finally:
            self._active_requests -= 1
            telemetry.end()

    async def _wait_for_requests(self) -> None:
        """What was cut short is still to be kept: the store is there until it is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                while self._active_requests:  # noqa: ASYNC110 (once in a server's life)
                    await asyncio.sleep(0.01)

    async def _answer_preflight(self, scope: Scope, send: Send, telemetry: RequestTelemetry) -> bool:
        """Whether it was one; it is answered then."""
        headers = self.services.guard.cors.preflight(scope)
        if headers is None:
            return False
        telemetry.status = 204
        await send({"type": "http.response.start", "status": 204, "headers": [*headers, telemetry.response_header]})
        await send({"type": "http.response.body"})
        return True

    async def _answer_no_route(
        self, scope: Scope, send: Send, error: HTTPException, telemetry: RequestTelemetry
    ) -> None:
        path = scope["path"]
        telemetry.status = error.status_code
        if error.status_code == 404:
            message = f"there is nothing at {path}; this gateway speaks {', '.join(ADVERTISED_ROUTES)}"
        else:
            message = str(error.detail)
        info = ErrorInfo(_KIND_OF_STATUS.get(error.status_code, "invalid_request"), message)
        headers = [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
        headers += [*self.services.guard.cors.headers(scope), telemetry.response_header]
        await http.send_json(send, error.status_code, openresponses.error_body(info), headers)


def create_app(
    config: Config,
    local: LocalModelService | None = None,
    transport: UpstreamClient | None = None,
    more: Iterable[ChatModel] = (),
    tracers: TracerProvider | None = None,
) -> Gateway:
    """The gateway as an ASGI application. `more` models (agents, say) are served under their own names; `tracers`:
    where its spans go, instead of to what the configuration or the process says.

    Raises `ConfigError` for what the configuration names and cannot be had.
    """
    return Gateway(Services(config, local, transport, more, tracers))


def uvicorn_settings(config: Config) -> dict[str, Any]:
    """How uvicorn is to serve the application."""
    return {
        "host": config.server.host,
        "port": config.server.port,
        "http": http_protocol_class(config.server.request_seconds, config.server.unread_seconds),
        "ws": websocket_protocol_class(config.server.unread_seconds),
        "ws_max_size": config.server.max_body_bytes,
        # It costs every open socket memory and every delta time, and deltas are too small to gain by it.
        "ws_per_message_deflate": False,
        "ws_ping_timeout": config.server.unread_seconds,
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
