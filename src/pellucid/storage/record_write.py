"""What the record contains of stored data, and its entries, which are written in the transaction that stores the data.

The rules:

* A digest covers all values of a response, an item or an envelope that clients can see and that never change.
* Stored content adds an entry, and so does removed content. Entries are never changed. The salts are in another table,
  and the salt of removed content is deleted.
* A writer locks the row of a chain (`record_scopes`) until its transaction is over, so concurrent writers are
  serialized. The row contains the hash of the last entry, and a seal over it.
* Entries after a chain end that was written without the key get no seal either. So an attacker cannot wait until the
  gateway seals a forged end.
* One call adds all entries of a write: four statements for any number of chains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from os import urandom
from typing import Any, NamedTuple

import sqlalchemy as sa

from ..record import chain
from ..record.chain import ChainHead, EntryLine, canonical_json
from ..record.keys import Recording
from . import tables
from .statement import Execute, Operation, Params, Row, Statement, over_json_rows, raw_sql

RESPONSE, ITEM, ENVELOPE = "response", "item", "envelope"
"""Kinds of content."""

RECORDED_COLUMNS = {
    RESPONSE: (
        ("id", "created_at", "updated_at", "status", "model", "previous_id", "conversation_id", "background"),
        ("header", "input", "messages", "error", "log"),
    ),
    ITEM: (("id", "position"), ("item", "message")),
    ENVELOPE: (("seq", "id", "at", "sender", "family", "kind", "root", "path", "role", "of"), ("note", "body")),
}
"""For each kind: the columns whose values are in the first line of a content, and those whose bytes follow it."""


def build_content(kind: str, row: Mapping[str, Any]) -> list[bytes]:
    """Build the content of a row, in pieces."""
    values, pieces = RECORDED_COLUMNS[kind]
    # Times are floats, as a database returns them.
    fields = {name: float(row[name]) if name in ("created_at", "updated_at") else row[name] for name in values}
    return chain.frame_content(fields, {name: row[name] for name in pieces})


def conversation_scope(id: str) -> str:
    """Return the scope of a conversation or a chat."""
    return f"conversation:{id}"


def response_scope(id: str, conversation: str | None) -> str:
    """Return the scope of a response."""
    return f"response:{id}" if conversation is None else conversation_scope(conversation)


def space_scope(name: str) -> str:
    """Return the scope of a space."""
    return f"space:{name}"


class NewEntry(NamedTuple):
    """An entry to add to the record."""

    owner: str
    scope: str
    kind: str
    subject: str
    content: Sequence[bytes] | None = None  # the stored content, in pieces
    more: Mapping[str, Any] = {}


class RemovedContent(NamedTuple):
    """Content that is not stored any more."""

    owner: str
    scope: str
    kind: str  # of the content
    subject: str | None  # None: all contents of the kind in the scope


def to_milliseconds(now: float) -> int:
    """Convert seconds to milliseconds."""
    return int(now * 1000)


# A new row belongs to an empty chain, whose hash is not stored because it can be computed.
_LOCK_SCOPES = over_json_rows(
    "INSERT INTO record_scopes (owner, scope, number, hash, signed, since) "
    "SELECT {owner}, {scope}, 0, :nothing, 0, :time_ms FROM {requested} WHERE true ORDER BY 1, 2 "
    "ON CONFLICT (owner, scope) DO UPDATE SET number = record_scopes.number "
    "RETURNING owner, scope, number, hash, signed, seal",
    {"owner": "text", "scope": "text"},
    time_ms=sa.BigInteger,
    nothing=sa.LargeBinary,
)
_INSERT_ENTRIES = Statement(sa.insert(tables.record_entries))
_INSERT_SALTS = Statement(sa.insert(tables.record_salts))
UPDATE_HEAD = Statement(
    raw_sql(
        "UPDATE record_scopes SET number = :number, hash = :hash, signed = :signed, seal = :seal "
        "WHERE owner = :owner AND scope = :scope"
    )
)


def _delete_salts(*columns: str) -> Statement:
    """Build the statement that deletes the salts of removed contents, and returns the numbers of their entries."""
    values = ", ".join(f"{{{column}}}" for column in columns)
    return over_json_rows(
        f"DELETE FROM record_salts WHERE ({', '.join(columns)}) IN (SELECT {values} FROM {{requested}}) "
        "RETURNING owner, scope, number, subject",
        dict.fromkeys(columns, "text"),
    )


_DELETE_SALTS = _delete_salts("owner", "scope", "subject", "kind")
_DELETE_ALL_SALTS = _delete_salts("owner", "scope", "kind")


def head_of(row: Row) -> ChainHead:
    """Return the head of a chain from its row: owner, scope, number, hash, signed, seal."""
    return ChainHead._make((*row[:3], as_bytes(row[3]), *row[4:]))


def append_entries(
    recording: Recording, time_ms: int, new_entries: Sequence[NewEntry], *, accept: bool = False
) -> Operation[None]:
    """Append entries to the record, of one or more chains, in their order.

    `accept`: a chain is sealed again although its end was written without the key.
    """
    if not new_entries or not recording.is_enabled:
        return
    scopes: dict[tuple[str, str], list[NewEntry]] = {}
    for new in new_entries:
        scopes.setdefault((new.owner, new.scope), []).append(new)
    requested = canonical_json([{"owner": owner, "scope": scope} for owner, scope in sorted(scopes)]).decode()
    locked = yield Execute(_LOCK_SCOPES, {"requested": requested, "time_ms": time_ms, "nothing": b""})
    entries: list[Params] = []
    salts: list[Params] = []
    heads: list[Params] = []
    for head in map(head_of, locked):
        is_ours = accept or not head.number or recording.is_sealed(head)
        number, hash = head.number, head.hash if head.number else chain.genesis_hash(head.owner, head.scope)
        for new in scopes[head.owner, head.scope]:
            salt = None if new.content is None else urandom(chain.SALT_BYTES)
            entry = _entry_row(number + 1, hash, time_ms, new, salt)
            number, hash = entry["number"], entry["hash"]
            entries.append(entry)
            if salt is not None:
                salts.append({**entry, "kind": ENVELOPE if new.kind == "erased" else new.kind, "salt": salt})
        head = ChainHead(head.owner, head.scope, number, hash, head.signed, b"")  # which is not a valid seal
        heads.append((recording.seal(head) if is_ours else head)._asdict())
    yield Execute(_INSERT_ENTRIES, entries)
    if salts:
        yield Execute(_INSERT_SALTS, salts)
    yield Execute(UPDATE_HEAD, heads)
    recording.unsigned_count += len(entries)


def _entry_row(number: int, previous: bytes, time_ms: int, new: NewEntry, salt: bytes | None) -> Params:
    fields: Params = {"number": number, "at": time_ms, "kind": new.kind, "subject": new.subject}
    digest = None if salt is None or new.content is None else chain.content_digest(salt, new.content)
    entry = EntryLine(**fields, hash="", digest=None if digest is None else digest.hex(), more=dict(new.more))
    more = canonical_json(new.more) if new.more else None
    stored = {"digest": digest, "more": more, "hash": chain.entry_hash(previous, entry)}
    return {"owner": new.owner, "scope": new.scope, **fields, **stored}


def record_removals(
    recording: Recording,
    time_ms: int,
    why: str,
    removed: Iterable[RemovedContent],
    replacements: Mapping[str, Sequence[bytes]] | None = None,
) -> Operation[None]:
    """Record that contents were removed, and delete their salts.

    This is done even if recording is disabled now: the digests of earlier entries must not be open to guesses. Contents
    that were never recorded add no entry. `why` is `deleted`, `expired` or `erased`; `replacements` are the contents
    that are stored instead, by subject.
    """
    requested: dict[Statement, list[dict[str, Any]]] = {}
    for content in removed:
        statement = _DELETE_SALTS if content.subject is not None else _DELETE_ALL_SALTS
        requested.setdefault(statement, []).append(content._asdict())
    rows: list[Row] = []
    for statement, contents in requested.items():
        rows += yield Execute(statement, {"requested": canonical_json(contents).decode()})
    new_entries: list[NewEntry] = []
    for (owner, scope), of_scope in groupby(sorted(rows), lambda row: row[:2]):
        subjects: dict[int, str] = {}
        for _, _, number, subject in of_scope:
            if replacements and subject in replacements:
                more = {"ends": [[number, number]]}
                new_entries.append(NewEntry(owner, scope, why, subject, replacements[subject], more))
            else:
                subjects[number] = subject
        if subjects:
            subject = next(iter(subjects.values())) if len(subjects) == 1 else ""
            new_entries.append(NewEntry(owner, scope, why, subject, more={"ends": _ranges(subjects)}))
    enabled_recording = recording if recording.is_enabled else Recording(True, recording.signers)
    yield from append_entries(enabled_recording, time_ms, new_entries)


def record_removals_of(params: Params, removed: Iterable[RemovedContent]) -> Operation[None]:
    """Call `record_removals` with the parameters of a deletion: `recording`, `now`, and `why` (default: `deleted`)."""
    time_ms = to_milliseconds(params["now"])
    yield from record_removals(params["recording"], time_ms, params.get("why", "deleted"), removed)


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Convert sorted numbers to pairs of (first, last)."""
    pairs: list[list[int]] = []
    for number in numbers:
        if pairs and number == pairs[-1][1] + 1:
            pairs[-1][1] = number
        else:
            pairs.append([number, number])
    return pairs


def as_bytes(value: Any) -> bytes:
    """Convert a value to bytes: a SQLite column may contain a value of any type."""
    if value is None:
        return b""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
