"""Types of `contentBlockDelta`, which is the event of nearly every message.

Only the three kinds of text are decoded here. All other deltas, and those that do not match the types, are read once
more as plain JSON (`decode_lenient_object`): they are rare, and no part of them may be lost.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..lenient_json import DECODE_ERRORS


class ReasoningContent(msgspec.Struct, gc=False, rename="camel"):
    """A delta of `reasoningContent`. The whole block has one level more, which some servers send here, too."""

    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None
    reasoning_text: Any = None


class ToolUse(msgspec.Struct, gc=False):
    input: str | None = None


class Delta(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    reasoning_content: ReasoningContent | None = None
    tool_use: ToolUse | None = None


class DeltaEvent(msgspec.Struct, gc=False, rename="camel"):
    delta: Delta
    content_block_index: int = 0


_decode = msgspec.json.Decoder(DeltaEvent).decode


def read_delta(payload: bytes) -> DeltaEvent | None:
    """Decode a delta of text, reasoning or arguments; None for any other."""
    try:
        event = _decode(payload)
    except DECODE_ERRORS:
        return None
    delta = event.delta
    reasoning = delta.reasoning_content
    if reasoning is not None:
        return event if reasoning.reasoning_text is None else None
    return event if delta.text is not None or delta.tool_use is not None else None


def index_of(event: dict[str, Any]) -> int:
    index = event.get("contentBlockIndex")
    return index if type(index) is int else 0
