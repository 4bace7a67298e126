"""An empty store of each kind, by its URL: fixtures for folders whose tests hold for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service_postgres import PostgresServer, postgres_server

__all__ = ["one_database", "postgres_server", "url"]


@pytest.fixture(params=["sqlite", "memory", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty store."""
    if request.param == "memory":
        return "sqlite://"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/kept/store.db"
    server, url = request.getfixturevalue("one_database")
    server.sql(url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return str(url)


@pytest.fixture(scope="session")
def one_database(postgres_server: PostgresServer) -> tuple[PostgresServer, str]:
    """Emptied for each test, which is faster than a new one."""
    return postgres_server, postgres_server.database()
