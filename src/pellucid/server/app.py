"""The ASGI application: the router, and the lifetime of its services."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Any

from opentelemetry.trace import TracerProvider
from starlette.exceptions import HTTPException
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from ..asgi import http
from ..errors import ErrorInfo, ErrorKind
from ..models import ChatModel
from ..protocols.client_protocols import protocol_at
from ..telemetry.lines import request_id
from ..upstream import UpstreamClient
from . import meta_routes
from .access.errors import headers_of
from .config import Config
from .endpoints import ENDPOINTS, EndpointGroup, tables_of
from .exchange import Exchange
from .observability import RequestTelemetry
from .openapi import build_document
from .page import NO_SUCH_PAGE, prefers_html, send_notice
from .services import LocalModelService, Services
from .uvicorn_adapter import http_protocol_class, websocket_protocol_class
from .websocket import WebSocket

HEALTH_PATHS = frozenset({"/health", "/ready"})
"""Routes for load balancers and supervisors, which use any Host."""

FINISH_SECONDS = 1.0
"""How long a server that must stop now waits for requests that were cancelled."""

_KIND_OF_STATUS: dict[int, ErrorKind] = {404: "not_found"}


NO_ALIASES: Mapping[str, str] = MappingProxyType({})


class Gateway:
    """The gateway as an ASGI application. No middleware stands between a read of a stream and its write."""

    def __init__(
        self,
        services: Services,
        endpoints: Iterable[EndpointGroup] = ENDPOINTS.values(),
        aliases: Mapping[str, str] = NO_ALIASES,
    ) -> None:
        """Create the application.

        Args:
            services: What the endpoints use.
            endpoints: The endpoints that it has.
            aliases: Paths under which some of its routes are used, and the paths of these routes.
        """
        self.services = services
        self._aliases = aliases
        endpoints = tuple(endpoints)
        tables = tables_of(endpoints)
        self._advertised_routes = [route for table in tables for route in table.advertised_routes]
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
        """Starts and stops the services.

        A server that does not use ASGI's lifespan enters it once, and so gets its exceptions unchanged.
        """
        self._router = Router(
            [
                *(route for group in endpoints for route in group.routes(services)),
                *meta_routes.routes(services, self._advertised_routes, partial(build_document, tables)),
            ],
            redirect_slashes=False,
            lifespan=lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._router(scope, receive, send)
            return
        if not self.services.is_started:
            raise RuntimeError(
                "the gateway is not started: its server sends no lifespan events, as for a mounted application; start "
                "it in the lifespan of the application that contains it: async with gateway.lifespan_context: …"
            )
        if self._aliases and (path := self._aliases.get(http.path(scope).rstrip("/"))) is not None:
            scope = {**scope, "path": scope.get("root_path", "") + path}
        telemetry = scope["telemetry"] = self.services.telemetry.begin_request(scope)
        request_id.set(telemetry.id)
        scope["app"] = self
        scope["closing"] = self.services.is_closing
        scope["overloaded"] = self.services.memory.is_exceeded
        self._active_requests += 1
        try:
            if not await self._check_host(scope, receive, send):
                return
            if scope["type"] == "http" and await self._answer_preflight(scope, send, telemetry):
                return
            await self._router(scope, receive, send)
        except HTTPException as error:
            await self._answer_no_route(scope, receive, send, error)
        finally:
            self._active_requests -= 1
            telemetry.end()

    async def _wait_for_requests(self) -> None:
        """Wait until cancelled requests have stored what they must store, while the store is still open."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                while self._active_requests:  # noqa: ASYNC110 (only once, at shutdown)
                    await asyncio.sleep(0.01)

    async def _check_host(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Return whether the request's Host may be served. Refuse it otherwise."""
        path = http.path(scope)
        if path in HEALTH_PATHS:
            return True
        try:
            await self.services.guard.check_host(scope)
        except Exception as error:
            exchange = Exchange(scope, receive, send, protocol_at(path).error_format)
            if scope["type"] == "http":
                await exchange.send_exception(error, "a fault while checking a Host", headers_of(error))
            else:
                await receive()  # websocket.connect
                await WebSocket(exchange).refuse(error)
            return False
        return True

    async def _answer_preflight(self, scope: Scope, send: Send, telemetry: RequestTelemetry) -> bool:
        """Answer a CORS preflight request. Returns whether the request was one."""
        headers = self.services.guard.cors.preflight(scope)
        if headers is None:
            return False
        telemetry.status = 204
        await send({"type": "http.response.start", "status": 204, "headers": [*headers, telemetry.response_header]})
        await send({"type": "http.response.body"})
        return True

    async def _answer_no_route(self, scope: Scope, receive: Receive, send: Send, error: HTTPException) -> None:
        exchange = Exchange(scope, receive, send, protocol_at(http.path(scope)).error_format)
        headers = [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
        exchange.response_headers = [*headers, *self.services.guard.cors.headers(scope), *exchange.response_headers]
        if error.status_code != 404:
            message = str(error.detail)
        elif self._is_for_page(scope):
            await send_notice(exchange, NO_SUCH_PAGE)
            return
        else:
            message = f"there is no route {scope['path']}; this gateway serves {', '.join(self._advertised_routes)}"
        info = ErrorInfo(_KIND_OF_STATUS.get(error.status_code, "invalid_request"), message)
        await exchange.send_error_body(info, error.status_code)

    def _is_for_page(self, scope: Scope) -> bool:
        """Return whether a person opened an address in a browser, of a gateway that has the page."""
        is_read = scope["method"] in ("GET", "HEAD")
        return self.services.config.server.page and is_read and prefers_html(http.header(scope, "accept"))


def create_app(
    config: Config,
    local: LocalModelService | None = None,
    transport: UpstreamClient | None = None,
    more: Iterable[ChatModel] = (),
    tracers: TracerProvider | None = None,
) -> Gateway:
    """Return the gateway as an ASGI application.

    Args:
        config: The configuration (see `Config`).
        local: The embedded model, where it is enabled.
        transport: The client for upstream requests; by default a new one.
        more: Models that are served under their own names (agents, for example).
        tracers: Where spans are sent, instead of what the configuration or the process sets.

    Returns:
        The application.

    Raises:
        ConfigError: What the configuration names does not exist or cannot be used.
    """
    return Gateway(Services(config, local, transport, more, tracers))


def uvicorn_settings(config: Config) -> dict[str, Any]:
    """Return uvicorn's settings for this configuration."""
    return {
        "host": config.server.host,
        "port": config.server.port,
        "http": http_protocol_class(config.server.request_seconds, config.server.unread_seconds),
        "ws": websocket_protocol_class(config.server.unread_seconds),
        "ws_max_size": config.server.max_body_bytes,
        # Compression costs memory for every open socket and time for every delta, and deltas are too small to shrink.
        "ws_per_message_deflate": False,
        "ws_ping_timeout": config.server.unread_seconds,
        "loop": "uvloop",
        "log_level": "warning",
        "access_log": False,
        "proxy_headers": False,
        "server_header": False,
        "backlog": 4096,
        # Longer than proxies keep idle connections: this end must not close one just when a new request is sent.
        "timeout_keep_alive": 75,
        "timeout_graceful_shutdown": config.server.shutdown_seconds,
    }
