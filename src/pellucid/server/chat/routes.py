"""The operations of the chat, and `GET /api/models`: the models that a page can offer.

Which efforts of thinking a model takes is in no list: the model is asked what it would not honour, as for any request.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import UNSET, Meta
from starlette.routing import BaseRoute

from ...errors import RequestError
from ...models import Asked
from ...protocols import ai_sdk, chat
from ...protocols.chat import THINKING, Effort
from ...protocols.chat import types as t
from ...protocols.chat.frames import Frame
from ...settings import ModelCall
from ...view import VIEWS, lesser
from ..access.policy import visible
from ..exchange import Door, Endpoint, Exchange
from ..routing import STRING, VIEW, Operation, Schema, Table, event_stream, parameter
from ..services import Services
from . import response_types
from .answers import Answers
from .asking import Ask
from .conversations import Conversations


class Models:
    """`GET /api/models`: each with the efforts that it takes, and the most that its reader may see of it."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._efforts: dict[str, list[Effort]] = {}

    async def __call__(self, exchange: Exchange) -> None:
        principal = exchange.principal
        reader = exchange.reads()
        default = self._default()
        models = []
        for name, asked in self._each(default):
            if visible(principal, [name]):
                models.append(
                    response_types.Model(
                        id=name,
                        efforts=self._heard(name, asked),
                        default=True if name == default else UNSET,
                        embedded=True if asked is self._services.local else UNSET,
                        view=lesser(reader.view, self._services.catalog.most(name)),
                    )
                )
                await asyncio.sleep(0)
        await exchange.answer(response_types.Models(models, list(VIEWS[VIEWS.index(reader.view) :])))

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

    def _heard(self, name: str, asked: Asked) -> list[Effort]:
        """The efforts that it would honour as given."""
        if name not in self._efforts:
            calls = {word: ModelCall(name, [], {"thinking": level}) for word, level in THINKING.items()}
            self._efforts[name] = [word for word, call in calls.items() if not asked.warnings(call)]
        return self._efforts[name]


SPOKEN = ["POST /api/chat"]


_ONE = parameter("id", "path", "The conversation's id.")
_LAST = Annotated[int, Meta(ge=0, le=2**53)]
_RESUME = (
    parameter("after", "query", "The last frame that need not be told again.", _LAST),
    parameter("Last-Event-ID", "header", "The same, as browsers send it.", _LAST),
    VIEW,
)
_PAGES = (
    parameter("q", "query", "Only those with this in their title, questions or answers."),
    parameter("limit", "query", "How many at most.", Annotated[int, Meta(ge=1, le=100)], 20),
    parameter("after", "query", "The conversation after which to go on."),
)
_HEAD = parameter(
    "head", "query", "The event that ends the branch to be shown.", Annotated[str, Meta(pattern="^evt_.")]
)
_FRAMES = event_stream("ChatFrame")
_EVENT, _CHATS, _CHAT = "/api/chat/{event_id}", "/api/conversations", "/api/conversations/{id}"
_ERRORS = (400, 401, 403, 404, 408, 413, 429, 500, 503)


def _amend(components: dict[str, Schema]) -> None:
    text = {"message": STRING, "code": STRING}
    error = {"type": "object", "properties": {**text, "param": STRING}, "required": list(text)}
    components["ChatErrorBody"] = {"type": "object", "properties": {"error": error}, "required": ["error"]}


TABLE = Table(
    [
        Operation(
            *("POST", "/api/chat", Ask.__call__, "ask", "Ask a question; its answer is the stream", _FRAMES, (), t.Ask),
            refuses=(*_ERRORS, 409, 502, 504),
        ),
        Operation("GET", _EVENT, Answers.read, "readAnswer", "An answer again, live or over", _FRAMES, _RESUME),
        Operation(
            *("POST", f"{_EVENT}/cancel", Answers.cancel),
            *("cancelAnswer", "Stop an answer that is under way", response_types.Status),
        ),
        Operation(
            *("GET", f"{_EVENT}/stream", Answers.no_stream, "resumeAISDK"),
            "Where the AI SDK looks for an answer that goes on without it: there is none",
            status=204,
            description="Nothing",
            refuses=(401, 403, 500, 503),
        ),
        Operation(
            *("GET", _CHATS, Conversations.list, "listChats", "The conversations, newest first"),
            *(response_types.Conversations, _PAGES),
        ),
        Operation("GET", _CHAT, Conversations.get, "openChat", "A conversation", response_types.Opened, (_HEAD, VIEW)),
        Operation(
            *("PATCH", _CHAT, Conversations.change, "changeChat", "Name it, or show another branch"),
            *(response_types.Conversation, (), t.Change),
        ),
        Operation(
            "DELETE",
            _CHAT,
            Conversations.delete,
            "deleteChat",
            "Take it away, with all its answers",
            response_types.Deleted,
        ),
        Operation(
            *("GET", "/api/models", Models.__call__, "chatModels", "What can be asked, and how"),
            *(response_types.Models, (VIEW,)),
        ),
    ],
    error="ChatErrorBody",
    refuses=_ERRORS,
    names={"id": _ONE, "event_id": parameter("event_id", "path", "The answer's event.")},
    prefix="Chat",
    components={"Frame": Frame, "Question": t.Question},
    amend=_amend,
)


def routes(services: Services) -> list[BaseRoute]:
    """The chat's, the conversations' and the models'."""

    def door(_: Operation, endpoint: Endpoint) -> Door:
        return Door(endpoint, chat, lambda: services.guard, forms={ai_sdk.PROTOCOL: ai_sdk})

    endpoints = [Ask(services), Answers(services), Conversations(services), Models(services)]
    return TABLE.routes(endpoints, door)
