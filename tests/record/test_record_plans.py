"""The cost of recording does not grow with the record."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from pellucid.storage import open_store, record_content, record_write
from pellucid.storage.sqlite import _DIALECT
from pellucid.storage.statement import Statement

pytestmark = pytest.mark.anyio


async def test_no_record_statement_scans_a_table(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await (await open_store(f"sqlite:///{path}")).aclose()
    database = sqlite3.connect(path)
    seen = 0
    for module in (record_write, record_content):
        for value in vars(module).values():
            for statement in value.values() if isinstance(value, dict) else [value]:
                if not isinstance(statement, Statement):
                    continue
                text = statement.compile_for(_DIALECT).text
                for *_, step in database.execute("EXPLAIN QUERY PLAN " + text, [None] * text.count("?")):
                    # Reading the first row of an index is no scan, though SQLite calls it one.
                    assert not step.startswith("SCAN record_") or "LIMIT" in text, (text, step)
                    assert not step.endswith("(owner=?)") or "LIMIT" in text, (text, step)
                seen += 1
    database.close()
    assert seen > 12
