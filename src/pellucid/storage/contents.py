"""What the record's digests are of: all that is kept of a response, an item or an envelope, and does not change.

A content is made of a row's own values, the same whether the row is being written or was read back: so whatever is
changed in it later, of what anybody is ever shown, is found. What the store changes itself (when a response expires) is
not in it, nor is what is made of the rest (what search finds).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..record import framed

RESPONSE, ITEM, ENVELOPE = "response", "item", "envelope"
"""What was stored, as the record's entries call it."""

_OF_RESPONSE = (
    "id",
    "created_at",
    "updated_at",
    "status",
    "model",
    "previous_id",
    "conversation_id",
    "background",
)
_PIECES_OF_RESPONSE = ("header", "input", "messages", "error", "log")
_OF_ENVELOPE = ("seq", "id", "at", "sender", "family", "kind", "root", "path", "role", "of")

_SECONDS = {"created_at", "updated_at"}

COLUMNS = {
    RESPONSE: (_OF_RESPONSE, _PIECES_OF_RESPONSE),
    ITEM: (("id", "position"), ("item", "message")),
    ENVELOPE: (_OF_ENVELOPE, ("note", "body")),
}
"""Of each: the values, and what stands behind them as it is."""


class _Note(msgspec.Struct):
    redacted: list[str] = []


_note = msgspec.json.Decoder(_Note)


def beside(note: bytes) -> dict[str, Any]:
    """What an envelope's entry says beside its digest, out of the note that is kept with it: what was redacted before
    it was stored."""
    if b'"redacted"' not in note:
        return {}
    try:
        redacted = _note.decode(note).redacted
    except msgspec.DecodeError:
        return {}
    return {"redacted": sorted(set(redacted))} if redacted else {}


def content(kind: str, row: Mapping[str, Any]) -> list[bytes]:
    """Of what is kept in this row."""
    values, pieces = COLUMNS[kind]
    fields = {name: row[name] for name in values}
    for name in _SECONDS.intersection(fields):
        fields[name] = float(fields[name])  # as a database gives it back
    return framed(fields, {name: row[name] for name in pieces})


def of_response(id: str, conversation: str | None) -> str:
    """The scope of a response."""
    return f"response:{id}" if conversation is None else of_conversation(conversation)


def of_conversation(id: str) -> str:
    """The scope of a conversation, or a chat."""
    return f"conversation:{id}"


def of_space(name: str) -> str:
    """The scope of a space."""
    return f"space:{name}"
