"""Reading and searching the log of a space, in pages that are limited by the number of envelopes and by their bytes.

The rules:

* A query is a range of the log, in its order, and scans one index: of all envelopes, of one sender, of one family of
  kinds, of one root context, of the envelopes that opened contexts, or of the links. Other conditions are filters on
  the rows. Several kinds are several scans, whose results are merged.
* A page is read with two queries. The first returns sequence numbers and lengths, along the index. The second reads the
  envelopes that fit into one page, by their numbers. So a result is at most one page and one envelope long, even if the
  envelopes are large. Neither database reads an envelope to determine its length.
* A search scans the texts. SQLite's index of texts contains sender, kind and context (as traits), so it returns no
  other texts. PostgreSQL's does not; its planner may scan the log instead.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from ..envelopes import context
from ..envelopes.reasoning import NameSet
from . import search, tables
from .envelopes import (
    ENVELOPE_COLUMNS,
    IN_SPACE,
    MAX_SEQ,
    SEQ_DIGITS,
    StoredEnvelope,
    context_trait,
    envelope_from_row,
    kind_trait,
    sender_trait,
    space_scope,
    text_id,
)
from .names import is_storable
from .statement import (
    LIMIT,
    NAME,
    ONE,
    OWNER,
    Execute,
    Operation,
    Params,
    Row,
    Statement,
    json_list,
    json_text,
    param,
    read_first,
)

_E, _L, _S, _T = tables.envelopes, tables.links, tables.spaces, tables.texts
_seq, _after, _before = (param(name, sa.BigInteger) for name in ("seq", "after", "before"))
_names = json_list("names")
_link_in_space = sa.and_(_L.c.owner == OWNER, _L.c.space == NAME)
_opens = sa.text("role = 'opens'")


def _first_from(select: sa.Select[Any], seq: sa.ColumnElement[int]) -> sa.Select[Any]:
    """Return a statement for the first row of `select` at or after a sequence number, along the primary key.

    PostgreSQL has no statistics of a new table. For an equality condition, it may choose an index in which another
    column precedes `seq`, and read the whole log for one envelope, as long as it caches that plan. A range in the order
    of `seq` can only use the primary key.
    """
    return select.where(_E.c.seq >= seq).order_by(_E.c.seq).limit(ONE)


# ---------------------------------------------------------------------------------------------- single envelopes

_sender = param("sender")
_GET = Statement(_first_from(sa.select(_E.c.seq, *ENVELOPE_COLUMNS).where(IN_SPACE), _seq))
_BY_ID = Statement(
    sa.select(*ENVELOPE_COLUMNS)
    .where(IN_SPACE, _E.c.id == param("for_id"), _E.c.seq < _before, sa.or_(_sender.is_(None), _E.c.sender == _sender))
    .order_by(_E.c.seq.desc())
    .limit(ONE)
)
_GET_LATEST = Statement(_first_from(sa.select(_E.c.latest).where(IN_SPACE), _seq))
_GET_HEAD = Statement(sa.select(_S.c.head).where(_S.c.owner == OWNER, _S.c.name == NAME, _S.c.removed_at.is_(None)))


def _existing_names(column: sa.Column[Any], *more: Any) -> Statement:
    """Build the statement that selects the existing ones from a JSON list of names.

    Each name is looked up by a subquery: for EXISTS, PostgreSQL would choose a join instead.
    """
    match: sa.Select[Any] = sa.select(ONE).where(IN_SPACE, column == _names.c.value, *more).limit(ONE)
    return Statement(sa.select(_names.c.value).where(match.scalar_subquery().is_not(None)))


_EXISTING_IDS = _existing_names(_E.c.id)
_EXISTING_PATHS = _existing_names(_E.c.path, _opens)


def get_envelope(params: Params) -> Operation[StoredEnvelope | None]:
    rows = yield Execute(_GET, params)
    return envelope_from_row(rows[0][1:]) if rows and rows[0][0] == params["seq"] else None


get_envelope_by_id = read_first(_BY_ID, envelope_from_row)


def first_seq_since(params: Params) -> Operation[int]:
    """Find the first envelope at or after the time `since_ms`, by binary search over `latest`."""
    head = yield Execute(_GET_HEAD, params)
    first, end = 1, int(head[0][0] if head else 0) + 1
    while first < end:
        middle = (first + end) // 2
        rows = yield Execute(_GET_LATEST, {**params, "seq": middle})
        if not rows or rows[0][0] >= params["since_ms"]:
            end = middle
        else:
            first = middle + 1
    return first


def existing_names(params: Params) -> Operation[NameSet]:
    """Return those ids and paths of `name_set` that exist in a space."""
    ids = yield from existing_ids({**params, "ids": params["name_set"].ids})
    return NameSet(ids, (yield from _existing(_EXISTING_PATHS, params, params["name_set"].paths)))


def existing_ids(params: Params) -> Operation[frozenset[str]]:
    """Return those of `ids` that envelopes of a space have."""
    return (yield from _existing(_EXISTING_IDS, params, params["ids"]))


def _existing(statement: Statement, params: Params, names: Iterable[str]) -> Operation[frozenset[str]]:
    storable_names = list(filter(is_storable, names))
    if not storable_names:
        return frozenset()
    rows = yield Execute(statement, {**params, "names": json_text(storable_names)})
    return frozenset(row[0] for row in rows)


# ---------------------------------------------------------------------------------------------- pages

MAX_PAGE_BYTES = 4 << 20
"""Maximum size of a page in bytes, unless its first envelope is larger."""

_sized_columns = [_E.c.seq, sa.func.length(_E.c.body).label("size")]
"""Columns of the first query."""
_seqs = json_list("seqs")


def _each_by_seq() -> sa.Select[tuple[object, ...]]:
    """Build the second query for PostgreSQL: a lateral join looks up each envelope.

    Without it, PostgreSQL may read the whole log, if it has no statistics of it. If an envelope is gone, the query
    returns the next one instead.
    """
    select = sa.select(_E.c.seq, *ENVELOPE_COLUMNS).where(IN_SPACE)
    envelope = _first_from(select, sa.cast(_seqs.c.value, sa.BigInteger)).lateral()
    return sa.select(*envelope.c).select_from(_seqs.join(envelope, sa.true()))


_BY_SEQS = Statement(
    _each_by_seq(),
    sqlite=sa.select(_E.c.seq, *ENVELOPE_COLUMNS).where(IN_SPACE, _E.c.seq.in_(sa.select(_seqs.c.value))),
)


class EnvelopePage(list[StoredEnvelope]):
    """A page of envelopes, and whether there may be more."""

    def __init__(
        self, rows: Iterable[StoredEnvelope] = (), *, has_more: bool = False, sizes_bytes: Sequence[int] = ()
    ) -> None:
        super().__init__(rows)
        self.has_more = has_more
        """Whether there may be more in the direction of reading: the limit of envelopes or of bytes was reached. The
        number of envelopes in the page does not show this."""
        self.sizes_bytes = sizes_bytes
        """Size of each envelope in bytes."""

    @property
    def total_bytes(self) -> int:
        """Size of all envelopes in bytes."""
        return sum(self.sizes_bytes)


def cut_page(sized_rows: Sequence[Row], limit: int, max_bytes: int) -> tuple[list[tuple[int, int]], bool]:
    """Select the first rows that fit into one page.

    Args:
        sized_rows: Rows of (sequence number, length), in the order of reading.
        limit: Maximum number of envelopes, which was also the limit of the query.
        max_bytes: Maximum size of the page.

    Returns:
        The selected rows, and whether there may be more.
    """
    chosen: list[tuple[int, int]] = []
    total_bytes = 0
    for seq, length in sized_rows[:limit]:
        total_bytes += length
        if chosen and total_bytes > max_bytes:
            return chosen, True
        chosen.append((seq, length))
    return chosen, len(sized_rows) >= limit


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A range of the log, with filters (see the methods of `Spaces`)."""

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
    correlation_ids: Sequence[str] = ()

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

    @property
    def range_params(self) -> Params:
        """Parameters of every scan: the space, the range and the limit."""
        return {
            "for_owner": self.owner,
            "for_name": self.name,
            "after": self.after,
            "before": seq_limit(self.before),
            "most": self.limit,
        }


def seq_limit(before: int | None) -> int:
    """Return an exclusive upper bound of sequence numbers that the database can compare."""
    return MAX_SEQ if before is None else max(0, min(before, MAX_SEQ))


def _read_page(query: LogQuery, sized_rows: Sequence[Row]) -> Operation[EnvelopePage]:
    """Read the envelopes of the first rows that fit into one page, in order. `sized_rows` have `_sized_columns`."""
    chosen, has_more = cut_page(sized_rows, query.limit, MAX_PAGE_BYTES)
    if not chosen:
        return EnvelopePage(has_more=has_more)
    rows = yield Execute(_BY_SEQS, {**query.range_params, "seqs": json_text([seq for seq, _ in chosen])})
    by_seq = {row[0]: envelope_from_row(row[1:]) for row in rows}
    # An envelope may be gone since the first query, because its space is being removed.
    present = [(seq, size) for seq, size in chosen if seq in by_seq]
    return EnvelopePage(
        [by_seq[seq] for seq, _ in present],
        has_more=has_more and bool(present),
        sizes_bytes=[size for _, size in present],
    )


# ---------------------------------------------------------------------------------------------- correlated envelopes


def _correlated_sqlite() -> sa.Select[tuple[object, ...]]:
    is_named = _L.c.about.in_(sa.select(_names.c.value))
    links = sa.select(_L.c.seq).where(_link_in_space, is_named, _L.c.seq > _after)
    seqs = links.distinct().order_by(_L.c.seq).limit(LIMIT)
    return sa.select(*_sized_columns).where(IN_SPACE, _E.c.seq.in_(seqs)).order_by(_E.c.seq)


def _correlated_postgresql() -> sa.Select[tuple[object, ...]]:
    """Build the statement for PostgreSQL. A lateral join looks up each name and each envelope, as in `_each_by_seq`."""
    links_of_name = sa.select(_L.c.seq).where(_link_in_space, _L.c.about == _names.c.value, _L.c.seq > _after)
    links = links_of_name.order_by(_L.c.seq).limit(LIMIT).lateral()
    all_links = sa.select(links.c.seq).select_from(_names.join(links, sa.true()))
    seqs = all_links.distinct().order_by(links.c.seq).limit(LIMIT).subquery()
    envelope = _first_from(sa.select(*_sized_columns).where(IN_SPACE), seqs.c.seq).lateral()
    return (
        sa.select(*envelope.c).select_from(seqs.join(envelope, envelope.c.seq == seqs.c.seq)).order_by(envelope.c.seq)
    )


_CORRELATED = Statement(_correlated_postgresql(), sqlite=_correlated_sqlite())

_openers = sa.select(*_sized_columns).where(IN_SPACE, _opens, _E.c.seq > _after, _E.c.seq < _before).limit(LIMIT)
_OPENERS = {True: Statement(_openers.order_by(_E.c.seq.desc())), False: Statement(_openers.order_by(_E.c.seq))}


def find_correlated(query: LogQuery) -> Operation[EnvelopePage]:
    """Read envelopes that correlate to one of the ids, in ascending order."""
    ids = list(filter(is_storable, dict.fromkeys(query.correlation_ids)))
    if not ids:
        return EnvelopePage()
    rows = yield Execute(_CORRELATED, {**query.range_params, "names": json_text(ids)})
    return (yield from _read_page(query, rows))


def find_openers(query: LogQuery) -> Operation[EnvelopePage]:
    """Read envelopes that opened contexts."""
    rows = yield Execute(_OPENERS[query.newest], query.range_params)
    return (yield from _read_page(query, rows))


# ---------------------------------------------------------------------------------------------- scans and searches

_family, _root, _path = param("family"), param("root"), param("path")
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
        sa.select(*_sized_columns)
        .where(IN_SPACE, _E.c.seq > _after, _E.c.seq < _before, *index_condition, *filters)
        .limit(LIMIT)
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
        .where(other.c.owner == OWNER, other.c.scope == param("for_scope"), other.c.id < param("before_id"))
        .order_by(other.c.id.desc())
        .limit(ONE)
    )
    return last.scalar_subquery()


def _newest_matches(matches: search.Matches) -> sa.Select[Any]:
    """Build the statement for the newest matches without filters: first the texts, then the lengths of envelopes."""
    texts = matches.texts.where(_T.c.of == NAME, matches.number <= _start_number())
    newest = texts.order_by(matches.number.desc()).limit(LIMIT).subquery()
    return (
        sa.select(*_sized_columns).join(newest, sa.and_(IN_SPACE, _E.c.seq == newest.c.seq)).order_by(_E.c.seq.desc())
    )


def _newest_filtered(matches: search.Matches) -> sa.Select[Any]:
    """Build the statement for the newest matches with filters."""
    return (
        matches.texts.join(_E, sa.and_(IN_SPACE, _E.c.seq == _seq_of_text))
        .where(_T.c.of == NAME, matches.number <= _start_number(), *_CHECKS.values())
        .order_by(matches.number.desc())
        .limit(LIMIT)
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
        matches.texts.where(IN_SPACE, _T.c.id == _text_of_seq, *seq_range)
        .where(_E.c.seq < _before, *filters)
        .order_by(_E.c.seq.desc())
        .limit(LIMIT)
    )


_SEARCH = {
    "all": search.search_query([_seq_of_text.label("seq")], _newest_matches),
    "some": search.search_query(_sized_columns, _newest_filtered, _newest_filtered_postgresql),
}


def _scan_params(query: LogQuery) -> Iterator[Params]:
    """Yield the parameters of each scan: one for each kind."""
    path = query.within
    params = {
        **query.range_params,
        "sender": query.sender,
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
    """Read one page of the log, in ascending order."""
    statements = _LAST if query.newest else _FIRST
    scans: list[list[Row]] = []
    for params in _scan_params(query):
        index = next((name for name in _SCANS if params[name] is not None), None)
        scans.append((yield Execute(statements[index], params)))
    page = yield from _read_page(query, _merge(scans, is_descending=query.newest))
    if query.newest:
        return EnvelopePage(page[::-1], has_more=page.has_more, sizes_bytes=page.sizes_bytes[::-1])
    return page


def search_log(query: LogQuery) -> Operation[EnvelopePage]:
    """Search the log; return the newest matches."""
    scope, scans = space_scope(query.name), list[list[Row]]()
    for params in _scan_params(query):
        is_filtered = any(params[name] is not None for name in _SCANS)
        params |= search.search_params(query.owner, scope, query.query, _traits(params))
        params["before_id"] = text_id(params["before"])
        scans.append((yield _SEARCH["some" if is_filtered else "all"].bind(params)))
    return (yield from _read_page(query, _merge(scans, is_descending=True)))


def _merge(scans: list[list[Row]], *, is_descending: bool) -> list[Row]:
    if len(scans) == 1:
        return scans[0]
    return list(heapq.merge(*scans, key=lambda one: one[0], reverse=is_descending))
