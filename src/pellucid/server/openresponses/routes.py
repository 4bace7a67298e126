"""Which path is what."""

from __future__ import annotations

from starlette.routing import BaseRoute, WebSocketRoute

from ...protocols import openresponses
from ..exchange import Door, Endpoint
from ..routing import route
from ..services import Services
from .compact import Compact
from .conversations import Conversations
from .create import CreateResponse
from .kept import KeptResponses
from .socket import ResponsesSocket

SPOKEN = [
    "POST /v1/responses",
    "GET /v1/responses (WebSocket)",
    "POST /v1/responses/compact",
    "POST /v1/conversations",
]
_ALSO = {"/v1/responses": ", and GET as a WebSocket (Upgrade: websocket)"}


def routes(services: Services) -> list[BaseRoute]:
    create, compact = CreateResponse(services), Compact(services)
    kept, conversations = KeptResponses(services), Conversations(services)
    table: dict[str, dict[str, Endpoint]] = {
        "/v1/responses": {"POST": create},
        "/v1/responses/compact": {"POST": compact},
        "/v1/responses/{id}": {"GET": kept.get, "DELETE": kept.delete},
        "/v1/responses/{id}/cancel": {"POST": kept.cancel},
        "/v1/responses/{id}/input_items": {"GET": kept.input_items},
        "/v1/conversations": {"POST": conversations.create},
        "/v1/conversations/{id}": {
            "GET": conversations.get,
            "POST": conversations.update,
            "DELETE": conversations.delete,
        },
        "/v1/conversations/{id}/items": {"GET": conversations.items, "POST": conversations.add},
        "/v1/conversations/{id}/items/{item_id}": {"GET": conversations.item, "DELETE": conversations.delete_item},
    }

    def door(endpoint: Endpoint) -> Door:
        return Door(endpoint, openresponses, lambda: services.guard)

    return [
        WebSocketRoute("/v1/responses", ResponsesSocket(services)),
        *(
            route(path, {method: door(endpoint) for method, endpoint in endpoints.items()}, _ALSO.get(path, ""))
            for path, endpoints in table.items()
        ),
    ]
