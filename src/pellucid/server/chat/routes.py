"""Which path is what."""

from __future__ import annotations

from starlette.routing import BaseRoute

from ...protocols import ai_sdk, chat
from ..exchange import Door, Endpoint, Exchange, route
from ..services import Services
from .asking import Ask
from .conversations import Conversations
from .models import Models
from .reading import Answers

SPOKEN = ["POST /api/chat"]


async def _no_answer(exchange: Exchange) -> None:
    """Where a page of the AI SDK looks for an answer that goes on without it: 204, there is none."""
    exchange.form = ai_sdk
    await exchange.answer_nothing()


def routes(services: Services) -> list[BaseRoute]:
    """The chat's, the conversations' and the models'."""
    ask, answers = Ask(services), Answers(services)
    conversations, models = Conversations(services), Models(services)
    table: dict[str, dict[str, Endpoint]] = {
        "/api/chat": {"POST": ask},
        "/api/chat/{event_id}": {"GET": answers.read},
        "/api/chat/{event_id}/cancel": {"POST": answers.cancel},
        "/api/chat/{event_id}/stream": {"GET": _no_answer},
        "/api/conversations": {"GET": conversations.list},
        "/api/conversations/{id}": {
            "GET": conversations.get,
            "PATCH": conversations.change,
            "DELETE": conversations.delete,
        },
        "/api/models": {"GET": models},
    }

    def door(endpoint: Endpoint) -> Door:
        return Door(endpoint, chat, lambda: services.guard, forms={ai_sdk.PROTOCOL: ai_sdk})

    return [
        route(path, {method: door(endpoint) for method, endpoint in endpoints.items()})
        for path, endpoints in table.items()
    ]
