"""What a gateway keeps, for commands that look at it or change it without a gateway: where it is, how it is opened, and
how it is told. A gateway may run at the same time.
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
from ..record import Recording, RecordKeys, find_record_keys
from ..server.config import Config, read_storage_config
from ..storage import Store, check_store_url, open_store
from .options import DEFAULT_FILE

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

WIDE_COLUMNS = 400
"""Columns of a table that nobody looks at on a terminal: a program reads it, and no line is broken."""


def store_options(command: F) -> F:
    """`file` and `store`: where it is kept. Where the gateway's configuration says, if nothing else is said here."""
    for option in (
        click.option("--store", metavar="URL", help="Another store than the configuration's."),
        click.option("--config", "file", type=click.Path(path_type=Path), help="The gateway's file (pellucid.toml)."),
    ):
        command = option(command)
    return command


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def load_configuration(file: Path | None) -> Config:
    """That of the file, or of the one that is here, or of none. Raises `ConfigError`."""
    return read_storage_config(file or DEFAULT_FILE) if file is not None or DEFAULT_FILE.exists() else Config()


def with_store(
    file: Path | None,
    url: str | None,
    operation: Callable[[Store], Awaitable[T]],
    recording: Recording | None = None,
    *,
    must_exist: bool = False,
) -> T:
    """What `do` gives, of the store of this `url`, or else of the configuration. `there`: it is not made if it is not
    there, for a store that was just made has nothing wrong in it. Raises `RequestError` then."""
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


def load_record_keys(config: Config) -> RecordKeys | None:
    """The gateway's, if they are here. Makes none."""
    return find_record_keys(config.record_key_path())


def recording_of(config: Config) -> Recording:
    """As the gateway records, for a command that changes what it keeps."""
    keys = load_record_keys(config)
    return Recording(config.record.enabled, keys.signers if keys is not None else ())


def print_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(table: Table) -> None:
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = WIDE_COLUMNS
    console.print(table)


def format_time(seconds: float | None) -> str | None:
    """A time in seconds since 1970, as it is told."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
