"""`pellucid models`: lists the embedded models, and fetches one in advance."""

from __future__ import annotations

import asyncio

import click
import msgspec
from rich.console import Console
from rich.table import Table

from ..local import fetch, model_index
from .local import fetch_with_bar


@click.group()
def models() -> None:
    """The models that can run inside the gateway."""


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="A JSON array, for programs.")
def list_models(as_json: bool) -> None:
    """Show the models, their size and licence, and which are in the cache. Nothing is fetched."""
    listed = fetch.list_models()
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(listed)).decode())
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "size", "memory", "licence", "cached", "description"):
        table.add_column(heading, overflow="fold")
    for model in listed:
        sizes = [f"{count / 1e6:,.0f} MB" for count in (model.bytes, model.memory)]
        cached = "yes" if model.is_cached else "no"
        table.add_row(model.name, *sizes, model.licence, cached, f"{model.title}. {model.note}")
    Console().print(table)


@models.command()
@click.argument("name")
def pull(name: str) -> None:
    """Fetch the model NAME into the cache, and verify it."""
    click.echo(asyncio.run(fetch_with_bar(model_index.find_model(name))))
