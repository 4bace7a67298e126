"""The OpenAPI schemas of OpenResponses, made from the types (what is at which path: `openapi_paths`).

The events are a table: name, fields. All 24 of the specification are in it, and OpenAI's two names for raw reasoning
beside them, marked as the alias they are.
"""

from __future__ import annotations

import msgspec

from ..openapi import Schema
from . import types as t

_INTEGER: Schema = {"type": "integer"}
_STRING: Schema = {"type": "string"}
_IN_CONTENT = {"item_id": _STRING, "output_index": _INTEGER, "content_index": _INTEGER}
_IN_SUMMARY = {"item_id": _STRING, "output_index": _INTEGER, "summary_index": _INTEGER}
_IN_ITEM = {"item_id": _STRING, "output_index": _INTEGER}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _one_of(*names: str) -> Schema:
    return {"oneOf": [_ref(name) for name in names], "discriminator": {"propertyName": "type"}}


_RESPONSE = {"response": _ref("Response")}
_ITEM = {
    "output_index": _INTEGER,
    "item": _one_of("MessageItem", "ReasoningItem", "FunctionCallItem", "FunctionCallOutputItem"),
}
_PART = _one_of("OutputText", "Refusal", "ReasoningText")
_SUMMARY = {"part": _ref("SummaryText")}
_LOGPROBS = {"logprobs": {"type": "array", "items": _ref("LogProb")}}

EVENTS: dict[str, Schema] = {
    **{f"response.{state}": _RESPONSE for state in ("created", "queued", "in_progress")},
    **{f"response.{state}": _RESPONSE for state in ("completed", "failed", "incomplete")},
    "response.output_item.added": _ITEM,
    "response.output_item.done": _ITEM,
    "response.content_part.added": {**_IN_CONTENT, "part": _PART},
    "response.content_part.done": {**_IN_CONTENT, "part": _PART},
    "response.output_text.delta": {**_IN_CONTENT, "delta": _STRING, **_LOGPROBS},
    "response.output_text.done": {**_IN_CONTENT, "text": _STRING, **_LOGPROBS},
    "response.output_text.annotation.added": {
        **_IN_CONTENT,
        "annotation_index": _INTEGER,
        "annotation": _ref("UrlCitation"),
    },
    "response.refusal.delta": {**_IN_CONTENT, "delta": _STRING},
    "response.refusal.done": {**_IN_CONTENT, "refusal": _STRING},
    "response.reasoning.delta": {**_IN_CONTENT, "delta": _STRING},
    "response.reasoning.done": {**_IN_CONTENT, "text": _STRING},
    "response.reasoning_summary_part.added": {**_IN_SUMMARY, **_SUMMARY},
    "response.reasoning_summary_part.done": {**_IN_SUMMARY, **_SUMMARY},
    "response.reasoning_summary_text.delta": {**_IN_SUMMARY, "delta": _STRING},
    "response.reasoning_summary_text.done": {**_IN_SUMMARY, "text": _STRING},
    "response.function_call_arguments.delta": {**_IN_ITEM, "delta": _STRING},
    "response.function_call_arguments.done": {**_IN_ITEM, "arguments": _STRING},
    "error": {"error": _ref("ErrorPayload")},
}
"""Every event of the specification, and its fields beside `type` and `sequence_number`."""

_WRITTEN = (
    *(t.MessageItem, t.ReasoningItem, t.FunctionCallItem, t.FunctionCallOutputItem),
    *(t.OutputText, t.FunctionTool, t.ReasoningConfig),
)
"""What only responses hold, and never without its defaults."""

ALIASES = {
    "response.reasoning_text.delta": "response.reasoning.delta",
    "response.reasoning_text.done": "response.reasoning.done",
}
"""OpenAI's names, sent instead when the request asks for them."""


_NAMED = {"type": "object", "properties": {"name": _STRING}, "required": ["name"]}
_UNTYPED: dict[str, Schema] = {
    "conversation": {
        "description": "The conversation to go on with and to add to: its id.",
        "anyOf": [
            _STRING,
            {"type": "object", "properties": {"id": _STRING}, "required": ["id"]},
            {"type": "null"},
        ],
    },
    "tool_choice": {
        "description": "Whether tools are called, or which one must be, or which ones may be.",
        "anyOf": [
            {"type": "string", "enum": ["none", "auto", "required"]},
            {
                "type": "object",
                "properties": {"type": {"const": "function"}, "name": _STRING},
                "required": ["type", "name"],
            },
            {
                "type": "object",
                "properties": {
                    "type": {"const": "allowed_tools"},
                    "mode": {"type": "string", "enum": ["none", "auto", "required"]},
                    "tools": {"type": "array", "items": {"type": "object"}},
                },
                "required": ["type", "tools"],
            },
            {"type": "null"},
        ],
    },
}
"""What the types leave open, since it is read by hand."""


def _object(properties: Schema, optional: tuple[str, ...] = ()) -> Schema:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _list(of: Schema) -> Schema:
    ends = {"type": ["string", "null"]}
    return _object(
        {
            "object": {"const": "list"},
            "data": {"type": "array", "items": of},
            "first_id": ends,
            "last_id": ends,
            "has_more": {"type": "boolean"},
        }
    )


_METADATA = {
    "type": "object",
    "maxProperties": 16,
    "propertyNames": {"maxLength": 64},
    "additionalProperties": {"type": "string", "maxLength": 512},
}
_KEPT = ("MessageParam", "ReasoningParam", "FunctionCallParam", "FunctionCallOutputParam", "CompactionParam")
_KEPT_PARAMS = _one_of(*_KEPT)
_ITEM_PARAMS = _one_of(*_KEPT, "ItemReference")
_TO_ANSWER = [{"required": [name]} for name in ("input", "previous_response_id", "conversation")]
"""One of them says what there is to answer."""
_LISTS: dict[str, Schema] = {
    "KeptItem": {
        **_object({"id": _STRING, "type": _STRING}),
        "description": "An item as it was received, or as the model made it, with an id.",
    },
    "ItemList": _list(_ref("KeptItem")),
    "DeletedResponse": _object({"id": _STRING, "object": {"const": "response"}, "deleted": {"const": True}}),
    "CompactRequest": {"anyOf": _TO_ANSWER[:2]}
    | _object(
        {
            "model": _STRING,
            "input": {"anyOf": [_STRING, {"type": "array", "items": _ITEM_PARAMS}, {"type": "null"}]},
            "previous_response_id": {"type": ["string", "null"]},
            "instructions": {"type": ["string", "null"]},
            "prompt_cache_key": {"type": ["string", "null"], "maxLength": 64},
        },
        ("input", "previous_response_id", "instructions", "prompt_cache_key"),
    ),
    "Conversation": _object(
        {"id": _STRING, "object": {"const": "conversation"}, "created_at": _INTEGER, "metadata": _METADATA}
    ),
    "DeletedConversation": _object(
        {"id": _STRING, "object": {"const": "conversation.deleted"}, "deleted": {"const": True}}
    ),
    "CreateConversation": _object(
        {
            "metadata": {"anyOf": [_METADATA, {"type": "null"}]},
            "items": {"anyOf": [{"type": "array", "items": _KEPT_PARAMS, "maxItems": 20}, {"type": "null"}]},
        },
        ("metadata", "items"),
    ),
    "UpdateConversation": _object({"metadata": {"anyOf": [_METADATA, {"type": "null"}]}}),
    "AddItems": _object({"items": {"type": "array", "items": _KEPT_PARAMS, "minItems": 1, "maxItems": 20}}),
}


def _event(name: str, fields: Schema) -> Schema:
    properties = {"type": {"type": "string", "enum": [name]}, "sequence_number": _INTEGER, **fields}
    optional = {"logprobs"}
    schema: Schema = {
        "title": name,
        "type": "object",
        "properties": properties,
        "required": [field for field in properties if field not in optional],
    }
    if name.endswith(".delta") and name != "response.refusal.delta":
        properties["obfuscation"] = {**_STRING, "description": "Padding; present only when asked for."}
    return schema


def event_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.replace(".", "_").split("_")) + "Event"


def schemas() -> dict[str, Schema]:
    """The components: the request, the response, what is in them, and every event."""
    _, components = msgspec.json.schema_components(
        [t.CreateResponse, t.Response, t.CompactedResponse, t.SummaryText, t.LogProb, t.UrlCitation],
        ref_template="#/components/schemas/{name}",
    )
    for written in (t.Response, t.CompactedResponse, *_WRITTEN):
        # Whatever has a default is written nonetheless; only what is unset is absent.
        fields = [field for field in msgspec.structs.fields(written) if field.default is not msgspec.UNSET]
        tag = ["type"] if written.__struct_config__.tag else []
        components[written.__name__]["required"] = tag + [field.encode_name for field in fields]
    for name, schema in _UNTYPED.items():
        components["CreateResponse"]["properties"][name] = schema
    components["CreateResponse"]["anyOf"] = _TO_ANSWER
    components |= _LISTS
    components["ErrorPayload"] = {
        "type": "object",
        "properties": {
            "message": _STRING,
            "type": _STRING,
            "param": {"type": ["string", "null"]},
            "code": {"type": ["string", "null"]},
        },
        "required": ["message", "type", "param", "code"],
    }
    components["ErrorBody"] = {
        "type": "object",
        "properties": {"error": _ref("ErrorPayload")},
        "required": ["error"],
    }
    components |= {event_name(name): _event(name, fields) for name, fields in EVENTS.items()}
    for alias, name in ALIASES.items():
        schema = _event(alias, EVENTS[name])
        components[event_name(alias)] = {**schema, "x-alias-of": name}
    return components
