"""What stands in for earlier turns, as a model is told it: the user's words, first of all, so that any model takes it.

Every model reads what a user says, and many take no conversation that begins with their own. A compaction that a
provider made is left as it is: only that provider knows what it holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..conversation import joined
from ..parts import CompactionPart, ModelMessage, ModelRequest, ModelResponse, ModelResponsePart, UserPromptPart

LEAD = "This is what was said before, told again in less:\n\n"


def told(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The conversation, in which compactions of ours are words of the user's."""
    return joined(*(_told(message) for message in messages))


def _told(message: ModelMessage) -> list[ModelMessage]:
    if not isinstance(message, ModelResponse) or not any(map(_ours, message.parts)):
        return [message]
    out: list[ModelMessage] = []
    rest: list[ModelResponsePart] = []
    for part in message.parts:
        if not _ours(part):
            rest.append(part)
            continue
        if rest:
            out.append(replace(message, parts=rest))
            rest = []
        assert isinstance(part, CompactionPart)
        out.append(ModelRequest([UserPromptPart(f"{LEAD}{part.content}")]))
    return [*out, replace(message, parts=rest)] if rest else out


def _ours(part: ModelResponsePart) -> bool:
    return (
        isinstance(part, CompactionPart)
        and bool(part.content)
        and part.provider_name is None
        and part.signature is None
    )
