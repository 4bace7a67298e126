"""The content that the record's digests cover: all stored values of a response, an item or an envelope that never
change.

`build_content` makes it from a row that is being stored, `read_contents` from stored rows. Both use the values of the
row, so a later change of any value that clients can see is detected. The content does not include values that the store
itself changes (the expiry of a response), or derived values (the search index).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..record import canonical_json, frame_content
from .statement import Execute, Operation, Row, Statement, over_json_rows

RESPONSE, ITEM, ENVELOPE = "response", "item", "envelope"
"""Kinds of content in the record's entries."""

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
"""For each kind: the columns whose values are in the JSON header, and those whose bytes follow it unchanged."""


class _Note(msgspec.Struct):
    redacted: list[str] = []


_note_decoder = msgspec.json.Decoder(_Note)


def entry_extra(note: bytes) -> dict[str, Any]:
    """Return the extra members of an envelope's record entry, from its stored note: the fields that were redacted."""
    if b'"redacted"' not in note:
        return {}
    try:
        redacted = _note_decoder.decode(note).redacted
    except msgspec.DecodeError:
        return {}
    return {"redacted": sorted(set(redacted))} if redacted else {}


def build_content(kind: str, row: Mapping[str, Any]) -> list[bytes]:
    """Build the content of a row, in pieces."""
    values, pieces = RECORDED_COLUMNS[kind]
    fields = {name: row[name] for name in values}
    for name in _FLOAT_COLUMNS.intersection(fields):
        fields[name] = float(fields[name])  # the type that a database returns
    return frame_content(fields, {name: row[name] for name in pieces})


def response_scope(id: str, conversation: str | None) -> str:
    """Return the scope of a response."""
    return f"response:{id}" if conversation is None else conversation_scope(conversation)


def conversation_scope(id: str) -> str:
    """Return the scope of a conversation or a chat."""
    return f"conversation:{id}"


def space_scope(name: str) -> str:
    """Return the scope of a space."""
    return f"space:{name}"


_SOURCES = {
    RESPONSE: (
        "responses AS one JOIN response_bodies AS two ON two.owner = one.owner AND two.response_id = one.id",
        "one.owner = {owner} AND one.id = {subject}",
        "two",
    ),
    ITEM: (
        "conversation_entries AS one",
        "one.owner = {owner} AND one.conversation_id = {parent} AND one.id = {subject}",
        "one",
    ),
    ENVELOPE: (
        "space_envelopes AS one",
        "one.owner = {owner} AND one.space = {parent} AND one.seq = {seq}",
        "one",
    ),
}
_QUERY_COLUMNS = {"entry": "integer", "owner": "text", "parent": "text", "subject": "text", "seq": "bigint"}


def _read_statement(kind: str) -> Statement:
    """Build the statement that reads contents of one kind. Each row begins with the index of its record entry."""
    tables, where, second = _SOURCES[kind]
    values, pieces = RECORDED_COLUMNS[kind]
    columns = ", ".join([*(f'one."{name}"' for name in values), *(f'{second}."{name}"' for name in pieces)])
    return over_json_rows(f"SELECT {{entry}}, {columns} FROM {{requested}}, {tables} WHERE {where}", _QUERY_COLUMNS)


_READ = {kind: _read_statement(kind) for kind in _SOURCES}


def read_contents(rows: Sequence[Row]) -> Operation[list[bytes | None]]:
    """Read the stored contents of record entries.

    Args:
        rows: Record entries, with the columns owner, scope, number, at, kind, subject, …, salt.

    Returns:
        For each entry, the content as it is stored now; None if there is none.
    """
    contents: list[bytes | None] = [None] * len(rows)
    queries: dict[str, list[dict[str, Any]]] = {}
    for entry, (owner, scope, _, _, kind, subject, *_, salt) in enumerate(rows):
        scope_kind, _, scope_id = str(scope).partition(":")
        kind = ENVELOPE if scope_kind == "space" else kind
        if salt is None or kind not in _READ or not isinstance(subject, str):
            continue
        seq = int(subject) if subject.isdecimal() and len(subject) < 19 else -1
        # Other spellings are not the number of an envelope, for example `07`.
        seq = seq if str(seq) == subject else -1
        query = {"entry": entry, "owner": owner, "parent": scope_id, "subject": subject, "seq": seq}
        queries.setdefault(kind, []).append(query)
    for kind, queries_of_kind in queries.items():
        values, pieces = RECORDED_COLUMNS[kind]
        text = canonical_json(queries_of_kind).decode("utf-8", "replace")
        for entry, *stored in (yield Execute(_READ[kind], {"requested": text})):
            row = dict(zip((*values, *pieces), stored, strict=True))
            for name in pieces:
                row[name] = None if row[name] is None else as_bytes(row[name])
            if row.get("background") in (0, 1):
                row["background"] = bool(row["background"])
            contents[entry] = b"".join(build_content(kind, row))
    return contents


def as_bytes(value: Any) -> bytes:
    """Convert a value to bytes: a SQLite column may contain a value of any type."""
    if value is None:
        return b""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
