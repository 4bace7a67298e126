"""Redaction of single values (parts, errors, token counts) and of whole messages.

A redacted message is the one into which the redacted stream of the same turn folds.

Seals and the gateway's summaries are in no message. They are in the events only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from ..emit import group_into_items
from ..errors import ErrorInfo
from ..events import ITEM_OF
from ..parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    RefusalPart,
    SealedPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    Usage,
    are_complete,
)
from .fields import STRUCT_REDACTORS, struct_redactor
from .viewer import Viewer, ViewRule

_Predicate: TypeAlias = Callable[[Any, ViewRule], bool]


def _always(part: ModelResponsePart, rule: ViewRule) -> bool:
    return True


_IS_SHOWN: dict[type[ModelResponsePart], _Predicate] = {
    TextPart: _always,
    RefusalPart: _always,
    ToolCallPart: _always,
    BuiltinToolCallPart: _always,
    BuiltinToolReturnPart: _always,
    # An image that was made while thinking is reasoning.
    FilePart: lambda part, rule: part.thought is False,
    ThinkingPart: lambda part, rule: part.form in rule.forms,
    # The gateway's own token, which the client sent.
    SealedPart: lambda part, rule: rule.seals,
}
"""Which kinds of parts are shown in a restricted view. Other kinds are never shown."""


def is_shown(part: ModelResponsePart, rule: ViewRule) -> bool:
    """Whether a part is shown in a restricted view."""
    predicate = _IS_SHOWN.get(type(part))
    return predicate is not None and predicate(part, rule)


def redact_part(part: ModelResponsePart) -> ModelResponsePart:
    """Redact a part that is shown in a restricted view."""
    if isinstance(part, BuiltinToolReturnPart):
        part = replace(part, content=_without_encrypted(part.content))
    redacted: ModelResponsePart = STRUCT_REDACTORS[type(part)](part)
    return redacted


_MAX_DEPTH = 100
"""Levels of nesting in a tool's result. Deeper values are shown in no restricted view."""


def _without_encrypted(value: Any, depth: int = 0) -> Any:
    """Remove the fields that a provider encrypted for itself from the result of its own tool."""
    if not isinstance(value, dict | list):
        return value
    if depth == _MAX_DEPTH:
        return None
    if isinstance(value, list):
        return [_without_encrypted(entry, depth + 1) for entry in value]
    encrypted = [name for name in value if isinstance(name, str) and name.startswith("encrypted")]
    return {name: _without_encrypted(entry, depth + 1) for name, entry in value.items() if name not in encrypted}


_SHOWN_USAGE = struct_redactor(Usage)
_SHOWN_ERROR = struct_redactor(ErrorInfo)
_NO_USAGE = Usage()
_KNOWN_CODES = frozenset({"context_length_exceeded"})
"""Codes that mean the same from every provider and reveal nothing else. Programs act on them."""


def redact_usage(usage: Usage, viewer: Viewer) -> Usage:
    """Return the token counts that a viewer may see.

    A viewer without counts gets none at all: output tokens minus the visible text reveal the length of the reasoning,
    and the next turn's input tokens include the reasoning of the turn before.
    """
    if not viewer.counts:
        return _NO_USAGE
    return usage if viewer.rule.is_full else _SHOWN_USAGE(usage)


def redact_error(error: ErrorInfo, viewer: Viewer) -> ErrorInfo:
    """Return an error as a viewer may see it.

    Outside the raw view, text from an upstream is removed, because it may quote reasoning.
    """
    if viewer.rule.is_full:
        return error
    code = error.code if error.is_own or error.code in _KNOWN_CODES else None
    return _SHOWN_ERROR(error, code=code, param=error.param if error.is_own else None)


_REQUEST, _RESPONSE = struct_redactor(ModelRequest), struct_redactor(ModelResponse)


def redact_messages(messages: Sequence[ModelMessage], viewer: Viewer) -> list[ModelMessage]:
    """Redact a conversation for a viewer. A model must get the original messages, not the redacted ones."""
    return [
        redact_response(message, viewer)
        if isinstance(message, ModelResponse)
        else message
        if viewer.rule.is_full
        else _REQUEST(message)
        for message in messages
    ]


def redact_response(response: ModelResponse, viewer: Viewer) -> ModelResponse:
    """Redact one turn for a viewer."""
    usage = redact_usage(response.usage, viewer)
    if viewer.rule.is_full:
        return response if usage is response.usage else replace(response, usage=usage)
    parts = [part for item in group_into_items(response.parts) for part in _redact_item(item, viewer.rule)]
    return _RESPONSE(response, parts=parts, usage=usage)


def _redact_item(parts: list[ModelResponsePart], rule: ViewRule) -> list[ModelResponsePart]:
    """Redact the parts of one item."""
    shown = [redact_part(part) for part in parts if is_shown(part, rule) and not _is_empty_thought(part)]
    if shown or not rule.items or ITEM_OF[type(parts[0])] != "reasoning":
        return shown
    # Show that there was reasoning, and whether it is complete.
    return [ThinkingPart("", complete=are_complete(parts), item_id=parts[0].item_id)]


def _is_empty_thought(part: ModelResponsePart) -> bool:
    """Whether a part is a thinking part without readable text."""
    return isinstance(part, ThinkingPart) and not part.content
