"""Input items, told again to a reader: as they were received, but for what this reader may not see: reasoning, the
log-probabilities of an answer (some models reason and answer in one text), and fields that nobody here knows.

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

_ITEM = frozenset(
    {"id", "type", "status", "role", "phase", "content", "call_id", "name", "arguments", "output", "encrypted_content"}
)
"""What is left of another."""

_CONTENT = frozenset(
    {
        *("type", "text", "annotations", "refusal", "image_url", "video_url", "detail"),
        *("filename", "file_id", "file_data", "file_url", "input_audio"),
    }
)
"""What is left of a part of its content or output."""


def told_given(items: Iterable[dict[str, Any]], reader: Reader) -> list[dict[str, Any]]:
    """Those that there are for this reader, as they may see them."""
    if reader.view == "raw":
        return list(items)
    told = []
    for item in items:
        if item.get("type") != "reasoning":
            told.append({name: _contents(value) for name, value in item.items() if name in _ITEM})
        elif (shown := _SHOWN.get(reader.view)) is not None:
            told.append({"summary": [], **{name: value for name, value in item.items() if name in shown}})
    return told


def _contents(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [{name: one for name, one in part.items() if name in _CONTENT} for part in value]


__all__ = ["told_given"]
