"""Migration of databases of older versions, with Alembic's migrations as SQL.

The migrations are in `migrations/`, and run at start. Alembic writes the statements (offline mode), and the store's
driver executes them in one transaction and under a lock: if several replicas start at once, one migrates. A migration
is therefore only SQL: it cannot decide by the content of rows.

An empty database is created from `tables`, with the same result. So the first start does not load Alembic (13 MiB, and
a third of a second).
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from .errors import StoreError
from .tables import DIALECT_STATEMENTS, metadata

HEAD_VERSION = "0011"
"""Version of the database schema that this Pellucid uses."""

DIALECTS: dict[str, Dialect] = {
    "sqlite": sqlite.dialect(),
    "postgresql": postgresql.dialect(),  # type: ignore[no-untyped-call]
}

_VERSION_TABLE = """CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)"""

_MIGRATIONS = Path(__file__).parent / "migrations"

ADVISORY_LOCK_KEY = 0x70656C6C75636964
"""Key of PostgreSQL's advisory lock that a migrating replica holds: "pellucid" in ASCII."""

_alembic_lock = threading.Lock()  # Alembic's migration context is a global variable


class _Statements(io.StringIO):
    """Text buffer that collects the statements which Alembic writes, one in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.statements: list[str] = []

    def write(self, text: str) -> int:
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("--")]
        if lines:
            self.statements.append("\n".join(lines).rstrip().removesuffix(";"))
        return len(text)


@lru_cache
def migration_statements(dialect: str, version: str | None) -> tuple[str, ...]:
    """Return the statements that migrate a database to `HEAD_VERSION`.

    Args:
        dialect: One of `DIALECTS`.
        version: Current version of the database; None: it is empty.

    Raises:
        StoreError: If the version is unknown, because a newer Pellucid wrote the database.
    """
    if version == HEAD_VERSION:
        return ()
    if version is None:
        return tuple(_creation_statements(dialect))
    return alembic_statements(dialect, version)


def _creation_statements(dialect: str) -> Iterator[str]:
    for table in metadata.sorted_tables:
        yield str(CreateTable(table).compile(dialect=DIALECTS[dialect]))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            yield str(CreateIndex(index).compile(dialect=DIALECTS[dialect]))
    yield from DIALECT_STATEMENTS[dialect]
    yield _VERSION_TABLE
    yield f"INSERT INTO alembic_version (version_num) VALUES ('{HEAD_VERSION}')"


def alembic_statements(dialect: str, version: str | None) -> tuple[str, ...]:
    """Generate the statements of `migration_statements` with Alembic."""
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    output = _Statements()
    config = Config(output_buffer=output)
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["dialect"] = dialect
    with _alembic_lock:
        scripts = ScriptDirectory.from_config(config)
        try:
            if version:
                scripts.get_revision(version)
            command.upgrade(config, f"{version or 'base'}:head", sql=True)
        except CommandError:
            raise StoreError(
                f"the store is of version {version}, which this Pellucid does not know: "
                "a newer one has written it; start that one, or give this one a store of its own",
                kind="server_error",
                code="storage_too_new",
            ) from None
    return tuple(output.statements)
