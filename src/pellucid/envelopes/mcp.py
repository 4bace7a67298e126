"""Accessors for MCP requests, proposals and responses: the tool, its arguments, and the text of its result.

A space does not look at anything else in them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeGuard

import msgspec

from .envelope import Envelope

LIST_TOOLS, CALL_TOOL = "tools/list", "tools/call"
"""The two methods whose contents a space looks at."""

CANCELLED = "notifications/cancelled"
"""The sender does not wait any more for the response to the request to which this correlates."""


_DISCOVERY = re.compile(
    r"initialize|ping|completion/complete|(tools|prompts|resources|resources/templates|roots)/list"
    r"|notifications/(initialized|\w+/list_changed)"
)


def is_discovery(method: Any) -> TypeGuard[str]:
    """Check whether a request of this method only asks what there is, or begins a session."""
    return isinstance(method, str) and _DISCOVERY.fullmatch(method) is not None


def is_notification(envelope: Envelope) -> bool:
    """Check whether a request is a notification, to which JSON-RPC has no response."""
    method = envelope.payload.get("method")
    return isinstance(method, str) and method.startswith("notifications/")


def call_params(tool: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Build the `params` of a tool call."""
    return {"name": tool, "arguments": dict(arguments or {})}


def tool_of(envelope: Envelope) -> str | None:
    """Return the name of the tool that the envelope calls or proposes to call; None if there is none."""
    params = envelope.payload.get("params")
    if envelope.payload.get("method") != CALL_TOOL or not isinstance(params, dict):
        return None
    name = params.get("name")
    return name if isinstance(name, str) else None


def request_arguments(envelope: Envelope) -> Any:
    """Return the tool's arguments, or the `params` of another method."""
    params = envelope.payload.get("params")
    return params.get("arguments") if isinstance(params, dict) and tool_of(envelope) is not None else params


def tool_result(content: Any) -> dict[str, Any]:
    """Build the `result` of a tool call: the content as text, or its JSON."""
    text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
    return {"content": [{"type": "text", "text": text}]}


def result_text(result: Any) -> str | None:
    """Return the text of a tool's result; None if it contains anything but text."""
    content = result.get("content") if isinstance(result, dict) else None
    if not isinstance(content, list) or not content:
        return None
    texts = [one.get("text") for one in content if isinstance(one, dict) and one.get("type") == "text"]
    if len(texts) < len(content) or not all(isinstance(text, str) for text in texts):
        return None
    return "\n".join(map(str, texts))
