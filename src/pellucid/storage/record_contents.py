"""The contents of entries of the record, as they are stored now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from ..record import canonical
from .contents import COLUMNS, ENVELOPE, ITEM, RESPONSE, content
from .statement import Ask, Op, Row, Statement, written

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
_ASKED = {"asked": "integer", "owner": "text", "place": "text", "subject": "text", "seq": "bigint"}


def _reading(kind: str) -> Statement:
    """Those that are asked for, with their numbers in what is asked."""
    tables, where, second = _FROM[kind]
    values, pieces = COLUMNS[kind]
    columns = [*(f'one."{name}"' for name in values), *(f'{second}."{name}"' for name in pieces)]
    columns_of = ", ".join(f"{name} {type}" for name, type in _ASKED.items())
    general = {name: f"asked.{name}" for name in _ASKED}
    sqlite = {name: f"json_extract(asked.value, '$.{name}')" for name in _ASKED}
    text = "SELECT {asked}, " + ", ".join(columns) + " FROM {{}}, {tables} WHERE {where}"

    def made(names: dict[str, str], source: str) -> Any:
        filled = text.format(asked=names["asked"], tables=tables, where=where.format(**names))
        return written(filled.format(source), asked=sa.Text)

    return Statement(
        made(general, f"json_to_recordset(CAST(:asked AS json)) AS asked({columns_of})"),
        sqlite=made(sqlite, "json_each(:asked) AS asked"),
    )


_READ = {kind: _reading(kind) for kind in _FROM}


def read(rows: Sequence[Row]) -> Op[list[bytes | None]]:
    """Of each of these entries (owner, scope, number, at, kind, subject … salt), as the record's content; None where
    it has none, or not any more."""
    found: list[bytes | None] = [None] * len(rows)
    asked: dict[str, list[dict[str, Any]]] = {}
    for place, (owner, scope, _, _, kind, subject, *_, salt) in enumerate(rows):
        where, _, of = str(scope).partition(":")
        kind = ENVELOPE if where == "space" else kind
        if salt is None or kind not in _READ or not isinstance(subject, str):
            continue
        seq = int(subject) if subject.isdecimal() and len(subject) < 19 else -1
        # Nothing else is the number of an envelope: `07` is not.
        seq = seq if str(seq) == subject else -1
        named = {"asked": place, "owner": owner, "place": of, "subject": subject, "seq": seq}
        asked.setdefault(kind, []).append(named)
    for kind, some in asked.items():
        values, pieces = COLUMNS[kind]
        text = canonical(some).decode("utf-8", "replace")
        for place, *stored in (yield Ask(_READ[kind], {"asked": text})):
            row = dict(zip((*values, *pieces), stored, strict=True))
            for name in pieces:
                row[name] = _piece(row[name])
            if row.get("background") in (0, 1):
                row["background"] = bool(row["background"])
            found[place] = b"".join(content(kind, row))
    return found


def _piece(value: Any) -> bytes | None:
    """SQLite keeps whatever somebody puts into a column."""
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode("utf-8", "surrogateescape")
