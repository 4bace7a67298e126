"""Response types of the chat routes, except the canonical events (`protocols.chat`).

Times are in milliseconds since 1970.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ...protocols.chat import Answer, Effort, Question
from ...protocols.chat import types as t
from ...view import View

Time = Annotated[int, Meta(description="In milliseconds since 1970.")]


class Status(msgspec.Struct):
    id: str
    status: Annotated[str, Meta(extra_json_schema={"enum": list(get_args(t.Status))})]


class Conversation(msgspec.Struct, kw_only=True):
    id: str
    title: str
    created_at: Time
    updated_at: Time


class ConversationFound(Conversation, kw_only=True):
    snippet: str | UnsetType = UNSET


class Conversations(msgspec.Struct):
    data: list[ConversationFound]
    has_more: bool
    last_id: str | None


_EVENTS = [{"$ref": f"#/components/schemas/Chat{one.__name__}"} for one in (Question, Answer)]


class Opened(msgspec.Struct):
    conversation: Conversation
    events: list[Annotated[Any, Meta(extra_json_schema={"oneOf": _EVENTS})]]
    active: Annotated[str | None, Meta(description="The answer that is in progress.")]


class Deleted(msgspec.Struct):
    id: str
    deleted: Literal[True] = True


class Model(msgspec.Struct, kw_only=True):
    id: str
    efforts: list[Effort]
    default: Literal[True] | UnsetType = UNSET
    embedded: Literal[True] | UnsetType = UNSET
    view: Annotated[View, Meta(description="The fullest view of its reasoning that is allowed.")]


class Models(msgspec.Struct):
    data: list[Model]
    views: list[View]
