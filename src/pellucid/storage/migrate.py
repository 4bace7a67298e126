"""Older databases become this one: Alembic's migrations, as SQL.

They ship in `migrations/` and run on start. Alembic writes the statements (its offline mode) and the driver that is
there anyway carries them out, in one transaction and under a lock, so that of several replicas that start at once one
migrates and the others find it done. A migration is therefore SQL alone: it cannot read a row and decide.

What brings an empty database up to date is kept in `migrations/DIALECT.sql`, as `python -m pellucid.storage.migrate`
writes it, so that a first start does not load Alembic (13 MiB, and a third of a second).
"""

from __future__ import annotations

import io
import threading
from functools import lru_cache
from pathlib import Path

from .errors import StoreError

HEAD_VERSION = "0005"
"""The version of this Pellucid's store."""

DIALECTS = ("sqlite", "postgresql")

_MIGRATIONS = Path(__file__).parent / "migrations"
_SEPARATOR = ";\n\n"

ADVISORY_LOCK_KEY = 0x70656C6C75636964
"""PostgreSQL's advisory lock that a migrating replica holds: "pellucid"."""

_alembic_lock = threading.Lock()  # what a migration script talks to is global in Alembic


class _Statements(io.StringIO):
    """Alembic writes a statement at a time."""

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
    """The statements that bring a database of this version (None: an empty one) up to date; none if it is. Raises
    `StoreError`."""
    if version == HEAD_VERSION:
        return ()
    if version is None:
        return tuple(_sql_file(dialect).read_text("utf-8").rstrip().removesuffix(";").split(_SEPARATOR))
    return alembic_statements(dialect, version)


def alembic_statements(dialect: str, version: str | None) -> tuple[str, ...]:
    """The same, by Alembic."""
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
