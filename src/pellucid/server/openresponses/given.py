"""Input items, told again to a reader: as they were received, but for reasoning that this reader may not see.

A client gives back what it was shown. Who reads it later may hold another key of the same owner, with a lesser view.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...view import Reader, View

_SHOWN: dict[View, frozenset[str]] = {
    "summary": frozenset({"id", "type", "status", "summary", "encrypted_content"}),
    "sealed": frozenset({"id", "type", "status", "encrypted_content"}),
}
"""What is left of a reasoning item."""


def told_given(items: Iterable[dict[str, Any]], reader: Reader) -> list[dict[str, Any]]:
    """Those that there are for this reader, as they may see them."""
    if reader.view == "raw":
        return list(items)
    told = []
    for item in items:
        if item.get("type") != "reasoning":
            told.append(item)
        elif (shown := _SHOWN.get(reader.view)) is not None:
            told.append({"summary": [], **{name: value for name, value in item.items() if name in shown}})
    return told


__all__ = ["told_given"]
