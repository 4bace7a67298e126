"""Several processes on one SQLite file: every acknowledged write is stored, and no write is refused."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.storage import StoreError
from tests.storage.storage_kit import ROOT, response, store_at

WRITERS, EACH = 4, 150

WRITER = """
import asyncio, sys
from tests.storage.storage_kit import store_at, response

async def main():
    url, name, each = sys.argv[1], sys.argv[2], int(sys.argv[3])
    async with store_at(url) as store:
        async def write(number):
            id = f"resp_{name}_{number}"
            await store.responses.begin(response(id, status="queued", background=True), 1)
            done = response(id, background=True, log=bytes(2000))
            assert await store.responses.finish(done, [f"msg_{name}_{number}"], 1)
            assert (await store.responses.get("ann", id)).is_finished
        for start in range(0, each, 10):
            await asyncio.gather(*(write(number) for number in range(start, start + 10)))

asyncio.run(main())
"""


@pytest.mark.needs("long")
def test_four_processes_write_at_once(tmp_path: Path) -> None:
    """Each process waits for the lock much less than the 10 s after which a write fails."""
    url = f"sqlite:///{tmp_path}/kept.sqlite"
    command = [sys.executable, "-c", WRITER, url]
    # All of them also create the tables.
    writers = [
        subprocess.Popen([*command, str(name), str(EACH)], stderr=subprocess.PIPE, cwd=ROOT) for name in range(WRITERS)
    ]
    outputs = [writer.communicate(timeout=100) for writer in writers]
    assert [errors for _, errors in outputs if errors] == []

    async def check() -> None:
        async with store_at(url) as store:
            for name in range(WRITERS):
                for number in range(EACH):
                    row = await store.responses.get("ann", f"resp_{name}_{number}")
                    assert row is not None
                    assert row.is_finished
                    assert await store.responses.find_item("ann", f"msg_{name}_{number}") == row.id

    asyncio.run(check())


VISITOR = """
import asyncio, sys
from tests.storage.storage_kit import store_at

async def main():
    async with store_at(sys.argv[1]) as store:
        print(await store.responses.get("ann", sys.argv[2]) is not None)

asyncio.run(main())
"""


def test_a_process_that_closes_does_not_remove_the_log_of_another(tmp_path: Path) -> None:
    """A gateway opens its store a second time when it starts, to check whether there are keys, and commands open it
    meanwhile. SQLite deletes the WAL when the last connection closes; other connections must prevent that."""
    path = tmp_path / "kept.sqlite"
    url = f"sqlite:///{path}"
    visit = [sys.executable, "-c", VISITOR, url]

    def visitor_sees(id: str) -> bool:
        done = subprocess.run([*visit, id], capture_output=True, text=True, check=True, timeout=100, cwd=ROOT)
        return done.stdout == "True\n"

    def wal_inode() -> int:
        return Path(f"{path}-wal").stat().st_ino

    async def keep_open() -> None:
        async with store_at(url) as store:
            async with store_at(url):
                pass
            before = wal_inode()
            for number in range(2):
                await store.responses.put(response(f"resp_{number}"), [])
                assert await asyncio.to_thread(visitor_sees, f"resp_{number}")
                assert wal_inode() == before

    async def reopen() -> None:
        async with store_at(url) as store:
            assert await store.responses.get("ann", "resp_1") is not None

    asyncio.run(keep_open())
    asyncio.run(reopen())
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_broken_store_is_a_server_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the cause once, by its name only."""
    path = tmp_path / "kept.sqlite"

    async def read_twice() -> list[StoreError]:
        async with store_at(f"sqlite:///{path}") as store:
            with sqlite3.connect(path) as database:
                database.execute("DROP TABLE responses")
            database.close()
            errors = []
            for _ in range(2):
                with pytest.raises(StoreError) as caught:
                    await store.responses.get("ann", "resp_1")
                errors.append(caught.value)
            return errors

    with caplog.at_level(logging.WARNING):
        errors = asyncio.run(read_twice())
    assert {(one.info.kind, one.info.code) for one in errors} == {("server_error", "storage_failed")}
    assert [one.getMessage() for one in caplog.records] == ["the store failed: SQLITE_ERROR"]
