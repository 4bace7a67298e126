"""During an outage every call fails in time; afterwards the store works without a restart."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from pellucid.errors import ConfigError
from pellucid.storage import Store, StoredResponse, StoreError, database, open_store, sqlite, tables
from pellucid.storage.statement import Statement, read_rows
from tests.service_postgres import PostgresServer, postgres
from tests.storage.storage_kit import Clock, response, store_at
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


def is_unavailable(error: BaseException) -> bool:
    return isinstance(error, StoreError) and (error.info.kind, error.info.code) == (
        "unavailable",
        "storage_unavailable",
    )


@pytest.mark.needs("postgresql")
@pytest.mark.parametrize("mode", ["immediate", "fast"])
async def test_writes_resume_after_postgresql_restarts(own_server: PostgresServer, mode: str) -> None:
    async with store_at(own_server.database()) as store:
        acknowledged: list[str] = []
        refused: list[BaseException] = []
        refused_places: set[int] = set()
        stop = False

        async def write(place: int) -> None:
            n = 0
            while not stop:
                row = response(f"resp_{place}_{n}", log=bytes(5000))
                try:
                    await store.responses.put(row)
                    acknowledged.append(row.id)
                    assert isinstance(await store.responses.get("ann", row.id), StoredResponse)
                except StoreError as error:
                    refused.append(error)
                    refused_places.add(place)
                    await asyncio.sleep(0.01)
                n += 1

        writers = [asyncio.create_task(write(place)) for place in range(20)]
        try:
            await eventually(lambda: len(acknowledged) >= 100)
            await asyncio.to_thread(own_server.stop, mode)
            for call in (
                store.check(),
                store.responses.put(response("x")),
                store.responses.chain("ann", "x"),
                store.expire(1.0),
                store.erase("nobody"),
                store.keys.by_hash(b"x"),
                store.conversations.get("ann", "x"),
            ):
                with pytest.raises(StoreError) as caught:
                    async with asyncio.timeout(30):
                        await call
                assert is_unavailable(caught.value)
            await eventually(lambda: len(refused_places) == len(writers), "every writer is refused")
        finally:
            await asyncio.to_thread(own_server.start)
        count = len(acknowledged)
        await eventually(lambda: len(acknowledged) >= count + 100)
        stop = True
        await asyncio.gather(*writers)
        await store.check()
        for id in acknowledged[:: max(1, len(acknowledged) // 300)]:
            assert await store.responses.get("ann", id) is not None
        assert all(is_unavailable(error) for error in refused)


@pytest.mark.needs("postgresql")
async def test_a_restart_while_idle_is_not_noticed(own_server: PostgresServer) -> None:
    async with store_at(own_server.database()) as store:
        await store.responses.put(response())
        await asyncio.gather(*(store.check() for _ in range(8)))
        await asyncio.to_thread(own_server.stop)
        await asyncio.to_thread(own_server.start)
        assert await store.responses.get("ann", "resp_1") is not None
        await store.responses.put(response("resp_2"))


@pytest.mark.needs("postgresql")
async def test_a_missing_server_is_reported_on_start(own_server: PostgresServer) -> None:
    for url in ("postgresql://u:marmalade@127.0.0.1:1/none", own_server.database() + "_none"):
        with pytest.raises(StoreError, match=r"127\.0\.0\.1") as caught:
            await open_store(url)
        assert is_unavailable(caught.value)
        assert "marmalade" not in str(caught.value)


async def test_a_file_that_is_no_database_is_reported_on_start(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("Dear reader, this is no database. " * 100)
    for path in (tmp_path / "letter", tmp_path, tmp_path / "letter" / "below"):
        with pytest.raises(StoreError, match=str(path)):
            await open_store(f"sqlite:///{path}")


@pytest.mark.parametrize("url", ["", "marmalade", "mysql://u:marmalade@h/d", "redis://h", "postgresql://h:marmalade/d"])
async def test_an_invalid_url_is_reported_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigError, match="sqlite:///PATH") as caught:
        await open_store(url)
    assert "marmalade" not in str(caught.value)


async def test_database_files_are_accessible_to_their_user_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "store.db"
    async with store_at(f"sqlite:///{path}") as store:
        await store.responses.put(response())
        assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}


async def count_of_bodies(store: Store) -> int:
    """Return the number of rows in the table that a check writes to."""
    statement = Statement(sa.select(sa.func.count()).select_from(tables.bodies))
    return (await store._database.read(read_rows(statement, lambda row: int(row[0])), {}))[0]


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
async def test_a_check_writes_only_after_a_failure(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(database, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_SECONDS", 0)
    is_postgresql = kind == "postgresql"
    url = request.getfixturevalue("own_server").database() if is_postgresql else f"sqlite:///{tmp_path}/store.db"
    async with store_at(url) as store:
        await store.responses.put(response())
        for _ in range(5):
            clock.now += 1
            await store.check()
            await store.require_writable()
        assert store.transactions == 1
        fail, repair = _read_only(request, url) if is_postgresql else _locked(tmp_path / "store.db")
        fail()
        try:
            with pytest.raises(StoreError):
                await store.responses.put(response("resp_2"))
            count = store.transactions
            for _ in range(5):  # one try a second, however many callers there are
                clock.now += 1
                results = await asyncio.gather(*(store.require_writable() for _ in range(20)), return_exceptions=True)
                assert all(isinstance(error, StoreError) and error.info.retry_after == 1 for error in results)
            assert store.transactions == count + 5
        finally:
            repair()
        clock.now += 1
        await store.check()
        await store.require_writable()
        assert store.transactions == count + 6
        await store.responses.put(response("resp_3"))
        assert await count_of_bodies(store) == 2


def _locked(path: Path) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return functions that lock a SQLite file for writes, and unlock it."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    return lambda: other.execute("BEGIN IMMEDIATE"), other.close


def _read_only(request: pytest.FixtureRequest, url: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return functions that make a PostgreSQL server read-only, as a standby is, and writable."""
    server: PostgresServer = request.getfixturevalue("own_server")

    def set_read_only(value: str) -> None:
        server.sql(url, f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        server.stop("fast")  # a reload would reach open connections some time later
        server.start()

    return lambda: set_read_only("on"), lambda: set_read_only("off")


@pytest.mark.needs("postgresql")
async def test_a_standby_is_noticed_before_a_write_fails(
    own_server: PostgresServer, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(database, "time", SimpleNamespace(monotonic=clock))
    url = own_server.database()
    fail, repair = _read_only(request, url)
    async with store_at(url) as store:
        await store.check()

        async def is_writable() -> bool:
            clock.now += 1
            try:
                await store.check()
            except StoreError:
                return False
            return True

        fail()
        try:
            assert not await is_writable()
        finally:
            repair()
        assert await is_writable()


def test_erased_data_is_in_no_file(tmp_path: Path) -> None:
    async def store_and_erase() -> None:
        async with store_at(f"sqlite:///{tmp_path}/store.db") as store:
            for n in range(20):
                await store.responses.put(response(f"resp_{n}", log=b"marmalade" * 2000), ["marmalade"])
            await store.erase("ann")

    asyncio.run(store_and_erase())
    assert not [file for file in tmp_path.iterdir() if b"marmalade" in file.read_bytes()]
