"""A response that is a turn of a chat: what it means for the chat, and for what search finds of it.

A turn is news of its chat when it begins and when it ends; the chat expires no sooner than it; and the last one takes
the chat along. All that is done in the transaction in which the response's row is written.
"""

from __future__ import annotations

import math
from typing import Any

import sqlalchemy as sa

from . import search, tables
from .statement import Ask, Op, Statement, given

_R, _H, _T = tables.responses, tables.chats, tables.texts
_owner, _id, _until = given("for_owner"), given("for_id"), given("until", sa.Double)
_at, _least = given("at", sa.Double), given("least", sa.Double)
_this = sa.and_(_H.c.owner == _owner, _H.c.id == _id)


def has_turn(owner: Any, chat: Any, *more: Any) -> sa.ColumnElement[bool]:
    """Whether a chat has one. The newest is asked for: without an order, SQLite looks through all that an owner has."""
    one: sa.Select[Any] = sa.select(sa.literal_column("1"))
    newest = one.where(_R.c.owner == owner, _R.c.conversation_id == chat, *more).order_by(_R.c.created_at.desc())
    return newest.limit(sa.literal_column("1")).scalar_subquery().is_not(None)


_TOUCH = Statement(
    sa.update(_H)
    .where(_this)
    .values(
        updated_at=sa.case((_H.c.updated_at < _at, _at), else_=_H.c.updated_at),
        expires_at=sa.case((_H.c.expires_at < _least, _until), else_=_H.c.expires_at),
    )
)
EMPTIED = (
    Statement(sa.delete(_H).where(_this, ~has_turn(_owner, _id))),
    Statement(sa.delete(_T).where(search.one_of(search.CHATS), ~sa.exists().where(_this))),
)
"""What goes with the last turn of a chat, `for_id` of `for_owner`: the chat, and its title. With another, nothing."""


def touch(owner: str, chat: str, *, at: float, until: float | None) -> Op[None]:
    """A turn of a chat, which expires at `until`, was begun or has ended: Unix times in seconds."""
    least = math.inf if until is None else until
    yield Ask(_TOUCH, {"for_owner": owner, "for_id": chat, "at": at, "least": least, "until": until})
