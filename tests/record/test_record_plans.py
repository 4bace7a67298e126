"""The cost of recording does not grow with the record."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from pellucid.storage import open_store, record_export, record_store, record_write
from pellucid.storage.sqlite import _DIALECT
from pellucid.storage.statement import Statement

pytestmark = pytest.mark.anyio


async def test_no_record_statement_scans_a_table(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await (await open_store(f"sqlite:///{path}")).aclose()
    database = sqlite3.connect(path)
    # `erase` asks once for the owners of a scope.
    named = [(name, value) for module in (record_write, record_store) for name, value in vars(module).items()]
    statements = [value for name, value in named if isinstance(value, Statement) and name != "_OWNERS"]
    for statement in (*statements, *record_export._CONTENTS.values()):
        text = statement.compile_for(_DIALECT).text
        for *_, step in database.execute("EXPLAIN QUERY PLAN " + text, [None] * text.count("?")):
            # Reading the first row of an index is no scan, though SQLite calls it one.
            assert not step.startswith("SCAN record_") or "LIMIT" in text, (text, step)
            assert not step.endswith("(owner=?)") or "LIMIT" in text, (text, step)
    database.close()
    assert len(statements) > 12
