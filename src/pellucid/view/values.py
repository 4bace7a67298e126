"""Parts, errors and numbers, one at a time: what of each a reader gets.

Whole messages, as one reader gets them: what the redacted stream of the same turn would fold into.

What enrichment added (seals and our summaries) is in no message; who is to have it reads the events.
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
    # A picture that was made while thinking is a thought.
    FilePart: lambda part, rule: part.thought is False,
    ThinkingPart: lambda part, rule: part.form in rule.forms,
    # Our own token, which its holder gave us.
    SealedPart: lambda part, rule: rule.seals,
}
"""Which parts leave in a view less than raw. Other kinds leave in none."""


def is_shown(part: ModelResponsePart, rule: ViewRule) -> bool:
    """Whether a reader with this lesser view gets the part at all."""
    predicate = _IS_SHOWN.get(type(part))
    return predicate is not None and predicate(part, rule)


def redact_part(part: ModelResponsePart) -> ModelResponsePart:
    """What of a part that leaves may leave in it."""
    if isinstance(part, BuiltinToolReturnPart):
        part = replace(part, content=_without_encrypted(part.content))
    redacted: ModelResponsePart = STRUCT_REDACTORS[type(part)](part)
    return redacted


_MAX_DEPTH = 100
"""How deeply a tool's result may be nested. What is within that leaves in no lesser view."""


def _without_encrypted(value: Any, depth: int = 0) -> Any:
    """What a provider's own tool returned, without what the provider encrypted in it for itself."""
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
"""Codes that say the same whoever wrote them, and nothing else: programs act on them."""


def redact_usage(usage: Usage, viewer: Viewer) -> Usage:
    """The numbers this reader gets: all or none.

    Without counts no number is left. What was written less what can be read is what was thought; and what is read in
    the next turn holds the thoughts of the turn before.
    """
    if not viewer.counts:
        return _NO_USAGE
    return usage if viewer.view == "raw" else _SHOWN_USAGE(usage)


def redact_error(error: ErrorInfo, viewer: Viewer) -> ErrorInfo:
    """The error as this reader gets it. What an upstream wrote may quote what it thought."""
    if viewer.view == "raw":
        return error
    is_ours = error.upstream_message is None and error.native is None and error.status is None
    code = error.code if is_ours or error.code in _KNOWN_CODES else None
    return _SHOWN_ERROR(error, code=code, param=error.param if is_ours else None)


_REQUEST, _RESPONSE = struct_redactor(ModelRequest), struct_redactor(ModelResponse)


def redact_messages(messages: Sequence[ModelMessage], viewer: Viewer) -> list[ModelMessage]:
    """A conversation, for this reader. It is for reading: a model is to get the messages as they were."""
    return [
        redact_response(message, viewer)
        if isinstance(message, ModelResponse)
        else message
        if viewer.view == "raw"
        else _REQUEST(message)
        for message in messages
    ]


def redact_response(response: ModelResponse, viewer: Viewer) -> ModelResponse:
    """One turn, for this reader."""
    usage = redact_usage(response.usage, viewer)
    if viewer.view == "raw":
        return response if usage is response.usage else replace(response, usage=usage)
    parts = [part for item in group_into_items(response.parts) for part in _redact_item(item, viewer.rule)]
    return _RESPONSE(response, parts=parts, usage=usage)


def _redact_item(parts: list[ModelResponsePart], rule: ViewRule) -> list[ModelResponsePart]:
    """What is left of the parts of one item."""
    shown = [redact_part(part) for part in parts if is_shown(part, rule) and not _is_empty_thought(part)]
    if shown or not rule.items or ITEM_OF[type(parts[0])] != "reasoning":
        return shown
    # That there was a thought, and whether it was whole.
    whole = all(getattr(part, "complete", True) for part in parts)
    return [ThinkingPart("", complete=whole, item_id=parts[0].item_id)]


def _is_empty_thought(part: ModelResponsePart) -> bool:
    """Whether a thought says nothing to whoever cannot read what is opaque in it."""
    return isinstance(part, ThinkingPart) and not part.content
