"""An outage of the store is logged once when it begins and once when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest

from pellucid.storage import AlreadyStored, StoreError, errors, sqlite
from pellucid.storage.errors import OutageLog, StatementFailed, StoreUnavailable
from tests.service_postgres import postgres
from tests.storage.space_store_kit import OWNER, ROOM, append, space_in_store, stored_envelope
from tests.storage.storage_kit import Clock, response, store_at

pytestmark = pytest.mark.anyio


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(one.levelname, one.getMessage()) for one in caplog.records if one.name == "pellucid"]


STOPPED = ("WARNING", "the store does not answer: it cannot be written (SQLITE_FULL)")
AGAIN = ("WARNING", "the store answers again: it can be written")


async def test_a_full_store_and_its_recovery_are_logged_once(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "RECOVERY_SECONDS", 0.0)
    async with space_in_store(f"sqlite:///{tmp_path}/store.db") as store:
        writer: sqlite3.Connection = store._database._writer  # type: ignore[attr-defined]
        (pages,) = writer.execute("PRAGMA page_count").fetchone()
        writer.execute(f"PRAGMA max_page_count = {pages}")
        for _ in range(2):
            done = await asyncio.gather(
                *(store.spaces.append(append([stored_envelope(1, "marmalade " * 10_000)], 0)) for _ in range(8)),
                return_exceptions=True,
            )
            assert all(isinstance(one, StoreError) and one.info.code == "storage_unavailable" for one in done)
            assert await store.spaces.page(OWNER, ROOM) == []  # reads still work
        assert lines(caplog) == [STOPPED]
        writer.execute("PRAGMA max_page_count = 1000000")
        for seq in (1, 2):
            await store.spaces.append(append([stored_envelope(seq)], seq - 1))
        assert lines(caplog) == [STOPPED, AGAIN]


async def test_a_locked_store_is_logged(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "RECOVERY_SECONDS", 0.0)
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_SECONDS", 0.1)
    async with store_at(f"sqlite:///{tmp_path}/store.db") as store:
        other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for n in range(3):
            with pytest.raises(StoreError):
                await store.responses.put(response(f"resp_{n}"))
        other.execute("ROLLBACK")
        other.close()
        await store.responses.put(response())
        stopped = ("WARNING", "the store does not answer: it cannot be written (SQLITE_BUSY)")
        assert lines(caplog) == [stopped, AGAIN]


@pytest.mark.needs("postgresql")
async def test_a_server_outage_and_its_end_are_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "RECOVERY_SECONDS", 0.0)
    with postgres() as server:
        async with store_at(server.database()) as store:
            await store.responses.put(response())
            await asyncio.to_thread(server.stop)
            for n in range(3):
                with pytest.raises(StoreError):
                    await store.responses.put(response(f"resp_{n + 2}"))
                with pytest.raises(StoreError):
                    await store.check()
            assert len(lines(caplog)) == 2
            assert {line.rpartition(" (")[0] for _, line in lines(caplog)} == {
                "the store does not answer: it cannot be read",
                "the store does not answer: it cannot be written",
            }
            caplog.clear()
            await asyncio.to_thread(server.start)
            await store.responses.put(response("resp_9"))
            await store.check()
            assert lines(caplog) == [AGAIN, ("WARNING", "the store answers again: it can be read")]


def test_intermittent_failures_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage_log = OutageLog("written", clock)

    def call(error: Exception | None = None) -> None:
        with contextlib.suppress(StoreError), outage_log:
            if error is not None:
                raise error

    for _ in range(50):
        call(StoreUnavailable(cause="SQLITE_FULL"))
        call()
        clock.now += errors.RECOVERY_SECONDS / 2
    assert lines(caplog) == [STOPPED]
    clock.now += errors.RECOVERY_SECONDS
    call()
    call()
    assert lines(caplog) == [STOPPED, AGAIN]
    caplog.clear()
    call(AlreadyStored(cause="SQLITE_CONSTRAINT_UNIQUE"))
    call(StoreError("the store is closed"))
    assert lines(caplog) == []
    for _ in range(3):
        call(StatementFailed(cause="SQLITE_ERROR"))
    assert lines(caplog) == [("WARNING", "the store failed: SQLITE_ERROR")]
