"""The table of the gateway's endpoints, from which the router, the index and the OpenAPI document are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from starlette.routing import BaseRoute

from . import (
    agui,
    connection_routes,
    meta_routes,
    operator_routes,
    owned_spaces,
    sessions,
    stateless,
    token_counts,
)
from .chat import routes as chat
from .openresponses import routes as openresponses
from .routing import Table, routes_of
from .services import Services
from .spaces import routes as spaces


class EndpointGroup(NamedTuple):
    """The endpoints of one protocol, or of one purpose."""

    tables: Sequence[Table]
    make_routes: Callable[[Services], list[BaseRoute]] | None = None
    """Makes the routes of these tables; by default `routes_of` does."""

    def routes(self, services: Services) -> list[BaseRoute]:
        """Return the routes of these tables."""
        if self.make_routes is not None:
            return self.make_routes(services)
        return [route for table in self.tables for route in routes_of(table, services)]


ENDPOINTS = {
    "openresponses": EndpointGroup([openresponses.RESPONSES, openresponses.CONVERSATIONS]),
    "stateless": EndpointGroup(list(stateless.TABLES.values())),
    "token_counts": EndpointGroup([token_counts.TABLE]),
    "agui": EndpointGroup([agui.TABLE]),
    "chat": EndpointGroup([chat.TABLE]),
    "spaces": EndpointGroup([spaces.TABLE, spaces.MEW], spaces.routes),
    "owned_spaces": EndpointGroup([owned_spaces.TABLE]),
    "sessions": EndpointGroup([sessions.TABLE], sessions.routes),
    "connections": EndpointGroup([connection_routes.TABLE]),
    "operator": EndpointGroup([operator_routes.TABLE]),
}
"""All endpoints but those of `meta_routes`, which describe the others."""


def tables_of(endpoints: Iterable[EndpointGroup]) -> list[Table]:
    """Return the tables of these endpoints, and of `meta_routes`."""
    return [*(table for group in endpoints for table in group.tables), meta_routes.TABLE]


TABLES = tables_of(ENDPOINTS.values())
