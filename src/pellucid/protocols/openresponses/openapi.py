"""The OpenAPI description of `/v1/responses`, made from the types.

The events are a table: name, fields. All 24 of the specification are in it, and OpenAI's two names for raw reasoning
beside them, marked as the alias they are.
"""

from __future__ import annotations

from typing import Any

import msgspec

from . import types as t

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


def _event_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.replace(".", "_").split("_")) + "Event"


def schemas() -> dict[str, Schema]:
    """The components: the request, the response, what is in them, and every event."""
    _, components = msgspec.json.schema_components(
        [t.CreateResponse, t.Response, t.SummaryText, t.LogProb, t.UrlCitation],
        ref_template="#/components/schemas/{name}",
    )
    for written in (t.Response, *_WRITTEN):
        # Whatever has a default is written nonetheless; only what is unset is absent.
        fields = [field for field in msgspec.structs.fields(written) if field.default is not msgspec.UNSET]
        tag = ["type"] if written.__struct_config__.tag else []
        components[written.__name__]["required"] = tag + [field.encode_name for field in fields]
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
    components |= {_event_name(name): _event(name, fields) for name, fields in EVENTS.items()}
    for alias, name in ALIASES.items():
        schema = _event(alias, EVENTS[name])
        components[_event_name(alias)] = {**schema, "x-alias-of": name}
    return components


def paths() -> dict[str, Schema]:
    """The path, with its stream's events."""
    events = {name: f"#/components/schemas/{_event_name(name)}" for name in (*EVENTS, *ALIASES)}
    failure = {"description": "An error", "content": {"application/json": {"schema": _ref("ErrorBody")}}}
    return {
        "/v1/responses": {
            "post": {
                "operationId": "createResponse",
                "summary": "Ask a model; hear it think, then answer",
                "parameters": [
                    {
                        "name": "OpenResponses-Reasoning-Events",
                        "in": "header",
                        "description": "Whose names raw reasoning events have.",
                        "schema": {"type": "string", "enum": ["openresponses", "openai"]},
                    }
                ],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": _ref("CreateResponse")}},
                },
                "responses": {
                    "200": {
                        "description": "The response, whole or as a stream of events that ends with `[DONE]`",
                        "content": {
                            "application/json": {"schema": _ref("Response")},
                            "text/event-stream": {
                                "schema": {
                                    "oneOf": [{"$ref": ref} for ref in events.values()],
                                    "discriminator": {"propertyName": "type", "mapping": events},
                                }
                            },
                        },
                    },
                    **{str(status): failure for status in (400, 404, 413, 429, 500, 502, 503, 504)},
                },
            }
        }
    }
