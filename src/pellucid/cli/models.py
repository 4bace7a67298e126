"""`pellucid models`: lists the embedded models, and fetches one in advance."""

from __future__ import annotations

import asyncio

import click
from rich.console import Console
from rich.table import Table

from ..local import fetch, model_index
from .local import fetch_with_bar


@click.group()
def models() -> None:
    """The models that can run inside the gateway."""


@models.command("list")
def list_models() -> None:
    """Show the models, their size and licence, and which are in the cache."""
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "size", "licence", "cached", "description"):
        table.add_column(heading, overflow="fold")
    for model in model_index.all_models():
        cached = "yes" if fetch.cached_path(model) else "no"
        table.add_row(model.name, f"{model.bytes / 1e6:,.0f} MB", model.licence, cached, model.title)
    Console().print(table)


@models.command()
@click.argument("name")
def pull(name: str) -> None:
    """Fetch the model NAME into the cache, and verify it."""
    click.echo(asyncio.run(fetch_with_bar(model_index.find_model(name))))
