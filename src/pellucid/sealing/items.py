"""What of a finished item must be sealed so that nothing of it is lost on its reader.

* Reasoning: always, and all of it, whatever its reader sees.
* What a reader sees and gives back by itself (text, refusals, calls): only what is opaque about it. A part with a
  signature or details is sealed without its text, with a digest of that text in its place: when
  it comes back, the signature goes to the very text it was made over, and to no other.
* What no client protocol shows (provider's own tools, files, compactions, unknown blocks): whole.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, TypeAlias

from msgspec.structs import replace

from ..events import ItemEndEvent, ItemStartEvent
from ..fold import item_parts
from ..parts import (
    ModelResponsePart,
    Origin,
    RefusalPart,
    SealedPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    has_opaque_data,
)
from .seal import Sealed

VisiblePart: TypeAlias = TextPart | RefusalPart | ToolCallPart
"""Parts that every client protocol shows."""

_OMITTED_FIELDS: dict[type[VisiblePart], dict[str, Any]] = {
    TextPart: {"content": "", "logprobs": None},
    RefusalPart: {"content": ""},
    ToolCallPart: {"args": None},
}
"""What their reader has, and what goes back to no model."""


def seal_item(
    parts: list[ModelResponsePart], start: ItemStartEvent, end: ItemEndEvent, origin: Origin, now_seconds: int
) -> Sealed | None:
    """What to seal of the item that `start` and `end` bracket; None if its reader has it all.

    `parts` are those that ended within it, `origin` is the turn's, `now` is in whole seconds.
    """
    maker = end.origin or origin
    sealed_parts: list[ModelResponsePart] = []
    digests: list[str | None] = []
    for part in item_parts(parts, start, end):
        if isinstance(part, SealedPart):
            continue  # it is a token already
        if isinstance(part, VisiblePart):
            if not has_opaque_content(part):
                continue
            digests.append(digest(part))
            part = replace(part, **_OMITTED_FIELDS[type(part)])
        elif isinstance(part, ThinkingPart) and not (part.content or has_opaque_content(part)):
            continue
        else:
            digests.append(None)
        sealed_parts.append(part if part.origin is not None else replace(part, origin=maker))
    if not sealed_parts:
        return None
    return Sealed(sealed_parts, maker, start.id, now_seconds, digests if any(digests) else [])


def has_opaque_content(part: ModelResponsePart) -> bool:
    """Whether the part holds what only its maker understands."""
    # An id of their maker's is nothing that text and calls need: no provider asks for it back.
    return has_opaque_data(part) or (not isinstance(part, VisiblePart) and bool(getattr(part, "id", None)))


def digest(part: VisiblePart) -> str:
    """A digest of what a reader sees of the part.

    Arguments are compared as the JSON value they are: clients parse them, and write them again in their own way.
    """
    if isinstance(part, ToolCallPart):
        content = [part.part_kind, part.tool_name, _canonical_arguments(part)]
    else:
        content = [part.part_kind, part.content]
    data = "\0".join(content).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _canonical_arguments(part: ToolCallPart) -> str:
    text = part.args_as_json()
    try:
        return json.dumps(json.loads(text, parse_float=_canonical_number), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _canonical_number(text: str) -> int | float:
    """1.0 and 1 are one number in JSON."""
    number = float(text)
    return int(number) if number.is_integer() else number
