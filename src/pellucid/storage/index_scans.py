"""Reading and searching the log of a space, each time along one index.

The rules:

* A query is a range of the log, in its order, and scans one index: of all envelopes, of one sender, of one family of
  kinds, or of one root context. Other conditions are filters on the rows.
* Several kinds are several scans, whose results are merged.
* A scan returns sequence numbers and lengths. The envelopes of one page are read afterwards (`paging`).
* A search scans the texts. SQLite's index of texts contains sender, kind and context (as traits), so it returns no
  other texts. PostgreSQL's does not; its planner may scan the log instead.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from ..envelopes import context
from . import search, tables
from .envelopes import MAX_SEQ, SEQ_DIGITS, context_trait, kind_trait, sender_trait, space_scope, text_id
from .names import is_storable
from .paging import EnvelopePage, read_page, sized_columns
from .statement import Execute, Operation, Params, Row, Statement, param

# ---------------------------------------------------------------------------------------------- statements

_E, _T = tables.envelopes, tables.texts

_owner, _name, _limit = param("for_owner"), param("for_name"), param("most", sa.BigInteger)
_after, _before = param("after", sa.BigInteger), param("before", sa.BigInteger)
_in_space = sa.and_(_E.c.owner == _owner, _E.c.space == _name)

_sender, _family, _root, _path = param("sender"), param("family"), param("root"), param("path")
_is_from_sender = _E.c.sender == _sender
_is_of_kind = _E.c.kind.between(param("lowest"), param("highest"))
_is_in_context = sa.and_(
    _E.c.root == _root, sa.or_(_E.c.path == _path, _E.c.path.between(param("below"), param("beyond")))
)


def _if_set(value: sa.BindParameter[Any], condition: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return sa.or_(value.is_(None), condition)


_CHECKS = {
    "path": _if_set(_path, _is_in_context),
    "sender": _if_set(_sender, _is_from_sender),
    "family": _if_set(_family, _is_of_kind),
}
_SCANS = {"path": _is_in_context, "sender": _is_from_sender, "family": sa.and_(_E.c.family == _family, _is_of_kind)}
"""Index conditions by parameter. The first are usually the most selective."""


def _scan(by: str | None) -> sa.Select[Any]:
    filters = [check for name, check in _CHECKS.items() if name != by]
    index_condition = [] if by is None else [_SCANS[by]]
    return (
        sa.select(*sized_columns)
        .where(_in_space, _E.c.seq > _after, _E.c.seq < _before, *index_condition, *filters)
        .limit(_limit)
    )


_FIRST = {by: Statement(_scan(by).order_by(_E.c.seq)) for by in (None, *_SCANS)}
_LAST = {by: Statement(_scan(by).order_by(_E.c.seq.desc())) for by in (None, *_SCANS)}

_seq_of_text = sa.case((_T.c.scope == param("for_scope"), sa.cast(_T.c.id, sa.BigInteger)))
"""The ids of other scopes are not numbers, so they must not be cast."""
_text_of_seq = sa.func.substr(
    sa.cast(_E.c.seq + sa.literal_column(str(10**SEQ_DIGITS)), sa.Text), sa.literal_column("2")
)


def _start_number() -> sa.ColumnElement[int]:
    """Return the number of the last text before `before`. Texts are numbered in the order of the log."""
    other = _T.alias()
    last = (
        sa.select(other.c.number)
        .where(other.c.owner == _owner, other.c.scope == param("for_scope"), other.c.id < param("before_id"))
        .order_by(other.c.id.desc())
        .limit(sa.literal_column("1"))
    )
    return last.scalar_subquery()


def _newest_matches(matches: search.Matches) -> sa.Select[Any]:
    """Build the statement for the newest matches without filters: first the texts, then the lengths of envelopes."""
    texts = matches.texts.where(_T.c.of == _name, matches.number <= _start_number())
    newest = texts.order_by(matches.number.desc()).limit(_limit).subquery()
    return (
        sa.select(*sized_columns).join(newest, sa.and_(_in_space, _E.c.seq == newest.c.seq)).order_by(_E.c.seq.desc())
    )


def _newest_filtered(matches: search.Matches) -> sa.Select[Any]:
    """Build the statement for the newest matches with filters."""
    return (
        matches.texts.join(_E, sa.and_(_in_space, _E.c.seq == _seq_of_text))
        .where(_T.c.of == _name, matches.number <= _start_number(), *_CHECKS.values())
        .order_by(matches.number.desc())
        .limit(_limit)
    )


def _newest_filtered_postgresql(matches: search.Matches) -> sa.Select[Any]:
    """Build the same statement for PostgreSQL, which can start with the texts or with the log.

    PostgreSQL's planner does not know that the two join conditions are equivalent. For two equations it would estimate
    almost no rows, and sort instead of scanning in order. So the second condition is a range, written twice, for which
    it estimates one hundredth.
    """
    seq_range = [_E.c.seq.between(_seq_of_text, _seq_of_text)] * 2
    filters = [_if_set(by, _SCANS[name]) for name, by in (("path", _path), ("sender", _sender), ("family", _family))]
    return (
        matches.texts.where(_in_space, _T.c.id == _text_of_seq, *seq_range)
        .where(_E.c.seq < _before, *filters)
        .order_by(_E.c.seq.desc())
        .limit(_limit)
    )


_SEARCH = {
    "all": search.search_query([_seq_of_text.label("seq")], _newest_matches),
    "some": search.search_query(sized_columns, _newest_filtered, _newest_filtered_postgresql),
}


# ---------------------------------------------------------------------------------------------- operations


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A range of the log, with filters (see `Spaces.page` and `Spaces.search`)."""

    owner: str
    name: str
    after: int = 0
    before: int | None = None
    limit: int
    newest: bool = False
    sender: str | None = None
    kinds: Sequence[str] = ()
    within: str | None = None
    query: str = ""

    @property
    def is_possible(self) -> bool:
        """Whether the names can be stored, and there is a sequence number between `after` and `before`."""
        names = (self.owner, self.name, self.sender, self.within, *self.kinds)
        has_room = self.before is None or self.before > self.after + 1
        return (
            self.limit > 0
            and self.after < MAX_SEQ
            and has_room
            and all(one is None or is_storable(one) for one in names)
        )


def _scan_params(query: LogQuery) -> Iterator[Params]:
    """Yield the parameters of each scan: one for each kind."""
    before = MAX_SEQ if query.before is None else max(0, min(query.before, MAX_SEQ))
    path = query.within
    params = {
        "for_owner": query.owner,
        "for_name": query.name,
        "most": query.limit,
        "sender": query.sender,
        "after": query.after,
        "before": before,
        "path": path,
        "root": path and context.root(path),
        "below": f"{path}/",
        "beyond": f"{path}/\x7f",
    }
    kinds = set(query.kinds)
    if not kinds or "*" in kinds:
        yield {**params, "kind": None, "family": None, "lowest": "", "highest": ""}
        return
    for kind in sorted(kinds):
        if any(kind != other and _matches_pattern(kind, other) for other in kinds):
            continue
        family = kind.partition("/")[0]
        lowest, highest = (kind[:-1], f"{kind[:-1]}\x7f") if kind.endswith("/*") else (kind, kind)
        yield {**params, "kind": kind, "family": family, "lowest": lowest, "highest": highest}


def _matches_pattern(kind: str, pattern: str) -> bool:
    return pattern.endswith("/*") and kind.startswith(pattern[:-1])


def _traits(params: Params) -> Iterator[str]:
    if params["sender"] is not None:
        yield sender_trait(params["sender"])
    if params["kind"] is not None:
        yield kind_trait(params["family"] if params["kind"].endswith("/*") else params["kind"])
    if params["path"] is not None:
        yield context_trait(params["path"])


def read_log(query: LogQuery) -> Operation[EnvelopePage]:
    """Read one page of the log."""
    statements = _LAST if query.newest else _FIRST
    scans: list[list[Row]] = []
    for params in _scan_params(query):
        index = next((name for name in _SCANS if params[name] is not None), None)
        scans.append((yield Execute(statements[index], params)))
    page = yield from read_page(query.owner, query.name, _merge(scans, is_descending=query.newest), query.limit)
    return (
        EnvelopePage(page[::-1], has_more=page.has_more, sizes_bytes=page.sizes_bytes[::-1]) if query.newest else page
    )


def search_log(query: LogQuery) -> Operation[EnvelopePage]:
    """Search the log; return the newest matches."""
    scope, scans = space_scope(query.name), list[list[Row]]()
    for params in _scan_params(query):
        search_params = search.search_params(query.owner, scope, query.query, _traits(params))
        is_filtered = any(params[name] is not None for name in _SCANS)
        scans.append(
            (
                yield _SEARCH["some" if is_filtered else "all"].bind(
                    {**params, **search_params, "before_id": text_id(params["before"])}
                )
            )
        )
    return (yield from read_page(query.owner, query.name, _merge(scans, is_descending=True), query.limit))


def _merge(scans: list[list[Row]], *, is_descending: bool) -> list[Row]:
    if len(scans) == 1:
        return scans[0]
    return list(heapq.merge(*scans, key=lambda one: one[0], reverse=is_descending))
