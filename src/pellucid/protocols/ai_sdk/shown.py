"""What a call, a run's end and its tokens are in this protocol."""

from __future__ import annotations

from typing import Any

import msgspec

from ...events import RunEndEvent
from ...parts import BuiltinToolCallPart, ToolCallPart, Usage
from ...text import shown
from .chunks import FinishReason

CUT = "The model was cut off in the middle of this call."
_NOT_JSON = "The model wrote arguments that are not JSON."

_MOST = 2**53 - 1
"""What JavaScript can hold."""

_USAGE = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "totalTokens": "total_tokens",
    "reasoningTokens": "output_reasoning_tokens",
    "cachedInputTokens": "cache_read_tokens",
}
"""The AI SDK's names, and ours."""


def input_of(part: ToolCallPart | BuiltinToolCallPart) -> tuple[Any, str | None]:
    """The arguments as JSON, as the model wrote them; or their text, and what is wrong with it."""
    try:
        text = shown(part.args_as_json())
    except (TypeError, ValueError, RecursionError):
        return "", _NOT_JSON
    if not part.complete:
        return text if part.args else "", CUT
    try:
        # On one line, and nothing else changed: numbers stay as precise as they are.
        msgspec.json.decode(text)
        return msgspec.Raw(msgspec.json.format(text.encode(), indent=-1)), None
    except (msgspec.DecodeError, RecursionError):
        return text, _NOT_JSON


def finish_reason(end: RunEndEvent, *, calls: bool) -> FinishReason:
    """`calls`: whether there are some that nobody answered."""
    match end.status, end.incomplete_reason:
        case "failed", _:
            return "error"
        case "incomplete", "content_filter":
            return "content-filter"
        case "incomplete", "max_tool_calls":
            return "other"
        case "incomplete", _:
            return "length"
        case _:
            return "tool-calls" if calls else "stop"


def usage_of(usage: Usage) -> dict[str, int]:
    """The numbers that are known; none, if its reader may not see them."""
    known = {name: getattr(usage, ours) for name, ours in _USAGE.items()}
    return {name: number for name, number in known.items() if number is not None and 0 <= number <= _MOST}
