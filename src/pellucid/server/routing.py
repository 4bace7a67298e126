"""The tables of operations: the router and the OpenAPI document (`openapi`) are made from the same rows.

A row names its endpoint as a function of the class that has it (`Conversations.get`); `Table.routes` binds it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..view import View

Schema = dict[str, Any]
"""Any piece of the document."""

STRING: Schema = {"type": "string"}
ERRORS = (400, 401, 403, 404, 408, 413, 429, 500, 502, 503, 504)
"""The statuses with which a request to a model is refused."""


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

    `answers`: what succeeds has in it, by media type; anything but a dict is JSON. A type stands for its schema, a name
    for that component, a tuple for one of several, a dict for itself. `pages`: the statuses that a browser is answered
    with a page. `more`: responses that are not as the others.
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
    """Whether the body may be left out."""
    status: int = 200
    description: str = "OK"
    error_statuses: Sequence[int] | None = None
    """None: as the table has it."""
    page_statuses: Sequence[int] = ()
    extra_responses: Mapping[int, Schema] = {}
    security: Sequence[Schema] | None = None
    """None: as the table has it."""


class Socket(NamedTuple):
    """A WebSocket, which is no operation of OpenAPI's: its path, and the extension that describes it."""

    path: str
    extension_name: str
    extension: Schema


class Table(NamedTuple):
    """The operations of one protocol.

    `names`: the parameters in paths. `prefix`: of the components made from its types,
    but for those that are `renamed`. `components`: others, by their
    name without the prefix. `amend` is given all of them, to add what types cannot say.
    """

    operations: Sequence[Operation]
    error_body: Any = ErrorBody
    error_statuses: Sequence[int] = ERRORS
    path_parameters: Mapping[str, Schema] = {}
    sockets: Sequence[Socket] = ()
    component_prefix: str = ""
    component_names: Mapping[str, str] = {}
    components: Mapping[str, Any] = {}
    amend_components: Callable[[dict[str, Schema]], None] | None = None
    security: Sequence[Schema] | None = None

    def routes(self, handlers: Sequence[object], make_endpoint: Callable[[Operation, Any], ASGIApp]) -> list[BaseRoute]:
        """Its paths. `endpoints` are objects of the classes that the rows name; `door` is what stands before one."""
        paths: dict[str, dict[str, ASGIApp]] = {}
        for row in self.operations:
            name = row.handler.__name__
            instance = next(one for one in handlers if getattr(type(one), name, None) is row.handler)
            handler = instance if name == "__call__" else getattr(instance, name)
            paths.setdefault(row.path, {})[row.method] = make_endpoint(row, handler)
        sockets = {socket.path for socket in self.sockets}
        websocket_hint = ", and GET as a WebSocket (Upgrade: websocket)"
        return [route(path, endpoints, websocket_hint if path in sockets else "") for path, endpoints in paths.items()]


def parameter(name: str, location: str, description: str, type_: Any = str, default: Any = None) -> Schema:
    """A parameter in the path (which needs it), the query or a header."""
    schema = msgspec.json.schema(type_) | ({} if default is None else {"default": default})
    required = {"required": True} if location == "path" else {}
    return {"name": name, "in": location, "description": description, **required, "schema": schema}


VIEW = parameter(
    "Pellucid-View",
    "header",
    "In what form reasoning is wanted: no more than the key allows. The query parameter `view` says the same.",
    View,
)


def event_stream(component: str) -> Schema:
    """The media type of a stream of these events."""
    event = {"$ref": f"#/components/schemas/{component}"}
    return {"text/event-stream": {"schema": STRING, "x-event": event}}


class _MethodDispatcher:
    """The doors of one path, by method."""

    def __init__(self, path: str, endpoints: Mapping[str, ASGIApp], websocket_hint: str) -> None:
        self._path = path
        self._endpoints = dict(endpoints)
        if "GET" in endpoints:
            self._endpoints.setdefault("HEAD", endpoints["GET"])
        self._allowed = ", ".join(sorted(self._endpoints))
        self._allowed_text = self._allowed + websocket_hint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "watch" in scope:
            scope["watch"].route = self._path
        endpoint = self._endpoints.get(scope["method"])
        if endpoint is None:
            message = f"{scope['method']} is not allowed on {scope['path']}; it takes {self._allowed_text}"
            raise HTTPException(405, message, headers={"Allow": self._allowed})
        await endpoint(scope, receive, send)


def route(path: str, endpoints: Mapping[str, ASGIApp], websocket_hint: str = "") -> Route:
    """All that is at one path, so that a request with another method is told every one there is. `also`: what is not
    HTTP among them."""
    return Route(path, _MethodDispatcher(path, endpoints, websocket_hint))
