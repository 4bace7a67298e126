"""Parts of the OpenAPI document that no type defines: the events, the socket, and untyped fields of requests.

The events are a table of names and fields. It has all 24 of the specification and, marked as aliases, OpenAI's two
names for raw reasoning.
"""

from __future__ import annotations

from typing import Any, get_args

from . import types as t
from .dialects import DIALECTS

Schema = dict[str, Any]

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
    "item": _one_of(*(item.__name__ for item in get_args(t.Item))),
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
"""Every event of the specification, and its fields in addition to `type` and `sequence_number`."""

EXTENSIONS: dict[str, Schema] = {
    "response.custom_tool_call_input.delta": {**_IN_ITEM, "delta": _STRING},
    "response.custom_tool_call_input.done": {**_IN_ITEM, "input": _STRING},
}
"""OpenAI's events, which only requests with OpenAI's types of tools get."""

_STANDARD = DIALECTS["openresponses"].reasoning.text_event
ALIASES = {
    f"{row.reasoning.text_event}.{step}": f"{_STANDARD}.{step}"
    for row in DIALECTS.values()
    for step in ("delta", "done")
    if f"{row.reasoning.text_event}.{step}" not in EVENTS
}
"""The names of other dialects, which are sent instead if the request wants them."""


_NAMED = {"type": "object", "properties": {"name": _STRING}, "required": ["name"]}
_UNTYPED_FIELDS: dict[str, Schema] = {
    "conversation": {
        "description": "The id of the conversation to continue; the response is added to it.",
        "anyOf": [
            _STRING,
            {"type": "object", "properties": {"id": _STRING}, "required": ["id"]},
            {"type": "null"},
        ],
    },
    "tool_choice": {
        "description": "Whether tools are called, which one must be called, or which ones may be called.",
        "anyOf": [
            {"type": "string", "enum": ["none", "auto", "required"]},
            {
                "type": "object",
                "properties": {"type": {"enum": ["function", "custom"]}, "name": _STRING, "namespace": _STRING},
                "required": ["type", "name"],
            },
            {
                "type": "object",
                "properties": {"type": {"enum": ["tool_search", "local_shell"]}},
                "required": ["type"],
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
"""Fields that the types leave open, because they are parsed by hand."""


_INPUT_ALTERNATIVES = [{"required": [name]} for name in ("input", "previous_response_id", "conversation")]
"""The fields of which one must be present, so that there is something to answer."""


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
        properties["obfuscation"] = {**_STRING, "description": "Padding; present only if the request wants it."}
    return schema


def event_name(name: str) -> str:
    """Return the name of an event's schema."""
    return "".join(word.capitalize() for word in name.replace(".", "_").split("_")) + "Event"


def components() -> dict[str, Any]:
    """Return the schemas of all events, and of types that occur only in events."""
    schemas: dict[str, Any] = {event_name(name): _event(name, fields) for name, fields in (EVENTS | EXTENSIONS).items()}
    schemas |= {
        event_name(alias): {**_event(alias, EVENTS[name]), "x-alias-of": name} for alias, name in ALIASES.items()
    }
    return schemas | {type_.__name__: type_ for type_ in (t.SummaryText, t.LogProb, t.UrlCitation)}


def amend(schemas: dict[str, Schema]) -> None:
    """Add to the schemas of requests what their types do not define."""
    schemas["CreateResponse"]["properties"] |= _UNTYPED_FIELDS
    for name, description in _OF_ANY_TYPE.items():
        schemas[name] = {
            "type": "object",
            "description": description,
            "properties": {"type": _STRING},
            "required": ["type"],
        }
        _forget_tag(schemas, f"#/components/schemas/{name}")
    schemas["CreateResponse"]["anyOf"] = _INPUT_ALTERNATIVES
    schemas["CompactRequest"]["anyOf"] = _INPUT_ALTERNATIVES[:2]


_OF_ANY_TYPE = {
    "OtherItemParam": "An item of another type: models of OpenAI get it as it is, others as readable text.",
    "NativeToolParam": "A tool that OpenAI runs. Other models are not offered it.",
}
"""Schemas of what may have any other `type`. The types have a tag of their own, which clients do not send."""


def _forget_tag(value: Any, ref: str) -> None:
    """Remove the tag of a schema from all discriminators."""
    if isinstance(value, dict):
        mapping = value.get("mapping")
        if isinstance(mapping, dict):
            value["mapping"] = {tag: target for tag, target in mapping.items() if target != ref}
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _forget_tag(inner, ref)


def stream_event() -> Schema:
    """Return the schema of one event of a stream, in the form of the specification."""
    events = {name: f"#/components/schemas/{event_name(name)}" for name in (*EVENTS, *EXTENSIONS, *ALIASES)}
    mapped = {"propertyName": "type", "mapping": events}
    return {"oneOf": [{"$ref": ref} for ref in events.values()], "discriminator": mapped}


_CREATE = {"type": "object", "properties": {"type": {"const": "response.create"}}, "required": ["type"]}
_ERROR = {"type": {"const": "error"}, "status": _INTEGER, "error": _ref("ErrorPayload")}
SOCKET: Schema = {
    "description": "GET as a WebSocket: each message asks for a response, whose events are messages",
    "clientMessage": {"allOf": [_CREATE, _ref("CreateResponse")]},
    "errorMessage": {"type": "object", "properties": _ERROR, "required": list(_ERROR)},
}
"""The value of `x-openresponses-websocket`, in which the specification describes its own socket."""
