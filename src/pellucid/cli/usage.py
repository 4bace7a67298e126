"""`pellucid usage`: what was used and what it cost, from the store."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from ..server.spend import format_amount
from ..server.usage_report import DEFAULT_COLUMNS, csv_text, entry_of, read_columns, read_filter
from ..storage.usage import COLUMNS
from .store_access import json_option, print_json, print_table, store_options, with_store


@click.command()
@click.option("--from", "first", metavar="DAY", help="The first day (2026-01-31) or month (2026-01), in UTC.")
@click.option("--to", "last", metavar="DAY", help="The last day or month.")
@click.option("--owner", metavar="WHO", help="Only what this tenant used.")
@click.option("--key", metavar="ID", help="Only what was used with this key (`key_…`).")
@click.option("--model", metavar="NAME", help="Only what was used of this model.")
@click.option(
    "--by",
    default=",".join(DEFAULT_COLUMNS),
    show_default=True,
    metavar="COLUMNS",
    help=f"What has a sum of its own: some of {', '.join(COLUMNS)}, separated by commas.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@json_option
@store_options
def usage(
    first: str | None,
    last: str | None,
    owner: str | None,
    key: str | None,
    model: str | None,
    by: str,
    as_csv: bool,
    file: Path | None,
    store: str | None,
    as_json: bool,
) -> None:
    """What was used and what it cost (docs/spend.md)."""
    columns = read_columns(by, "--by")
    filter = read_filter(first, last, owner, key, model, prefix="--")
    rows = with_store(file, store, lambda opened: opened.usage.report(columns, filter), must_exist=True)
    if as_csv:
        click.echo(csv_text(columns, rows), nl=False)
        return
    if as_json:
        print_json([entry_of(row) for row in rows])
        return
    numbers = ("requests", "input", "cached", "cache writes", "output", "reasoning", "cost")
    table = Table(*columns, box=None, pad_edge=False)
    for name in numbers:
        table.add_column(name, justify="right")
    table.add_column("")
    for row in rows:
        counts = row.counts
        tokens = (counts.input_tokens, counts.cached_tokens, counts.cache_write_tokens)
        written = (counts.output_tokens, counts.reasoning_tokens)
        cost = f"{format_amount(counts.cost_nanos)} {row.currency}" if row.currency else "no prices"
        remark = f"{counts.estimated} estimated" if counts.estimated else ""
        groups = [getattr(row, column) for column in columns]
        table.add_row(*groups, *map(str, (counts.requests, *tokens, *written)), cost, remark)
    print_table(table)
