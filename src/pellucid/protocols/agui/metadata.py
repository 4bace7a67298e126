"""Ids and metadata that the encoder writes on messages and that the request parser reads again.

* A message has the public id of its item. Further messages of the item have the suffix `:2`, `:3` …, and the span of a
  reasoning item has `:span`. So all ids of a thread differ, and each id contains that of its item. A reasoning message
  that only carries a token has the id of the item with another prefix.
* `metadata.pellucid` of a reasoning message has `form` (`raw`, `summary` or `redacted`: how the text relates to the
  model's thought) and, where the model was cut off, `"complete": false`. Clients from 1.0 return it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from ...parts import Form

METADATA_KEY = "pellucid"
"""Our key in `metadata`."""

_SUFFIX = re.compile(r":(?:span|[2-9]|[1-9][0-9]+)\Z")


def span_id(item_id: str) -> str:
    """Return the id of the span of a reasoning item."""
    return f"{item_id}:span"


def message_id(item_id: str, number: int = 1) -> str:
    """Return the id of a message of an item; the first message has number 1."""
    return item_id if number == 1 else f"{item_id}:{number}"


def carrier_id(item_id: str) -> str:
    """Return the id of a reasoning message that carries the token of an item that has no carrier of its own."""
    return f"rs_{item_id.partition('_')[2] or item_id}"


def item_id_of(id: str) -> str:
    """Return the id of the item that a message or a span belongs to."""
    return _SUFFIX.sub("", id)


def make_metadata(**values: Any) -> dict[str, Any]:
    """Return `metadata` with these values under our key."""
    return {METADATA_KEY: values}


def form_of(metadata: Mapping[str, Any] | None) -> Form | None:
    """Return the form of a reasoning message's text; None if its metadata has none that is known."""
    form = _pellucid_fields(metadata).get("form")
    forms: tuple[Literal["raw"], Literal["summary"], Literal["redacted"]] = ("raw", "summary", "redacted")
    return next((known for known in forms if known == form), None)


def is_complete(metadata: Mapping[str, Any] | None) -> bool:
    """Return whether a reasoning message is complete: its metadata has no `"complete": false`."""
    return _pellucid_fields(metadata).get("complete") is not False


def _pellucid_fields(metadata: Mapping[str, Any] | None) -> Mapping[str, Any]:
    fields = (metadata or {}).get(METADATA_KEY)
    return fields if isinstance(fields, dict) else {}
