"""What a space looks at in MCP's requests, proposals and responses: the tool, what it is called with, and the text that
came back. All else of them is their senders' own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .envelope import Envelope

LIST_TOOLS, CALL_TOOL = "tools/list", "tools/call"
"""The two methods that are looked into."""

CANCELLED = "notifications/cancelled"
"""Nobody waits any more for the answer to the request that it correlates to."""


def call_params(tool: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The `params` of a call."""
    return {"name": tool, "arguments": dict(arguments or {})}


def tool_of(envelope: Envelope) -> str | None:
    """The tool that it calls, or proposes to call."""
    params = envelope.payload.get("params")
    if envelope.payload.get("method") != CALL_TOOL or not isinstance(params, dict):
        return None
    name = params.get("name")
    return name if isinstance(name, str) else None


def request_arguments(envelope: Envelope) -> Any:
    """What it asks with: a tool's arguments, or the `params` of another method."""
    params = envelope.payload.get("params")
    return params.get("arguments") if isinstance(params, dict) and tool_of(envelope) is not None else params


def result_text(result: Any) -> str | None:
    """What a tool's result says, if it is text and nothing else."""
    content = result.get("content") if isinstance(result, dict) else None
    if not isinstance(content, list) or not content:
        return None
    texts = [one.get("text") for one in content if isinstance(one, dict) and one.get("type") == "text"]
    if len(texts) < len(content) or not all(isinstance(text, str) for text in texts):
        return None
    return "\n".join(map(str, texts))
