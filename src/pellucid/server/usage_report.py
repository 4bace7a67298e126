"""Reports of what was used, for `GET /api/usage` and `pellucid usage`: their rows as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from datetime import date
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from ..protocols.decoding import invalid
from ..storage import UsageFilter, UsageRow
from ..storage.usage import COLUMNS, Column
from .spend import NANOS, format_amount

DEFAULT_COLUMNS: tuple[Column, ...] = ("day", "model")

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}(-[0-9]{2})?")


class UsageEntry(msgspec.Struct, kw_only=True):
    """What was used: a sum. It has the columns by which the report is grouped."""

    month: str | UnsetType = UNSET
    day: str | UnsetType = UNSET
    """In UTC."""
    owner: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    """The key's id; empty for callers without a key."""
    model: str | UnsetType = UNSET
    """The public name that was requested."""
    deployment: str | UnsetType = UNSET
    """The model that answered, as `PROVIDER/MODEL`."""
    requests: int
    """Requests to the model: one for each turn."""
    input_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    """Tokens that were written, reasoning included."""
    reasoning_tokens: int
    cost: float
    currency: str | None
    """None: the model had no prices."""
    estimated: int
    """How many of the requests have estimated numbers."""


class UsageReport(msgspec.Struct, kw_only=True):
    """What was used."""

    data: list[UsageEntry]


def read_columns(text: str | None, param: str) -> tuple[Column, ...]:
    """Read the columns by which a report is grouped.

    Args:
        text: Their names, separated by commas; None for the default.
        param: The name of the parameter, for errors.

    Raises:
        RequestError: It names another column.
    """
    if text is None:
        return DEFAULT_COLUMNS
    names = [name for name in text.split(",") if name]
    columns = [column for name in names for column in COLUMNS if column == name]
    if len(columns) != len(names):
        raise invalid(param, f"a list of {', '.join(COLUMNS)}, separated by commas; not {text[:100]!r}")
    return tuple(columns)


def read_filter(
    first: str | None, last: str | None, owner: str | None, key: str | None, model: str | None, *, prefix: str = ""
) -> UsageFilter:
    """Read the filter of a report.

    Args:
        first: The first day, or month.
        last: The last day, or month.
        owner: The owner.
        key: The id of the key.
        model: The public name of the model.
        prefix: What precedes the names of parameters in errors.

    Raises:
        RequestError: A day is not written as one.
    """
    for name, day in (("from", first), ("to", last)):
        if day is not None and not _is_day(day):
            raise invalid(f"{prefix}{name}", f"a day or a month, such as 2026-01-31 or 2026-01, not {day[:40]!r}")
    # Days are compared as texts: a month is before its days, and "2026-01-99" is after them.
    last_day = f"{last}-99" if last is not None and len(last) == 7 else last
    if first is not None and last_day is not None and first > last_day:
        raise invalid(f"{prefix}to", f"{last!r} is before {first!r}, the first day")
    return UsageFilter(first_day=first, last_day=last_day, owner=owner, key=key, model=model)


def _is_day(text: str) -> bool:
    """Return whether a text is a day or a month of the calendar."""
    if not _DAY.fullmatch(text):
        return False
    try:
        date.fromisoformat(text if len(text) == 10 else f"{text}-01")
    except ValueError:
        return False
    return True


def entry_of(row: UsageRow) -> UsageEntry:
    """Return a row as JSON has it."""
    groups = {column: value for column in COLUMNS if (value := getattr(row, column)) is not None}
    counts: dict[str, Any] = msgspec.structs.asdict(row.counts)
    cost = counts.pop("cost_nanos") / NANOS
    return UsageEntry(**groups, **counts, cost=cost, currency=row.currency or None)


CSV_TYPE = "text/csv"


def csv_text(columns: Iterable[Column], rows: Iterable[UsageRow]) -> str:
    """Return rows as CSV, with exact decimal numbers as costs (RFC 4180)."""
    groups = list(dict.fromkeys(columns))
    names = [name for name in UsageEntry.__struct_fields__ if name in groups or name not in COLUMNS]
    output = io.StringIO()
    writer = csv.writer(output)
    writer.writerow(names)
    for row in rows:
        values = msgspec.structs.asdict(entry_of(row)) | {"cost": format_amount(row.counts.cost_nanos)}
        writer.writerow([_csv_cell(values[name]) for name in names])
    return output.getvalue()


def _csv_cell(value: Any) -> Any:
    # Names come from clients; spreadsheets evaluate a cell that begins with one of these characters.
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
