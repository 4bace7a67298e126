"""Routes of the chat."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ...protocols import chat
from ...protocols.chat import types as t
from ...protocols.chat.frames import Frame
from ..feed import FeedFrame
from ..routing import BINARY, STRING, VIEW, Operation, Schema, Table, event_stream, parameter
from . import response_types
from .answers import AnswerHandlers
from .ask import AskHandler
from .attachments import AttachmentHandler
from .conversations import ConversationHandlers
from .export import ExportHandler
from .models import ModelsHandler
from .sharing import ShareHandlers

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
_EVENT, _CHAT = f"{t.ASK_PATH}/{{event_id}}", f"{t.CONVERSATIONS_PATH}/{{id}}"
_ERRORS = (400, 401, 403, 404, 408, 413, 429, 500, 503)


def _amend(components: dict[str, Schema]) -> None:
    text = {"message": STRING, "code": STRING}
    error = {"type": "object", "properties": {**text, "param": STRING}, "required": list(text)}
    components["ChatErrorBody"] = {"type": "object", "properties": {"error": error}, "required": ["error"]}


TABLE = Table(
    [
        Operation(
            "POST",
            t.ASK_PATH,
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
            f"{t.ATTACHMENTS_PATH}/{{attachment_id}}",
            AttachmentHandler.read,
            "readAttachment",
            "The content of an attachment of a question",
            response_body={"*/*": {"schema": BINARY}},
        ),
        Operation(
            "GET",
            t.CONVERSATIONS_PATH,
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
            f"{t.SHARED_PATH}/{{token}}",
            ShareHandlers.read,
            "readShared",
            "What a link shows",
            response_body=response_types.Shared,
            security=(),
        ),
        Operation(
            "GET",
            f"{t.SHARED_PATH}/{{token}}/attachments/{{attachment_id}}",
            ShareHandlers.attachment,
            "readSharedAttachment",
            "The content of an attachment of a question that a link shows",
            response_body={"*/*": {"schema": BINARY}},
            security=(),
        ),
        Operation(
            "GET",
            t.FEED_PATH,
            ConversationHandlers.follow,
            "followChats",
            "Stream the changes of all conversations, as ids, and say when the models change",
            response_body=event_stream("ChatFeedFrame"),
            parameters=(parameter("Last-Event-ID", "header", "The id of the last event that the client has."),),
        ),
        Operation(
            "GET",
            t.MODELS_PATH,
            ModelsHandler.__call__,
            "chatModels",
            "The models, and the settings that each supports",
            response_body=response_types.Models,
            parameters=(VIEW,),
        ),
        Operation(
            "GET",
            t.TOOLS_PATH,
            ModelsHandler.tools,
            "chatTools",
            "The server's tools that a question can name",
            response_body=response_types.ServerTools,
        ),
    ],
    protocol=chat.PROTOCOL,
    handlers=[
        AskHandler,
        AnswerHandlers,
        AttachmentHandler,
        ConversationHandlers,
        ExportHandler,
        ShareHandlers,
        ModelsHandler,
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
    advertised_routes=[f"POST {t.ASK_PATH}"],
)
