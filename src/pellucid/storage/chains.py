"""A response and all that it builds on, in one question to the database.

The way up is walked over narrow rows, and only what is on it is read. It ends after `LONGEST` steps, whatever the
database holds; a way that comes back to where it was (which nobody who mints ids can make) ends there too.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from ..errors import RequestError
from . import tables
from .errors import BrokenChain
from .statement import Ask, Op, Params, Row, Statement, given

LONGEST = 10_000

_R, _B = tables.responses, tables.bodies
_ROW = [*(column for column in _R.c if column.name != "fence"), _B.c.header, _B.c.input, _B.c.messages, _B.c.error]
_ID = [column.name for column in _ROW].index("id")
_PREVIOUS = [column.name for column in _ROW].index("previous_id")


def _walk(*more: sa.ColumnElement[Any]) -> Statement:
    now = given("now", sa.Double)
    alive = sa.or_(_R.c.expires_at.is_(None), _R.c.expires_at > now)
    up = (
        sa.select(_R.c.owner, _R.c.id, _R.c.previous_id, sa.literal_column("0", sa.Integer).label("steps"))
        .where(_R.c.owner == given("for_owner"), _R.c.id == given("for_id"), alive)
        .cte("up", recursive=True)
    )
    # The owner is taken along, although it stays the same: so each row is looked up by its whole key, and no planner
    # is led to read all that this owner has.
    before = sa.and_(_R.c.owner == up.c.owner, _R.c.id == up.c.previous_id)
    further = sa.select(_R.c.owner, _R.c.id, _R.c.previous_id, up.c.steps + 1).join(up, before)
    up = up.union_all(further.where(alive, up.c.steps < LONGEST))
    way = (
        sa.select(up.c.owner, up.c.id, sa.func.min(up.c.steps).label("steps")).group_by(up.c.owner, up.c.id).subquery()
    )
    with_bodies = way.join(_R, sa.and_(_R.c.owner == way.c.owner, _R.c.id == way.c.id)).join(
        _B, sa.and_(_B.c.owner == way.c.owner, _B.c.response_id == way.c.id)
    )
    return Statement(sa.select(*_ROW, *more).select_from(with_bodies).order_by(way.c.steps.desc()))


_CHAIN, _CHAIN_WITH_LOGS = _walk(), _walk(_B.c.log)


def chain(params: Params) -> Op[list[Row]]:
    rows = yield Ask(_CHAIN, params)
    if rows and (missing := rows[0][_PREVIOUS]) is not None:
        if len(rows) > LONGEST or any(row[_ID] == missing for row in rows):
            raise RequestError(
                f"this conversation is longer than {LONGEST} responses; begin a new one",
                code="conversation_too_long",
                param="previous_response_id",
            )
        raise BrokenChain(missing)
    return rows


def branch(params: Params, *, log: bool) -> Op[list[Row]]:
    """As much of it as is there, from the end."""
    return (yield Ask(_CHAIN_WITH_LOGS if log else _CHAIN, params))
