"""Whole messages, as one reader gets them: what the redacted stream of the same turn would fold into.

What enrichment added (seals and our summaries) is in no message; who is to have it reads the events.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..emit import items_of
from ..events import ITEM_OF
from ..parts import ModelMessage, ModelRequest, ModelResponse, ModelResponsePart, ThinkingPart
from .fields import rule
from .reader import Reader, View
from .values import leaves, redact_usage, shown_part

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
    parts = [part for item in items_of(response.parts) for part in _item(item, reader.view)]
    return _RESPONSE(response, parts=parts, usage=usage)


def _item(parts: list[ModelResponsePart], view: View) -> list[ModelResponsePart]:
    """What is left of the parts of one item."""
    shown = [shown_part(part) for part in parts if leaves(part, view) and not _unsaid(part)]
    if shown or view == "hidden" or ITEM_OF[type(parts[0])] != "reasoning":
        return shown
    # That there was a thought, and whether it was whole.
    whole = all(getattr(part, "complete", True) for part in parts)
    return [ThinkingPart("", complete=whole, item_id=parts[0].item_id)]


def _unsaid(part: ModelResponsePart) -> bool:
    """Whether a thought says nothing to whoever cannot read what is opaque in it."""
    return isinstance(part, ThinkingPart) and not part.content
