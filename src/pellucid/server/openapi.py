"""`/openapi.json`: what this server speaks, as OpenAPI 3.1, put together from what each protocol says of itself."""

from __future__ import annotations

from typing import Any

from .. import __version__
from ..protocols.agui import openapi as agui
from ..protocols.chat import openapi as chat
from ..protocols.chat_completions import openapi as chat_completions
from ..protocols.openapi import STRING, Schema, parameter
from ..protocols.openresponses import openapi as openresponses
from ..protocols.openresponses import openapi_paths
from ..protocols.openresponses.openapi_paths import errors, operation
from .sessions import openapi as sessions
from .spaces import openapi as spaces

_REFUSED = (401, 403, 429, 500, 503)
"""What the door itself may answer, and faults."""

_MODEL: Schema = {
    "type": "object",
    "properties": {
        "id": STRING,
        "object": {"const": "model"},
        "created": {"type": "integer"},
        "owned_by": STRING,
    },
    "required": ["id", "object", "created", "owned_by"],
}
_MODELS: Schema = {
    "type": "object",
    "properties": {
        "object": {"const": "list"},
        "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}},
    },
    "required": ["object", "data"],
}
_STATUS: Schema = {
    "type": "object",
    "properties": {"status": STRING, "detail": STRING},
    "required": ["status"],
}
_INDEX: Schema = {
    "type": "object",
    "properties": {"pellucid": STRING, "speaks": {"type": "array", "items": STRING}},
    "required": ["pellucid", "speaks"],
}

_SECURITY: Schema = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key that `pellucid keys create` made, or a token of the issuer that the operator trusts.",
    },
    "x-api-key": {
        "type": "apiKey",
        "in": "header",
        "name": "x-api-key",
        "description": "The same, in the header that Anthropic's clients send.",
    },
    "api-key": {
        "type": "apiKey",
        "in": "header",
        "name": "api-key",
        "description": "The same, in the header that Azure's clients send.",
    },
}


def _open(made: Schema) -> Schema:
    """An operation that asks nobody who they are."""
    return {**made, "security": []}


def _index() -> Schema:
    made = operation("index", "What this server speaks; to a browser, the chat's page", "Index", refuses=(500,))
    made["responses"]["200"]["content"]["text/html"] = {"schema": STRING}
    no_page = {"description": "The page was not built", "content": {"text/html": {"schema": STRING}}}
    made["responses"]["503"] = no_page
    return made


def _plain() -> dict[str, Schema]:
    status = {"$ref": "#/components/schemas/Status"}
    not_yet = {"description": "Not yet, and why", "content": {"application/json": {"schema": status}}}
    ready = operation("ready", "Whether requests can be served", "Status", refuses=(500,))
    ready["responses"]["503"] = not_yet
    metrics = operation("metrics", "What is measured, for Prometheus", {}, refuses=_REFUSED)
    metrics["responses"]["200"]["content"] = {
        media: {"schema": STRING} for media in ("text/plain", "application/openmetrics-text")
    }
    metrics["responses"] |= {"404": {**errors(404)["404"], "description": "The operator has them off"}}
    return {
        "/v1/models": {"get": operation("listModels", "The models there are", "Models", refuses=_REFUSED)},
        "/v1/models/{id}": {
            "parameters": [parameter("id", "path", "Its name, which may have slashes in it.")],
            "get": operation("getModel", "One model", "Model", refuses=(*_REFUSED, 404)),
        },
        "/": {"get": _open(_index()), **spaces.SOCKET_ANYWHERE},
        "/health": {"get": _open(operation("health", "The process is alive", "Status", refuses=(500,)))},
        "/ready": {"get": _open(ready)},
        "/openapi.json": {"get": _open(operation("openapi", "This document", {"type": "object"}, refuses=(500,)))},
        "/metrics": {"get": metrics},
    }


def document() -> dict[str, Any]:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pellucid",
            "version": __version__,
            "description": "The reasoning of any language model as one ordered stream of parts.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        # Whoever asks from the same machine needs none, as long as no key has been made.
        "security": [*({name: []} for name in _SECURITY), {}],
        "paths": {
            **openapi_paths.paths(),
            **chat_completions.paths(),
            **agui.paths(),
            **chat.paths(),
            **spaces.paths(),
            **sessions.paths(),
            **_plain(),
        },
        "components": {
            "securitySchemes": {**_SECURITY, **spaces.SECURITY},
            "schemas": {
                **openresponses.schemas(),
                **chat_completions.schemas(),
                **agui.schemas(),
                **chat.schemas(),
                **spaces.schemas(),
                **sessions.schemas(),
                "Model": _MODEL,
                "Models": _MODELS,
                "Status": _STATUS,
                "Index": _INDEX,
            },
        },
    }
