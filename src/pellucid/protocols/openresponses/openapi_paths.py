"""What OpenResponses has at which path, for the OpenAPI document: responses, and conversations.

An operation is a row: what it is called, what it is for, what it takes, what it answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..openapi import VIEW, Schema, parameter
from .openapi import ALIASES, EVENTS, event_name

ERRORS = (400, 401, 403, 404, 408, 413, 429, 500, 502, 503, 504)
"""The statuses of what is refused, wherever somebody asks for something."""


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def errors(*statuses: int) -> Schema:
    failure = {"description": "An error", "content": {"application/json": {"schema": _ref("ErrorBody")}}}
    return {str(status): failure for status in statuses or ERRORS}


_EVENTS = parameter(
    "OpenResponses-Reasoning-Events",
    "header",
    "Whose names raw reasoning events have.",
    {"type": "string", "enum": ["openresponses", "openai"]},
)
_RESPONSE_ID = parameter("id", "path", "The response's id.")
_CONVERSATION_ID = parameter("id", "path", "The conversation's id.")
_ITEM_ID = parameter("item_id", "path", "The item's id.")
_PAGES = (
    parameter("limit", "query", "How many at most.", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
    parameter("order", "query", "By time.", {"type": "string", "enum": ["asc", "desc"], "default": "desc"}),
    parameter("after", "query", "The item after which to go on."),
)
_INCLUDE = parameter(
    "include[]",
    "query",
    "What else is wanted. `include` is the same.",
    {"type": "array", "items": {"type": "string", "enum": ["reasoning.encrypted_content"]}},
)
_RESUME = (
    parameter("stream", "query", "As the stream of its events.", {"type": "boolean"}),
    parameter(
        "starting_after",
        "query",
        "With `stream`: the `sequence_number` after which to go on.",
        {"type": "integer", "minimum": 0, "maximum": 2**53},
    ),
    _INCLUDE,
)


def _stream() -> Schema:
    events = {name: f"#/components/schemas/{event_name(name)}" for name in (*EVENTS, *ALIASES)}
    return {
        "schema": {
            "oneOf": [{"$ref": ref} for ref in events.values()],
            "discriminator": {"propertyName": "type", "mapping": events},
        }
    }


def operation(
    id: str,
    summary: str,
    answers: str | Schema,
    *,
    takes: str | None = None,
    optional: bool = False,
    parameters: Sequence[Schema] = (),
    description: str = "OK",
    stream: Schema | None = None,
    refuses: Sequence[int] = ERRORS,
) -> Schema:
    """One row of the table."""
    schema = _ref(answers) if isinstance(answers, str) else answers
    content: Schema = {"application/json": {"schema": schema}}
    if stream is not None:
        content["text/event-stream"] = stream
    made: Schema = {"operationId": id, "summary": summary}
    if parameters:
        made["parameters"] = list(parameters)
    if takes is not None:
        made["requestBody"] = {"required": not optional, "content": {"application/json": {"schema": _ref(takes)}}}
    made["responses"] = {"200": {"description": description, "content": content}, **errors(*refuses)}
    return made


_CREATED = "The response, whole or as a stream of events that ends with `[DONE]`"


def paths() -> dict[str, Any]:
    """Every path of the protocol."""
    return {
        "/v1/responses": {
            "post": operation(
                *("createResponse", "Ask a model; hear it think, then answer", "Response"),
                takes="CreateResponse",
                parameters=[_EVENTS, VIEW],
                description=_CREATED,
                stream=_stream(),
            ),
            # A WebSocket is no operation of OpenAPI's; the specification of OpenResponses tells of its own like this.
            "x-openresponses-websocket": {
                "description": "GET as a WebSocket: each message asks for a response, whose events are messages",
                "clientMessage": {
                    "allOf": [
                        {"type": "object", "properties": {"type": {"const": "response.create"}}, "required": ["type"]},
                        _ref("CreateResponse"),
                    ]
                },
                "errorMessage": {
                    "type": "object",
                    "properties": {
                        "type": {"const": "error"},
                        "status": {"type": "integer"},
                        "error": _ref("ErrorPayload"),
                    },
                    "required": ["type", "status", "error"],
                },
            },
        },
        "/v1/responses/compact": {
            "post": operation(
                *("compactResponse", "Compact a conversation into one item that stands for it", "CompactedResponse"),
                takes="CompactRequest",
            )
        },
        "/v1/responses/{id}": {
            "parameters": [_RESPONSE_ID],
            "get": operation(
                *("getResponse", "A response that was kept, or that is under way", "Response"),
                parameters=[*_RESUME, _EVENTS, VIEW],
                description=_CREATED,
                stream=_stream(),
            ),
            "delete": operation(
                "deleteResponse", "Delete a response; one that runs is stopped first", "DeletedResponse"
            ),
        },
        "/v1/responses/{id}/cancel": {
            "parameters": [_RESPONSE_ID],
            "post": operation(
                "cancelResponse", "Stop a response that runs in the background", "Response", parameters=[VIEW]
            ),
        },
        "/v1/responses/{id}/input_items": {
            "parameters": [_RESPONSE_ID],
            "get": operation(
                "listInputItems", "What the response was asked with", "ItemList", parameters=[*_PAGES, VIEW]
            ),
        },
        "/v1/conversations": {
            "post": operation(
                *("createConversation", "Begin a conversation", "Conversation"),
                takes="CreateConversation",
                optional=True,
            )
        },
        "/v1/conversations/{id}": {
            "parameters": [_CONVERSATION_ID],
            "get": operation("getConversation", "One conversation", "Conversation"),
            "post": operation(
                "updateConversation",
                "Replace the metadata of a conversation",
                "Conversation",
                takes="UpdateConversation",
            ),
            "delete": operation("deleteConversation", "Delete a conversation", "DeletedConversation"),
        },
        "/v1/conversations/{id}/items": {
            "parameters": [_CONVERSATION_ID],
            "get": operation("listItems", "The items of a conversation", "ItemList", parameters=[*_PAGES, VIEW]),
            "post": operation("addItems", "Add items to a conversation", "ItemList", takes="AddItems"),
        },
        "/v1/conversations/{id}/items/{item_id}": {
            "parameters": [_CONVERSATION_ID, _ITEM_ID],
            "get": operation("getItem", "One item", "KeptItem", parameters=[VIEW]),
            "delete": operation("deleteItem", "Delete one item", "Conversation"),
        },
    }
