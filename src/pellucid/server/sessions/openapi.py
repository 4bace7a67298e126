"""The OpenAPI description of `/api/session`."""

from __future__ import annotations

from ...protocols.openapi import STRING, Schema, parameter
from ..access import oidc

_NEXT = "The path to go on with afterwards."
_SAID = "What the provider says."


def schemas() -> dict[str, Schema]:
    """The components, beside the chat's."""
    return {
        "Session": {
            "type": "object",
            "properties": {
                "signed_in": {"type": "boolean"},
                "needed": {"type": "boolean", "description": "Whether anybody has to sign in."},
                "ways": {"type": "array", "items": {"enum": ["key", "oidc"]}},
                "name": {"type": "string", "description": "The key's name, or the person's."},
            },
            "required": ["signed_in", "needed", "ways"],
        },
        "SignIn": {
            "type": "object",
            "properties": {"key": {"type": "string", "description": "An API key."}},
            "required": ["key"],
            "additionalProperties": False,
        },
    }


def paths() -> dict[str, Schema]:
    """Each answers without a credential."""
    sign_in = _operation("signIn", "Sign in with an API key", 400, 401, 403, 408, 413, 429, 503)
    sign_in["requestBody"] = {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/SignIn"}}},
    }
    return {
        "/api/session": {
            "get": _operation("session", "Whether somebody is signed in, and how to", 400, 403, 503),
            "post": sign_in,
            "delete": _operation("signOut", "Sign out", 400, 403, 503),
        },
        oidc.PATH: {"get": _way("beginSignIn", "To the provider with which people sign in", next=_NEXT)},
        oidc.CALLBACK: {"get": _way("endSignIn", "Back from the provider", code=_SAID, state=_SAID, error=_SAID)},
    }


def _operation(id: str, summary: str, *refuses: int) -> Schema:
    session = {
        "description": "OK",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Session"}}},
    }
    failures = {str(status): _error() for status in (*refuses, 500)}
    return {"operationId": id, "summary": summary, "responses": {"200": session, **failures}, "security": []}


def _way(id: str, summary: str, **query: str) -> Schema:
    """For a browser that goes there, not for a script."""
    failures = {str(status): _error({"text/html": {"schema": STRING}}) for status in (400, 401, 403, 404, 429, 503)}
    return {
        "operationId": id,
        "summary": summary,
        "parameters": [parameter(name, "query", what) for name, what in query.items()],
        "responses": {"303": {"description": "Go on there"}, **failures, "500": _error()},
        "security": [],
    }


def _error(more: Schema | None = None) -> Schema:
    schema = {"$ref": "#/components/schemas/ChatErrorBody"}
    return {"description": "An error", "content": {"application/json": {"schema": schema}, **(more or {})}}
