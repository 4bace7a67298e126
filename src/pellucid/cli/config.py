"""`pellucid config`: checks a configuration file."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import click

from ..data_directory import default_connections
from ..errors import ConfigError
from ..local.model_index import is_engine_installed
from ..models.embedded import EmbeddedModel
from ..server.catalog import NO_MODEL, Catalog
from ..server.config import DEFAULT_FILE, Config, read_config
from ..server.connections import ConnectionClients, ConnectionFile
from ..server.factories import check_startup
from ..upstream import UpstreamClient
from .local import unfetched_engine


@click.group()
def config() -> None:
    """The configuration file."""


@config.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--live", is_flag=True, help="Also check what it needs: store, models, tools, disk, clock, port.")
@click.pass_context
def check(ctx: click.Context, file: Path | None, live: bool) -> None:
    """Check FILE (pellucid.toml, if there is one) and list every mistake, with the correction.

    Packages, functions and key files that it refers to are looked up, too. Nothing is started or fetched, and without
    --live nothing is connected to. Models that were connected in the page are listed, with those that the file
    replaces.

    With --live, each model gets one short question, and the exit status is 1 if there is a problem.
    """
    ctx.exit(asyncio.run(_check(file, live=live)))


async def _check(file: Path | None, *, live: bool) -> int:
    """Check a configuration file, and print what was found. Return the exit status."""
    has_file = file is not None or DEFAULT_FILE.exists()
    checked_config = read_config(file or DEFAULT_FILE) if has_file else Config()
    async with (
        aclosing(UpstreamClient(checked_config.limits)) as client,
        aclosing(ConnectionClients(checked_config)) as connection_clients,
    ):
        uses_local = checked_config.uses_local_model
        local = EmbeddedModel(unfetched_engine(checked_config.local), client) if uses_local else None
        if mistakes := check_startup(checked_config, client, local):
            raise ConfigError(mistakes)
        for warning in checked_config.warnings:
            click.echo(f"warning: {warning}", err=True)
        connections = ConnectionFile(default_connections(), checked_config)
        connected = connections.current()
        for problem in connected.mistakes:
            click.echo(f"warning: {connections.path}: {problem}", err=True)
        catalog = Catalog(checked_config, client, local, connected=connected, connection_clients=connection_clients)
        for warning in catalog.connection_warnings():
            click.echo(f"warning: {connections.path}: {warning}", err=True)
        providers = ", ".join(checked_config.providers) or "none"
        if uses_local and not is_engine_installed():
            click.echo(f"warning: {NO_MODEL}", err=True)
            local = None
        state = "valid" if has_file else f"there is none in {Path.cwd()}, so everything is at its default"
        embedded = "off" if local is None else "on"
        click.echo(f"{file or DEFAULT_FILE}: {state}. Providers: {providers}. The embedded model: {embedded}.")
        if connected.connections:
            rows = [f"{name} ({', '.join(row.models)})" for name, row in connected.connections.items()]
            click.echo(f"{connections.path}: connected in the page: {'; '.join(rows)}.")
        if connected.default_model is not None and connected.default_model == catalog.default_name:
            click.echo(f"{connections.path}: the default model, chosen in the page: {catalog.default_name}.")
        if not live:
            return 0
        # Imported here, because it needs HTTP clients, and a plain check does not.
        from .live_check import Installation, check_installation, print_findings

        installation = Installation(checked_config, catalog, client, uses_engine=local is not None)
        return 0 if print_findings(await check_installation(installation)) else 1
