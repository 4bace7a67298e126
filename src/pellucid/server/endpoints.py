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
from .routing import Table
from .services import Services
from .spaces import routes as spaces


class EndpointGroup(NamedTuple):
    """The endpoints of one protocol, or of one purpose."""

    tables: Sequence[Table]
    routes: Callable[[Services], list[BaseRoute]]
    """Makes the routes of these tables."""


ENDPOINTS = {
    "openresponses": EndpointGroup([openresponses.RESPONSES, openresponses.CONVERSATIONS], openresponses.routes),
    "stateless": EndpointGroup(list(stateless.TABLES.values()), stateless.routes),
    "token_counts": EndpointGroup([token_counts.TABLE], token_counts.routes),
    "agui": EndpointGroup([agui.TABLE], agui.routes),
    "chat": EndpointGroup([chat.TABLE], chat.routes),
    "spaces": EndpointGroup([spaces.TABLE, spaces.MEW], spaces.routes),
    "owned_spaces": EndpointGroup([owned_spaces.TABLE], owned_spaces.routes),
    "sessions": EndpointGroup([sessions.TABLE], sessions.routes),
    "connections": EndpointGroup([connection_routes.TABLE], connection_routes.routes),
    "operator": EndpointGroup([operator_routes.TABLE], operator_routes.routes),
}
"""All endpoints but those of `meta_routes`, which describe the others."""


def tables_of(endpoints: Iterable[EndpointGroup]) -> list[Table]:
    """Return the tables of these endpoints, and of `meta_routes`."""
    return [*(table for group in endpoints for table in group.tables), meta_routes.TABLE]


TABLES = tables_of(ENDPOINTS.values())
