"""A store with a key, on each kind of database; and what is found when its record is checked."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from record_kit import SIGNER, Clock

from pellucid.record import Recording
from pellucid.storage import Store, open_store
from service_postgres import PostgresServer, postgres_server

__all__ = ["postgres_server"]

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["sqlite", "memory", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty store."""
    if request.param == "memory":
        return "sqlite://"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    server, url = request.getfixturevalue("one_database")
    server.sql(url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return str(url)


@pytest.fixture(scope="session")
def one_database(postgres_server: PostgresServer) -> tuple[PostgresServer, str]:
    """Emptied for each test, which is faster than a new one."""
    return postgres_server, postgres_server.database()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(url: str, clock: Clock) -> AsyncIterator[Store]:
    opened = await open_store(url, clock=clock, recording=Recording(signers=[SIGNER]))
    yield opened
    await opened.aclose()
