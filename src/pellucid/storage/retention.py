"""What is not to be kept any longer: what is due, and what was one tenant's.

Each goes with all that belongs to it. A chat's turns do not belong to it here: they are due by themselves, and the last
of them takes the chat along, if that has not gone before.

Both go in small steps, so that no transaction keeps the others waiting for long. The record says what went, and why.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from . import contents, record, search, tables, turns
from .contents import ITEM, RESPONSE
from .responses import DELETE_WITH
from .statement import Ask, Op, Params, Row, Statement, each, given

STEP = 500
"""So many rows go in one transaction."""

_R, _C, _E, _H, _K = tables.responses, tables.conversations, tables.entries, tables.chats, tables.keys
_owner, _id = given("for_owner"), given("for_id")
_now, _most = given("now", sa.Double), given("most", sa.BigInteger)


def _first(table: sa.Table, chosen: sa.ColumnElement[bool], *order: sa.ColumnElement[object]) -> Statement:
    some = sa.select(table.c.owner, table.c.id).where(chosen).order_by(*order).limit(_most)
    row = sa.tuple_(table.c.owner, table.c.id)
    chat = _R.c.conversation_id if table is _R else sa.null()
    return Statement(sa.delete(table).where(row.in_(some)).returning(table.c.owner, table.c.id, chat))


_DUE = [(table, _first(table, table.c.expires_at <= _now, table.c.expires_at)) for table in (_H, _R, _C)]
_OWNED = [(table, _first(table, table.c.owner == _owner, table.c.id)) for table in (_H, _R, _C, _K)]
_WITH = {
    _R: list(DELETE_WITH),
    _C: [Statement(sa.delete(_E).where(_E.c.owner == _owner, _E.c.conversation_id == _id))],
    _H: [search.removal(search.CHATS)],  # its title
    _K: [],
}


def _delete(chosen: list[tuple[sa.Table, Statement]], params: Params) -> Op[int]:
    gone = 0
    for table, first in chosen:
        rows = yield Ask(first, {**params, "most": params["most"] - gone})
        if rows:
            for statement in _WITH[table]:
                yield Ask(statement, [{"for_owner": owner, "for_id": id} for owner, id, _ in rows])
        if chats := {(owner, chat) for owner, _, chat in rows if chat is not None}:
            for statement in turns.EMPTIED:
                yield Ask(statement, [{"for_owner": owner, "for_id": chat} for owner, chat in sorted(chats)])
        yield from record.end_of(params, _recorded(table, rows))
        gone += len(rows)
    return gone


def _recorded(table: sa.Table, rows: list[Row]) -> Iterator[record.Gone]:
    for owner, id, chat in rows:
        if table is _R:
            yield record.Gone(owner, contents.of_response(id, chat), RESPONSE, id)
        elif table is _C:
            yield record.Gone(owner, contents.of_conversation(id), ITEM, None)


def _expire(params: Params) -> Op[int]:
    return (yield from _delete(_DUE, {**params, "why": "expired"}))


def _erase(params: Params) -> Op[int]:
    return (yield from _delete(_OWNED, {**params, "why": "erased"}))


expire, erase = each(_expire), each(_erase)
