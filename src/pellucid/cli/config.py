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
    has_file = file is not None or DEFAULT_FILE.exists()
    checked_config = read_config(file or DEFAULT_FILE) if has_file else Config()
    client = UpstreamClient(checked_config.limits)
    uses_local = checked_config.uses_local_model
    local = EmbeddedModel(unfetched_engine(checked_config.local), client) if uses_local else None
    if mistakes := check_startup(checked_config, local):
        raise ConfigError(mistakes)
    for warning in checked_config.warnings:
        click.echo(f"warning: {warning}", err=True)
    connections = ConnectionFile(default_connections(), checked_config)
    connected = connections.current()
    for problem in connected.mistakes:
        click.echo(f"warning: {connections.path}: {problem}", err=True)
    connection_clients = ConnectionClients(checked_config)
    catalog = Catalog(
        checked_config,
        client,
        local,
        connections=connected.connections,
        default_model=connected.default_model,
        connection_clients=connection_clients,
    )
    for warning in catalog.connection_warnings():
        click.echo(f"warning: {connections.path}: {warning}", err=True)
    providers = ", ".join(checked_config.providers) or "none"
    if checked_config.uses_local_model and not is_engine_installed():
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
    if live:
        # Imported here, because it needs HTTP clients, and a plain check does not.
        from .live_check import Installation, check_installation, print_findings

        async def check_all() -> bool:
            async with aclosing(client), aclosing(connection_clients):
                installation = Installation(checked_config, catalog, client, uses_engine=local is not None)
                return print_findings(await check_installation(installation))

        ctx.exit(0 if asyncio.run(check_all()) else 1)
