"""Response types of the chat routes, except the canonical events (`protocols.chat`).

Times are in milliseconds since 1970.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ...protocols.chat import Answer, Effort, Medium, Question
from ...protocols.chat import types as t
from ...storage import StoredChat
from ...view import View

Time = Annotated[int, Meta(description="In milliseconds since 1970.")]


class Status(msgspec.Struct):
    id: str
    status: Annotated[str, Meta(extra_json_schema={"enum": list(get_args(t.Status))})]


class FeedbackSet(msgspec.Struct):
    id: str
    rating: t.Rating | None
    comment: str = ""


class ListedConversation(msgspec.Struct, kw_only=True):
    id: str
    title: str
    created_at: Time
    updated_at: Time


class Conversation(ListedConversation, kw_only=True):
    instructions: str | UnsetType = UNSET


class ConversationFound(ListedConversation, kw_only=True):
    snippet: str | UnsetType = UNSET
    active: Annotated[str | UnsetType, Meta(description="The answer that is in progress.")] = UNSET


class Conversations(msgspec.Struct):
    data: list[ConversationFound]
    has_more: bool
    last_id: str | None


_EVENTS = [{"$ref": f"#/components/schemas/Chat{one.__name__}"} for one in (Question, Answer)]


class Opened(msgspec.Struct):
    conversation: Conversation
    events: list[Annotated[Any, Meta(extra_json_schema={"oneOf": _EVENTS})]]
    active: Annotated[str | None, Meta(description="The answer that is in progress.")]


def listed_fields(chat: StoredChat) -> dict[str, Any]:
    """Return what lists have of a chat (see `ListedConversation`)."""
    return {
        "id": chat.id,
        "title": chat.title,
        "created_at": round(chat.created_at * 1000),
        "updated_at": round(chat.updated_at * 1000),
    }


def conversation_of(chat: StoredChat) -> Conversation:
    return Conversation(**listed_fields(chat), instructions=chat.instructions or UNSET)


class Share(msgspec.Struct, kw_only=True):
    id: str
    url: Annotated[str | UnsetType, Meta(description="The path of the link. It is known only when it is made.")] = UNSET
    head: Annotated[str, Meta(description="The last answer that it shows.")]
    view: View
    created_at: Time
    expires_at: Time | UnsetType = UNSET


class Shares(msgspec.Struct):
    data: list[Share]
    allowed: Annotated[bool, Meta(description="Whether a link can be made.")]


class Shared(msgspec.Struct, kw_only=True):
    title: str
    view: View
    created_at: Annotated[int, Meta(description="When the link was made, in milliseconds since 1970.")]
    events: list[Annotated[Any, Meta(extra_json_schema={"oneOf": _EVENTS})]]


class ExportedTurn(msgspec.Struct):
    follows: Annotated[str | None, Meta(description="The answer before it; null: it begins the conversation.")]
    question: Question
    answer: Answer


class Exported(msgspec.Struct):
    conversation: Conversation
    head: Annotated[str | None, Meta(description="The last answer of the branch that is shown.")]
    turns: Annotated[list[ExportedTurn], Meta(description="The turns of all branches, oldest first.")]


class Deleted(msgspec.Struct):
    id: str
    deleted: Literal[True] = True


class LargerModel(msgspec.Struct):
    """A model that could run in the gateway instead of a smaller one."""

    title: str
    bytes: int


class Model(msgspec.Struct, kw_only=True):
    id: str
    efforts: list[Effort]
    efforts_unknown: (
        Annotated[Literal[True], Meta(description="It is not known which of these efforts the model has.")] | UnsetType
    ) = UNSET
    default: Literal[True] | UnsetType = UNSET
    embedded: Literal[True] | UnsetType = UNSET
    loading: (
        Annotated[Literal[True], Meta(description="The embedded model is still loading. A question waits for it.")]
        | UnsetType
    ) = UNSET
    view: Annotated[View, Meta(description="The fullest view of its reasoning that is allowed.")]
    accepts: (
        Annotated[list[Medium], Meta(description="What it takes in addition to text, where that is known.")] | UnsetType
    ) = UNSET
    agent: Annotated[Literal[True], Meta(description="It is an agent, which has tools of its own.")] | UnsetType = UNSET
    title: Annotated[str | UnsetType, Meta(description="The full name of the embedded model.")] = UNSET
    bytes: Annotated[int | UnsetType, Meta(description="The size of the embedded model.")] = UNSET
    larger: Annotated[
        LargerModel | UnsetType, Meta(description="A larger model that could be the embedded one (`/api/providers`).")
    ] = UNSET
    provider: Annotated[str | UnsetType, Meta(description="The provider of another model, by its title.")] = UNSET
    context_tokens: Annotated[int | UnsetType, Meta(description="The size of its context, if it is known.")] = UNSET


class AttachmentLimits(msgspec.Struct):
    """The limits of a question's attachments."""

    max_files: int
    max_file_bytes: int
    max_total_bytes: int
    media_types: list[str]


class Models(msgspec.Struct):
    data: list[Model]
    views: list[View]
    attachments: AttachmentLimits
    max_instructions_chars: int
    currency: Annotated[str, Meta(description="Of the costs of answers.")]
    connect: Annotated[
        Literal[True] | UnsetType, Meta(description="Whether the person may connect models (`/api/connections`).")
    ] = UNSET
    default_configured: Annotated[
        Literal[True] | UnsetType,
        Meta(description="The configuration names the default model, so whoever may connect models cannot choose it."),
    ] = UNSET


class ServerTool(msgspec.Struct, kw_only=True):
    """A tool of the server that the key may use."""

    name: str
    description: str | UnsetType = UNSET
    server: Annotated[str, Meta(description="The MCP server that has it.")] | UnsetType = UNSET


class ServerTools(msgspec.Struct):
    data: list[ServerTool]
