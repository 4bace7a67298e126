"""The record, as it is read out of a store: its lines (`pellucid.record.lines`), as of one moment.

All of it is read in one transaction that sees what was there when it began, and given away line by line: there may be
more of it than memory. What somebody changed is told as it is now; nothing here minds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from ..record import Begin, CheckpointLine, End, EntryLine, KeyLine, Line, ScopeLine
from ..record.keys import read_body
from ..record.lines import FORMAT, content_of
from . import record_contents, record_unknown, tables
from .commit import COMMIT, SNAPSHOT
from .contents import ENVELOPE
from .record import read_more
from .statement import Ask, Op, Params, Row, Statement, given

PAGE = 200
"""So many entries are read at once, with their contents."""

_S, _E, _C = tables.record_scopes, tables.record_entries, tables.record_checkpoints
_K = tables.record_salts

_LOWEST = -(2**62)
_most = given("most", sa.BigInteger)
_owner, _scope = given("only_owner"), given("only_scope")
_after = (given("after_owner"), given("after_scope"), given("after_number", sa.BigInteger))
_START: Params = {"after_owner": "", "after_scope": "", "after_number": _LOWEST}


def _wanted(table: sa.Table) -> sa.ColumnElement[bool]:
    return sa.and_(sa.or_(_owner.is_(None), table.c.owner == _owner), sa.or_(_scope.is_(None), table.c.scope == _scope))


_CHECKPOINTS = Statement(
    sa.select(_C.c.owner, _C.c.number, _C.c.serial, _C.c.body, _C.c.signature)
    .where(sa.or_(_owner.is_(None), _C.c.owner == _owner), _C.c.serial > _after[2])
    .order_by(_C.c.serial)
    .limit(_most)
)
_ENTRY = ("owner", "scope", "number", "at", "kind", "subject", "digest", "more", "hash")
_WIDTH = len(_ENTRY) + 1  # and its salt
_HEAD = ("number", "hash", "signed", "since", "seal")
_ENTRIES = Statement(
    sa.select(*(_E.c[name] for name in _ENTRY), _K.c.salt, *(_S.c[name] for name in _HEAD))
    .select_from(
        _E.outerjoin(_S, sa.and_(_S.c.owner == _E.c.owner, _S.c.scope == _E.c.scope)).outerjoin(
            _K,
            sa.and_(
                *(_K.c[name] == _E.c[name] for name in ("owner", "scope", "subject", "number")),
                _K.c.kind == sa.case((_E.c.kind == "erased", ENVELOPE), else_=_E.c.kind),
            ),
        )
    )
    .where(_wanted(_E), sa.tuple_(_E.c.owner, _E.c.scope, _E.c.number) > sa.tuple_(*_after))
    .order_by(_E.c.owner, _E.c.scope, _E.c.number)
    .limit(_most)
)
_SCOPES = Statement(
    sa.select(
        _S.c.owner,
        _S.c.scope,
        sa.exists().where(_E.c.owner == _S.c.owner, _E.c.scope == _S.c.scope),
        *(_S.c[name] for name in _HEAD),
    )
    .where(_wanted(_S), sa.tuple_(_S.c.owner, _S.c.scope) > sa.tuple_(*_after[:2]))
    .order_by(_S.c.owner, _S.c.scope)
    .limit(_most)
)


class Telling(NamedTuple):
    """What is to be told, and to whom."""

    tell: Callable[[Line], None]
    at: int
    owner: str | None
    scope: str | None
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

    say(Begin(format=FORMAT, at=telling.at, owner=telling.owner, scope=telling.scope))
    for key in telling.keys:
        say(key)
    only: Params = {"only_owner": telling.owner, "only_scope": telling.scope}
    yield from _checkpoints(only, say)
    yield from _chains(only, say)
    yield from _empty(only, say)
    yield from record_unknown.tell(only, say)
    say(End(lines=lines))


def _checkpoints(only: Params, say: Callable[[Line], None]) -> Op[None]:
    after, scope = _LOWEST, only["only_scope"]
    while rows := (yield Ask(_CHECKPOINTS, {**only, "after_number": after, "most": PAGE})):
        for owner, number, serial, body, signature in rows:
            checkpoint = read_body(_bytes(body))
            if scope is None or (checkpoint is not None and scope in checkpoint.heads):
                say(
                    CheckpointLine(
                        owner=str(owner),
                        number=_int(number),
                        serial=_int(serial),
                        checkpoint=checkpoint,
                        signature=_bytes(signature),
                    )
                )
        after = rows[-1][2]


def _chains(only: Params, say: Callable[[Line], None]) -> Op[None]:
    """Each with its entries; also one of which it is not kept where it ends."""
    after, last = _START, None
    while rows := (yield Ask(_ENTRIES, {**only, **after, "most": PAGE})):
        contents = yield from record_contents.read([row[:_WIDTH] for row in rows])
        for row, content in zip(rows, contents, strict=True):
            if row[:2] != last:
                last = row[:2]
                say(_scope_line(row[0], row[1], row[_WIDTH:]))
            say(_entry_line(row, content))
        after = dict(zip(after, rows[-1], strict=False))


def _empty(only: Params, say: Callable[[Line], None]) -> Op[None]:
    """Those that have an end, and no entries."""
    after = _START
    while rows := (yield Ask(_SCOPES, {**only, **after, "most": PAGE})):
        for owner, scope, there, *head in rows:
            if not there:
                say(_scope_line(owner, scope, head))
        after = {**after, "after_owner": rows[-1][0], "after_scope": rows[-1][1]}


def _scope_line(owner: Any, scope: Any, head: Sequence[Any]) -> ScopeLine:
    number, hash, signed, since, seal = head
    return ScopeLine(
        owner=str(owner),
        scope=str(scope),
        number=_int(number),
        hash=_bytes(hash).hex(),
        signed=_int(signed),
        since=_int(since),
        seal=None if seal is None else _bytes(seal).hex(),
    )


def _entry_line(row: Row, content: bytes | None) -> EntryLine:
    _, _, number, at, kind, subject, digest, more, hash, salt = row[:_WIDTH]
    return EntryLine(
        number=_int(number),
        at=_int(at),
        kind=str(kind),
        subject=str(subject),
        hash=_bytes(hash).hex(),
        digest=None if digest is None else _bytes(digest).hex(),
        more=read_more(None if more is None else _bytes(more)),
        salt=None if salt is None else _bytes(salt).hex(),
        **({} if content is None else content_of(content)),
    )


# SQLite keeps whatever somebody puts into a column.


def _bytes(value: Any) -> bytes:
    if value is None:
        return b""
    if isinstance(value, bytes):
        return value
    return str(value).encode("utf-8", "surrogateescape")


def _int(value: Any) -> int:
    return value if isinstance(value, int) else -1
