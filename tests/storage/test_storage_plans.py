"""Every statement uses an index, so its time does not grow with the store."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import asyncpg
import pytest

from pellucid.storage import (
    appends,
    chats,
    conversations,
    envelopes,
    keys,
    record_export,
    record_store,
    record_write,
    responses,
    search,
    space_log,
    space_rows,
    store,
    tables,
    usage,
)
from pellucid.storage.postgres import _DIALECT as POSTGRES
from pellucid.storage.postgres import _plan_by_index
from pellucid.storage.sqlite import _DIALECT as SQLITE
from pellucid.storage.statement import Statement
from tests.service_postgres import PostgresServer
from tests.storage.storage_kit import store_at

pytestmark = pytest.mark.anyio

MODULES = (
    *(appends, chats, conversations, envelopes, keys),
    *(responses, space_rows, search, store, space_log, usage),
)
RECORD = (record_write, record_export, record_store)
TABLES = set(tables.metadata.tables)
READS_ALL = {"keys._ALL", "space_rows._ALL", "space_rows._REMOVED"}  # tables with few rows
SKIPS = {
    # By the whole primary key, where another index that holds it costs the same while the table is empty. They
    # erase or prove one row at a time.
    *("envelopes._GET_LOCKED", "envelopes._ERASE", "envelopes._DELETE", "record_export._CONTENTS"),
    # All of a kind in one scope, where the index has the subject before the kind; once for each scope.
    *("record_write._DELETE_ALL_SALTS", "record_export._SCANS"),
    # The owners of one scope.
    "record_store._OWNERS",
}
"""Statements that may pass rows of an index that they do not return."""
READS_ALL_OF_ONE_OWNER = {"store._DELETE_OWNED", "space_rows._LIST", "usage.DELETE_USAGE", "store.DELETE_USAGE"}


def statements(*modules: ModuleType) -> Iterator[tuple[str, Statement]]:
    def statements_in(value: Any) -> Iterator[Statement]:
        if isinstance(value, Statement):
            yield value
        elif isinstance(value, dict):
            yield from statements_in(list(value.values()))
        elif isinstance(value, list | tuple):
            for one in value:
                yield from statements_in(one)

    for module in modules:
        for name, value in vars(module).items():
            for statement in statements_in(value):
                yield f"{module.__name__.rsplit('.', 1)[1]}.{name}", statement


async def test_every_statement_uses_an_index_in_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with store_at(f"sqlite:///{path}"):
        pass
    database = sqlite3.connect(path)
    seen = 0
    for name, statement in statements(*MODULES):
        prepared = statement.compile_for(SQLITE)
        plan = database.execute("EXPLAIN QUERY PLAN " + prepared.text, [None] * prepared.text.count("?"))
        for *_, step in plan:
            verb, *words = step.split()
            if verb == "SCAN" and words[0] in TABLES:
                assert name in READS_ALL, (name, step)
            if verb == "SEARCH" and words[0] in TABLES and step.endswith("(owner=?)"):
                assert name in READS_ALL_OF_ONE_OWNER or words[0] == "keys", (name, step)
        seen += 1
    database.close()
    assert seen > 25


_INDEXES = """
SELECT index.relname, array_agg(pg_get_indexdef(index.oid, place, true) ORDER BY place)
FROM pg_index JOIN pg_class AS index ON index.oid = indexrelid, generate_series(1, indnkeyatts) AS place
WHERE index.relnamespace = 'public'::regnamespace GROUP BY index.relname
"""


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from nodes(part)


@pytest.mark.needs("postgresql")
async def test_every_generic_plan_uses_an_index_in_postgresql(postgres_server: PostgresServer) -> None:
    """A connection keeps the plan that it made while the table was empty, so that plan must use an index from its
    first column on, and must not scan a whole log for a column that is not restricted."""
    url = postgres_server.database()
    async with store_at(url):
        pass
    connection = await asyncpg.connect(url)
    try:
        await _plan_by_index(connection)
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        indexes = {
            name: [column.strip('"') for column in columns] for name, columns in await connection.fetch(_INDEXES)
        }
        seen = skipping = 0
        for number, (name, statement) in enumerate(statements(*MODULES, *RECORD)):
            text = statement.compile_for(POSTGRES).text
            await connection.execute(f"PREPARE asked{number} AS {text}")
            parameter_count = max((int(place) for place in re.findall(r"\$(\d+)", text)), default=0)
            nulls = f"({', '.join(['NULL'] * parameter_count)})" if parameter_count else ""
            plan = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE asked{number}{nulls}"))
            for node in nodes(plan[0]["Plan"]):
                if node["Node Type"] == "Seq Scan":
                    assert name in READS_ALL, (name, node)
                if "Index Cond" in node:
                    columns = indexes[node["Index Name"]]
                    words = re.findall(r"(?<![\w.'])[a-z_]+\b", node["Index Cond"])
                    named = [column for column in columns if column in words]
                    if named != columns[: len(named)]:
                        assert name in SKIPS, (name, node)
                        skipping += 1
                    seen += 1
    finally:
        await connection.close()
    assert seen > 100
    assert skipping, "the search for skipped columns matches nothing"
