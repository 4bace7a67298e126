"""What of a finished item is sealed, so that nothing is lost when a client sends it back.

* Reasoning is always sealed, all of it, whatever the view shows.
* Of parts that a client sees and sends back itself (text, refusals, calls), only the opaque data is sealed. A part with
  a signature or details is sealed without its text, with a digest of the text in its place. When it comes back, the
  signature goes to exactly the text that it signs, and to no other.
* Parts that no client protocol shows (provider's own tools, files, compactions, unknown blocks) are sealed whole.
* Of summaries that the gateway wrote, only a digest is sealed: they show whether the client changed their text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
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
from .seal import Sealed, canonical_number
from .visible_text import digest_of_texts

VisiblePart: TypeAlias = TextPart | RefusalPart | ToolCallPart
"""Parts that every client protocol shows."""

_OMITTED_FIELDS: dict[type[VisiblePart], dict[str, Any]] = {
    TextPart: {"content": "", "logprobs": None},
    RefusalPart: {"content": ""},
    ToolCallPart: {"args": None},
}
"""Fields that are not sealed: the client has them, or no model needs them back."""


def seal_item(
    parts: list[ModelResponsePart],
    start: ItemStartEvent,
    end: ItemEndEvent,
    origin: Origin,
    now_seconds: int,
    summaries: Sequence[str] = (),
) -> Sealed | None:
    """Return what to seal of one item.

    Args:
        parts: The parts that ended within the item.
        start: The item's start.
        end: The item's end.
        origin: The turn's origin.
        now_seconds: The time in whole seconds since 1970.
        summaries: The gateway's summaries of the item.

    Returns:
        The value to seal; None if the client has everything.
    """
    maker = end.origin or origin
    sealed_parts: list[ModelResponsePart] = []
    digests: list[str | None] = []
    for part in item_parts(parts, start, end):
        if isinstance(part, SealedPart):
            continue  # already a token
        if isinstance(part, VisiblePart):
            if not has_sealable_data(part):
                continue
            digests.append(digest(part))
            part = replace(part, **_OMITTED_FIELDS[type(part)])
        elif isinstance(part, ThinkingPart) and not (part.content or has_sealable_data(part)):
            continue
        else:
            digests.append(None)
        sealed_parts.append(part if part.origin is not None else replace(part, origin=maker))
    if not sealed_parts:
        return None
    return Sealed(
        sealed_parts, maker, start.id, now_seconds, digests if any(digests) else [], digest_of_texts(summaries)
    )


def has_sealable_data(part: ModelResponsePart) -> bool:
    """Whether the part has data that must return to its origin.

    The provider's id of a text or call is not such data: no provider requires it back.
    """
    return has_opaque_data(part) or (not isinstance(part, VisiblePart) and bool(getattr(part, "id", None)))


def digest(part: VisiblePart) -> str:
    """Return a digest of the visible content of a part.

    Arguments are compared as JSON values, because clients parse and encode them again.
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
        return json.dumps(json.loads(text, parse_float=canonical_number), sort_keys=True)
    except (ValueError, RecursionError):
        return text
