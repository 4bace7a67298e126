"""`pellucid config`: whether a configuration is right."""

from __future__ import annotations

from pathlib import Path

import click

from ..server.config import read_config
from .options import DEFAULT_FILE


@click.group()
def config() -> None:
    """The configuration file."""


@config.command()
@click.argument("file", type=click.Path(path_type=Path), default=DEFAULT_FILE)
def check(file: Path) -> None:
    """Check FILE (pellucid.toml) and name every mistake, with what would be right."""
    found = read_config(file)
    providers = ", ".join(found.providers) or "none"
    click.echo(f"{file}: right. Providers: {providers}. The embedded model: {'on' if found.use_local else 'off'}.")
