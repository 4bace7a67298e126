"""What was said in a space, read and searched along one index at a time.

The rules:

* Whatever is asked is a stretch of the log, in its order, and is walked along one index: all there is, what one sender
  said, one family of kinds, what stands in one root context. What else is asked for is looked at on the way.
* Several kinds are several such walks, whose results are merged.
* What a walk finds is numbers and lengths; what is said there is read afterwards, as much as makes a portion
  (`portions`).
* A search walks along the texts. SQLite's index of them knows who said what kind of thing in which context, so that it
  gives none of anybody else's; PostgreSQL's does not, and weighs whether to walk along the log instead.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from ..envelopes import context
from . import search, tables
from .envelopes import DIGITS, LAST_SEQ, of_kind, said_by, scope_of, text_id, within
from .names import storable
from .portions import Portion, portion, sized_columns
from .statement import Ask, Op, Params, Row, Statement, given

# ---------------------------------------------------------------------------------------------- statements

_E, _T = tables.envelopes, tables.texts

_owner, _name, _most = given("for_owner"), given("for_name"), given("most", sa.BigInteger)
_after, _before = given("after", sa.BigInteger), given("before", sa.BigInteger)
_in_it = sa.and_(_E.c.owner == _owner, _E.c.space == _name)

_sender, _family, _root, _path = given("sender"), given("family"), given("root"), given("path")
_of_sender = _E.c.sender == _sender
_of_kinds = _E.c.kind.between(given("lowest"), given("highest"))
_inside = sa.and_(_E.c.root == _root, sa.or_(_E.c.path == _path, _E.c.path.between(given("below"), given("beyond"))))


def _if_asked(by: sa.BindParameter[Any], chosen: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return sa.or_(by.is_(None), chosen)


_CHECKS = {
    "path": _if_asked(_path, _inside),
    "sender": _if_asked(_sender, _of_sender),
    "family": _if_asked(_family, _of_kinds),
}
_WALKS = {"path": _inside, "sender": _of_sender, "family": sa.and_(_E.c.family == _family, _of_kinds)}
"""By what is asked for, the narrowest first as a rule."""


def _walk(by: str | None) -> sa.Select[Any]:
    looked_at = [check for name, check in _CHECKS.items() if name != by]
    walked = [] if by is None else [_WALKS[by]]
    return (
        sa.select(*sized_columns).where(_in_it, _E.c.seq > _after, _E.c.seq < _before, *walked, *looked_at).limit(_most)
    )


_FIRST = {by: Statement(_walk(by).order_by(_E.c.seq)) for by in (None, *_WALKS)}
_LAST = {by: Statement(_walk(by).order_by(_E.c.seq.desc())) for by in (None, *_WALKS)}

_seq_of_text = sa.case((_T.c.scope == given("for_scope"), sa.cast(_T.c.id, sa.BigInteger)))
"""Another scope's ids are no numbers."""
_text_of_seq = sa.func.substr(sa.cast(_E.c.seq + sa.literal_column(str(10**DIGITS)), sa.Text), sa.literal_column("2"))


def _begin() -> sa.ColumnElement[int]:
    """Texts are numbered in the order of the log, so the place in it to begin from is a number too: that of the last
    text before `before`."""
    other = _T.alias()
    last = (
        sa.select(other.c.number)
        .where(other.c.owner == _owner, other.c.scope == given("for_scope"), other.c.id < given("before_id"))
        .order_by(other.c.id.desc())
        .limit(sa.literal_column("1"))
    )
    return last.scalar_subquery()


def _found(matched: search.Matched) -> sa.Select[Any]:
    """The newest that hold it: first which they are, then how long."""
    texts = matched.texts.where(_T.c.of == _name, matched.number <= _begin())
    newest = texts.order_by(matched.number.desc()).limit(_most).subquery()
    return sa.select(*sized_columns).join(newest, sa.and_(_in_it, _E.c.seq == newest.c.seq)).order_by(_E.c.seq.desc())


def _found_of(matched: search.Matched) -> sa.Select[Any]:
    """The newest of some of them that hold it."""
    return (
        matched.texts.join(_E, sa.and_(_in_it, _E.c.seq == _seq_of_text))
        .where(_T.c.of == _name, matched.number <= _begin(), *_CHECKS.values())
        .order_by(matched.number.desc())
        .limit(_most)
    )


def _found_among(matched: search.Matched) -> sa.Select[Any]:
    """The same of some of them, for PostgreSQL: it can begin with these or with the texts, and weighs what is more.

    That both ways say the same it cannot know: with two equations it would expect next to nothing, and sort what it
    could walk along. So the second is a range, said twice, by which it expects a hundredth."""
    second = [_E.c.seq.between(_seq_of_text, _seq_of_text)] * 2
    narrowed = [_if_asked(by, _WALKS[name]) for name, by in (("path", _path), ("sender", _sender), ("family", _family))]
    return (
        matched.texts.where(_in_it, _T.c.id == _text_of_seq, *second)
        .where(_E.c.seq < _before, *narrowed)
        .order_by(_E.c.seq.desc())
        .limit(_most)
    )


_SEARCH = {
    "all": search.finding([_seq_of_text.label("seq")], _found),
    "some": search.finding(sized_columns, _found_of, _found_among),
}


# ---------------------------------------------------------------------------------------------- what is asked for


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the log, and what in it."""

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
    def possible(self) -> bool:
        """Whether these can be names at all, and a seq is between the two."""
        names = (self.owner, self.name, self.sender, self.within, *self.kinds)
        between = self.before is None or self.before > self.after + 1
        return (
            self.limit > 0 and self.after < LAST_SEQ and between and all(one is None or storable(one) for one in names)
        )


def _each_kind(wanted: Wanted) -> Iterator[Params]:
    """The parameters of each walk."""
    before = LAST_SEQ if wanted.before is None else max(0, min(wanted.before, LAST_SEQ))
    path = wanted.within
    walk = {
        "for_owner": wanted.owner,
        "for_name": wanted.name,
        "most": wanted.limit,
        "sender": wanted.sender,
        "after": wanted.after,
        "before": before,
        "path": path,
        "root": path and context.root(path),
        "below": f"{path}/",
        "beyond": f"{path}/\x7f",
    }
    kinds = set(wanted.kinds)
    if not kinds or "*" in kinds:
        yield {**walk, "kind": None, "family": None, "lowest": "", "highest": ""}
        return
    for kind in sorted(kinds):
        if any(kind != other and _is_of(kind, other) for other in kinds):
            continue
        family = kind.partition("/")[0]
        lowest, highest = (kind[:-1], f"{kind[:-1]}\x7f") if kind.endswith("/*") else (kind, kind)
        yield {**walk, "kind": kind, "family": family, "lowest": lowest, "highest": highest}


def _is_of(kind: str, pattern: str) -> bool:
    return pattern.endswith("/*") and kind.startswith(pattern[:-1])


def _traits(walk: Params) -> Iterator[str]:
    if walk["sender"] is not None:
        yield said_by(walk["sender"])
    if walk["kind"] is not None:
        yield of_kind(walk["family"] if walk["kind"].endswith("/*") else walk["kind"])
    if walk["path"] is not None:
        yield within(walk["path"])


def page(wanted: Wanted) -> Op[Portion]:
    by_walk = _LAST if wanted.newest else _FIRST
    walks: list[list[Row]] = []
    for walk in _each_kind(wanted):
        by = next((name for name in _WALKS if walk[name] is not None), None)
        walks.append((yield Ask(by_walk[by], walk)))
    found = yield from portion(wanted.owner, wanted.name, _merged(walks, backwards=wanted.newest), wanted.limit)
    return Portion(found[::-1], more=found.more, sizes=found.sizes[::-1]) if wanted.newest else found


def find(wanted: Wanted) -> Op[Portion]:
    scope, walks = scope_of(wanted.name), list[list[Row]]()
    for walk in _each_kind(wanted):
        asked = search.asked(wanted.owner, scope, wanted.query, _traits(walk))
        some = any(walk[name] is not None for name in _WALKS)
        walks.append(
            (yield _SEARCH["some" if some else "all"].ask({**walk, **asked, "before_id": text_id(walk["before"])}))
        )
    return (yield from portion(wanted.owner, wanted.name, _merged(walks, backwards=True), wanted.limit))


def _merged(walks: list[list[Row]], *, backwards: bool) -> list[Row]:
    if len(walks) == 1:
        return walks[0]
    return list(heapq.merge(*walks, key=lambda one: one[0], reverse=backwards))
