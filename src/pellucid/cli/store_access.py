"""Access to a gateway's store for commands that work without a gateway, and the form in which they print.

A gateway may run at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Table

from ..errors import RequestError
from ..record import Recording, read_recording
from ..server.config import DEFAULT_FILE, Config, read_storage_config
from ..storage import Store, check_store_url, open_store
from .options import option_group

T = TypeVar("T")

WIDE_COLUMNS = 400
"""Width of a table that is not printed to a terminal, so that no line is wrapped."""


store_options = option_group(
    click.option("--store", metavar="URL", help="The store, instead of the configuration's."),
    click.option("--config", "file", type=click.Path(path_type=Path), help="The gateway's file (pellucid.toml)."),
)
"""The options `file` and `store`, which locate the store. By default, the gateway's configuration does."""


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def load_configuration(file: Path | None) -> Config:
    """Read the configuration from `file`, else from `pellucid.toml` if it exists, else use the defaults.

    Raises:
        ConfigError: It is invalid.
    """
    return read_storage_config(file or DEFAULT_FILE) if file is not None or DEFAULT_FILE.exists() else Config()


def with_store(
    file: Path | None,
    url: str | None,
    operation: Callable[[Store], Awaitable[T]],
    recording: Recording | None = None,
    *,
    must_exist: bool = False,
) -> T:
    """Open the store, run an operation on it, and close it.

    Args:
        file: The configuration file.
        url: The store's URL, instead of the configuration's.
        operation: Called with the open store.
        recording: How changes are recorded.
        must_exist: Do not create the store. (A check of a new, empty store would report no mistakes.)

    Returns:
        The result of the operation.

    Raises:
        RequestError: The store does not exist, and `must_exist` is set.
    """
    store_url = url or load_configuration(file).store_url()
    if must_exist:
        _require_existing(store_url)

    async def work() -> T:
        store = await open_store(store_url, recording=recording)
        try:
            return await operation(store)
        finally:
            await store.aclose()

    return asyncio.run(work())


def _require_existing(url: str) -> None:
    parsed = check_store_url(url)
    if parsed.drivername == "sqlite" and not (parsed.database and Path(parsed.database).exists()):
        raise RequestError(f"there is no store at {parsed.database or url}", kind="not_found")


def recording_of(config: Config) -> Recording:
    """Return the gateway's recording, for a command that changes stored data."""
    return read_recording(config.record_key_path(), is_enabled=config.record.enabled)


def print_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(table: Table) -> None:
    widened(Console(markup=False, highlight=False)).print(table)


def widened(console: Console) -> Console:
    """Return a console for tables: it does not wrap lines that are not printed to a terminal."""
    if not console.is_terminal:
        console.width = WIDE_COLUMNS
    return console


def format_time(seconds: float | None) -> str | None:
    """Format a Unix time in seconds as ISO 8601 in UTC."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
