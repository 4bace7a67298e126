"""What the encoder puts on messages and the request reader finds there again: ids, and what the text is.

* A message has the public id of its item; further messages of one item have `:2`, `:3` … behind it, and the span of a
  reasoning item has `:span`. So all ids of a thread differ, and each leads back to its item. What is made for an item
  that has no place of its own has the item's id with another prefix.
* `metadata.pellucid` of a reasoning message has `form` (`raw`, `summary`, `redacted`: how the text relates to the
  model's real thought) and, where the model was cut off in it, `"complete": false`. Clients from 1.0 keep it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from ...parts import Form

METADATA_KEY = "pellucid"
"""The key of ours in `metadata`."""

_SUFFIX = re.compile(r":(?:span|[2-9]|[1-9][0-9]+)\Z")


def span_id(item_id: str) -> str:
    return f"{item_id}:span"


def message_id(item_id: str, number: int = 1) -> str:
    """The id of an item's first, second … message."""
    return item_id if number == 1 else f"{item_id}:{number}"


def carrier_id(item_id: str) -> str:
    """The id of a reasoning message that is made to hold what is sealed of an item that has no place for it."""
    return f"rs_{item_id.partition('_')[2] or item_id}"


def item_id_of(id: str) -> str:
    """The item that a message or a span is of."""
    return _SUFFIX.sub("", id)


def make_metadata(**values: Any) -> dict[str, Any]:
    """Metadata that says this."""
    return {METADATA_KEY: values}


def form_of(metadata: Mapping[str, Any] | None) -> Form | None:
    """What a reasoning message's text is, if it says so."""
    form = _pellucid_fields(metadata).get("form")
    forms: tuple[Literal["raw"], Literal["summary"], Literal["redacted"]] = ("raw", "summary", "redacted")
    return next((known for known in forms if known == form), None)


def is_complete(metadata: Mapping[str, Any] | None) -> bool:
    """Whether nothing says that the model was cut off in it."""
    return _pellucid_fields(metadata).get("complete") is not False


def _pellucid_fields(metadata: Mapping[str, Any] | None) -> Mapping[str, Any]:
    fields = (metadata or {}).get(METADATA_KEY)
    return fields if isinstance(fields, dict) else {}
