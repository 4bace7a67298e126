"""A tool's call, from either side: which events and which segment tell of it, and whether what came back is a failure.

What a provider's own tool returned is in that provider's shape. It failed if it says so in one of the words that there
are for that; everything else is a result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ...parts import BuiltinToolCallPart, RetryPromptPart, ToolCallPart, ToolReturnPart
from ...text import shown
from . import frames as f
from . import types as t


class Family(NamedTuple):
    """How calls of one kind are told."""

    segment: type[t.ToolSegment]
    started: type[f.CallStarted]
    update: type[f.CallUpdate]
    result: type[f.CallResult]


FUNCTION = Family(t.ToolCallSegment, f.ToolCallStarted, f.ToolCallUpdate, f.ToolResult)
BUILTIN = FUNCTION._replace(segment=t.BuiltinToolSegment)
_WEB_SEARCH = Family(t.WebSearchSegment, f.WebSearchCallStarted, f.WebSearchCallUpdate, f.WebSearchCallResult)
_CODE = Family(
    t.CodeInterpreterSegment,
    f.CodeInterpreterCallStarted,
    f.CodeInterpreterCallUpdate,
    f.CodeInterpreterCallResult,
)
BUILTINS: dict[str, Family] = {"web_search": _WEB_SEARCH, "code_interpreter": _CODE, "code_execution": _CODE}
"""The provider's tools that have events of their own, by what they are called among ours."""


class Outcome(NamedTuple):
    """What came back: a result, or an error."""

    result: Any
    error: str | None = None


def arguments(part: ToolCallPart | BuiltinToolCallPart) -> Any:
    """The arguments as JSON; as text, where the model wrote none or was cut off in it."""
    args = part.args
    if args is None or args == "":
        return {} if part.complete else ""
    if not isinstance(args, str):
        return args
    try:
        return msgspec.json.decode(args)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return args


def function_outcome(result: ToolReturnPart | RetryPromptPart) -> Outcome:
    """Of a function that was called here."""
    if isinstance(result, RetryPromptPart):
        return Outcome(None, result.content)
    if result.outcome != "success":
        return Outcome(None, result.content_as_text() or f"the call was {result.outcome}")
    return Outcome(result.content)


def builtin_outcome(content: Any) -> Outcome:
    """Of a tool of the provider's, in whichever shape it says so."""
    error = _error(content)
    return Outcome(content) if error is None else Outcome(None, shown(error))


_FAILED = ("failed", "incomplete", "cancelled", "error")


def _error(content: Any) -> str | None:
    if not isinstance(content, dict):
        return None
    for name in ("error", "error_code"):
        if content.get(name):
            return _text(content[name])
    if content.get("is_error") is True:
        return _text(content.get("content")) or "the tool failed"
    status = content.get("status")
    return f"the tool ended as {status}" if status in _FAILED else None


def _text(value: Any) -> str:
    if isinstance(value, dict) and isinstance(value.get("message"), str):
        value = value["message"]
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        return "the tool failed"
