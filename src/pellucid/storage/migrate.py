"""Migration of databases of older versions, with Alembic's migrations as SQL.

The migrations are in `migrations/`, and run at start. Alembic writes the statements (offline mode), and the store's
driver executes them in one transaction and under a lock: if several replicas start at once, one migrates. A migration
is therefore only SQL: it cannot decide by the content of rows.

The statements for an empty database are in `migrations/DIALECT.sql`, which `python -m pellucid.storage.migrate` writes.
So the first start does not load Alembic (13 MiB, and a third of a second).
"""

from __future__ import annotations

import io
import threading
from functools import lru_cache
from pathlib import Path

from .errors import StoreError

HEAD_VERSION = "0011"
"""Version of the database schema that this Pellucid uses."""

DIALECTS = ("sqlite", "postgresql")

_MIGRATIONS = Path(__file__).parent / "migrations"
_SEPARATOR = ";\n\n"

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
        return tuple(_sql_file(dialect).read_text("utf-8").rstrip().removesuffix(";").split(_SEPARATOR))
    return alembic_statements(dialect, version)


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


def _sql_file(dialect: str) -> Path:
    return _MIGRATIONS / f"{dialect}.sql"


if __name__ == "__main__":
    for _dialect in DIALECTS:
        _sql_file(_dialect).write_text(_SEPARATOR.join(alembic_statements(_dialect, None)) + ";\n", "utf-8")
