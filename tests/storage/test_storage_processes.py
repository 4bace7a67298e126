"""Several processes on one SQLite file: all that was acknowledged is there, and nobody is turned away."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from storage_kit import opened

WRITERS, EACH = 4, 150

WRITER = """
import asyncio, json, sys, time
sys.path.insert(0, sys.argv[1])
from storage_kit import opened, response

async def main():
    url, name, each = sys.argv[2], sys.argv[3], int(sys.argv[4])
    async with opened(url) as store:
        longest = 0.0
        async def write(number):
            nonlocal longest
            begun = time.monotonic()
            id = f"resp_{name}_{number}"
            await store.responses.begin(response(id, status="queued", background=True), 1)
            done = response(id, background=True, log=bytes(2000))
            assert await store.responses.finish(done, [f"msg_{name}_{number}"], 1)
            assert (await store.responses.get("ann", id)).finished
            longest = max(longest, time.monotonic() - begun)
        for start in range(0, each, 10):
            await asyncio.gather(*(write(number) for number in range(start, start + 10)))
        print(json.dumps(longest))

asyncio.run(main())
"""


def test_four_write_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/kept.sqlite"
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", WRITER, here, url]
    # All of them make the tables, too.
    writers = [
        subprocess.Popen([*command, str(name), str(EACH)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for name in range(WRITERS)
    ]
    said = [writer.communicate(timeout=60) for writer in writers]
    assert [error for _, error in said if error] == []
    # Far from the time after which a writer would give up (10 s).
    assert max(json.loads(out) for out, _ in said) < 5

    async def check() -> None:
        async with opened(url) as store:
            for name in range(WRITERS):
                for number in range(EACH):
                    row = await store.responses.get("ann", f"resp_{name}_{number}")
                    assert row is not None
                    assert row.finished
                    assert await store.responses.find_item("ann", f"msg_{name}_{number}") == row.id

    asyncio.run(check())
