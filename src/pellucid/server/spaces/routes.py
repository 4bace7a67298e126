"""Which path is what."""

from __future__ import annotations

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.types import ASGIApp

from ..exchange import route
from ..page import Page, built
from ..services import Services
from .door import Answer, Doors
from .endpoints import Endpoints, Mew, MewForm
from .reading import Reading
from .socket import SpaceSocket

SPOKEN = ["GET /spaces/{name}/ws (WebSocket)", "GET /spaces"]


def routes(services: Services) -> list[BaseRoute]:
    doors, endpoints, reading, mew = Doors(services), Endpoints(services), Reading(services), Mew(services)
    page = Page(built()) if services.config.server.page else None

    def beside(door: ASGIApp) -> ASGIApp:
        """The page for browsers, at the same place."""
        return page.beside(door) if page is not None else door

    envelopes: dict[str, Answer] = {"GET": reading.page, "POST": endpoints.post}
    table: dict[str, dict[str, Answer]] = {
        "/spaces/{name}/envelopes": envelopes,
        "/spaces/{name}/history": {"GET": reading.page},
        "/spaces/{name}/envelopes/{seq}": {"GET": reading.one},
        "/spaces/{name}/envelopes/{seq}/references": {"GET": reading.references},
        "/spaces/{name}/search": {"GET": reading.search},
        "/spaces/{name}/contexts": {"GET": reading.contexts},
        "/spaces/{name}/contexts/{path:path}": {"GET": reading.tree},
        "/spaces/{name}/patterns": {"GET": reading.patterns},
        "/spaces/{name}/export": {"GET": reading.export},
        "/spaces/{name}/replay": {"GET": reading.replay},
    }
    form = MewForm()
    return [
        *(WebSocketRoute(path, SpaceSocket(services, path)) for path in ("/spaces/{name}/ws", "/ws", "/")),
        route("/spaces", {"GET": beside(doors.anybody(endpoints.spaces))}),
        route("/spaces/{name}", {"GET": beside(doors.participant(endpoints.space))}),
        *(route(path, doors.table(answers)) for path, answers in table.items()),
        route("/participants/{id}/messages", doors.table({"POST": mew.message}, form)),
        route("/participants", doors.table({"GET": mew.participants}, form)),
    ]
