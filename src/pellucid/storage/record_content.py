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

from ..record import canonical_json, frame_content
from .statement import Execute, Operation, Row, Statement, over_json_rows

RESPONSE, ITEM, ENVELOPE = "response", "item", "envelope"
"""What was stored, as the record's entries call it."""

_RESPONSE_VALUES = (
    "id",
    "created_at",
    "updated_at",
    "status",
    "model",
    "previous_id",
    "conversation_id",
    "background",
)
_RESPONSE_PIECES = ("header", "input", "messages", "error", "log")
_ENVELOPE_VALUES = ("seq", "id", "at", "sender", "family", "kind", "root", "path", "role", "of")

_FLOAT_COLUMNS = {"created_at", "updated_at"}

RECORDED_COLUMNS = {
    RESPONSE: (_RESPONSE_VALUES, _RESPONSE_PIECES),
    ITEM: (("id", "position"), ("item", "message")),
    ENVELOPE: (_ENVELOPE_VALUES, ("note", "body")),
}
"""Of each: the values, and what stands behind them as it is."""


class _Note(msgspec.Struct):
    redacted: list[str] = []


_note_decoder = msgspec.json.Decoder(_Note)


def entry_extra(note: bytes) -> dict[str, Any]:
    """What an envelope's entry says beside its digest, out of the note that is kept with it: what was redacted before
    it was stored."""
    if b'"redacted"' not in note:
        return {}
    try:
        redacted = _note_decoder.decode(note).redacted
    except msgspec.DecodeError:
        return {}
    return {"redacted": sorted(set(redacted))} if redacted else {}


def build_content(kind: str, row: Mapping[str, Any]) -> list[bytes]:
    """Of what is kept in this row."""
    values, pieces = RECORDED_COLUMNS[kind]
    fields = {name: row[name] for name in values}
    for name in _FLOAT_COLUMNS.intersection(fields):
        fields[name] = float(fields[name])  # as a database gives it back
    return frame_content(fields, {name: row[name] for name in pieces})


def response_scope(id: str, conversation: str | None) -> str:
    """The scope of a response."""
    return f"response:{id}" if conversation is None else conversation_scope(conversation)


def conversation_scope(id: str) -> str:
    """The scope of a conversation, or a chat."""
    return f"conversation:{id}"


def space_scope(name: str) -> str:
    """The scope of a space."""
    return f"space:{name}"


_SOURCES = {
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
_QUERY_COLUMNS = {"entry": "integer", "owner": "text", "place": "text", "subject": "text", "seq": "bigint"}


def _read_statement(kind: str) -> Statement:
    """Those that are asked for, with their numbers in what is asked."""
    tables, where, second = _SOURCES[kind]
    values, pieces = RECORDED_COLUMNS[kind]
    columns = ", ".join([*(f'one."{name}"' for name in values), *(f'{second}."{name}"' for name in pieces)])
    return over_json_rows(f"SELECT {{entry}}, {columns} FROM {{asked}}, {tables} WHERE {where}", _QUERY_COLUMNS)


_READ = {kind: _read_statement(kind) for kind in _SOURCES}


def read_contents(rows: Sequence[Row]) -> Operation[list[bytes | None]]:
    """Of each of these entries (owner, scope, number, at, kind, subject … salt), the content as it is stored now; None
    where it has none, or not any more."""
    contents: list[bytes | None] = [None] * len(rows)
    queries: dict[str, list[dict[str, Any]]] = {}
    for entry, (owner, scope, _, _, kind, subject, *_, salt) in enumerate(rows):
        scope_kind, _, scope_id = str(scope).partition(":")
        kind = ENVELOPE if scope_kind == "space" else kind
        if salt is None or kind not in _READ or not isinstance(subject, str):
            continue
        seq = int(subject) if subject.isdecimal() and len(subject) < 19 else -1
        # Nothing else is the number of an envelope: `07` is not.
        seq = seq if str(seq) == subject else -1
        query = {"entry": entry, "owner": owner, "place": scope_id, "subject": subject, "seq": seq}
        queries.setdefault(kind, []).append(query)
    for kind, queries_of_kind in queries.items():
        values, pieces = RECORDED_COLUMNS[kind]
        text = canonical_json(queries_of_kind).decode("utf-8", "replace")
        for entry, *stored in (yield Execute(_READ[kind], {"asked": text})):
            row = dict(zip((*values, *pieces), stored, strict=True))
            for name in pieces:
                row[name] = None if row[name] is None else as_bytes(row[name])
            if row.get("background") in (0, 1):
                row["background"] = bool(row["background"])
            contents[entry] = b"".join(build_content(kind, row))
    return contents


def as_bytes(value: Any) -> bytes:
    """SQLite keeps whatever somebody puts into a column."""
    if value is None:
        return b""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
