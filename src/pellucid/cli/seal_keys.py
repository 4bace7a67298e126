"""`pellucid seal-keys`: manages the keys that seal reasoning. No command prints a key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from ..errors import RequestError
from ..sealing import Key, Keys, change_keys, ensure_keys, env_keys, read_keys
from ..sealing.keyfile import ENV
from .options import option_group
from .store_access import load_configuration

_key_file_options = option_group(
    click.option("--config", type=click.Path(path_type=Path), help="The gateway's file (pellucid.toml)."),
    click.option(
        "--file",
        type=click.Path(path_type=Path),
        envvar=f"{ENV}_FILE",
        help=f"The key file, instead of the configuration's. (Keys in the variable {ENV} take precedence.)",
    ),
)
"""The options that locate the key file. By default, the gateway's configuration does."""


def _key_file_path(file: Path | None, config: Path | None) -> Path:
    if file is not None:
        return file
    return load_configuration(config).seal_keys_path()


@click.group("seal-keys")
def seal_keys() -> None:
    """The keys that seal reasoning. The first one seals; each opens what it has sealed until it is retired."""


@seal_keys.command("list")
@_key_file_options
def list_keys(file: Path | None, config: Path | None) -> None:
    """Show the names of the keys and the use of each."""
    keys = env_keys() or read_keys(_key_file_path(file, config))
    now = datetime.now(UTC)
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "created", "what it does"):
        table.add_column(heading, overflow="fold")
    for key in keys.keys:
        table.add_row(key.kid, f"{key.created_at:%Y-%m-%d}", _describe_use(key, keys, now))
    Console().print(table)


@seal_keys.command()
@_key_file_options
def rotate(file: Path | None, config: Path | None) -> None:
    """Add a new key in the first place. It seals from now on, and the others continue to open."""
    _require_file_keys()
    path = _key_file_path(file, config)
    keys = change_keys(path, lambda keys: keys.rotate(datetime.now(UTC))) if path.exists() else ensure_keys(path)
    click.echo(f"{keys.active.kid} seals from now on.")


@seal_keys.command()
@_key_file_options
@click.option("--in-days", type=click.IntRange(0, 36500), default=0, help="Retire it in this number of days, not now.")
@click.argument("name")
def retire(file: Path | None, config: Path | None, in_days: int, name: str) -> None:
    """Retire the key NAME. It seals nothing more now, and opens nothing more from the time of its retirement."""
    _require_file_keys()
    retired_at = (datetime.now(UTC) + timedelta(days=in_days)).replace(microsecond=0)
    change_keys(_key_file_path(file, config), lambda keys: keys.retire(name, retired_at))
    click.echo(f"{name} opens {f'until {retired_at:%Y-%m-%d %H:%M} UTC' if in_days else 'nothing any more'}.")


def _require_file_keys() -> None:
    if env_keys() is not None:
        raise RequestError(f"the keys in use are those in {ENV}; change them there, or unset it", code="seal_keys")


def _describe_use(key: Key, keys: Keys, now: datetime) -> str:
    if key is keys.active:
        return "seals and opens"
    if key.retired_at is None:
        return "opens"
    return f"{'retired' if key.is_retired(now) else 'opens until'} {key.retired_at:%Y-%m-%d}"
