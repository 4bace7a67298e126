"""The paths of the chat, and `GET /api/models`: the models that a page can offer.

Which efforts of thinking a model takes is in no list: the model is asked what it would not honour, as for any request.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.routing import BaseRoute

from ...errors import RequestError
from ...models import Asked
from ...protocols import ai_sdk, chat
from ...protocols.chat import THINKING
from ...settings import ModelCall
from ...view import VIEWS, lesser
from ..access.policy import visible
from ..exchange import Door, Endpoint, Exchange, route
from ..services import Services
from .answers import Answers
from .asking import Ask
from .conversations import Conversations


class Models:
    """`GET /api/models`: each with the efforts that it takes, and the most that its reader may see of it."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._efforts: dict[str, list[str]] = {}

    async def __call__(self, exchange: Exchange) -> None:
        principal = exchange.principal
        reader = exchange.reads()
        default = self._default()
        models = []
        for name, asked in self._each(default):
            if visible(principal, [name]):
                models.append(
                    self._entry(name, asked, name == default)
                    | {"view": lesser(reader.view, self._services.catalog.most(name))}
                )
                await asyncio.sleep(0)
        await exchange.answer({"data": models, "views": list(VIEWS[VIEWS.index(reader.view) :])})

    def _each(self, default: str | None) -> list[tuple[str, Asked]]:
        """Each model once, under the name that it is best known by."""
        catalog, found = self._services.catalog, dict[int, tuple[str, Asked]]()
        names = catalog.names()
        first = [default] if default is not None else []
        for name in dict.fromkeys([*first, *names]):
            asked = catalog.find(name)[1]
            found.setdefault(id(asked), (name, asked))
        order = {name: place for place, name in enumerate(names)}
        return sorted(found.values(), key=lambda one: order.get(one[0], -1))

    def _default(self) -> str | None:
        try:
            return self._services.catalog.find(None)[0]
        except RequestError:
            return None

    def _entry(self, name: str, asked: Asked, default: bool) -> dict[str, Any]:
        entry: dict[str, Any] = {"id": name, "efforts": self._heard(name, asked)}
        if default:
            entry["default"] = True
        if asked is self._services.local:
            entry["embedded"] = True
        return entry

    def _heard(self, name: str, asked: Asked) -> list[str]:
        """The efforts that it would honour as given."""
        if name not in self._efforts:
            calls = {word: ModelCall(name, [], {"thinking": level}) for word, level in THINKING.items()}
            self._efforts[name] = [word for word, call in calls.items() if not asked.warnings(call)]
        return self._efforts[name]


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
