"""Several processes on one SQLite file: all that was acknowledged is there, and nobody is turned away."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.storage import StoreError
from tests.storage.storage_kit import ROOT, opened, response

WRITERS, EACH = 4, 150

WRITER = """
import asyncio, sys
from tests.storage.storage_kit import opened, response

async def main():
    url, name, each = sys.argv[1], sys.argv[2], int(sys.argv[3])
    async with opened(url) as store:
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
def test_four_write_at_once(tmp_path: Path) -> None:
    """Each waits for its turn, much less than the 10 s after which it would fail."""
    url = f"sqlite:///{tmp_path}/kept.sqlite"
    command = [sys.executable, "-c", WRITER, url]
    # All of them make the tables, too.
    writers = [
        subprocess.Popen([*command, str(name), str(EACH)], stderr=subprocess.PIPE, cwd=ROOT) for name in range(WRITERS)
    ]
    outputs = [writer.communicate(timeout=100) for writer in writers]
    assert [errors for _, errors in outputs if errors] == []

    async def check() -> None:
        async with opened(url) as store:
            for name in range(WRITERS):
                for number in range(EACH):
                    row = await store.responses.get("ann", f"resp_{name}_{number}")
                    assert row is not None
                    assert row.is_finished
                    assert await store.responses.find_item("ann", f"msg_{name}_{number}") == row.id

    asyncio.run(check())


VISITOR = """
import asyncio, sys
from tests.storage.storage_kit import opened

async def main():
    async with opened(sys.argv[1]) as store:
        print(await store.responses.get("ann", sys.argv[2]) is not None)

asyncio.run(main())
"""


def test_who_leaves_takes_nothing_from_who_stays(tmp_path: Path) -> None:
    """A gateway opens its store a second time when it starts, to see whether there are keys. Then commands come and go
    beside it: the last one out of SQLite's house removes the log of changes, and must know that it is not the last."""
    kept = tmp_path / "kept.sqlite"
    url = f"sqlite:///{kept}"
    visit = [sys.executable, "-c", VISITOR, url]

    def visitor_sees(id: str) -> bool:
        done = subprocess.run([*visit, id], capture_output=True, text=True, check=True, timeout=100, cwd=ROOT)
        return done.stdout == "True\n"

    def log() -> int:
        return Path(f"{kept}-wal").stat().st_ino

    async def stay() -> None:
        async with opened(url) as store:
            async with opened(url):
                pass
            before = log()
            for number in range(2):
                await store.responses.put(response(f"resp_{number}"), [])
                assert await asyncio.to_thread(visitor_sees, f"resp_{number}")
                assert log() == before

    async def come_back() -> None:
        async with opened(url) as store:
            assert await store.responses.get("ann", "resp_1") is not None

    asyncio.run(stay())
    asyncio.run(come_back())
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_store_that_is_wrong_does_not_say_try_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What it is, the log says: once, and by name alone."""
    kept = tmp_path / "kept.sqlite"

    async def ask() -> list[StoreError]:
        async with opened(f"sqlite:///{kept}") as store:
            with sqlite3.connect(kept) as database:
                database.execute("DROP TABLE responses")
            database.close()
            said = []
            for _ in range(2):
                with pytest.raises(StoreError) as caught:
                    await store.responses.get("ann", "resp_1")
                said.append(caught.value)
            return said

    with caplog.at_level(logging.WARNING):
        said = asyncio.run(ask())
    assert {(one.info.kind, one.info.code) for one in said} == {("server_error", "storage_failed")}
    assert [one.getMessage() for one in caplog.records] == ["the store failed: SQLITE_ERROR"]
