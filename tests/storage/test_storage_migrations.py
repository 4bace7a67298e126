"""The tables are created or migrated on start, by one of the processes that start together."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from pellucid import storage
from pellucid.storage import StoredChat, StoredSpace, StoreError, open_store
from pellucid.storage.migrate import HEAD_VERSION, alembic_statements, migration_statements
from pellucid.storage.tables import metadata
from tests.empty_stores import SHARED
from tests.service_postgres import PostgresServer
from tests.storage.storage_kit import ROOT, response, store_at

pytestmark = pytest.mark.anyio

STARTER = """
import asyncio, sys
from pellucid.storage import open_store, StoredResponse

async def main():
    sys.stdin.read()
    store = await open_store(sys.argv[1])
    await store.responses.put(
        StoredResponse(id=sys.argv[2], owner="ann", created_at=1, updated_at=1, status="completed", model="m"), [])
    await store.aclose()

asyncio.run(main())
"""


@SHARED
def test_several_connections_start_at_once(url: str) -> None:
    together = threading.Barrier(3)

    async def start(n: int) -> None:
        together.wait()
        async with store_at(url) as store:
            await store.responses.put(response(f"resp_{n}"))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda n: asyncio.run(start(n)), range(3)))
    asyncio.run(check_three_responses(url))


async def check_three_responses(url: str) -> None:
    async with store_at(url) as store:
        for n in range(3):
            assert await store.responses.get("ann", f"resp_{n}") is not None


@pytest.mark.needs("long")
@SHARED
def test_several_processes_start_at_once(url: str) -> None:
    starting = [
        subprocess.Popen([sys.executable, "-c", STARTER, url, f"resp_{n}"], stdin=subprocess.PIPE, cwd=ROOT)
        for n in range(3)
    ]
    for process in starting:
        assert process.stdin is not None
        process.stdin.close()  # the process starts its work
    assert [process.wait(60) for process in starting] == [0] * 3
    asyncio.run(check_three_responses(url))


def sqlite_shape(statements: Iterable[str]) -> list[object]:
    """Return what statements create in SQLite, and the version."""
    shape: list[object] = []
    with closing(sqlite3.connect(":memory:")) as database:
        for statement in statements:
            database.execute(statement).fetchall()
        shape += database.execute("SELECT * FROM alembic_version").fetchall()
        created = database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()
        for kind, name, of, sql in created:
            shape.append((kind, name, of))
            if kind != "table":
                shape.append(sql)
                shape += database.execute(f"PRAGMA index_xinfo({name})").fetchall()
            else:
                shape.append(sql if "VIRTUAL" in sql else "WITHOUT ROWID" in sql)
                shape += database.execute(f"PRAGMA table_xinfo({name})").fetchall()
                shape += sorted(row[1:] for row in database.execute(f"PRAGMA index_list({name})"))
    return shape


def test_an_empty_database_gets_the_result_of_all_migrations() -> None:
    shape = sqlite_shape(migration_statements("sqlite", None))
    assert (HEAD_VERSION,) in shape
    assert shape == sqlite_shape(alembic_statements("sqlite", None))


POSTGRESQL_SHAPE = """
    SELECT relname || '.' || attname, format_type(atttypid, atttypmod), attnum::text, attnotnull::text,
        attcollation::text, attstorage::text, pg_get_expr(adbin, adrelid)
        FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid LEFT JOIN pg_attrdef ON adrelid = attrelid
        AND adnum = attnum WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT indexname, indexdef, '', '', '', '', '' FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL SELECT conname, pg_get_constraintdef(oid), '', '', '', '', '' FROM pg_constraint
    UNION ALL SELECT tgname, pg_get_triggerdef(oid), '', '', '', '', '' FROM pg_trigger
    UNION ALL SELECT extname, extversion, '', '', '', '', '' FROM pg_extension
    UNION ALL SELECT version_num, '', '', '', '', '', '' FROM alembic_version
    ORDER BY 1, 2
"""


async def test_an_empty_postgresql_database_gets_the_result_of_all_migrations(postgres_server: PostgresServer) -> None:
    import asyncpg

    shapes = []
    for statements in (migration_statements("postgresql", None), alembic_statements("postgresql", None)):
        connection = await asyncpg.connect(postgres_server.database())
        for statement in statements:
            await connection.execute(statement)
        shapes.append([tuple(row) for row in await connection.fetch(POSTGRESQL_SHAPE)])
        await connection.close()
    assert any(row[0] == "texts_grams" for row in shapes[0])
    assert shapes[0] == shapes[1]


async def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with store_at(f"sqlite:///{path}"):
        pass
    with sqlite3.connect(path) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    with pytest.raises(StoreError, match="9999") as caught:
        await open_store(f"sqlite:///{path}")
    assert caught.value.info.code == "storage_too_new"


async def test_a_store_of_a_newer_version_is_left_alone_in_postgresql(postgres_server: PostgresServer) -> None:
    import asyncpg

    url = postgres_server.database()
    async with store_at(url):
        pass
    connection = await asyncpg.connect(url)
    await connection.execute("UPDATE alembic_version SET version_num = '9999'")
    await connection.close()
    with pytest.raises(StoreError, match="9999"):
        await open_store(url)


FIRST_TABLES = {"keys", "responses", "response_bodies", "response_items", "conversations", "conversation_entries"}
DOWNGRADE = [
    *(f"DROP TABLE {name}" for name in metadata.tables if name not in FIRST_TABLES),
    "DROP INDEX responses_of",
    "DROP INDEX response_items_of",
    "ALTER TABLE response_items DROP COLUMN listed",
    "ALTER TABLE response_bodies DROP COLUMN item_ids",
    "CREATE INDEX response_items_of ON response_items (owner, response_id)",
    "UPDATE alembic_version SET version_num = '0001'",
]


@SHARED
async def test_an_older_store_is_migrated_and_keeps_its_data(url: str, request: pytest.FixtureRequest) -> None:
    async with store_at(url) as store:
        await store.responses.put(response(header=b"before"))
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
            for step in ("DROP TABLE texts_grams", *DOWNGRADE):
                database.execute(step)
        database.close()
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        server.sql(url, "; ".join(DOWNGRADE))
    async with store_at(url) as store:
        row = await store.responses.get("ann", "resp_1")
        assert row is not None
        assert row.header == b"before"
        chat = StoredChat(id="chat_1", owner="ann", title="Marmalade", created_at=1.0, updated_at=1.0)
        await store.chats.begin_turn(chat, response("evt_1", status="queued", conversation_id="chat_1"), 1)
        assert len((await store.chats.list("ann", query="MALADE")).chats) == 1
        space = StoredSpace(owner="ann", name="room", created_at=1.0, settings=b"{}")
        assert await store.spaces.put(space, []) == space


async def execute_sql(url: str, statement: str) -> list[tuple[object, ...]]:
    """Execute a statement directly, without the store."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
            rows = database.execute(statement).fetchall()
        database.close()
        return rows
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


@SHARED
async def test_items_of_an_older_version_are_deleted_with_their_response(url: str) -> None:
    async with store_at(url) as store:
        for n in (1, 2, 3):
            await store.responses.put(response(f"resp_{n}"), [f"msg_{n}", "msg_shared", f"msg_{n}"])
        await execute_sql(url, "UPDATE response_items SET listed = NULL WHERE response_id = 'resp_1'")
        await execute_sql(url, "UPDATE response_bodies SET item_ids = NULL WHERE response_id = 'resp_1'")
        for n in (1, 2):
            assert await store.responses.find_item("ann", f"msg_{n}") == f"resp_{n}"
            assert await store.responses.delete("ann", f"resp_{n}")
            assert await store.responses.find_item("ann", f"msg_{n}") is None
        assert await store.responses.find_item("ann", "msg_shared") == "resp_3"
        remaining_items = "SELECT item_id FROM response_items ORDER BY item_id"
        assert await execute_sql(url, remaining_items) == [("msg_3",), ("msg_shared",)]
        assert await store.erase("ann") == 1
        assert await execute_sql(url, remaining_items) == []


def test_the_migrations_create_the_tables_in_sqlite() -> None:
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        for statement in alembic_statements("sqlite", None):
            connection.exec_driver_sql(statement)
        # FTS5 creates tables of its own; leave them out.
        ours = {"include_name": lambda name, kind, _: kind != "table" or not name.startswith("texts_grams")}
        assert compare_metadata(MigrationContext.configure(connection, opts=ours), metadata) == []
        created = {
            name: sql.split("(", 1)[1]
            for name, sql in connection.execute(sa.text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
        }
    engine.dispose()
    for table in metadata.sorted_tables:
        assert ("WITHOUT ROWID" in created[table.name]) == (table.kwargs.get("sqlite_with_rowid") is False)
        for index in table.indexes:
            assert ("WHERE" in created[str(index.name)]) == (index.kwargs["sqlite_where"] is not None)


ADDED_COLUMNS = [
    ("response_bodies", "item_ids TEXT"),
    ("response_items", "listed BOOLEAN"),
    ("chats", "instructions TEXT"),
]
"""Columns that a later migration added to their table."""


def test_the_migrations_create_the_tables_in_postgresql() -> None:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    tables = metadata.sorted_tables
    ddl_statements = [CreateTable(table) for table in tables] + [
        CreateIndex(i) for table in tables for i in table.indexes
    ]
    created = {" ".join(statement.split()) for statement in alembic_statements("postgresql", None)}
    for ddl in ddl_statements:
        text = " ".join(str(ddl.compile(dialect=dialect)).split())
        for table, column in ADDED_COLUMNS:
            if text.startswith(f"CREATE TABLE {table} "):
                assert f"ALTER TABLE {table} ADD COLUMN {column}" in created
                text = text.replace(f" {column},", "")
        assert text in created


def test_a_current_store_needs_no_migration() -> None:
    versions = (Path(storage.__file__).parent / "migrations" / "versions").glob("v*.py")
    newest = max(path.name[1:5] for path in versions)
    assert newest == HEAD_VERSION
    assert migration_statements("sqlite", newest) == migration_statements("postgresql", newest) == ()
