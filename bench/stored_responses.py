"""What storing a response costs in SQLite: CPU time, pages, system calls and bytes on disk.

    .venv/bin/python bench/stored_responses.py [--against CHECKOUT] [--before 0 100000] [--at-once 1 4 16]

With `--against`, another checkout is measured in the same run, and the two take turns. For each number of responses
that are stored before, and each number of clients that store at the same time, the medians over the rounds of:

* `store CPU`, `thread CPU`: of the process and of the writer thread, microseconds a response; `wall`: of waiting;
* `writes`, `reads`: system calls of the writer thread, a response (a page of the write-ahead log takes two writes,
  and one more when a checkpoint carries it over into the database file); `written`: bytes;
* `B/response`: what the database file has grown by since it was empty.

`--tables` adds the pages of the log by table and index. `--reads` adds times of what is read, in microseconds.
The rows are what the gateway keeps of a short chat response with thoughts: 0.8 kB of header, 0.5 kB of messages, 0.5 kB
of log, three items. Every tenth builds on the response before it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import secrets
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OWNER = "local"
DAY = 86_400.0
FRAME_HEADER = 24
TIMES = 400


# --- one checkout: a process that stores what its input names ---------------------------------------------------------


class Worker:
    """Stores responses in one database file, and counts what that costs."""

    def __init__(self, store: Any, path: Path) -> None:
        from pellucid.run import Minter

        self._store = store
        self._path = path
        self._minter = lambda: Minter(secrets.token_bytes(16))
        with contextlib.suppress(ImportError):  # an older checkout has none
            from pellucid.server.exchange import new_minter

            self._minter = new_minter
        self._noise = random.Random(5)
        self._ids: list[str] = []
        self._items: list[str] = []
        thread = store._database._writer_thread
        self._task = f"/proc/self/task/{thread.native_id}"

    def response(self) -> tuple[Any, list[str]]:
        from pellucid.storage import StoredResponse

        mint = self._minter()
        id = mint("resp")
        items = [mint(prefix) for prefix in ("msg", "rs", "msg")]
        now = time.time()
        follows = self._ids[-1] if self._ids and self._noise.random() < 0.1 else None
        row = StoredResponse(
            id=id,
            owner=OWNER,
            created_at=now,
            updated_at=now,
            expires_at=now + 30 * DAY,
            status="completed",
            model="vllm:model-4",
            previous_id=follows,
            header=self._some(805),
            input=self._some(126),
            messages=self._some(537),
            log=self._some(478),
        )
        return row, items

    def _some(self, mean: int) -> bytes:
        return self._noise.randbytes(round(mean * self._noise.uniform(0.5, 1.5)))

    async def fill(self, many: int) -> None:
        """Store so many; then go on until the log is as long as it becomes, for one that grows costs more."""
        await self.put(many, 64)
        size = -1
        while size < (size := self._log_size()):
            await self.put(150, 1)

    def _log_size(self) -> int:
        return os.path.getsize(f"{self._path}-wal")

    async def put(self, many: int, at_once: int) -> None:
        left = iter(range(many))

        async def client() -> None:
            for _ in left:
                row, items = self.response()
                await self._store.responses.put(row, items)
                self._ids.append(row.id)
                self._items.append(items[-1])

        await asyncio.gather(*(client() for _ in range(at_once)))

    async def measure(self, many: int, at_once: int) -> dict[str, Any]:
        before, transactions = self._counters(), self._store.transactions
        begun = time.perf_counter()
        await self.put(many, at_once)
        took = time.perf_counter() - begun
        after = self._counters()
        counted = {name: (after[name] - before[name]) / many for name in before}
        counted["transactions"] = (self._store.transactions - transactions) / many
        counted["wall"] = took / many * 1e6
        return counted

    def _counters(self) -> dict[str, float]:
        io = dict(line.split(": ") for line in Path(f"{self._task}/io").read_text().splitlines())
        cpu, *_ = Path(f"{self._task}/schedstat").read_text().split()
        return {
            "store CPU": time.process_time() * 1e6,
            "thread CPU": int(cpu) / 1e3,
            "writes": int(io["syscw"]),
            "reads": int(io["syscr"]),
            "written": int(io["wchar"]),
        }

    async def tables(self, many: int, at_once: int) -> dict[str, float]:
        """Pages of the log by table and index, a response."""
        with sqlite3.connect(self._path) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.close()
        writer = self._store._database._writer
        (usual,) = writer.execute("PRAGMA wal_autocheckpoint").fetchone()
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        await self.put(many, at_once)
        writer.execute(f"PRAGMA wal_autocheckpoint = {usual}")
        log = self._log()
        with sqlite3.connect(self._path) as other:
            of = dict(other.execute("SELECT pageno, name || ' ' || pagetype FROM dbstat"))
        other.close()
        size = struct.unpack(">I", log[8:12])[0]
        salt, frames = log[16:24], Counter[str]()
        for at in range(32, len(log) - size, FRAME_HEADER + size):
            if log[at + 8 : at + 16] == salt:
                frames[of.get(struct.unpack(">I", log[at : at + 4])[0], "free")] += 1
        return {name: count / many for name, count in frames.most_common()}

    def _log(self) -> bytes:
        return Path(f"{self._path}-wal").read_bytes()

    async def reads(self) -> dict[str, float]:
        responses = self._store.responses
        ids, items = self._noise.choices(self._ids, k=TIMES), self._noise.choices(self._items, k=TIMES)
        queries: dict[str, Callable[[int], Awaitable[Any]]] = {
            "get": lambda n: responses.get(OWNER, ids[n]),
            "get with log": lambda n: responses.get(OWNER, ids[n], log=True),
            "chain": lambda n: responses.chain(OWNER, ids[n]),
            "find item": lambda n: responses.find_item(OWNER, items[n]),
            "find no item": lambda n: responses.find_item(OWNER, f"{items[n]}x"),
            "delete": lambda n: responses.delete(OWNER, ids[n]),
        }
        spent: dict[str, float] = {}
        for name, query in queries.items():
            took = []
            for n in range(TIMES):
                begun = time.perf_counter()
                await query(n)
                took.append(time.perf_counter() - begun)
            spent[name] = statistics.median(took) * 1e6
        begun = time.perf_counter()
        gone = await self._store.expire(time.time() + 31 * DAY, 5_000)
        spent["expiry, each"] = (time.perf_counter() - begun) / max(1, gone) * 1e6
        return spent

    def size(self) -> float:
        with sqlite3.connect(self._path) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.close()
        return self._path.stat().st_size / len(self._ids)


async def work(path: Path) -> None:
    from pellucid.storage import open_store

    store = await open_store(f"sqlite:///{path}")
    worker = Worker(store, path)
    print("{}", flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        answer: Any = {}
        match command:
            case ["put", many]:
                await worker.fill(many)
            case ["measure", many, at_once]:
                answer = await worker.measure(many, at_once)
            case ["tables", many, at_once]:
                answer = await worker.tables(many, at_once)
            case ["reads"]:
                answer = await worker.reads()
            case ["size"]:
                answer = worker.size()
        print(json.dumps(answer), flush=True)
    await store.aclose()


# --- the checkouts, in turns ----------------------------------------------------------------------------------------


class Checkout:
    def __init__(self, name: str, root: Path, folder: Path) -> None:
        self.name = name
        environment = {**os.environ, "PYTHONPATH": str(root / "src")}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--worker", str(folder / f"{name}.sqlite")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._answer()

    def __call__(self, *command: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def compare(checkouts: list[Checkout], before: int, options: argparse.Namespace) -> None:
    for checkout in checkouts:
        checkout("put", before or 1)
    for at_once in options.at_once:
        rounds: dict[str, list[dict[str, float]]] = {checkout.name: [] for checkout in checkouts}
        for number in range(options.rounds):
            for checkout in checkouts if number % 2 else checkouts[::-1]:
                rounds[checkout.name].append(checkout("measure", options.responses, at_once))
        print(f"{before} responses before, {at_once} at once, a response:")
        for name, some in rounds.items():
            middle = {key: statistics.median(one[key] for one in some) for key in some[0]}
            print(f"  {name:<8}" + "  ".join(f"{key} {value:8.2f}" for key, value in middle.items()), flush=True)
        if options.tables:
            for checkout in checkouts:
                pages = checkout("tables", 200, at_once)
                print(f"  {checkout.name}: {sum(pages.values()):.2f} pages of the log a response")
                for name, count in pages.items():
                    print(f"    {count:6.2f}  {name}")
    for checkout in checkouts:
        print(f"  {checkout.name:<8}{checkout('size'):8.0f} B/response")
    if options.reads:
        for checkout in checkouts:
            spent = checkout("reads")
            print(
                f"  {checkout.name:<8}" + "  ".join(f"{name} {value:.0f}" for name, value in spent.items()), flush=True
            )


def main(options: argparse.Namespace) -> None:
    roots = {"this": ROOT}
    if options.against:
        roots["other"] = options.against.resolve()
    for before in options.before:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder, contextlib.ExitStack() as stack:
            checkouts = [Checkout(name, root, Path(folder)) for name, root in roots.items()]
            for checkout in checkouts:
                stack.callback(checkout.close)
            compare(checkouts, before, options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", type=Path)
    parser.add_argument("--before", type=int, nargs="+", default=[0, 100_000])
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--responses", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the databases are made")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--reads", action="store_true")
    parser.add_argument("--worker", type=Path)
    chosen = parser.parse_args()
    if chosen.worker:
        asyncio.run(work(chosen.worker))
    else:
        main(chosen)
