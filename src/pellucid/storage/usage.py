"""What was used and what it cost: sums by day, key, model and deployment.

A row is only ever added to, so replicas can write the same one. A sum that was written although its writer got an error
(the connection broke before the answer) may be written again: sums are at least what was used.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Literal, NamedTuple, get_args

import msgspec
import sqlalchemy as sa

from . import tables
from .database import StoreOperations
from .names import is_storable, return_if_unstorable
from .statement import LIMIT, OWNER, Execute, Operation, Params, Row, Statement, for_each, param, read_first, upsert

Column = Literal["month", "day", "owner", "key", "model", "deployment"]
"""By what sums can be grouped."""

COLUMNS: tuple[Column, ...] = get_args(Column)

MAX_ROWS = 10_000
"""Maximum number of rows of a report."""


class UsageCounts(msgspec.Struct, kw_only=True):
    """Sums of requests to models."""

    requests: int = 0
    """Requests to the model: one for each turn of a run."""
    input_tokens: int = 0
    """Tokens that were read, including those that were read from a cache or written to it."""
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    """Tokens that were written, reasoning included."""
    reasoning_tokens: int = 0
    cost_nanos: int = 0
    """In billionths of the currency."""
    estimated: int = 0
    """How many of the requests have numbers that are estimates, because their provider did not report them all."""

    def add(self, other: UsageCounts) -> None:
        """Add the numbers of another sum. (Written out, because every turn of a model does it.)"""
        self.requests += other.requests
        self.input_tokens += other.input_tokens
        self.cached_tokens += other.cached_tokens
        self.cache_write_tokens += other.cache_write_tokens
        self.output_tokens += other.output_tokens
        self.reasoning_tokens += other.reasoning_tokens
        self.cost_nanos += other.cost_nanos
        self.estimated += other.estimated


COUNTS = UsageCounts.__struct_fields__


class UsageKey(NamedTuple):
    """The columns that identify a row."""

    owner: str
    key_id: str
    """The key's id; empty for an owner without a key (a token, or no credentials)."""
    day: str
    """In UTC, as `2026-01-31`."""
    model: str
    """The public name."""
    deployment: str
    """`PROVIDER/MODEL`."""
    currency: str
    """The currency of the cost; empty if there were no prices."""


class UsageRow(msgspec.Struct, kw_only=True, frozen=True):
    """A row of a report. The columns by which it is not grouped are None."""

    month: str | None = None
    day: str | None = None
    owner: str | None = None
    key: str | None = None
    model: str | None = None
    deployment: str | None = None
    currency: str = ""
    counts: UsageCounts


class UsageFilter(msgspec.Struct, kw_only=True, frozen=True):
    """Which rows a report includes. None: all."""

    first_day: str | None = None
    last_day: str | None = None
    owner: str | None = None
    key: str | None = None
    model: str | None = None


_ALL = UsageFilter()


class CostTotals(NamedTuple):
    """The cost of a day, and of the month up to it, in billionths of the currency."""

    day: int
    month: int


_U = tables.usage
_KEY_COLUMNS = [_U.c[name] for name in UsageKey._fields]


def _add_statement(insert: Any) -> Any:
    statement = insert(_U)
    sums = {name: _U.c[name] + statement.excluded[name] for name in COUNTS}
    return statement.on_conflict_do_update(index_elements=_KEY_COLUMNS, set_=sums)


_ADD = upsert(_add_statement)
_DAY, _MONTH_START = param("today"), param("month_start")
_totals_by_owner = sa.select(
    sa.func.coalesce(sa.func.sum(sa.case((_U.c.day == _DAY, _U.c.cost_nanos), else_=0)), 0),
    sa.func.coalesce(sa.func.sum(_U.c.cost_nanos), 0),
).where(_U.c.owner == OWNER, _U.c.day >= _MONTH_START, _U.c.day <= _DAY, _U.c.currency == param("in_currency"))
_TOTALS_BY_OWNER = Statement(_totals_by_owner)
_TOTALS_BY_KEY = Statement(_totals_by_owner.where(_U.c.key_id == param("for_key")))
DELETE_USAGE = Statement(sa.delete(_U).where(_U.c.owner == OWNER))
"""Deletes the sums of an owner."""

_GROUPS: dict[Column, sa.ColumnElement[str]] = {
    "month": sa.func.substr(_U.c.day, sa.literal_column("1"), sa.literal_column("7")),
    "day": _U.c.day,
    "owner": _U.c.owner,
    "key": _U.c.key_id,
    "model": _U.c.model,
    "deployment": _U.c.deployment,
}
_FILTERS: dict[str, sa.ColumnElement[bool]] = {
    "first_day": _U.c.day >= param("first_day"),
    "last_day": _U.c.day <= param("last_day"),
    "owner": _U.c.owner == param("owner"),
    "key": _U.c.key_id == param("key"),
    "model": _U.c.model == param("model"),
}


@cache
def _report_statement(group_by: tuple[Column, ...], filters: frozenset[str]) -> Statement:
    groups = [*(_GROUPS[name] for name in group_by), _U.c.currency]
    sums = [sa.func.sum(_U.c[name]) for name in COUNTS]
    conditions = [_FILTERS[name] for name in sorted(filters)]
    order: list[sa.ColumnClause[Any]] = [sa.literal_column(str(number + 1)) for number in range(len(groups))]
    select = sa.select(*groups, *sums).where(*conditions).group_by(*groups).order_by(*order).limit(LIMIT)
    return Statement(select, replan=True)


@for_each
def _add(rows: list[Params]) -> Operation[None]:
    yield Execute(_ADD, rows)


def _totals_of(row: Row) -> CostTotals:
    return CostTotals(int(row[0]), int(row[1]))


_by_owner, _by_key = read_first(_TOTALS_BY_OWNER, _totals_of), read_first(_TOTALS_BY_KEY, _totals_of)


def _report(params: Params) -> Operation[list[Row]]:
    return (yield Execute(_report_statement(params["group_by"], params["filters"]), params))


class UsageStore(StoreOperations):
    """Operations on what was used: `store.usage`."""

    async def add(self, sums: Iterable[tuple[UsageKey, UsageCounts]]) -> None:
        """Add sums to the rows with these keys, all or none.

        The keys must be storable (`is_storable`).
        """
        # In order, so that two replicas do not wait for each other's rows.
        rows = [{**key._asdict(), **msgspec.structs.asdict(counts)} for key, counts in sorted(sums, key=lambda s: s[0])]
        if rows:
            await self._database.write(_add, rows)

    @return_if_unstorable(CostTotals(0, 0))
    async def cost_totals(self, owner: str, key_id: str | None, currency: str, today: str) -> CostTotals:
        """Return the cost of a key, or of an owner, today, and in this month.

        Args:
            owner: The owner.
            key_id: The key; empty: what the owner used without a key; None: all that it used.
            currency: The currency.
            today: The day, in UTC.
        """
        params = {
            "for_owner": owner,
            "for_key": key_id,
            "in_currency": currency,
            "today": today,
            "month_start": f"{today[:7]}-01",
        }
        return await self._database.read(_by_owner if key_id is None else _by_key, params) or CostTotals(0, 0)

    async def report(self, group_by: Iterable[Column], filter: UsageFilter = _ALL) -> tuple[UsageRow, ...]:
        """Return at most `MAX_ROWS` sums, in the order of the columns by which they are grouped.

        Args:
            group_by: The columns. Sums of several currencies are always separate.
            filter: Which rows are included.
        """
        columns = tuple(dict.fromkeys(group_by))
        values = {name: value for name, value in msgspec.structs.asdict(filter).items() if value is not None}
        if not all(map(is_storable, values.values())):
            return ()
        params: Params = {**values, "group_by": columns, "filters": frozenset(values), "most": MAX_ROWS}
        return tuple(_usage_row(columns, row) for row in await self._database.read(_report, params))


def _usage_row(group_by: tuple[Column, ...], row: Row) -> UsageRow:
    groups: dict[str, str] = dict(zip(group_by, row, strict=False))
    currency, *counts = row[len(group_by) :]
    return UsageRow(**groups, currency=currency, counts=UsageCounts(**dict(zip(COUNTS, map(int, counts), strict=True))))
