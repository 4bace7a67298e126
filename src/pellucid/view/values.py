"""Parts, errors and numbers, one at a time: what of each a reader gets.

Whole messages, as one reader gets them: what the redacted stream of the same turn would fold into.

What enrichment added (seals and our summaries) is in no message; who is to have it reads the events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from ..emit import items_of
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
from .fields import RULES, rule
from .reader import Reader, ViewRule

_Choice: TypeAlias = Callable[[Any, ViewRule], bool]


def _always(part: ModelResponsePart, rule: ViewRule) -> bool:
    return True


_LEAVES: dict[type[ModelResponsePart], _Choice] = {
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


def leaves(part: ModelResponsePart, rule: ViewRule) -> bool:
    """Whether a reader with this lesser view gets the part at all."""
    choice = _LEAVES.get(type(part))
    return choice is not None and choice(part, rule)


def shown_part(part: ModelResponsePart) -> ModelResponsePart:
    """What of a part that leaves may leave in it."""
    if isinstance(part, BuiltinToolReturnPart):
        part = replace(part, content=_readable(part.content))
    redacted: ModelResponsePart = RULES[type(part)](part)
    return redacted


_DEEPEST = 100
"""How deeply a tool's result may be nested. What is within that leaves in no lesser view."""


def _readable(value: Any, deep: int = 0) -> Any:
    """What a provider's own tool returned, without what the provider encrypted in it for itself."""
    if not isinstance(value, dict | list):
        return value
    if deep == _DEEPEST:
        return None
    if isinstance(value, list):
        return [_readable(one, deep + 1) for one in value]
    sealed = [name for name in value if isinstance(name, str) and name.startswith("encrypted")]
    return {name: _readable(one, deep + 1) for name, one in value.items() if name not in sealed}


_SHOWN_USAGE = rule(Usage)
_SHOWN_ERROR = rule(ErrorInfo)
_NO_COUNTS = Usage()
_KNOWN_CODES = frozenset({"context_length_exceeded"})
"""Codes that say the same whoever wrote them, and nothing else: programs act on them."""


def redact_usage(usage: Usage, reader: Reader) -> Usage:
    """The numbers this reader gets: all or none.

    Without counts no number is left. What was written less what can be read is what was thought; and what is read in
    the next turn holds the thoughts of the turn before.
    """
    if not reader.counts:
        return _NO_COUNTS
    return usage if reader.view == "raw" else _SHOWN_USAGE(usage)


def redact_error(error: ErrorInfo, reader: Reader) -> ErrorInfo:
    """The error as this reader gets it. What an upstream wrote may quote what it thought."""
    if reader.view == "raw":
        return error
    ours = error.said is None and error.native is None and error.status is None
    code = error.code if ours or error.code in _KNOWN_CODES else None
    return _SHOWN_ERROR(error, code=code, param=error.param if ours else None)


_REQUEST, _RESPONSE = rule(ModelRequest), rule(ModelResponse)


def redact_messages(messages: Sequence[ModelMessage], reader: Reader) -> list[ModelMessage]:
    """A conversation, for this reader. It is for reading: a model is to get the messages as they were."""
    return [
        redact_response(message, reader)
        if isinstance(message, ModelResponse)
        else message
        if reader.view == "raw"
        else _REQUEST(message)
        for message in messages
    ]


def redact_response(response: ModelResponse, reader: Reader) -> ModelResponse:
    """One turn, for this reader."""
    usage = redact_usage(response.usage, reader)
    if reader.view == "raw":
        return response if usage is response.usage else replace(response, usage=usage)
    parts = [part for item in items_of(response.parts) for part in _item(item, reader.rule)]
    return _RESPONSE(response, parts=parts, usage=usage)


def _item(parts: list[ModelResponsePart], rule: ViewRule) -> list[ModelResponsePart]:
    """What is left of the parts of one item."""
    shown = [shown_part(part) for part in parts if leaves(part, rule) and not _unsaid(part)]
    if shown or not rule.items or ITEM_OF[type(parts[0])] != "reasoning":
        return shown
    # That there was a thought, and whether it was whole.
    whole = all(getattr(part, "complete", True) for part in parts)
    return [ThinkingPart("", complete=whole, item_id=parts[0].item_id)]


def _unsaid(part: ModelResponsePart) -> bool:
    """Whether a thought says nothing to whoever cannot read what is opaque in it."""
    return isinstance(part, ThinkingPart) and not part.content
