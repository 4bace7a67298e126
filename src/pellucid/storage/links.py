"""What in a space follows from what: which envelopes correlate to an id, and what opened its contexts.

A tree of reasoning is found by them: its answers and responses by what they correlate to, the contexts of a space by
what opened them. A link is an id and a seq: it says nothing, and is left where an envelope is erased.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import sqlalchemy as sa

from . import tables
from .envelopes import LAST_SEQ, StoredEnvelope, first_from
from .names import storable
from .portions import Portion, portion, sized_columns
from .statement import Ask, Op, Params, Statement, each, given, listed

_E, _L = tables.envelopes, tables.links

_owner, _name = given("for_owner"), given("for_name")
_after, _before, _most = (given(name, sa.BigInteger) for name in ("after", "before", "most"))
_of_it = sa.and_(_E.c.owner == _owner, _E.c.space == _name)
_link = sa.and_(_L.c.owner == _owner, _L.c.space == _name)

INSERT = Statement(sa.insert(_L))


_names = listed("names")


def _about() -> sa.Select[tuple[object, ...]]:
    named = _L.c.about.in_(sa.select(_names.sqlite.c.value))
    links = sa.select(_L.c.seq).where(_link, named, _L.c.seq > _after)
    found = links.distinct().order_by(_L.c.seq).limit(_most)
    return sa.select(*sized_columns).where(_of_it, _E.c.seq.in_(found)).order_by(_E.c.seq)


def _about_each() -> sa.Select[tuple[object, ...]]:
    """Each name, and each envelope, is looked up by itself: as in `portions`."""
    names = _names.postgresql
    of_one = sa.select(_L.c.seq).where(_link, _L.c.about == names.c.value, _L.c.seq > _after)
    links = of_one.order_by(_L.c.seq).limit(_most).lateral()
    several = sa.select(links.c.seq).select_from(names.join(links, sa.true()))
    found = several.distinct().order_by(links.c.seq).limit(_most).subquery()
    one = first_from(sa.select(*sized_columns).where(_of_it), found.c.seq).lateral()
    return sa.select(*one.c).select_from(found.join(one, one.c.seq == found.c.seq)).order_by(one.c.seq)


_ABOUT = Statement(_about_each(), sqlite=_about())

_opening = (
    sa.select(*sized_columns)
    .where(_of_it, sa.text("role = 'opens'"), _E.c.seq > _after, _E.c.seq < _before)
    .limit(_most)
)
_OPENED = {True: Statement(_opening.order_by(_E.c.seq.desc())), False: Statement(_opening.order_by(_E.c.seq))}

_key = (_L.c.owner, _L.c.space, _L.c.about, _L.c.seq)
_some = sa.select(*_key).where(_link).order_by(_L.c.about, _L.c.seq).limit(_most)
_DELETE = Statement(sa.delete(_L).where(sa.tuple_(*_key).in_(_some)).returning(_L.c.seq))


def rows_of(owner: str, name: str, several: Iterable[StoredEnvelope]) -> list[Params]:
    """As the table has them."""
    return [
        {"owner": owner, "space": name, "about": about, "seq": stored.envelope.seq}
        for stored in several
        for about in dict.fromkeys(stored.envelope.correlation_id)
        if storable(about)
    ]


class About(msgspec.Struct, frozen=True):
    owner: str
    name: str
    ids: tuple[str, ...]
    after: int
    limit: int


class Opened(msgspec.Struct, frozen=True):
    owner: str
    name: str
    after: int
    before: int | None
    limit: int
    newest: bool


def about(asked: About) -> Op[Portion]:
    ids = [id for id in dict.fromkeys(asked.ids) if storable(id)]
    if not ids:
        return Portion()
    rows = yield Ask(
        _ABOUT,
        {
            "for_owner": asked.owner,
            "for_name": asked.name,
            "names": msgspec.json.encode(ids).decode(),
            "after": min(asked.after, LAST_SEQ),
            "most": asked.limit,
        },
    )
    return (yield from portion(asked.owner, asked.name, rows, asked.limit))


def opened(asked: Opened) -> Op[Portion]:
    rows = yield Ask(
        _OPENED[asked.newest],
        {
            "for_owner": asked.owner,
            "for_name": asked.name,
            "after": min(asked.after, LAST_SEQ),
            "before": LAST_SEQ if asked.before is None else max(0, min(asked.before, LAST_SEQ)),
            "most": asked.limit,
        },
    )
    return (yield from portion(asked.owner, asked.name, rows, asked.limit))


def _remove(params: Params) -> Op[int]:
    """The first of a space's links; how many."""
    return len((yield Ask(_DELETE, params)))


remove = each(_remove)
