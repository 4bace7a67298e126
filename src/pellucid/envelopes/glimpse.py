"""Which envelope a frame is that is too large to be read: its id and kind, where they stand near its beginning.

So much is looked at and no more, whatever is in it; nothing is decoded but the two short texts themselves.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from .ids import is_id

LOOKED_AT = 4096
"""Bytes or characters."""

_TOKEN = re.compile(r'\s*("(?>(?:[^"\\]|\\.)*)"|[\[{]|[\]}]|[:,]|[^\s\[\]{}:,"]++)', re.DOTALL)
_WANTED = ("id", "kind")


def glimpse(frame: bytes | str | dict[str, Any]) -> tuple[str | None, str | None]:
    """The id and the kind of the envelope in this frame, each None where it cannot be told."""
    if isinstance(frame, dict):
        found = {name: frame.get(name) for name in _WANTED}
    else:
        start = frame[:LOOKED_AT]
        found = _named(start.decode(errors="replace") if isinstance(start, bytes) else start)
    id, kind = (value if is_id(value) else None for value in (found.get("id"), found.get("kind")))
    return id, kind


def _named(text: str) -> dict[str, Any]:
    """The texts among the object's own members, as far as the text goes."""
    found: dict[str, Any] = {}
    depth, at, name, before = 0, 0, "", ""
    while (token := _TOKEN.match(text, at)) is not None:
        word, at = token[1], token.end()
        if word in "[{":
            depth += 1
        elif word in "]}":
            depth -= 1
            if depth <= 0:
                break
        elif depth == 1 and word[0] == '"':
            said = _said(word)
            if before == ":" and name in _WANTED:
                found[name] = said
            name = said or "" if before in ("{", ",") else ""
        before = word
    return found


def _said(word: str) -> str | None:
    try:
        return msgspec.json.decode(word, type=str)
    except (msgspec.MsgspecError, UnicodeError):
        return None
