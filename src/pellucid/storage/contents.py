"""What the record's digests are of: all that is kept of a response, an item or an envelope, and does not change. How it
is made of what is being stored (`content`), and read back (`read`).

A content is made of a row's own values, the same whether the row is being written or was read back: so whatever is
changed in it later, of what anybody is ever shown, is found. What the store changes itself (when a response expires) is
not in it, nor is what is made of the rest (what search finds).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..record import canonical, framed
from .statement import Ask, Op, Row, Statement, over

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


_FROM = {
    RESPONSE: (
        "responses AS one JOIN response_bodies AS two ON two.owner = one.owner AND two.response_id = one.id",
        "one.owner = {owner} AND one.id = {subject}",
        "two",
    ),
    ITEM: (
        "conversation_entries AS one",
        "one.owner = {owner} AND one.conversation_id = {place} AND one.id = {subject}",
        "one",
    ),
    ENVELOPE: (
        "space_envelopes AS one",
        "one.owner = {owner} AND one.space = {place} AND one.seq = {seq}",
        "one",
    ),
}
_ASKED = {"entry": "integer", "owner": "text", "place": "text", "subject": "text", "seq": "bigint"}


def _reading(kind: str) -> Statement:
    """Those that are asked for, with their numbers in what is asked."""
    tables, where, second = _FROM[kind]
    values, pieces = COLUMNS[kind]
    columns = ", ".join([*(f'one."{name}"' for name in values), *(f'{second}."{name}"' for name in pieces)])
    return over(f"SELECT {{entry}}, {columns} FROM {{asked}}, {tables} WHERE {where}", _ASKED)


_READ = {kind: _reading(kind) for kind in _FROM}


def read(rows: Sequence[Row]) -> Op[list[bytes | None]]:
    """Of each of these entries (owner, scope, number, at, kind, subject … salt), the content as it is stored now; None
    where it has none, or not any more."""
    found: list[bytes | None] = [None] * len(rows)
    asked: dict[str, list[dict[str, Any]]] = {}
    for entry, (owner, scope, _, _, kind, subject, *_, salt) in enumerate(rows):
        where, _, of = str(scope).partition(":")
        kind = ENVELOPE if where == "space" else kind
        if salt is None or kind not in _READ or not isinstance(subject, str):
            continue
        seq = int(subject) if subject.isdecimal() and len(subject) < 19 else -1
        # Nothing else is the number of an envelope: `07` is not.
        seq = seq if str(seq) == subject else -1
        named = {"entry": entry, "owner": owner, "place": of, "subject": subject, "seq": seq}
        asked.setdefault(kind, []).append(named)
    for kind, some in asked.items():
        values, pieces = COLUMNS[kind]
        text = canonical(some).decode("utf-8", "replace")
        for entry, *stored in (yield Ask(_READ[kind], {"asked": text})):
            row = dict(zip((*values, *pieces), stored, strict=True))
            for name in pieces:
                row[name] = None if row[name] is None else as_bytes(row[name])
            if row.get("background") in (0, 1):
                row["background"] = bool(row["background"])
            found[entry] = b"".join(content(kind, row))
    return found


def as_bytes(value: Any) -> bytes:
    """SQLite keeps whatever somebody puts into a column."""
    if value is None:
        return b""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
