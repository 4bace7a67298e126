"""The table of the gateway's endpoints, from which the router, the index and the OpenAPI document are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from starlette.routing import BaseRoute

from . import agui, meta_routes, operator_routes, sessions, stateless, token_counts
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


ENDPOINTS = (
    EndpointGroup([openresponses.RESPONSES, openresponses.CONVERSATIONS], openresponses.routes),
    EndpointGroup(list(stateless.TABLES.values()), stateless.routes),
    EndpointGroup([token_counts.TABLE], token_counts.routes),
    EndpointGroup([agui.TABLE], agui.routes),
    EndpointGroup([chat.TABLE], chat.routes),
    EndpointGroup([spaces.TABLE, spaces.MEW], spaces.routes),
    EndpointGroup([sessions.TABLE], sessions.routes),
    EndpointGroup([operator_routes.TABLE], operator_routes.routes),
)
"""All endpoints but those of `meta_routes`, which describe the others."""

TABLES = [*(table for group in ENDPOINTS for table in group.tables), meta_routes.TABLE]

ADVERTISED_ROUTES = [route for table in TABLES for route in table.advertised_routes]
