"""Routes of the chat, and `GET /api/models`: the models that a page can offer.

No list says which levels of effort a model supports: each model is checked for settings that it does not support, as
for any request.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal, get_args

from msgspec import UNSET, Meta, UnsetType
from starlette.routing import BaseRoute

from ...errors import RequestError
from ...local import model_index
from ...models import ChatModel
from ...protocols import chat
from ...protocols.chat import (
    ATTACHMENTS_PATH,
    MAX_INSTRUCTIONS_CHARS,
    MEDIA_TYPES,
    THINKING_LEVELS,
    Effort,
    Medium,
)
from ...protocols.chat import types as t
from ...protocols.chat.frames import Frame
from ...protocols.client_protocols import CLIENT_PROTOCOLS
from ...settings import ModelCall
from ...tools.mcp import MCPTool
from ...view import VIEWS, stricter
from ..access.policy import visible_models
from ..agent_model import AgentModel
from ..catalog import Catalog
from ..exchange import Exchange, endpoint_maker
from ..feed import FeedFrame
from ..routing import BINARY, STRING, VIEW, Operation, Schema, Table, event_stream, parameter
from ..services import Services
from . import response_types
from .answers import AnswerHandlers
from .ask import AskHandler
from .attachments import AttachmentHandler, limits_for
from .conversations import ConversationHandlers
from .sharing import ExportHandler, ShareHandlers


class ModelsHandler:
    """Handler of `GET /api/models`: the models, with their efforts and the fullest view of their reasoning."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._efforts: dict[str, tuple[ChatModel, list[Effort]]] = {}

    async def __call__(self, exchange: Exchange) -> None:
        await self._services.refresh_connections()
        principal, catalog = exchange.principal, self._services.catalog
        viewer = exchange.viewer_for()
        default_name = self._find_default_name(catalog)
        models = []
        for name, model in self._unique_models(catalog, default_name):
            if visible_models(principal, [name]):
                models.append(
                    response_types.Model(
                        id=name,
                        efforts=self._supported_efforts(name, model),
                        efforts_unknown=UNSET if catalog.knows_efforts(model) else True,
                        default=True if name == default_name else UNSET,
                        view=stricter(viewer.view, catalog.max_view(name)),
                        provider=catalog.provider_title(model) or UNSET,
                        context_tokens=catalog.context_tokens(name) or UNSET,
                        **self._embedded_fields(model),
                        accepts=self._accepted_media(model, catalog),
                        agent=True if isinstance(model, AgentModel) else UNSET,
                    )
                )
                await asyncio.sleep(0)
        limits = response_types.AttachmentLimits(*limits_for(self._services, exchange), list(MEDIA_TYPES))
        views = list(VIEWS[VIEWS.index(viewer.view) :])
        connect: Literal[True] | UnsetType = True if self._services.guard.may_connect(principal) else UNSET
        currency = self._services.config.spend.currency
        await exchange.send_json(
            response_types.Models(models, views, limits, MAX_INSTRUCTIONS_CHARS, currency, connect)
        )

    async def tools(self, exchange: Exchange) -> None:
        """`GET /api/tools`: the server's tools that the caller may use."""
        tools = [
            response_types.ServerTool(
                name=tool.name,
                description=tool.definition.description or UNSET,
                server=tool.server.name if isinstance(tool, MCPTool) else UNSET,
            )
            for tool in await self._services.tools_for(exchange.principal)
        ]
        await exchange.send_json(response_types.ServerTools(tools))

    def _accepted_media(self, model: ChatModel, catalog: Catalog) -> list[Medium] | UnsetType:
        accepted = catalog.accepted_media(model)
        return UNSET if accepted is None else [medium for medium in get_args(Medium) if medium in accepted]

    def _embedded_fields(self, model: ChatModel) -> dict[str, Any]:
        """Return what is said about the embedded model alone: its full name, and its size."""
        if model is not self._services.local:
            return {}
        row = next((one for one in model_index.all_models() if one.name == model.name), None)
        return {"embedded": True} if row is None else {"embedded": True, "title": row.title, "bytes": row.bytes}

    def _unique_models(self, catalog: Catalog, default_name: str | None) -> list[tuple[str, ChatModel]]:
        """Return each model once, under its preferred name."""
        by_identity = dict[int, tuple[str, ChatModel]]()
        names = catalog.names()
        first = [default_name] if default_name is not None else []
        for name in dict.fromkeys([*first, *names]):
            model = catalog.find(name)[1]
            by_identity.setdefault(id(model), (name, model))
        order = {name: index for index, name in enumerate(names)}
        return sorted(by_identity.values(), key=lambda one: order.get(one[0], -1))

    def _find_default_name(self, catalog: Catalog) -> str | None:
        try:
            return catalog.find(None)[0]
        except RequestError:
            return None

    def _supported_efforts(self, name: str, model: ChatModel) -> list[Effort]:
        """Return the efforts that are sent to the model as they are."""
        known = self._efforts.get(name)
        if known is None or known[0] is not model:
            calls = {effort: ModelCall(name, [], {"thinking": level}) for effort, level in THINKING_LEVELS.items()}
            known = self._efforts[name] = model, [effort for effort, call in calls.items() if not model.warnings(call)]
        return known[1]


_WINDOW = parameter(
    "Pellucid-Window",
    "header",
    "A name of the window, of letters, digits, `_` and `-`. Its changes have it in the feed (`window`), so that it "
    "knows them again.",
)
_ONE = parameter("id", "path", "The conversation's id.")
_LAST = Annotated[int, Meta(ge=0, le=2**53)]
_RESUME = (
    parameter("after", "query", "The number of the last frame that the client has.", _LAST),
    parameter("Last-Event-ID", "header", "The same, as browsers send it.", _LAST),
    VIEW,
)
_PAGES = (
    parameter("q", "query", "Only those with this in their title, questions or answers."),
    parameter("limit", "query", "How many at most.", Annotated[int, Meta(ge=1, le=100)], 20),
    parameter("after", "query", "The conversation after which the page begins."),
)
_HEAD = parameter(
    "head", "query", "The event that ends the branch to be shown.", Annotated[str, Meta(pattern="^evt_.")]
)
_FRAMES = event_stream("ChatFrame")
_ASK, _CHATS, _MODELS, _TOOLS, _, _FEED, _SHARED = CLIENT_PROTOCOLS[chat.PROTOCOL].paths
_EVENT, _CHAT = f"{_ASK}/{{event_id}}", f"{_CHATS}/{{id}}"
_ERRORS = (400, 401, 403, 404, 408, 413, 429, 500, 503)


def _amend(components: dict[str, Schema]) -> None:
    text = {"message": STRING, "code": STRING}
    error = {"type": "object", "properties": {**text, "param": STRING}, "required": list(text)}
    components["ChatErrorBody"] = {"type": "object", "properties": {"error": error}, "required": ["error"]}


TABLE = Table(
    [
        Operation(
            "POST",
            _ASK,
            AskHandler.__call__,
            "ask",
            "Ask a question; the response is the stream of its answer",
            response_body=_FRAMES,
            request_body=t.Ask,
            parameters=(_WINDOW,),
            error_statuses=(*_ERRORS, 409, 502, 504),
        ),
        Operation(
            "GET",
            _EVENT,
            AnswerHandlers.read,
            "readAnswer",
            "Stream an answer, live or finished",
            response_body=_FRAMES,
            parameters=_RESUME,
        ),
        Operation(
            "POST",
            f"{_EVENT}/cancel",
            AnswerHandlers.cancel,
            "cancelAnswer",
            "Stop an answer that is in progress",
            response_body=response_types.Status,
        ),
        Operation(
            "PUT",
            f"{_EVENT}/feedback",
            AnswerHandlers.set_feedback,
            "setFeedback",
            "Say what you think of an answer",
            response_body=response_types.FeedbackSet,
            request_body=t.SetFeedback,
            error_statuses=(*_ERRORS, 409),
            parameters=(_WINDOW,),
        ),
        Operation(
            "GET",
            f"{_EVENT}/stream",
            AnswerHandlers.no_stream,
            "resumeAISDK",
            "Where the AI SDK looks for a running answer to resume: there is none",
            status=204,
            description="Nothing",
            error_statuses=(401, 403, 500, 503),
        ),
        Operation(
            "GET",
            f"{ATTACHMENTS_PATH}/{{attachment_id}}",
            AttachmentHandler.read,
            "readAttachment",
            "The content of an attachment of a question",
            response_body={"*/*": {"schema": BINARY}},
        ),
        Operation(
            "GET",
            _CHATS,
            ConversationHandlers.list,
            "listChats",
            "The conversations, newest first",
            response_body=response_types.Conversations,
            parameters=_PAGES,
        ),
        Operation(
            "GET",
            _CHAT,
            ConversationHandlers.get,
            "openChat",
            "A conversation",
            response_body=response_types.Opened,
            parameters=(_HEAD, VIEW),
        ),
        Operation(
            "PATCH",
            _CHAT,
            ConversationHandlers.change,
            "changeChat",
            "Set its title or its instructions, or select another branch",
            response_body=response_types.Conversation,
            request_body=t.Change,
            parameters=(_WINDOW,),
        ),
        Operation(
            "DELETE",
            _CHAT,
            ConversationHandlers.delete,
            "deleteChat",
            "Delete it, with all its answers",
            response_body=response_types.Deleted,
            parameters=(_WINDOW,),
        ),
        Operation(
            "GET",
            f"{_CHAT}/export",
            ExportHandler.__call__,
            "exportChat",
            "A conversation as a file",
            response_body={
                "text/markdown": {"schema": STRING},
                "application/json": response_types.Exported,
            },
            description="The shown branch as Markdown, or all branches as JSON",
            parameters=(parameter("format", "query", "`markdown` or `json`.", str, "markdown"), VIEW),
        ),
        Operation(
            "POST",
            f"{_CHAT}/shares",
            ShareHandlers.create,
            "shareChat",
            "Make a link that shows the conversation up to now, read-only, to anyone who has it",
            response_body=response_types.Share,
            request_body=t.NewShare,
            is_body_optional=True,
        ),
        Operation(
            "GET",
            f"{_CHAT}/shares",
            ShareHandlers.list,
            "listShares",
            "The links to a conversation",
            response_body=response_types.Shares,
        ),
        Operation(
            "DELETE",
            f"{_CHAT}/shares/{{share_id}}",
            ShareHandlers.delete,
            "deleteShare",
            "Delete a link to a conversation",
            response_body=response_types.Deleted,
        ),
        Operation(
            "GET",
            f"{_SHARED}/{{token}}",
            ShareHandlers.read,
            "readShared",
            "What a link shows",
            response_body=response_types.Shared,
            security=(),
        ),
        Operation(
            "GET",
            f"{_SHARED}/{{token}}/attachments/{{attachment_id}}",
            ShareHandlers.attachment,
            "readSharedAttachment",
            "The content of an attachment of a question that a link shows",
            response_body={"*/*": {"schema": BINARY}},
            security=(),
        ),
        Operation(
            "GET",
            _FEED,
            ConversationHandlers.follow,
            "followChats",
            "Stream the changes of all conversations, as ids, and say when the models change",
            response_body=event_stream("ChatFeedFrame"),
            parameters=(parameter("Last-Event-ID", "header", "The id of the last event that the client has."),),
        ),
        Operation(
            "GET",
            _MODELS,
            ModelsHandler.__call__,
            "chatModels",
            "The models, and the settings that each supports",
            response_body=response_types.Models,
            parameters=(VIEW,),
        ),
        Operation(
            "GET",
            _TOOLS,
            ModelsHandler.tools,
            "chatTools",
            "The server's tools that a question can name",
            response_body=response_types.ServerTools,
        ),
    ],
    error_body="ChatErrorBody",
    error_statuses=_ERRORS,
    path_parameters={
        "id": _ONE,
        "event_id": parameter("event_id", "path", "The answer's event."),
        "attachment_id": parameter("attachment_id", "path", "The attachment's id."),
        "share_id": parameter("share_id", "path", "The link's id."),
        "token": parameter("token", "path", "The last part of the link."),
    },
    component_prefix="Chat",
    components={"Frame": Frame, "FeedFrame": FeedFrame, "Question": t.Question},
    amend_components=_amend,
    advertised_routes=[f"POST {_ASK}"],
)


def routes(services: Services) -> list[BaseRoute]:
    """Return the routes of answers, conversations and models."""
    endpoints = [
        AskHandler(services),
        AnswerHandlers(services),
        AttachmentHandler(services),
        ConversationHandlers(services),
        ExportHandler(services),
        ShareHandlers(services),
        ModelsHandler(services),
    ]
    return TABLE.routes(endpoints, endpoint_maker(chat.PROTOCOL, lambda: services.guard))
