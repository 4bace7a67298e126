"""Export of the record from a store, as lines (`pellucid.record.lines`), with the state of one moment.

Everything is read in one transaction with a snapshot, and passed on line by line, because the record may be larger than
memory. Values that were changed in the store are exported as they are now, without a check.

Stored contents without a record entry are exported too. They may be older than the record, or were stored while
recording was disabled, or were inserted by other means. All rows are scanned for them, page by page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import sqlalchemy as sa

from ..record import Begin, CheckpointLine, End, EntryLine, KeyLine, Line, ScopeLine, UnrecordedLine
from ..record.keys import decode_checkpoint
from ..record.lines import content_fields
from . import record_content, tables
from .database import COMMIT, SNAPSHOT
from .record_content import ENVELOPE, ITEM, RESPONSE, as_bytes
from .record_write import decode_more, is_of_owner, is_selected
from .responses import UNFINISHED
from .statement import LIMIT, Execute, Operation, Params, Row, Statement, param

ENTRIES_PER_PAGE = 200
"""Number of record entries that are read with one query, with their contents."""
ROWS_PER_SCAN = 1_000
"""Number of stored rows that one query scans for contents without an entry."""

_S, _E, _K, _C = tables.record_scopes, tables.record_entries, tables.record_salts, tables.record_checkpoints

_LOWEST = -(2**62)
_number = param("after_number", sa.BigInteger)
_after = (param("after_owner"), param("after_scope"), _number)
_START: Params = {"after_owner": "", "after_scope": "", "after_number": _LOWEST}

LineWriter: TypeAlias = Callable[[Line], None]


class Export(NamedTuple):
    """Parameters of an export."""

    write_line: LineWriter
    begin: Begin
    keys: tuple[KeyLine, ...]


def export(request: Export) -> Operation[None]:
    """Export the record as of one moment (see the module)."""
    yield SNAPSHOT
    try:
        yield from _export_lines(request)
    finally:
        yield COMMIT  # nothing was written: this ends the snapshot


def _export_lines(request: Export) -> Operation[None]:
    lines = 0

    def write_line(line: Line) -> None:
        nonlocal lines
        request.write_line(line)
        lines += 1

    write_line(request.begin)
    for key in request.keys:
        write_line(key)
    selection: Params = {"only_owner": request.begin.owner, "only_scope": request.begin.scope}
    yield from _write_checkpoints(selection, write_line)
    yield from _write_chains(selection, write_line)
    yield from _write_empty_chains(selection, write_line)
    yield from _write_unrecorded(selection, write_line)
    yield from _write_orphan_salts(selection, write_line)
    write_line(End(lines=lines))


# ----------------------------------------------------------------------------------------------- the record


_CHECKPOINTS = Statement(
    sa.select(_C.c.owner, _C.c.number, _C.c.serial, _C.c.body, _C.c.signature)
    .where(is_of_owner(_C.c.owner), _C.c.serial > _number)
    .order_by(_C.c.serial)
    .limit(LIMIT)
)
_as_stored = sa.case((_E.c.kind == "erased", ENVELOPE), else_=_E.c.kind)
"""The kind of the content of an entry."""
_ENTRY_COLUMNS = ("owner", "scope", "number", "at", "kind", "subject", "digest", "more", "hash")
_ENTRY_WIDTH = len(_ENTRY_COLUMNS) + 1  # and the salt
_HEAD_COLUMNS = [_S.c[name] for name in ("number", "hash", "signed", "since", "seal")]
_ENTRIES = Statement(
    sa.select(*(_E.c[name] for name in _ENTRY_COLUMNS), _K.c.salt, *_HEAD_COLUMNS)
    .select_from(
        _E.outerjoin(_S, sa.and_(_S.c.owner == _E.c.owner, _S.c.scope == _E.c.scope)).outerjoin(
            _K,
            sa.and_(
                *(_K.c[name] == _E.c[name] for name in ("owner", "scope", "subject", "number")),
                _K.c.kind == _as_stored,
            ),
        )
    )
    .where(is_selected(_E), sa.tuple_(_E.c.owner, _E.c.scope, _E.c.number) > sa.tuple_(*_after))
    .order_by(_E.c.owner, _E.c.scope, _E.c.number)
    .limit(LIMIT)
)
_has_entry = sa.exists().where(_E.c.owner == _S.c.owner, _E.c.scope == _S.c.scope)
_SCOPES = Statement(
    sa.select(_S.c.owner, _S.c.scope, _has_entry, *_HEAD_COLUMNS)
    .where(is_selected(_S), sa.tuple_(_S.c.owner, _S.c.scope) > sa.tuple_(*_after[:2]))
    .order_by(_S.c.owner, _S.c.scope)
    .limit(LIMIT)
)


def _write_checkpoints(selection: Params, write_line: LineWriter) -> Operation[None]:
    after, scope = _LOWEST, selection["only_scope"]
    while rows := (yield Execute(_CHECKPOINTS, {**selection, "after_number": after, "most": ENTRIES_PER_PAGE})):
        for owner, number, serial, body, signature in rows:
            checkpoint, signature = decode_checkpoint(as_bytes(body)), as_bytes(signature)
            if scope is None or (checkpoint is not None and scope in checkpoint.heads):
                numbers = {"number": _int_or_invalid(number), "serial": _int_or_invalid(serial)}
                write_line(CheckpointLine(owner=str(owner), **numbers, checkpoint=checkpoint, signature=signature))
        after = rows[-1][2]


def _write_chains(selection: Params, write_line: LineWriter) -> Operation[None]:
    """Write the lines of all chains with entries, also of chains without a row in `record_scopes`."""
    after, last = _START, None
    while rows := (yield Execute(_ENTRIES, {**selection, **after, "most": ENTRIES_PER_PAGE})):
        entry_contents = yield from record_content.read_contents([row[:_ENTRY_WIDTH] for row in rows])
        for row, content in zip(rows, entry_contents, strict=True):
            if row[:2] != last:
                last = row[:2]
                write_line(_scope_line(row[0], row[1], row[_ENTRY_WIDTH:]))
            write_line(_entry_line(row, content))
        after = dict(zip(after, rows[-1], strict=False))


def _write_empty_chains(selection: Params, write_line: LineWriter) -> Operation[None]:
    """Write the lines of chains that have a row in `record_scopes`, but no entries."""
    after = _START
    while rows := (yield Execute(_SCOPES, {**selection, **after, "most": ENTRIES_PER_PAGE})):
        for owner, scope, has_entries, *head in rows:
            if not has_entries:
                write_line(_scope_line(owner, scope, head))
        after = {"after_owner": rows[-1][0], "after_scope": rows[-1][1]}


def _scope_line(owner: Any, scope: Any, head: Sequence[Any]) -> ScopeLine:
    number, hash, signed, since, seal = head
    return ScopeLine(
        owner=str(owner),
        scope=str(scope),
        number=_int_or_invalid(number),
        hash=as_bytes(hash).hex(),
        signed=_int_or_invalid(signed),
        since=_int_or_invalid(since),
        seal=_hex_or_none(seal),
    )


def _entry_line(row: Row, content: bytes | None) -> EntryLine:
    _, _, number, at, kind, subject, digest, more, hash, salt = row[:_ENTRY_WIDTH]
    return EntryLine(
        number=_int_or_invalid(number),
        at=_int_or_invalid(at),
        kind=str(kind),
        subject=str(subject),
        hash=as_bytes(hash).hex(),
        digest=_hex_or_none(digest),
        more=decode_more(None if more is None else as_bytes(more)),
        salt=_hex_or_none(salt),
        **({} if content is None else content_fields(content)),
    )


def _hex_or_none(value: Any) -> str | None:
    return None if value is None else as_bytes(value).hex()


def _int_or_invalid(value: Any) -> int:
    return value if isinstance(value, int) else -1


# ------------------------------------------------------------------------------------------- unrecorded contents

_R, _T, _I, _V = tables.responses, tables.conversations, tables.entries, tables.envelopes
_AFTER_KEY = [param("after_owner"), param("after_id"), _number]
_NO_NUMBER = sa.literal_column("0", sa.BigInteger)
_NULL = sa.null()

_SINCE = Statement(sa.select(_S.c.owner, sa.func.min(_S.c.since)).where(is_of_owner(_S.c.owner)).group_by(_S.c.owner))


def _next_rows(owner: sa.Column[Any], id: sa.Column[Any], number: sa.ColumnElement[Any], *more: Any) -> Any:
    """Return a subquery of the next rows of a table, in the order of its key."""
    key = [owner, id] if number is _NO_NUMBER else [owner, id, number]
    after = sa.tuple_(*key) > sa.tuple_(*_AFTER_KEY[: len(key)])
    return (
        sa.select(owner, id.label("id"), number.label("number"), *more)
        .where(is_of_owner(owner), after)
        .order_by(*key)
        .limit(LIMIT)
        .subquery()
    )


def _is_recorded(rows: Any, scope: Any, subject: Any, kind: str) -> sa.ColumnElement[bool]:
    return sa.exists().where(
        _K.c.owner == rows.c.owner, _K.c.scope == scope, _K.c.subject == subject, _K.c.kind == kind
    )


def _scan_statement(
    rows: Any, scope: Any, subject: Any, is_recorded: Any, stored_at: Any = _NULL, first_recorded: Any = _NULL
) -> Statement:
    """Build a statement that scans stored rows for contents without a record entry.

    Args:
        rows: The next rows of the table.
        scope: Scope of each row in the record.
        subject: Subject of each row in the record.
        is_recorded: Whether the record contains the row.
        stored_at: Time in the row, in milliseconds since 1970.
        first_recorded: Number of the first recorded row of the same conversation or space.
    """
    first_recorded = sa.case((is_recorded, sa.null()), else_=first_recorded)
    chosen = sa.select(rows.c.owner, rows.c.id, rows.c.number, scope, subject, is_recorded, stored_at, first_recorded)
    return Statement(chosen.order_by(rows.c.owner, rows.c.id, rows.c.number))


def _scope_of(prefix: str, id: Any) -> Any:
    return sa.literal_column(f"'{prefix}:'", sa.Text).concat(id)


def _scan_responses() -> Statement:
    rows = _next_rows(_R.c.owner, _R.c.id, _NO_NUMBER, _R.c.conversation_id, _R.c.updated_at, _R.c.status)
    is_alone = rows.c.conversation_id.is_(None)
    scope = sa.case(
        (is_alone, _scope_of("response", rows.c.id)), else_=_scope_of("conversation", rows.c.conversation_id)
    )
    is_recorded = sa.or_(rows.c.status.in_(UNFINISHED), _is_recorded(rows, scope, rows.c.id, RESPONSE))
    return _scan_statement(rows, scope, rows.c.id, is_recorded, rows.c.updated_at * 1000.0)


def _scan_items() -> Statement:
    rows = _next_rows(_I.c.owner, _I.c.conversation_id, _I.c.position, _I.c.id.label("item"))
    scope = _scope_of("conversation", rows.c.id)
    created_at = sa.select(_T.c.created_at).where(_T.c.owner == rows.c.owner, _T.c.id == rows.c.id).scalar_subquery()
    same_item = sa.and_(_I.c.owner == _K.c.owner, _I.c.conversation_id == rows.c.id, _I.c.id == _K.c.subject)
    recorded = [_K.c.owner == rows.c.owner, _K.c.scope == scope, _K.c.kind == ITEM]
    first = sa.select(sa.func.min(_I.c.position)).select_from(_K.join(_I, same_item)).where(*recorded).scalar_subquery()
    return _scan_statement(
        rows, scope, rows.c.item, _is_recorded(rows, scope, rows.c.item, ITEM), created_at * 1000.0, first
    )


def _scan_envelopes() -> Statement:
    rows = _next_rows(_V.c.owner, _V.c.space, _V.c.seq, _V.c.at)
    scope, subject = _scope_of("space", rows.c.id), sa.cast(rows.c.number, sa.Text)
    first = sa.select(_E.c.subject).where(_E.c.owner == rows.c.owner, _E.c.scope == scope, _E.c.number == 1)
    return _scan_statement(
        rows, scope, subject, _is_recorded(rows, scope, subject, ENVELOPE), first_recorded=first.scalar_subquery()
    )


def _scan_salts() -> Statement:
    rows = (
        sa.select(*_K.c)
        .where(is_of_owner(_K.c.owner), sa.tuple_(*_SALT_KEY) > sa.tuple_(*_AFTER_SALT_KEY))
        .order_by(*_SALT_KEY)
        .limit(LIMIT)
        .subquery()
    )
    entry = [_E.c.owner == rows.c.owner, _E.c.scope == rows.c.scope, _E.c.number == rows.c.number]
    same = [_E.c.subject == rows.c.subject, _as_stored == rows.c.kind]
    has_entry = sa.exists().where(*entry, *same, _E.c.digest.is_not(None))
    key = [rows.c[column.name] for column in _SALT_KEY]
    return Statement(sa.select(*key, has_entry).order_by(*key))


_SALT_KEY = [_K.c.owner, _K.c.scope, _K.c.subject, _K.c.kind, _K.c.number]
_AFTER_SALT_KEY = [param(f"after_{column.name}", type(column.type)) for column in _SALT_KEY]
_SALTS = _scan_salts()
_SCANS = {RESPONSE: _scan_responses(), ITEM: _scan_items(), ENVELOPE: _scan_envelopes()}


def _write_unrecorded(selection: Params, write_line: LineWriter) -> Operation[None]:
    rows = yield Execute(_SINCE, selection)
    since: dict[Any, Any] = {owner: at for owner, at in rows}  # noqa: C416 (rows are tuples of any length)
    for kind, statement in _SCANS.items():
        after: Params = {"after_owner": "", "after_id": "", "after_number": -1}
        while rows := (yield Execute(statement, {**selection, **after, "most": ROWS_PER_SCAN})):
            for owner, _, number, scope, subject, is_recorded, at, first_recorded in rows:
                if is_recorded or selection["only_scope"] not in (None, scope):
                    continue
                if first_recorded is not None:
                    is_older = str(first_recorded).isdecimal() and number < int(first_recorded)
                else:
                    # A space without any record entry is not recorded on purpose.
                    is_older = kind == ENVELOPE or _is_older(at, since.get(owner))
                write_line(UnrecordedLine(owner=owner, scope=scope, kind=kind, subject=subject, before=is_older))
            after = dict(zip(after, rows[-1], strict=False))


def _write_orphan_salts(selection: Params, write_line: LineWriter) -> Operation[None]:
    """Write a line for each salt that does not belong to an entry."""
    after: Params = {**dict.fromkeys((f"after_{column.name}" for column in _SALT_KEY), ""), "after_number": -1}
    while rows := (yield Execute(_SALTS, {**selection, **after, "most": ROWS_PER_SCAN})):
        for owner, scope, subject, _, _, has_entry in rows:
            if not has_entry and selection["only_scope"] in (None, scope):
                write_line(
                    UnrecordedLine(owner=str(owner), scope=str(scope), kind="salt", subject=str(subject), before=False)
                )
        after = dict(zip(after, rows[-1], strict=False))


def _is_older(stored_at_ms: float | None, record_began_ms: int | None) -> bool:
    """Return whether a row is older than the record of its owner, by the time in the row or in its conversation."""
    return record_began_ms is None or (stored_at_ms is not None and stored_at_ms < record_began_ms)
