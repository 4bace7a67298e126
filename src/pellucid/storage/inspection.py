"""Looks at a store without changing it: whether it answers, can be written, and has the tables of this version.

`open_store` creates or migrates the tables. A check of an installation must not.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from . import sqlite
from .errors import StoreError
from .migrate import HEAD_VERSION, migration_statements
from .store import check_store_url, sqlite_path

ANSWER_SECONDS = 5.0


class StoreState(NamedTuple):
    """What a store is like."""

    version: str | None
    """The version of its tables; None: it has none yet, and the next start creates them."""
    is_writable: bool
    clock_offset: float | None = None
    """By how many seconds the clock of the database's server is ahead of this machine's; None: it has none."""

    @property
    def is_current(self) -> bool:
        """Whether its tables are those of this version."""
        return self.version == HEAD_VERSION


async def inspect_store(url: str) -> StoreState:
    """Return what a store is like.

    Args:
        url: As for `open_store`.

    Raises:
        ConfigError: The URL has another form.
        StoreError: The database does not answer, or a newer version has written it.
    """
    path = sqlite_path(url)
    if path is not None:
        state = _inspect_file(Path(path))
        dialect = "sqlite"
    elif check_store_url(url).drivername == "sqlite":
        return StoreState(None, True)
    else:
        state = await _inspect_postgres(url)
        dialect = "postgresql"
    if state.version is not None:
        migration_statements(dialect, state.version)
    return state


def _inspect_file(path: Path) -> StoreState:
    if not path.exists():
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        return StoreState(None, os.access(folder, os.W_OK | os.X_OK))
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=ANSWER_SECONDS)) as file:
            version = sqlite.stored_version(file)
    except sqlite3.Error as error:
        raise StoreError(f"the store {path} cannot be read: {error}", kind="server_error") from None
    return StoreState(version, os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


async def _inspect_postgres(url: str) -> StoreState:
    import asyncpg  # of the extra `postgres`, as is the module

    from .postgres import stored_version

    dsn = check_store_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        connection = await asyncpg.connect(dsn, timeout=ANSWER_SECONDS, command_timeout=ANSWER_SECONDS)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
        message = str(error) or type(error).__name__
        raise StoreError(f"the database cannot be reached: {message}", kind="server_error") from None
    try:
        version = await stored_version(connection)
        is_read_only = await connection.fetchval("SELECT current_setting('transaction_read_only') = 'on'")
        now = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
    except (asyncpg.PostgresError, TimeoutError) as error:
        raise StoreError(f"the database cannot be read: {error}", kind="server_error") from None
    finally:
        connection.terminate()
    return StoreState(version, not is_read_only, now - time.time())
