"""An empty store of each kind, by its URL: fixtures for folders whose tests apply to every kind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pellucid.storage import open_store
from tests.service_postgres import PostgresServer, postgres_server

__all__ = ["one_database", "postgres_server", "url"]

# The tables, their columns and indexes, and the migration version, as one text.
_SHAPE = """
    (SELECT string_agg(format('%s.%s %s', table_name, column_name, data_type), ',' ORDER BY table_name, column_name)
        FROM information_schema.columns WHERE table_schema = 'public')
    || (SELECT string_agg(indexdef, ',' ORDER BY indexdef) FROM pg_indexes WHERE schemaname = 'public')
    || (SELECT coalesce(string_agg(tgname, ',' ORDER BY tgname), '') FROM pg_trigger WHERE NOT tgisinternal)
"""
_NOTE_SHAPE = f"""
    CREATE SCHEMA whole;
    CREATE TABLE whole.shape AS SELECT {_SHAPE} AS tables, version_num AS step FROM public.alembic_version
"""
_NO_TABLES = "DROP SCHEMA public CASCADE; CREATE SCHEMA public;"
_NO_ROWS = f"""
    DO $$ DECLARE
        name text;
        is_whole boolean := {_SHAPE} = (SELECT tables FROM whole.shape);
    BEGIN
        IF is_whole THEN
            is_whole := (SELECT array_agg(version_num) = (SELECT array_agg(step) FROM whole.shape)
                FROM public.alembic_version);
        END IF;
        IF is_whole THEN
            FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'
            LOOP
                EXECUTE format('DELETE FROM public.%I', name);
            END LOOP;
            PERFORM setval(format('public.%I', sequencename), start_value, false)
                FROM pg_sequences WHERE schemaname = 'public';
        ELSE
            {_NO_TABLES}
        END IF;
    END $$
"""
_NO_CONNECTIONS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid();
"""


POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))

SHARED = pytest.mark.parametrize("url", ["sqlite", POSTGRESQL], indirect=True)
"""For tests in which several processes or replicas open one store: each kind that supports it."""


@pytest.fixture(params=["sqlite", "memory", POSTGRESQL])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store.

    In PostgreSQL, the tables exist and only their rows are deleted, which takes a third of the time; tests of
    migrations get a database without tables.
    """
    if request.param == "memory":
        return "sqlite://"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/kept/store.db"
    server, url = request.getfixturevalue("one_database")
    server.sql(url, _NO_CONNECTIONS + (_NO_TABLES if "migrations" in request.path.stem else _NO_ROWS))
    return str(url)


@pytest.fixture(scope="session")
def one_database(postgres_server: PostgresServer) -> tuple[PostgresServer, str]:
    """A database with the tables of a store, which is emptied for each test: this is faster than a new one."""
    url = postgres_server.database()

    async def migrate() -> None:
        store = await open_store(url)
        await store.aclose()

    asyncio.run(migrate())
    postgres_server.sql(url, _NOTE_SHAPE)
    return postgres_server, url
