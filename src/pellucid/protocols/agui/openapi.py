"""The OpenAPI description of `/ag-ui`, made from the types. Every component's name begins with `AGUI`."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from ..openapi import Schema
from . import events as e
from . import messages as m
from .dialects import DIALECTS
from .proto import MEDIA_TYPE
from .request import Options

_ERRORS = (400, 401, 403, 404, 408, 413, 429, 500, 502, 503, 504)
_STRING: Schema = {"type": "string"}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/AGUI{name}"}


def schemas() -> dict[str, Schema]:
    """The components: the input, and every event."""
    roots = [m.RunAgentInput, Options, *_events()]
    _, components = msgspec.json.schema_components(roots, ref_template="#/components/schemas/AGUI{name}")
    events = [_ref(event.__name__) for event in _events()]
    ids = {"threadId": _STRING, "runId": _STRING}
    return {
        **{f"AGUI{name}": schema for name, schema in components.items()},
        "AGUIEvent": {"oneOf": events},
        "AGUIStatus": {
            "type": "object",
            "properties": {**ids, "status": _STRING},
            "required": [*ids, "status"],
        },
        "AGUIDeleted": {
            "type": "object",
            "properties": {**ids, "deleted": {"const": True}},
            "required": [*ids, "deleted"],
        },
    }


def _events() -> tuple[type[Any], ...]:
    """Those of 1.0."""
    return tuple(one for one in get_args(e.AGUIEvent) if isinstance(one, type) and "THINKING" not in _tag(one))


def _tag(event: type[Any]) -> str:
    return str(event.__struct_config__.tag)


def paths() -> dict[str, Schema]:
    _, components = msgspec.json.schema_components([Options])
    asked = [
        _parameter(name, "query", f"As `forwardedProps.pellucid.{name}`.", _of_text(schema))
        for name, schema in components["Options"]["properties"].items()
    ]
    headers = [
        _parameter("AG-UI-Dialect", "header", "What the client speaks.", {"enum": list(DIALECTS)}),
        _parameter(
            "Pellucid-View",
            "header",
            "In what form reasoning is wanted: no more than the key allows.",
            _of_text(components["Options"]["properties"]["view"]),
        ),
    ]
    which = [
        _parameter("threadId", "query", "The thread.", required=True),
        _parameter("runId", "query", "The run.", required=True),
    ]
    stream = {
        "text/event-stream": {"schema": _STRING, "x-event": _ref("Event")},
        MEDIA_TYPE: {"schema": _STRING},
    }
    body = {"required": True, "content": {"application/json": {"schema": _ref("RunAgentInput")}}}
    return {
        "/ag-ui": {
            "post": {
                **_operation("runAgent", "Ask a model in AG-UI; its events are the stream", stream),
                "parameters": [*asked, *headers],
                "requestBody": body,
            },
            "get": {
                **_operation("readRun", "A stored run once more from its beginning, live or over", stream),
                "parameters": [*which, headers[1]],
            },
            "delete": {
                **_operation("deleteRun", "Take a stored run away", _json(_ref("Deleted"))),
                "parameters": which,
            },
        },
        "/ag-ui/cancel": {
            "post": {
                **_operation("cancelRun", "Cancel a stored run that is under way", _json(_ref("Status"))),
                "parameters": which,
            }
        },
    }


def _of_text(schema: Schema) -> Schema:
    """What may stand in a query: no null."""
    others = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    words = [word for word in others[0].get("enum", []) if word is not None]
    return {"enum": words} if words else {name: value for name, value in others[0].items() if name != "default"}


def _operation(id: str, summary: str, content: Schema) -> Schema:
    failure = {"description": "RUN_ERROR", "content": _json(_ref("RunErrorEvent"))}
    return {
        "operationId": id,
        "summary": summary,
        "responses": {
            "200": {"description": "What was asked for", "content": content},
            **{str(status): failure for status in _ERRORS},
        },
    }


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def _parameter(
    name: str, where: str, description: str, schema: Schema | None = None, *, required: bool = False
) -> Schema:
    out: Schema = {"name": name, "in": where, "description": description, "schema": schema or _STRING}
    return {**out, "required": True} if required else out
