"""One HTTP exchange (request and response), and the ASGI application for one route.

An `Endpoint` authenticates the caller before it calls its handler, sends errors in the form of the requested protocol,
and answers faults of the gateway. It wraps the request, not the stream: `send` is the server's own.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from ..asgi import http
from ..asgi.exchange import HTTPExchange
from ..asgi.streaming import STOPPING, BodyWriter
from ..errors import ErrorInfo, PellucidError
from ..protocols.client_protocols import CLIENT_PROTOCOLS, recognised_protocol
from ..protocols.decoding import invalid
from ..protocols.errors import ErrorFormat
from ..run import Minter
from ..unicode import replace_surrogates
from ..upstream.hops import HOPS_HEADER, receive_hops
from ..view import View, Viewer, parse_view
from .access.errors import HTTPHeader, headers_of
from .access.guard import Guard
from .access.policy import Principal
from .access.revocation import OpenRequest, OpenRequests
from .config import ServerConfig
from .memory import OVERLOADED
from .observability import RequestTelemetry
from .uvicorn_adapter import direct_writer, on_disconnect

VIEW_HEADER = "pellucid-view"
OWNER_HEADER = "pellucid-owner"
"""The request header with the mark of the owner whose data a page shows (`Principal.owner_mark`)."""
DEPLOYMENT_HEADER = b"pellucid-deployment"


class Exchange(HTTPExchange):
    """One request and its response.

    `path_params` are the parameters of the path.
    """

    def __init__(self, scope: http.Scope, receive: http.Receive, send: http.Send, error_format: ErrorFormat) -> None:
        super().__init__(scope, receive, send, error_format)
        self.telemetry: RequestTelemetry = scope["telemetry"]
        self.principal = Principal("")
        self.request_id = self.telemetry.id
        self.response_headers.append(self.telemetry.response_header)
        self.path_params: dict[str, str] = scope.get("path_params", {})
        self.open_requests: OpenRequests | None = None
        """Where this request is registered while it is open, if its caller was authenticated."""
        self._open_request: OpenRequest | None = None
        self.recognised_protocol: str | None = None
        """The name of the protocol of the request, if it is another than that of its path."""
        self.recognise_protocol()
        if (name := self.error_format.request_id_header) is not None:
            self.response_headers.append((name, self.telemetry.id.encode()))

    def recognise_protocol(self, body: Mapping[str, Any] | None = None) -> None:
        """Find out whether the request is of another protocol than that of its path, which then decides about errors.

        Args:
            body: The body; None before it was read.
        """
        self.recognised_protocol = recognised_protocol(http.path(self.scope), self, body or {})
        if self.recognised_protocol is not None:
            self.error_format = CLIENT_PROTOCOLS[self.recognised_protocol].error_format

    def request_header_lines(self, name: str) -> str:
        """Return the values of all lines of a request header, joined by commas (RFC 9110, 5.3); empty if absent."""
        lines = self.header_lines.get(name.encode())
        return b", ".join(lines).decode("latin-1") if lines is not None else ""

    def request_headers(self, names: Iterable[str]) -> dict[str, str]:
        """Return those of the named request headers that are there."""
        return {name: value for name in names if (value := self.request_header_lines(name))}

    def set_deployment(self, name: str) -> None:
        """Name the deployment that answers in the headers of the response, if they were not sent."""
        others = [header for header in self.response_headers if header[0] != DEPLOYMENT_HEADER]
        self.response_headers[:] = [*others, (DEPLOYMENT_HEADER, _deployment_value(name))]

    def query_param(self, name: str) -> str | None:
        """Return the first query parameter with this name, or None."""
        return next((value for key, value in self.query if key == name), None)

    def check_query_params(self, *names: str) -> None:
        """Refuse a query parameter with another name, which would be ignored. Raises `RequestError`."""
        for name, _ in self.query:
            if name not in names:
                raise invalid(
                    name[:100], f"no such parameter; there are {', '.join(sorted(names))}", "unsupported_parameter"
                )

    def query_int(self, name: str, default: int, minimum: int, maximum: int = 2**53) -> int:
        """Return a query parameter as an integer.

        Raises:
            RequestError: It is not an integer from `minimum` to `maximum`.
        """
        text = self.query_param(name)
        return default if text is None else parse_int(text, name, minimum, maximum)

    def viewer_for(self, max_view: View = "raw", default_view: View = "raw", *, with_summaries: bool = False) -> Viewer:
        """Return the viewer: the requested view, if the caller's key and the data allow it.

        Args:
            max_view: The fullest view of the data that anyone gets.
            default_view: The view if the request asks for none.
            with_summaries: Whether a viewer of raw reasoning also gets summaries that the gateway made.

        Raises:
            RequestError: The request asks for more than is allowed.
        """
        allowed = self.principal.policy.viewer.limited_to(max_view)
        requested = self.request_header(VIEW_HEADER)
        requested = requested if requested is not None else self.query_param("view")
        view = parse_view(requested.lower(), "view") if requested is not None else allowed.limited_to(default_view).view
        return allowed.for_request(view, summaries=with_summaries)

    async def read_body(self, limits: ServerConfig) -> bytes:
        """Read the request's body.

        Raises:
            RequestError: It is too large, or is sent too slowly.
            PellucidError: There is not enough memory for new work.
        """
        if self.scope.get("overloaded"):
            self.response_headers.append(http.CLOSE_HEADER)
            raise PellucidError(OVERLOADED)
        limit = self.principal.policy.body_limit(limits.max_body_bytes)
        return await http.read_body(self.scope, self.receive, limit, limits.request_seconds)

    async def read_json(self, limits: ServerConfig) -> dict[str, Any]:
        """Read the request's body as a JSON object.

        Raises:
            RequestError: The body is too large, is sent too slowly, is no JSON object, or has too many items.
        """
        return await self.decode_json(await self.read_body(limits), limits.max_items, limits.max_tools)

    def begin_response(self, status: int) -> None:
        """Record that the response begins now, so that no other is sent."""
        super().begin_response(status)
        self.telemetry.status = status

    async def send_no_content(self) -> None:
        """Send an empty response (204)."""
        self.begin_response(204)
        await self.send({"type": "http.response.start", "status": 204, "headers": self.response_headers})
        await self.send({"type": "http.response.body"})

    async def send_error(self, error: ErrorInfo, extra_headers: Iterable[HTTPHeader] = ()) -> None:
        """Send an error, in the protocol's form."""
        self.telemetry.error = error.kind
        await super().send_error(error, extra_headers)

    def on_disconnect(self, callback: Callable[[], None] | None) -> bool:
        """See `http.DisconnectSource`."""
        return on_disconnect(self.scope, self.send, callback)

    def on_interrupt(self, callback: Callable[[PellucidError], None] | None) -> None:
        """See `http.DisconnectSource`: a request ends when its key or session is not valid any more."""
        if self.open_requests is None:
            return
        if self._open_request is not None:
            self.open_requests.discard(self._open_request)
            self._open_request = None
        if callback is not None:
            self._open_request = OpenRequest(self.principal, callback)
            self.open_requests.add(self._open_request)

    async def stream(self, content_type: str = http.EVENT_STREAM) -> BodyWriter:
        """Begin a streamed response, and return the writer of its body."""
        self.telemetry.begin_stream()
        writer = await super().stream(content_type)
        return direct_writer(self.scope, self.send) or writer


Handler = Callable[[Exchange], Awaitable[None]]
"""Handles one exchange."""


def new_minter() -> Minter:
    """Return a minter whose ids cannot be guessed.

    Ids begin with the time of this call, so rows that are stored at about the same time are adjacent. The database then
    changes a few pages at the end of an index, and not one page anywhere for each id.
    """
    return Minter(secrets.token_bytes(16), time.time_ns() // 1_000_000)


def parse_int(text: str, name: str, minimum: int, maximum: int = 2**53) -> int:
    """Parse the value of the request's parameter `name`.

    Raises:
        RequestError: It is not an integer from `minimum` to `maximum`.
    """
    if not text.isascii() or not text.isdecimal() or len(text) > 16 or not minimum <= int(text) <= maximum:
        upper_bound = f" to {maximum}" if maximum < 2**53 else ""
        raise invalid(
            name, f"must be a whole number from {minimum}{upper_bound}, not {replace_surrogates(text[:40])!r}"
        )
    return int(text)


class Endpoint:
    """An ASGI application for one route."""

    def __init__(
        self,
        handler: Handler,
        error_format: ErrorFormat,
        protocol: str,
        get_guard: Callable[[], Guard] | None = None,
        *,
        is_operator_only: bool = False,
    ) -> None:
        """Create the application.

        Args:
            handler: Handles the exchange.
            error_format: The form of errors.
            protocol: The protocol's name in metrics and logs.
            get_guard: Returns the guard that authenticates the caller; None: the route needs no credentials.
            is_operator_only: Whether the caller must be an operator (`Policy.operator`).
        """
        self._handler = handler
        self._error_format = error_format
        self._get_guard = get_guard
        self._protocol = protocol
        self._is_operator_only = is_operator_only

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        exchange = Exchange(scope, receive, send, self._error_format)
        exchange.telemetry.protocol = self._protocol
        try:
            if self._get_guard is not None:
                if scope["closing"]:
                    exchange.response_headers.append(http.CLOSE_HEADER)
                    raise PellucidError(STOPPING)
                guard = self._get_guard()
                exchange.response_headers += guard.cors.headers(scope)
                exchange.principal = exchange.telemetry.principal = await guard.admit(scope)
                exchange.principal.check_owner_mark(exchange.request_header(OWNER_HEADER))
                exchange.open_requests = guard.open_requests
                receive_hops(exchange.request_header(HOPS_HEADER.lower()))
                if self._is_operator_only:
                    exchange.principal.policy.check_operator()
                exchange.viewer = exchange.principal.policy.viewer
            await self._handler(exchange)
        except http.ClientGone:
            pass
        except Exception as error:
            await exchange.send_exception(error, f"a fault while serving {exchange.telemetry.path}", headers_of(error))


@lru_cache(maxsize=256)
def _deployment_value(name: str) -> bytes:
    return http.header_text(name)
