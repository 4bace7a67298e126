"""What the encoders of several client protocols share."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from ..parts import BuiltinToolCallPart, ToolCallPart

DONE = b"data: [DONE]\n\n"
"""The end of a stream, as OpenAI's clients expect it."""
QUEUED = b": queued\n\n"
"""The comment of a stream whose request waits until the model is free."""
PARAGRAPH_BREAK = "\n\n"
"""Separates texts that become one."""

to_json = msgspec.json.Encoder().encode
"""Encodes as JSON, faster than `msgspec.json.encode`."""


def complete_arguments(part: ToolCallPart | BuiltinToolCallPart) -> tuple[str, str]:
    """Return the arguments of a call that has ended, and those among them that no delta had.

    Clients parse the arguments, so a complete call without arguments gets an empty object.
    """
    arguments = part.args_as_text()
    return (arguments, "") if arguments or not part.complete else ("{}", "{}")


def or_unset(count: int | None) -> int | UnsetType:
    """Return a count for a field that is absent where nothing was counted."""
    return UNSET if count is None else count
