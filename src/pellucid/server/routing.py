"""Tables of operations, from which the router and the OpenAPI document (`openapi`) are made.

A row names its handler as a function of its class (`ConversationHandlers.get`). `Table.routes` binds it to an object;
`routes_of` makes the objects and the endpoints of most tables.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from ..protocols import openresponses
from ..protocols.client_protocols import CLIENT_PROTOCOLS
from ..protocols.errors import KIND_NAMES, ErrorFormat
from ..view import View
from .exchange import Endpoint, Handler
from .services import Services

Schema = dict[str, Any]
"""Any part of the OpenAPI document."""

STRING: Schema = {"type": "string"}
BINARY: Schema = {"type": "string", "format": "binary"}
ERRORS = (400, 401, 403, 404, 408, 413, 429, 500, 502, 503, 504)
"""The error statuses of a request to a model."""


def error_statuses_of(format: ErrorFormat) -> tuple[int, ...]:
    """Return the error statuses of a request to a model in this protocol."""
    others = {KIND_NAMES[kind].status: status for kind, status in format.statuses.items()}
    return tuple(others.get(status, status) for status in ERRORS)


class ErrorPayload(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct):
    """An error in OpenAI's form."""

    error: ErrorPayload


class Operation(NamedTuple):
    """One method at one path.

    `response_body`: the content of a successful response, by media type; anything but a dict is JSON. A type stands for
    its schema, a string for the component with that name, a tuple for a union, a dict for itself. `page_statuses`:
    statuses for which a browser gets a page. `extra_responses`: responses that differ from the others.
    """

    method: str
    path: str
    handler: Callable[..., Awaitable[None]]
    operation_id: str
    summary: str
    response_body: Any = None
    parameters: Sequence[Schema] = ()
    request_body: Any = None
    is_body_optional: bool = False
    """Whether the request's body may be left out."""
    status: int = 200
    description: str = "OK"
    error_statuses: Sequence[int] | None = None
    """None: those of the table."""
    page_statuses: Sequence[int] = ()
    extra_responses: Mapping[int, Schema] = {}
    security: Sequence[Schema] | None = None
    """None: that of the table."""
    is_operator_only: bool = False
    """Whether it is for operators of the gateway (`Policy.operator`), where credentials are required."""


class Socket(NamedTuple):
    """A WebSocket, for which OpenAPI has no operation: its path, and the extension that describes it."""

    path: str
    extension_name: str
    extension: Schema
    application: Callable[[Services], ASGIApp] | None = None
    """Makes its application; None: the routes of its table do."""


class Handlers:
    """The handlers of some operations, as methods."""

    def __init__(self, services: Services) -> None:
        self._services = services


class Table(NamedTuple):
    """The operations of one protocol.

    `path_parameters`: the parameters in paths. `component_prefix`: the prefix of components that are made from types,
    unless `component_names` has a name for them. `components`: other components, by their name without the prefix.
    `amend_components` gets all components, and adds what types cannot express.
    """

    operations: Sequence[Operation]
    protocol: str = openresponses.PROTOCOL
    """The client protocol in whose form errors are (`error_body`)."""
    metrics_name: str = ""
    """The name in metrics and logs, if it is not that of the protocol."""
    handlers: Sequence[Callable[[Services], object]] = ()
    """The classes of the handlers."""
    error_body: Any = ErrorBody
    error_statuses: Sequence[int] = ERRORS
    path_parameters: Mapping[str, Schema] = {}
    sockets: Sequence[Socket] = ()
    component_prefix: str = ""
    component_names: Mapping[str, str] = {}
    components: Mapping[str, Any] = {}
    amend_components: Callable[[dict[str, Schema]], None] | None = None
    security: Sequence[Schema] | None = None
    advertised_routes: Sequence[str] = ()
    """The routes that clients can be pointed at."""

    def security_of(self, row: Operation) -> Sequence[Schema] | None:
        """Return what authenticates the callers of an operation: `()` if nothing does, None for the gateway's keys."""
        return self.security if row.security is None else row.security

    def routes(self, handlers: Sequence[object], make_endpoint: Callable[[Operation, Any], ASGIApp]) -> list[BaseRoute]:
        """Return the routes of the operations.

        Args:
            handlers: Objects of the classes that the rows name.
            make_endpoint: Makes the ASGI application for an operation and its bound handler.
        """
        paths: dict[str, dict[str, ASGIApp]] = {}
        for row in self.operations:
            name = row.handler.__name__
            instance = next(one for one in handlers if getattr(type(one), name, None) is row.handler)
            handler = instance if name == "__call__" else getattr(instance, name)
            paths.setdefault(row.path, {})[row.method] = make_endpoint(row, handler)
        sockets = {socket.path for socket in self.sockets}
        websocket_hint = ", and GET as a WebSocket (Upgrade: websocket)"
        return [route(path, endpoints, websocket_hint if path in sockets else "") for path, endpoints in paths.items()]


def routes_of(table: Table, services: Services, handlers: Sequence[object] | None = None) -> list[BaseRoute]:
    """Return the routes of a table, whose callers the guard authenticates.

    Args:
        table: The table. An operation without security (`()`) needs no credentials.
        services: The gateway's services.
        handlers: The handlers; by default new ones of the table's classes.
    """
    error_format = CLIENT_PROTOCOLS[table.protocol].error_format

    def make_endpoint(operation: Operation, handler: Handler) -> Endpoint:
        get_guard = None if table.security_of(operation) == () else lambda: services.guard
        name = table.metrics_name or table.protocol
        return Endpoint(handler, error_format, name, get_guard, is_operator_only=operation.is_operator_only)

    if handlers is None:
        handlers = [create(services) for create in table.handlers]
    sockets = [
        WebSocketRoute(one.path, one.application(services)) for one in table.sockets if one.application is not None
    ]
    return [*sockets, *table.routes(handlers, make_endpoint)]


def parameter(name: str, location: str, description: str, type_: Any = str, default: Any = None) -> Schema:
    """Return a parameter of the path (which requires it), the query or a header."""
    schema = msgspec.json.schema(type_) | ({} if default is None else {"default": default})
    required = {"required": True} if location == "path" else {}
    return {"name": name, "in": location, "description": description, **required, "schema": schema}


VIEW = parameter(
    "Pellucid-View",
    "header",
    "The view of reasoning, at most the one that the key allows. The query parameter `view` means the same.",
    View,
)


def event_stream(component: str) -> Schema:
    """Return the media type of a stream of these events."""
    event = {"$ref": f"#/components/schemas/{component}"}
    return {"text/event-stream": {"schema": STRING, "x-event": event}}


class _MethodDispatcher:
    """Dispatches the requests of one path by their method."""

    def __init__(self, path: str, endpoints: Mapping[str, ASGIApp], websocket_hint: str) -> None:
        self._path = path
        self._endpoints = dict(endpoints)
        if "GET" in endpoints:
            self._endpoints.setdefault("HEAD", endpoints["GET"])
        self._allowed = ", ".join(sorted(self._endpoints))
        self._allowed_text = self._allowed + websocket_hint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "telemetry" in scope:
            scope["telemetry"].route = self._path
        endpoint = self._endpoints.get(scope["method"])
        if endpoint is None:
            message = f"{scope['method']} is not allowed on {scope['path']}; allowed: {self._allowed_text}"
            raise HTTPException(405, message, headers={"Allow": self._allowed})
        await endpoint(scope, receive, send)


def route(path: str, endpoints: Mapping[str, ASGIApp], websocket_hint: str = "") -> Route:
    """Return the route of a path with all its methods, so that a 405 can list them.

    Args:
        path: The path.
        endpoints: The application for each method.
        websocket_hint: Text about a WebSocket at the same path, for the error.
    """
    return Route(path, _MethodDispatcher(path, endpoints, websocket_hint))
