"""The OpenAPI description of the chat's paths, made from the types. Every component's name begins with `Chat`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import msgspec

from ...parts import VIEWS
from ..openapi import STRING, VIEW, Schema, parameter
from . import frames as f
from . import types as t

_ERRORS = (400, 401, 403, 404, 408, 413, 429, 500, 503)
_TIME: Schema = {"type": "integer", "description": "In milliseconds since 1970."}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/Chat{name}"}


def _object(properties: dict[str, Schema], optional: Sequence[str] = ()) -> Schema:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def schemas() -> dict[str, Schema]:
    """The components: what is asked, every frame, what is read."""
    roots = [t.Ask, t.Question, t.Answer, t.Change, *get_args(f.Frame)]
    _, components = msgspec.json.schema_components(roots, ref_template="#/components/schemas/Chat{name}")
    conversation = {"id": STRING, "title": STRING, "created_at": _TIME, "updated_at": _TIME}
    error = _object({"message": STRING, "code": STRING, "param": STRING}, ["param"])
    model = {
        "id": STRING,
        "efforts": _list({"enum": list(get_args(t.Effort))}),
        "view": {"enum": list(VIEWS), "description": "The most that may be seen of its reasoning."},
        "default": {"const": True},
        "embedded": {"const": True},
    }
    return {
        **{f"Chat{name}": schema for name, schema in components.items()},
        "ChatFrame": {"oneOf": [_ref(frame.__name__) for frame in get_args(f.Frame)]},
        "ChatErrorBody": _object({"error": error}),
        "ChatStatus": _object({"id": STRING, "status": {"enum": list(get_args(t.Status))}}),
        "ChatConversation": _object(conversation),
        "ChatConversations": _object(
            {
                "data": _list(_object({**conversation, "snippet": STRING}, ["snippet"])),
                "has_more": {"type": "boolean"},
                "last_id": {"type": ["string", "null"]},
            }
        ),
        "ChatOpened": _object(
            {
                "conversation": _ref("Conversation"),
                "events": _list({"oneOf": [_ref("Question"), _ref("Answer")]}),
                "active": {"type": ["string", "null"], "description": "The answer that is under way."},
            }
        ),
        "ChatDeleted": _object({"id": STRING, "deleted": {"const": True}}),
        "ChatModels": _object(
            {"data": _list(_object(model, ["default", "embedded"])), "views": _list({"enum": list(VIEWS)})}
        ),
    }


_EVENT = parameter("event_id", "path", "The answer's event.")
_CONVERSATION = parameter("id", "path", "The conversation's id.")
_AFTER: Schema = {"type": "integer", "minimum": 0, "maximum": 2**53}
_RESUME = (
    parameter("after", "query", "The last frame that need not be told again.", _AFTER),
    parameter("Last-Event-ID", "header", "The same, as browsers send it.", _AFTER),
    VIEW,
)
_PAGES = (
    parameter("q", "query", "Only those with this in their title, questions or answers."),
    parameter("limit", "query", "How many at most.", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
    parameter("after", "query", "The conversation after which to go on."),
)
_HEAD = parameter(
    "head", "query", "The event that ends the branch to be shown.", {"type": "string", "pattern": "^evt_."}
)


def paths() -> dict[str, Schema]:
    """Every path of the protocol."""
    return {
        "/api/chat": {
            "post": _operation(
                "ask",
                "Ask a question; its answer is the stream",
                _stream(),
                takes="Ask",
                refuses=(*_ERRORS, 409, 502, 504),
            )
        },
        "/api/chat/{event_id}": {
            "parameters": [_EVENT],
            "get": _operation("readAnswer", "An answer again, live or over", _stream(), parameters=_RESUME),
        },
        "/api/chat/{event_id}/cancel": {
            "parameters": [_EVENT],
            "post": _operation("cancelAnswer", "Stop an answer that is under way", _json("Status")),
        },
        "/api/chat/{event_id}/stream": {
            "parameters": [_EVENT],
            "get": {
                "operationId": "resumeAISDK",
                "summary": "Where the AI SDK looks for an answer that goes on without it: there is none",
                "responses": {"204": {"description": "Nothing"}, **_errors(401, 403, 500, 503)},
            },
        },
        "/api/conversations": {
            "get": _operation("listChats", "The conversations, newest first", _json("Conversations"), parameters=_PAGES)
        },
        "/api/conversations/{id}": {
            "parameters": [_CONVERSATION],
            "get": _operation("openChat", "A conversation", _json("Opened"), parameters=(_HEAD, VIEW)),
            "patch": _operation("changeChat", "Name it, or show another branch", _json("Conversation"), takes="Change"),
            "delete": _operation("deleteChat", "Take it away, with all its answers", _json("Deleted")),
        },
        "/api/models": {
            "get": _operation("chatModels", "What can be asked, and how", _json("Models"), parameters=(VIEW,))
        },
    }


def _json(name: str) -> Schema:
    return {"application/json": {"schema": _ref(name)}}


def _stream() -> Schema:
    return {"text/event-stream": {"schema": STRING, "x-event": _ref("Frame")}}


def _errors(*statuses: int) -> Schema:
    return {str(status): {"description": "An error", "content": _json("ErrorBody")} for status in statuses}


def _operation(
    id: str,
    summary: str,
    answers: Schema,
    *,
    takes: str | None = None,
    parameters: Sequence[Schema] = (),
    refuses: Sequence[int] = _ERRORS,
) -> Schema:
    made: Schema = {"operationId": id, "summary": summary}
    if parameters:
        made["parameters"] = list(parameters)
    if takes is not None:
        made["requestBody"] = {"required": True, "content": _json(takes)}
    made["responses"] = {
        "200": {"description": "What was asked for", "content": answers},
        **_errors(*refuses),
    }
    return made
