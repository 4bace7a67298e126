"""Correlation of envelopes: which envelopes correlate to an id, and which envelopes opened contexts.

They are used to build a tree of reasoning: its answers and responses are found by correlation ids, the contexts of a
space by the envelopes that opened them. A link is an id and a sequence number. It contains no content, and remains when
the envelope is erased.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import sqlalchemy as sa

from . import tables
from .envelopes import MAX_SEQ, StoredEnvelope, first_from
from .names import is_storable
from .paging import EnvelopePage, read_page, sized_columns
from .statement import Execute, Operation, Params, Statement, for_each, json_list, param

_E, _L = tables.envelopes, tables.links

_owner, _name = param("for_owner"), param("for_name")
_after, _before, _limit = (param(name, sa.BigInteger) for name in ("after", "before", "most"))
_in_space = sa.and_(_E.c.owner == _owner, _E.c.space == _name)
_link_in_space = sa.and_(_L.c.owner == _owner, _L.c.space == _name)

INSERT = Statement(sa.insert(_L))


_names = json_list("names")


def _correlated_sqlite() -> sa.Select[tuple[object, ...]]:
    is_named = _L.c.about.in_(sa.select(_names.sqlite.c.value))
    links = sa.select(_L.c.seq).where(_link_in_space, is_named, _L.c.seq > _after)
    seqs = links.distinct().order_by(_L.c.seq).limit(_limit)
    return sa.select(*sized_columns).where(_in_space, _E.c.seq.in_(seqs)).order_by(_E.c.seq)


def _correlated_postgresql() -> sa.Select[tuple[object, ...]]:
    """Build the statement for PostgreSQL. A lateral join looks up each name and each envelope, as in `paging`."""
    names = _names.postgresql
    links_of_name = sa.select(_L.c.seq).where(_link_in_space, _L.c.about == names.c.value, _L.c.seq > _after)
    links = links_of_name.order_by(_L.c.seq).limit(_limit).lateral()
    all_links = sa.select(links.c.seq).select_from(names.join(links, sa.true()))
    seqs = all_links.distinct().order_by(links.c.seq).limit(_limit).subquery()
    envelope = first_from(sa.select(*sized_columns).where(_in_space), seqs.c.seq).lateral()
    return (
        sa.select(*envelope.c).select_from(seqs.join(envelope, envelope.c.seq == seqs.c.seq)).order_by(envelope.c.seq)
    )


_CORRELATED = Statement(_correlated_postgresql(), sqlite=_correlated_sqlite())

_openers = (
    sa.select(*sized_columns)
    .where(_in_space, sa.text("role = 'opens'"), _E.c.seq > _after, _E.c.seq < _before)
    .limit(_limit)
)
_OPENERS = {True: Statement(_openers.order_by(_E.c.seq.desc())), False: Statement(_openers.order_by(_E.c.seq))}

_key = (_L.c.owner, _L.c.space, _L.c.about, _L.c.seq)
_first_links = sa.select(*_key).where(_link_in_space).order_by(_L.c.about, _L.c.seq).limit(_limit)
_DELETE = Statement(sa.delete(_L).where(sa.tuple_(*_key).in_(_first_links)).returning(_L.c.seq))


def link_rows(owner: str, name: str, envelopes: Iterable[StoredEnvelope]) -> list[Params]:
    """Return the rows of the links of these envelopes."""
    return [
        {"owner": owner, "space": name, "about": about, "seq": stored.envelope.seq}
        for stored in envelopes
        for about in dict.fromkeys(stored.envelope.correlation_id)
        if is_storable(about)
    ]


class CorrelationQuery(msgspec.Struct, frozen=True):
    """Arguments of `find_correlated`: sequence numbers greater than `after`."""

    owner: str
    name: str
    ids: tuple[str, ...]
    after: int
    limit: int


class OpenersQuery(msgspec.Struct, frozen=True):
    """Arguments of `find_openers`: sequence numbers between `after` and `before`, both exclusive."""

    owner: str
    name: str
    after: int
    before: int | None
    limit: int
    newest: bool


def find_correlated(query: CorrelationQuery) -> Operation[EnvelopePage]:
    """Read envelopes that correlate to one of the ids, in ascending order."""
    ids = [id for id in dict.fromkeys(query.ids) if is_storable(id)]
    if not ids:
        return EnvelopePage()
    rows = yield Execute(
        _CORRELATED,
        {
            "for_owner": query.owner,
            "for_name": query.name,
            "names": msgspec.json.encode(ids).decode(),
            "after": min(query.after, MAX_SEQ),
            "most": query.limit,
        },
    )
    return (yield from read_page(query.owner, query.name, rows, query.limit))


def find_openers(query: OpenersQuery) -> Operation[EnvelopePage]:
    """Read envelopes that opened contexts."""
    rows = yield Execute(
        _OPENERS[query.newest],
        {
            "for_owner": query.owner,
            "for_name": query.name,
            "after": min(query.after, MAX_SEQ),
            "before": MAX_SEQ if query.before is None else max(0, min(query.before, MAX_SEQ)),
            "most": query.limit,
        },
    )
    return (yield from read_page(query.owner, query.name, rows, query.limit))


def _remove(params: Params) -> Operation[int]:
    """Delete the first links of a space; return their number."""
    return len((yield Execute(_DELETE, params)))


remove = for_each(_remove)
