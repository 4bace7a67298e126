"""Export of the record from a store, as lines (`pellucid.record.chain`), with the state of one moment.

Everything is read in one transaction with a snapshot, page by page, and passed on line by line, because the record may
be larger than memory. Values that were changed in the store are exported as they are now, without a check. All rows are
scanned for contents without an entry, which are exported too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from ..record import chain
from ..record.chain import CheckpointLine, EntryLine, Line, ScopeLine, UnrecordedLine, canonical_json
from .database import COMMIT, SNAPSHOT
from .errors import StoreError
from .record_write import ENVELOPE, ITEM, RECORDED_COLUMNS, RESPONSE, as_bytes, build_content
from .responses import UNFINISHED
from .statement import Execute, Operation, Params, Row, Statement, over_json_rows, raw_sql

T = TypeVar("T")
L = TypeVar("L", bound=Line)

ROWS_PER_PAGE = 200
_LEAST = -(2**62)


class Pages:
    """Rows of `source` in the order of a key, page by page.

    A row has the columns of the key (given with values before the first row), `columns`, and `flags`, which are
    expressions over the rows of a page (`found`).
    """

    def __init__(self, key: dict[str, str | int], columns: str, source: str, flags: str | None = None) -> None:
        self.start: Params = {f"after_{column.rpartition('.')[2]}": least for column, least in key.items()}
        names, after = ", ".join(key), ", ".join(f":{name}" for name in self.start)
        text = (
            f"SELECT {names}, {columns} FROM {source} AND ({names}) > ({after}) ORDER BY {names} LIMIT {ROWS_PER_PAGE}"
        )
        if flags is not None:
            places = ", ".join(str(place + 1) for place in range(len(key)))
            text = f"SELECT found.*, {flags} FROM ({text}) AS found ORDER BY {places}"
        self.statement = Statement(raw_sql(text))


_OF_OWNER = "owner = coalesce(:only_owner, owner)"
_SELECTED = "e.owner = coalesce(:only_owner, e.owner) AND e.scope = coalesce(:only_scope, e.scope)"
_CONTENT_KIND = "CASE e.kind WHEN 'erased' THEN 'envelope' ELSE e.kind END"
_CHECKPOINTS = Pages({"serial": _LEAST}, "owner, number, body, signature", f"record_checkpoints WHERE {_OF_OWNER}")
_ENTRIES = Pages(
    {"e.owner": "", "e.scope": "", "e.number": _LEAST},
    "e.at, e.kind, e.subject, e.hash, e.digest, e.more, s.salt, "
    "c.number, coalesce(c.hash, ''), c.signed, c.since, c.seal",
    "record_entries AS e LEFT JOIN record_scopes AS c ON (c.owner, c.scope) = (e.owner, e.scope) "
    "LEFT JOIN record_salts AS s ON (s.owner, s.scope, s.subject, s.kind, s.number) "
    f"= (e.owner, e.scope, e.subject, {_CONTENT_KIND}, e.number) WHERE {_SELECTED}",
)
SCOPES = Pages(
    {"e.owner": "", "e.scope": ""},
    "e.number, e.hash, e.signed, e.since, e.seal",
    f"record_scopes AS e WHERE {_SELECTED}",
    "EXISTS (SELECT 1 FROM record_entries AS e WHERE (e.owner, e.scope) = (found.owner, found.scope))",
)
_SINCE = Statement(raw_sql(f"SELECT owner, min(since) FROM record_scopes WHERE {_OF_OWNER} GROUP BY owner"))


def _scan(key: dict[str, str | int], columns: str, source: str, entry: str, first: str = "NULL") -> Pages:
    """Return stored rows, with the scope and the subject of the entry, the time (ms), and whether there is an entry.

    If there is none, `first` is the number of the first recorded row of the same conversation or space.
    """
    has_entry = f"EXISTS (SELECT 1 FROM {entry})"
    flags = f"{has_entry}, CASE WHEN {has_entry} THEN NULL ELSE {first} END"
    return Pages(key, columns, f"{source} AND {_OF_OWNER}", flags)


_SALT = "salt"
_has_salt = (
    "record_salts AS s WHERE (s.owner, s.scope, s.subject, s.kind) = (found.owner, found.in_scope, found.named, '{}')"
)
_SCANS = {
    RESPONSE: _scan(
        {"owner": "", "id": ""},
        "coalesce('conversation:' || conversation_id, 'response:' || id) AS in_scope, id AS named, updated_at * 1000.0",
        f"responses WHERE status NOT IN {UNFINISHED}",
        _has_salt.format(RESPONSE),
    ),
    ITEM: _scan(
        {"owner": "", "conversation_id": "", "position": _LEAST},
        "'conversation:' || conversation_id AS in_scope, id AS named, (SELECT c.created_at * 1000.0 "
        "FROM conversations AS c WHERE (c.owner, c.id) = (conversation_entries.owner, conversation_id))",
        "conversation_entries WHERE true",
        _has_salt.format(ITEM),
        "(SELECT min(i.position) FROM record_salts AS s JOIN conversation_entries AS i "
        "ON (i.owner, i.conversation_id, i.id) = (s.owner, found.conversation_id, s.subject) "
        "WHERE (s.owner, s.scope, s.kind) = (found.owner, found.in_scope, 'item'))",
    ),
    ENVELOPE: _scan(
        {"owner": "", "space": "", "seq": _LEAST},
        "'space:' || space AS in_scope, CAST(seq AS text) AS named, NULL",
        "space_envelopes WHERE true",
        _has_salt.format(ENVELOPE),
        "(SELECT subject FROM record_entries AS e WHERE (e.owner, scope, number) = (found.owner, found.in_scope, 1))",
    ),
    _SALT: _scan(
        {"owner": "", "scope": "", "subject": "", "kind": "", "number": _LEAST},
        "scope AS in_scope, subject AS named, NULL",
        "record_salts WHERE true",
        "record_entries AS e WHERE e.digest IS NOT NULL AND "
        f"(e.owner, e.scope, e.subject, {_CONTENT_KIND}, e.number) "
        "= (found.owner, found.scope, found.subject, found.kind, found.number)",
    ),
}
_PLACES = {
    RESPONSE: (
        "(SELECT r.*, b.header, b.input, b.messages, b.error, b.log FROM responses AS r "
        "JOIN response_bodies AS b ON (b.owner, b.response_id) = (r.owner, r.id)) AS stored",
        "stored.id = {subject}",
    ),
    ITEM: ("conversation_entries AS stored", "stored.conversation_id = {parent} AND stored.id = {subject}"),
    ENVELOPE: ("space_envelopes AS stored", "stored.space = {parent} AND stored.seq = {seq}"),
}
_COLUMNS = {kind: [*values, *pieces] for kind, (values, pieces) in RECORDED_COLUMNS.items()}
_CONTENTS = {
    kind: over_json_rows(
        ", ".join(["SELECT {place}", *(f'stored."{name}"' for name in _COLUMNS[kind])])
        + f" FROM {{requested}}, {table} WHERE stored.owner = {{owner}} AND {where}",
        {"place": "integer", "owner": "text", "parent": "text", "subject": "text", "seq": "bigint"},
    )
    for kind, (table, where) in _PLACES.items()
}


def _with_contents(rows: list[Row]) -> Operation[list[Row]]:
    """Add to each row of `_ENTRIES` the fields of its line that have the content as it is stored now, if it is."""
    fields: list[dict[str, Any]] = [{} for _ in rows]
    requested: dict[str, list[Params]] = {}
    for place, (owner, scope, _, _, kind, subject, _, _, _, salt, *_) in enumerate(rows):
        scope_kind, _, parent = str(scope).partition(":")
        kind = ENVELOPE if scope_kind == "space" else kind
        if salt is not None and kind in _CONTENTS and isinstance(subject, str):
            seq = int(subject) if subject.isdecimal() and len(subject) < 19 else -1
            # Other spellings are not the number of an envelope, for example `07`.
            key = {"owner": owner, "parent": parent, "subject": subject, "seq": seq if str(seq) == subject else -1}
            requested.setdefault(kind, []).append({"place": place, **key})
    for kind, keys in requested.items():
        text = canonical_json(keys).decode("utf-8", "replace")
        for place, *stored in (yield Execute(_CONTENTS[kind], {"requested": text})):
            row = dict(zip(_COLUMNS[kind], stored, strict=True))
            row |= {name: as_bytes(row[name]) for name in RECORDED_COLUMNS[kind][1] if row[name] is not None}
            if row.get("background") in (0, 1):
                row["background"] = bool(row["background"])
            try:
                content = b"".join(build_content(kind, row))
            except (TypeError, ValueError):  # values of types that are never stored
                content = repr(row).encode()
            try:
                fields[place] = {"content": content.decode()}
            except UnicodeDecodeError:
                fields[place] = {"content_base64": content}
    return [(*row, content) for row, content in zip(rows, fields, strict=True)]


class ExportStopped(Exception):
    """Ends an export whose receiver of lines failed. The cause is that failure, which is not an error of the store."""


class Export:
    """An export of the record, which can be run once. `begin` selects an owner and a scope."""

    def __init__(self, write_line: Callable[[Line], object], begin: chain.Begin, keys: Sequence[chain.KeyLine]) -> None:
        self._write_line, self._begin, self._keys = write_line, begin, keys
        self._lines = 0
        self._chain: Row | None = None
        self._since: dict[Any, Any] = {}

    def run(self) -> Operation[None]:
        """Export the record as of one moment (see the module)."""
        if self._lines:  # the store repeats the read
            raise StoreError
        yield SNAPSHOT
        try:
            yield from self._run()
        finally:
            yield COMMIT  # nothing was written: this ends the snapshot

    def _run(self) -> Operation[None]:
        self._write(self._begin)
        for key in self._keys:
            self._write(key)
        selection: Params = {"only_owner": self._begin.owner, "only_scope": self._begin.scope}
        self._since = dict(row[:2] for row in (yield Execute(_SINCE, selection)))
        sections: list[tuple[Pages, Callable[..., None]]] = [
            (_CHECKPOINTS, self._add_checkpoint),
            (_ENTRIES, self._add_entry),
            (SCOPES, self._add_empty_chain),
            *((pages, partial(self._add_unrecorded, kind)) for kind, pages in _SCANS.items()),
        ]
        for pages, add_row in sections:
            after = pages.start
            while rows := (yield Execute(pages.statement, {**selection, **after})):
                after = dict(zip(after, rows[-1], strict=False))
                for row in (yield from _with_contents(rows)) if pages is _ENTRIES else rows:
                    add_row(*row)
        self._write(chain.End(lines=self._lines))

    def _add_checkpoint(self, serial: Any, owner: Any, number: Any, body: Any, signature: Any) -> None:
        checkpoint = _decode_canonical(as_bytes(body), chain.Checkpoint)
        if self._begin.scope is None or (checkpoint is not None and self._begin.scope in checkpoint.heads):
            signature = as_bytes(signature)
            self._add(CheckpointLine, owner, number, serial, checkpoint=checkpoint, signature=signature)

    def _add_entry(self, *row: Any) -> None:
        if row[:2] != self._chain:  # a chain may have no row in `record_scopes`
            self._chain = row[:2]
            self._add(ScopeLine, *row[:2], *row[10:15])
        self._add(EntryLine, *row[2:10], **row[15])

    def _add_empty_chain(self, *row: Any) -> None:
        if not row[-1]:
            self._add(ScopeLine, *row[:-1])

    def _add_unrecorded(self, kind: str, *row: Any) -> None:
        *key, scope, subject, stored_at, has_entry, first = row
        if has_entry or self._begin.scope not in (None, scope):
            return
        if first is not None:
            is_older = str(first).isdecimal() and key[-1] < int(first)
        elif kind == ENVELOPE:
            is_older = True  # a space without any record entry is not recorded on purpose
        else:
            since = self._since.get(key[0])
            is_older = kind != _SALT and (since is None or (stored_at is not None and stored_at < since))
        self._add(UnrecordedLine, key[0], scope, kind, subject, before=is_older)

    def _add(self, struct: type[L], *values: Any, **fields: Any) -> None:
        """Write a line with stored values, in the order of its fields, and `fields`.

        After tampering, a SQLite column may contain a value of any type.
        """
        named = zip(struct.__struct_fields__, values, strict=False)
        self._write(struct(**{name: _CONVERT.get(name, str)(value) for name, value in named}, **fields))

    def _write(self, line: Line) -> None:
        self._lines += 1
        try:
            self._write_line(line)
        except Exception as error:
            raise ExportStopped from error


def decode_more(value: Any) -> dict[str, Any]:
    """Decode the extra members of an entry.

    A value that is not canonical JSON was not written by Pellucid. It is returned as `{"unreadable": <hexadecimal>}`,
    which does not match the hash of the entry.
    """
    data = as_bytes(value)
    return {} if value is None else _decode_canonical(data, dict[str, Any]) or {"unreadable": data.hex()}


def _decode_canonical(data: bytes, type: type[T]) -> T | None:
    """Decode canonical JSON; None for other data, which Pellucid did not write."""
    try:
        value = msgspec.json.decode(data, type=type)
        return value if canonical_json(msgspec.to_builtins(value)) == data else None
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


_CONVERT: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        ("number", "at", "signed", "since", "serial"), lambda value: value if isinstance(value, int) else -1
    ),
    **dict.fromkeys(("hash", "digest", "salt", "seal"), lambda value: None if value is None else as_bytes(value).hex()),
    "more": decode_more,
}
"""How a stored value becomes a field of a line, by its name. Others are texts."""
