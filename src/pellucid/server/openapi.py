"""`/openapi.json`: what this server speaks, as OpenAPI 3.1, put together from what each protocol says of itself."""

from __future__ import annotations

from typing import Any

from .. import __version__
from ..protocols.openresponses import openapi as openresponses


def document() -> dict[str, Any]:
    """The whole document."""
    ok = {"200": {"description": "OK", "content": {"application/json": {"schema": {"type": "object"}}}}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pellucid",
            "version": __version__,
            "description": "The reasoning of any language model as one ordered stream of parts.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            **openresponses.paths(),
            "/v1/models": {"get": {"operationId": "listModels", "summary": "The models there are", "responses": ok}},
            "/health": {"get": {"operationId": "health", "summary": "The process is alive", "responses": ok}},
            "/ready": {
                "get": {
                    "operationId": "ready",
                    "summary": "Requests can be served",
                    "responses": {**ok, "503": {"description": "Not yet"}},
                }
            },
            "/openapi.json": {"get": {"operationId": "openapi", "summary": "This document", "responses": ok}},
        },
        "components": {"schemas": openresponses.schemas()},
    }
