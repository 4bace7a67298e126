"""The OpenAPI description of `/v1/chat/completions`, made from the types."""

from __future__ import annotations

import msgspec

from ..openapi import Schema
from . import types as t

_WRITTEN = (
    *(t.ChatCompletion, t.ChatChoice, t.ChatMessage, t.ChatToolCall, t.ChatFunction, t.ChatUsage, t.ChatAnnotation),
    *(t.ChatLogProbs, t.ChatCompletionChunk, t.ChatChunkChoice),
)
"""What only answers hold, and never without its defaults; only what is unset is absent."""

_ERRORS = (400, 401, 403, 404, 408, 413, 429, 500, 502, 503, 504)
_STRING: Schema = {"type": "string"}
_NULLABLE: Schema = {"type": ["string", "null"]}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def schemas() -> dict[str, Schema]:
    """The components: the request, the completion, its chunks, and what is in them. Every name is this protocol's own,
    but for the error, which all protocols share."""
    _, components = msgspec.json.schema_components(
        [t.CreateChatCompletion, t.ChatCompletion, t.ChatCompletionChunk], ref_template="#/components/schemas/{name}"
    )
    for written in _WRITTEN:
        fields = [field for field in msgspec.structs.fields(written) if field.default is not msgspec.UNSET]
        components[written.__name__]["required"] = [field.encode_name for field in fields]
    components["CreateChatCompletion"]["properties"]["messages"]["minItems"] = 1
    payload = {"message": _STRING, "type": _STRING, "param": _NULLABLE, "code": _NULLABLE}
    components["ErrorPayload"] = {"type": "object", "properties": payload, "required": list(payload)}
    components["ErrorBody"] = {
        "type": "object",
        "properties": {"error": _ref("ErrorPayload")},
        "required": ["error"],
    }
    return components


def paths() -> dict[str, Schema]:
    """The path, with what its stream is made of."""
    failure = {"description": "An error", "content": {"application/json": {"schema": _ref("ErrorBody")}}}
    return {
        "/v1/chat/completions": {
            "post": {
                "operationId": "createChatCompletion",
                "summary": "Ask a model in OpenAI's older protocol; reasoning is in its relatives' fields",
                "parameters": [
                    {
                        "name": "Pellucid-View",
                        "in": "header",
                        "description": "In what form reasoning is wanted: no more than the key allows.",
                        "schema": {"type": "string", "enum": ["raw", "summary", "sealed", "hidden"]},
                    }
                ],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": _ref("CreateChatCompletion")}},
                },
                "responses": {
                    "200": {
                        "description": "The completion, whole or as a stream of chunks that ends with `[DONE]`; "
                        "a stream that fails has an error in the place of its last chunk",
                        "content": {
                            "application/json": {"schema": _ref("ChatCompletion")},
                            "text/event-stream": {
                                "schema": {"anyOf": [_ref("ChatCompletionChunk"), _ref("ErrorBody")]}
                            },
                        },
                    },
                    **{str(status): failure for status in _ERRORS},
                },
            }
        }
    }
