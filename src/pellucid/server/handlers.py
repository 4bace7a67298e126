"""Handlers of operations, and the routes that are made of them and their tables (`routing.Table`)."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute, WebSocketRoute

from ..protocols.client_protocols import CLIENT_PROTOCOLS
from .exchange import Endpoint, Handler
from .routing import Operation, Table
from .services import Services


class Handlers:
    """The handlers of some operations, as methods."""

    def __init__(self, services: Services) -> None:
        self._services = services


def routes_of(table: Table, services: Services, handlers: Sequence[Handlers] | None = None) -> list[BaseRoute]:
    """Return the routes of a table, whose callers the guard authenticates.

    Args:
        table: The table. An operation without `security` needs no credentials.
        services: The gateway's services.
        handlers: The handlers; by default new ones of the table's classes.
    """
    error_format = CLIENT_PROTOCOLS[table.protocol].error_format

    def make_endpoint(operation: Operation, handler: Handler) -> Endpoint:
        get_guard = None if operation.security == () else lambda: services.guard
        name = table.metrics_name or table.protocol
        return Endpoint(handler, error_format, name, get_guard, is_operator_only=operation.is_operator_only)

    if handlers is None:
        handlers = [create(services) for create in table.handlers]
    sockets = [
        WebSocketRoute(one.path, one.application(services)) for one in table.sockets if one.application is not None
    ]
    return [*sockets, *table.routes(handlers, make_endpoint)]
