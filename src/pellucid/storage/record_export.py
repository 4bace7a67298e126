"""The record, as it is read out of a store: its lines (`pellucid.record.lines`), as of one moment.

All of it is read in one transaction that sees what was there when it began, and given away line by line: there may be
more of it than memory. What somebody changed is told as it is now; nothing here minds.

What is stored, and of which the record knows nothing, is told too. It may be older than the record, or have been stored
while nothing was recorded; or somebody put it there. It is looked for stretch by stretch, for there may be much and it
is all to be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import sqlalchemy as sa

from ..record import Begin, CheckpointLine, End, EntryLine, KeyLine, Line, ScopeLine, UnrecordedLine
from ..record.keys import read_body
from ..record.lines import content_of
from . import contents, tables
from .contents import ENVELOPE, ITEM, RESPONSE, as_bytes
from .record import read_more
from .responses import UNFINISHED
from .statement import COMMIT, SNAPSHOT, Ask, Op, Params, Row, Statement, given

PAGE = 200
"""So many entries are read at once, with their contents."""
STRETCH = 1_000
"""So much of what is stored is looked at in one question."""

_S, _E, _K, _C = tables.record_scopes, tables.record_entries, tables.record_salts, tables.record_checkpoints

_LOWEST = -(2**62)
_most = given("most", sa.BigInteger)
_owner, _scope = given("only_owner"), given("only_scope")
_number = given("after_number", sa.BigInteger)
_after = (given("after_owner"), given("after_scope"), _number)
_START: Params = {"after_owner": "", "after_scope": "", "after_number": _LOWEST}

Say: TypeAlias = Callable[[Line], None]


class Telling(NamedTuple):
    """What is to be told, and to whom."""

    tell: Say
    begin: Begin
    keys: tuple[KeyLine, ...]


def tell(telling: Telling) -> Op[None]:
    yield SNAPSHOT
    try:
        yield from _tell(telling)
    finally:
        yield COMMIT  # nothing was written: this lets go of what was seen


def _tell(telling: Telling) -> Op[None]:
    lines = 0

    def say(line: Line) -> None:
        nonlocal lines
        telling.tell(line)
        lines += 1

    say(telling.begin)
    for key in telling.keys:
        say(key)
    only: Params = {"only_owner": telling.begin.owner, "only_scope": telling.begin.scope}
    yield from _checkpoints(only, say)
    yield from _chains(only, say)
    yield from _empty(only, say)
    yield from _unrecorded(only, say)
    yield from _loose(only, say)
    say(End(lines=lines))


# ----------------------------------------------------------------------------------------------- what is recorded


def _mine(owner: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    return sa.or_(_owner.is_(None), owner == _owner)


def _wanted(table: sa.Table) -> sa.ColumnElement[bool]:
    return sa.and_(_mine(table.c.owner), sa.or_(_scope.is_(None), table.c.scope == _scope))


_CHECKPOINTS = Statement(
    sa.select(_C.c.owner, _C.c.number, _C.c.serial, _C.c.body, _C.c.signature)
    .where(_mine(_C.c.owner), _C.c.serial > _number)
    .order_by(_C.c.serial)
    .limit(_most)
)
_as_stored = sa.case((_E.c.kind == "erased", ENVELOPE), else_=_E.c.kind)
"""As what the content of an entry is stored."""
_ENTRY = ("owner", "scope", "number", "at", "kind", "subject", "digest", "more", "hash")
_WIDTH = len(_ENTRY) + 1  # and its salt
_HEAD = [_S.c[name] for name in ("number", "hash", "signed", "since", "seal")]
_ENTRIES = Statement(
    sa.select(*(_E.c[name] for name in _ENTRY), _K.c.salt, *_HEAD)
    .select_from(
        _E.outerjoin(_S, sa.and_(_S.c.owner == _E.c.owner, _S.c.scope == _E.c.scope)).outerjoin(
            _K,
            sa.and_(
                *(_K.c[name] == _E.c[name] for name in ("owner", "scope", "subject", "number")),
                _K.c.kind == _as_stored,
            ),
        )
    )
    .where(_wanted(_E), sa.tuple_(_E.c.owner, _E.c.scope, _E.c.number) > sa.tuple_(*_after))
    .order_by(_E.c.owner, _E.c.scope, _E.c.number)
    .limit(_most)
)
_some_entry = sa.exists().where(_E.c.owner == _S.c.owner, _E.c.scope == _S.c.scope)
_SCOPES = Statement(
    sa.select(_S.c.owner, _S.c.scope, _some_entry, *_HEAD)
    .where(_wanted(_S), sa.tuple_(_S.c.owner, _S.c.scope) > sa.tuple_(*_after[:2]))
    .order_by(_S.c.owner, _S.c.scope)
    .limit(_most)
)


def _checkpoints(only: Params, say: Say) -> Op[None]:
    after, scope = _LOWEST, only["only_scope"]
    while rows := (yield Ask(_CHECKPOINTS, {**only, "after_number": after, "most": PAGE})):
        for owner, number, serial, body, signature in rows:
            checkpoint, signature = read_body(as_bytes(body)), as_bytes(signature)
            if scope is None or (checkpoint is not None and scope in checkpoint.heads):
                numbers = {"number": _int(number), "serial": _int(serial)}
                say(CheckpointLine(owner=str(owner), **numbers, checkpoint=checkpoint, signature=signature))
        after = rows[-1][2]


def _chains(only: Params, say: Say) -> Op[None]:
    """Each with its entries; also one of which it is not kept where it ends."""
    after, last = _START, None
    while rows := (yield Ask(_ENTRIES, {**only, **after, "most": PAGE})):
        found = yield from contents.read([row[:_WIDTH] for row in rows])
        for row, content in zip(rows, found, strict=True):
            if row[:2] != last:
                last = row[:2]
                say(_scope_line(row[0], row[1], row[_WIDTH:]))
            say(_entry_line(row, content))
        after = dict(zip(after, rows[-1], strict=False))


def _empty(only: Params, say: Say) -> Op[None]:
    """Those that have an end, and no entries."""
    after = _START
    while rows := (yield Ask(_SCOPES, {**only, **after, "most": PAGE})):
        for owner, scope, there, *head in rows:
            if not there:
                say(_scope_line(owner, scope, head))
        after = {"after_owner": rows[-1][0], "after_scope": rows[-1][1]}


def _scope_line(owner: Any, scope: Any, head: Sequence[Any]) -> ScopeLine:
    number, hash, signed, since, seal = head
    return ScopeLine(
        owner=str(owner),
        scope=str(scope),
        number=_int(number),
        hash=as_bytes(hash).hex(),
        signed=_int(signed),
        since=_int(since),
        seal=_hex(seal),
    )


def _entry_line(row: Row, content: bytes | None) -> EntryLine:
    _, _, number, at, kind, subject, digest, more, hash, salt = row[:_WIDTH]
    return EntryLine(
        number=_int(number),
        at=_int(at),
        kind=str(kind),
        subject=str(subject),
        hash=as_bytes(hash).hex(),
        digest=_hex(digest),
        more=read_more(None if more is None else as_bytes(more)),
        salt=_hex(salt),
        **({} if content is None else content_of(content)),
    )


def _hex(value: Any) -> str | None:
    return None if value is None else as_bytes(value).hex()


def _int(value: Any) -> int:
    return value if isinstance(value, int) else -1


# ------------------------------------------------------------------------------------------- what is not recorded

_R, _T, _I, _V = tables.responses, tables.conversations, tables.entries, tables.envelopes
_AFTER = [given("after_owner"), given("after_id"), _number]
_NONE = sa.literal_column("0", sa.BigInteger)
_NULL = sa.null()

_SINCE = Statement(sa.select(_S.c.owner, sa.func.min(_S.c.since)).where(_mine(_S.c.owner)).group_by(_S.c.owner))


def _stretch(owner: sa.Column[Any], id: sa.Column[Any], number: sa.ColumnElement[Any], *more: Any) -> Any:
    """The next of a table, in the order of its key."""
    key = [owner, id] if number is _NONE else [owner, id, number]
    after = sa.tuple_(*key) > sa.tuple_(*_AFTER[: len(key)])
    return (
        sa.select(owner, id.label("id"), number.label("number"), *more)
        .where(_mine(owner), after)
        .order_by(*key)
        .limit(_most)
        .subquery()
    )


def _known(some: Any, scope: Any, subject: Any, kind: str) -> sa.ColumnElement[bool]:
    return sa.exists().where(
        _K.c.owner == some.c.owner, _K.c.scope == scope, _K.c.subject == subject, _K.c.kind == kind
    )


def _asking(some: Any, scope: Any, subject: Any, known: Any, at: Any = _NULL, first: Any = _NULL) -> Statement:
    """`at`: when it was stored, by its own word. `first`: the number of the first of its place that was recorded."""
    first = sa.case((known, sa.null()), else_=first)
    chosen = sa.select(some.c.owner, some.c.id, some.c.number, scope, subject, known, at, first)
    return Statement(chosen.order_by(some.c.owner, some.c.id, some.c.number))


def _in(where: str, id: Any) -> Any:
    return sa.literal_column(f"'{where}:'", sa.Text).concat(id)


def _responses() -> Statement:
    some = _stretch(_R.c.owner, _R.c.id, _NONE, _R.c.conversation_id, _R.c.updated_at, _R.c.status)
    alone = some.c.conversation_id.is_(None)
    scope = sa.case((alone, _in("response", some.c.id)), else_=_in("conversation", some.c.conversation_id))
    known = sa.or_(some.c.status.in_(UNFINISHED), _known(some, scope, some.c.id, RESPONSE))
    return _asking(some, scope, some.c.id, known, some.c.updated_at * 1000.0)


def _items() -> Statement:
    some = _stretch(_I.c.owner, _I.c.conversation_id, _I.c.position, _I.c.id.label("item"))
    scope = _in("conversation", some.c.id)
    made = sa.select(_T.c.created_at).where(_T.c.owner == some.c.owner, _T.c.id == some.c.id).scalar_subquery()
    there = sa.and_(_I.c.owner == _K.c.owner, _I.c.conversation_id == some.c.id, _I.c.id == _K.c.subject)
    recorded = [_K.c.owner == some.c.owner, _K.c.scope == scope, _K.c.kind == ITEM]
    first = sa.select(sa.func.min(_I.c.position)).select_from(_K.join(_I, there)).where(*recorded).scalar_subquery()
    return _asking(some, scope, some.c.item, _known(some, scope, some.c.item, ITEM), made * 1000.0, first)


def _envelopes() -> Statement:
    some = _stretch(_V.c.owner, _V.c.space, _V.c.seq, _V.c.at)
    scope, subject = _in("space", some.c.id), sa.cast(some.c.number, sa.Text)
    first = sa.select(_E.c.subject).where(_E.c.owner == some.c.owner, _E.c.scope == scope, _E.c.number == 1)
    return _asking(some, scope, subject, _known(some, scope, subject, ENVELOPE), first=first.scalar_subquery())


def _salts() -> Statement:
    some = (
        sa.select(*_K.c)
        .where(_mine(_K.c.owner), sa.tuple_(*_SALT) > sa.tuple_(*_AFTER_SALT))
        .order_by(*_SALT)
        .limit(_most)
        .subquery()
    )
    entry = [_E.c.owner == some.c.owner, _E.c.scope == some.c.scope, _E.c.number == some.c.number]
    same = [_E.c.subject == some.c.subject, _as_stored == some.c.kind]
    known = sa.exists().where(*entry, *same, _E.c.digest.is_not(None))
    key = [some.c[column.name] for column in _SALT]
    return Statement(sa.select(*key, known).order_by(*key))


_SALT = [_K.c.owner, _K.c.scope, _K.c.subject, _K.c.kind, _K.c.number]
_AFTER_SALT = [given(f"after_{column.name}", type(column.type)) for column in _SALT]
_SALTS = _salts()
_STRETCHES = {RESPONSE: _responses(), ITEM: _items(), ENVELOPE: _envelopes()}


def _unrecorded(only: Params, say: Say) -> Op[None]:
    rows = yield Ask(_SINCE, only)
    since: dict[Any, Any] = {owner: at for owner, at in rows}  # noqa: C416 (rows are tuples of any length)
    for kind, statement in _STRETCHES.items():
        after: Params = {"after_owner": "", "after_id": "", "after_number": -1}
        while rows := (yield Ask(statement, {**only, **after, "most": STRETCH})):
            for owner, _, number, scope, subject, known, at, first in rows:
                if known or only["only_scope"] not in (None, scope):
                    continue
                if first is not None:
                    before = str(first).isdecimal() and number < int(first)
                else:
                    # A space of which the record has nothing is one that is not to be recorded.
                    before = kind == ENVELOPE or _older(at, since.get(owner))
                say(UnrecordedLine(owner=owner, scope=scope, kind=kind, subject=subject, before=before))
            after = dict(zip(after, rows[-1], strict=False))


def _loose(only: Params, say: Say) -> Op[None]:
    """Salts that are of no entry."""
    after: Params = {**dict.fromkeys((f"after_{column.name}" for column in _SALT), ""), "after_number": -1}
    while rows := (yield Ask(_SALTS, {**only, **after, "most": STRETCH})):
        for owner, scope, subject, _, _, known in rows:
            if not known and only["only_scope"] in (None, scope):
                say(UnrecordedLine(owner=str(owner), scope=str(scope), kind="salt", subject=str(subject), before=False))
        after = dict(zip(after, rows[-1], strict=False))


def _older(at: float | None, began: int | None) -> bool:
    """Than the record of its owner, by its own word, or its conversation's."""
    return began is None or (at is not None and at < began)
