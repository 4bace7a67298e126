"""Older databases become this one: Alembic's migrations, as SQL.

They ship in `migrations/` and run on start. Alembic writes the statements (its offline mode) and the driver that is
there anyway carries them out, in one transaction and under a lock, so that of several replicas that start at once one
migrates and the others find it done. A migration is therefore SQL alone: it cannot read a row and decide.
"""

from __future__ import annotations

import io
import threading
from functools import lru_cache
from pathlib import Path

from .errors import StoreError

HEAD = "0005"
"""The version of this Pellucid's store: Alembic is loaded only to get there."""

LOCK = 0x70656C6C75636964
"""PostgreSQL's advisory lock that a migrating replica holds: "pellucid"."""

_one_at_a_time = threading.Lock()  # what a migration script talks to is global in Alembic


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
def migration(dialect: str, version: str | None) -> tuple[str, ...]:
    """The statements that bring a database of this version (None: an empty one) up to date; none if it is."""
    if version == HEAD:
        return ()
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    output = _Statements()
    config = Config(output_buffer=output)
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["dialect"] = dialect
    with _one_at_a_time:
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
