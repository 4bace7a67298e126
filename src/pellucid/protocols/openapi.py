"""What the protocols' OpenAPI descriptions have in common."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
"""Any piece of the document."""

STRING: Schema = {"type": "string"}


def parameter(name: str, where: str, what: str, schema: Schema | None = None) -> Schema:
    """A parameter in the path (which needs it), the query or a header; of text, unless a schema says otherwise."""
    required = {"required": True} if where == "path" else {}
    return {"name": name, "in": where, "description": what, **required, "schema": schema or STRING}


VIEW = parameter(
    "Pellucid-View",
    "header",
    "In what form reasoning is wanted: no more than the key allows. The query parameter `view` says the same.",
    {"type": "string", "enum": ["raw", "summary", "sealed", "hidden"]},
)
