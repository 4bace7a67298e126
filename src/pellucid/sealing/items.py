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
from ..parts import ModelResponsePart, Origin, RefusalPart, SealedPart, TextPart, ThinkingPart, ToolCallPart, has_opaque
from .seal import Sealed

VisiblePart: TypeAlias = TextPart | RefusalPart | ToolCallPart
"""Parts that every client protocol shows."""

_LEFT_OUT: dict[type[VisiblePart], dict[str, Any]] = {
    TextPart: {"content": "", "logprobs": None},
    RefusalPart: {"content": ""},
    ToolCallPart: {"args": None},
}
"""What their reader has, and what goes back to no model."""


def seal_item(
    parts: list[ModelResponsePart], start: ItemStartEvent, end: ItemEndEvent, origin: Origin, now: int
) -> Sealed | None:
    """What to seal of the item that `start` and `end` bracket; None if its reader has it all.

    `parts` are those that ended within it, `origin` is the turn's, `now` is in whole seconds.
    """
    whose = end.origin or origin
    kept: list[ModelResponsePart] = []
    digests: list[str | None] = []
    for part in item_parts(parts, start, end):
        if isinstance(part, SealedPart):
            continue  # it is a token already
        if isinstance(part, VisiblePart):
            if not is_opaque(part):
                continue
            digests.append(digest(part))
            part = replace(part, **_LEFT_OUT[type(part)])
        elif isinstance(part, ThinkingPart) and not (part.content or is_opaque(part)):
            continue
        else:
            digests.append(None)
        kept.append(part if part.origin is not None else replace(part, origin=whose))
    if not kept:
        return None
    return Sealed(kept, whose, start.id, now, digests if any(digests) else [])


def is_opaque(part: ModelResponsePart) -> bool:
    """Whether the part holds what only its maker understands."""
    # An id of their maker's is nothing that text and calls need: no provider asks for it back.
    return has_opaque(part) or (not isinstance(part, VisiblePart) and bool(getattr(part, "id", None)))


def digest(part: VisiblePart) -> str:
    """A digest of what a reader sees of the part.

    Arguments are compared as the JSON value they are: clients parse them, and write them again in their own way.
    """
    if isinstance(part, ToolCallPart):
        seen = [part.part_kind, part.tool_name, _arguments(part)]
    else:
        seen = [part.part_kind, part.content]
    data = "\0".join(seen).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _arguments(part: ToolCallPart) -> str:
    text = part.args_as_json()
    try:
        return json.dumps(json.loads(text, parse_float=_number), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _number(text: str) -> int | float:
    """1.0 and 1 are one number in JSON."""
    number = float(text)
    return int(number) if number.is_integer() else number
