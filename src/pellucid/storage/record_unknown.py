"""What is stored, and of which the record knows nothing.

It may be older than the record, or have been stored while nothing was recorded; or somebody put it there. Looked
through stretch by stretch, for there may be much and it is all to be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from ..record import UnrecordedLine
from . import tables
from .contents import ENVELOPE, ITEM, RESPONSE
from .responses import UNFINISHED
from .statement import Ask, Op, Params, Statement, given

STRETCH = 1_000
"""So many are looked at in one question."""

_S, _E, _K = tables.record_scopes, tables.record_entries, tables.record_salts
_R, _C, _I, _V = tables.responses, tables.conversations, tables.entries, tables.envelopes
_most = given("most", sa.BigInteger)
_only = given("only_owner")
_AFTER = [given("after_owner"), given("after_id"), given("after_number", sa.BigInteger)]
_NONE = sa.literal_column("0", sa.BigInteger)
_NULL = sa.null()

_SINCE = Statement(
    sa.select(_S.c.owner, sa.func.min(_S.c.since))
    .where(sa.or_(_only.is_(None), _S.c.owner == _only))
    .group_by(_S.c.owner)
)


def _stretch(owner: sa.Column[Any], id: sa.Column[Any], number: sa.ColumnElement[Any], *more: Any) -> Any:
    """The next of a table, in the order of its key."""
    key = [owner, id] if number is _NONE else [owner, id, number]
    after = sa.tuple_(*key) > sa.tuple_(*_AFTER[: len(key)])
    return (
        sa.select(owner, id.label("id"), number.label("number"), *more)
        .where(sa.or_(_only.is_(None), owner == _only), after)
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
    made = sa.select(_C.c.created_at).where(_C.c.owner == some.c.owner, _C.c.id == some.c.id).scalar_subquery()
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
        .where(sa.or_(_only.is_(None), _K.c.owner == _only), sa.tuple_(*_SALT) > sa.tuple_(*_AFTER_SALT))
        .order_by(*_SALT)
        .limit(_most)
        .subquery()
    )
    entry = [_E.c.owner == some.c.owner, _E.c.scope == some.c.scope, _E.c.number == some.c.number]
    of = sa.case((_E.c.kind == "erased", ENVELOPE), else_=_E.c.kind)
    known = sa.exists().where(*entry, _E.c.subject == some.c.subject, of == some.c.kind, _E.c.digest.is_not(None))
    key = [some.c[column.name] for column in _SALT]
    return Statement(sa.select(*key, known).order_by(*key))


_SALT = [_K.c.owner, _K.c.scope, _K.c.subject, _K.c.kind, _K.c.number]
_AFTER_SALT = [given(f"after_{column.name}", type(column.type)) for column in _SALT]
_SALTS = _salts()
_STRETCHES = {RESPONSE: _responses(), ITEM: _items(), ENVELOPE: _envelopes()}


def tell(only: Params, say: Callable[[UnrecordedLine], None]) -> Op[None]:
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
    yield from _loose(only, say)


def _loose(only: Params, say: Callable[[UnrecordedLine], None]) -> Op[None]:
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
