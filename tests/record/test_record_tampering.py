"""Any sequence of store operations leaves a correct record, and any other change without the key is found."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.record import EntryLine, Recording, Report
from pellucid.storage import Append, Store, StoredConversation, open_store
from tests.empty_stores import POSTGRESQL
from tests.examples import costly
from tests.record.record_kit import (
    OWNER,
    SIGNER,
    Clock,
    entry,
    lines_of,
    response,
    space,
    stored_envelope,
    verify_lines,
)
from tests.record.tampering import KEYS, TAMPERINGS, NotApplicable, Tables, Tampering, tamper

Step = Callable[[Store, Clock, Random, int], Awaitable[object]]


async def put(store: Store, clock: Clock, choose: Random, step: int) -> None:
    conversation = choose.choice([None, "c1", "c2"])
    items = [entry(f"i{choose.randrange(step + 1)}") for _ in range(choose.randrange(3))] if conversation else []
    fields: dict[str, Any] = {"header": choose.randbytes(9), "log": choose.randbytes(3), "updated_at": clock.now + 0.25}
    fields["error"] = choose.choice([None, b"e"])
    expires = choose.choice([None, clock.now + 5])
    new = response(
        f"r{step}", choose.choice([OWNER, "bob"]), conversation_id=conversation, expires_at=expires, **fields
    )
    await store.responses.put(new, [], items)


async def append_envelopes(store: Store, clock: Clock, choose: Random, step: int) -> None:
    head = await store.spaces.head(OWNER, "room")
    assert head is not None
    seqs = range(head.head + 1, head.head + 1 + choose.randrange(1, 4))
    envelopes = [stored_envelope(seq, choose.choice(["one", "two"])) for seq in seqs]
    at_head = Append(owner=OWNER, space="room", expected_head=head.head, version=head.version, envelopes=envelopes)
    await store.spaces.append(at_head)


async def add(store: Store, clock: Clock, choose: Random, step: int) -> None:
    await store.conversations.append(OWNER, choose.choice(["c1", "c2"]), [entry(f"new{step}")])


async def remove(store: Store, clock: Clock, choose: Random, step: int) -> None:
    match choose.randrange(5):
        case 0:
            await store.responses.delete(OWNER, f"r{choose.randrange(step + 1)}")
        case 1:
            await store.conversations.delete_entry(OWNER, choose.choice(["c1", "c2"]), f"i{choose.randrange(step + 1)}")
        case 2:
            seqs = [choose.randrange(1, 8) for _ in range(4)]
            await store.spaces.erase(OWNER, "room", seqs, at_ms=int(clock.now * 1000))
        case 3:
            await store.expire(clock.now)
        case 4:
            await store.record.erase(OWNER, choose.choice(["conversation:c1", "space:room"]))
            await store.conversations.delete(OWNER, "c1")
            await store.conversations.create(StoredConversation(id="c1", owner=OWNER, created_at=clock.now))


async def sign(store: Store, clock: Clock, choose: Random, step: int) -> None:
    await store.record.sign()


STEPS: tuple[Step, ...] = (put, put, append_envelopes, append_envelopes, add, remove, remove, sign)


async def run_steps(store: Store, clock: Clock, choose: Random, steps: list[int]) -> None:
    await store.spaces.put(space(), [])
    for id in ("c1", "c2"):
        await store.conversations.create(StoredConversation(id=id, owner=OWNER, created_at=clock.now))
    for number, step in enumerate(steps):
        clock.now += choose.choice([0, 1, 4])
        await STEPS[step % len(STEPS)](store, clock, choose, number)


async def verify_store(store: Store) -> Report:
    return verify_lines(await lines_of(store))[0]


histories = st.lists(st.integers(0, len(STEPS) - 1), min_size=4, max_size=14)
seeds = st.integers(0, 2**32)


def run_in_memory(steps: list[int], seed: int, check: Callable[[Store], Awaitable[None]]) -> None:
    async def run() -> None:
        clock = Clock()
        store = await open_store("sqlite://", clock=clock, recording=Recording(signers=[SIGNER]))
        try:
            await run_steps(store, clock, Random(seed), steps)
            assert (await verify_store(store)).findings == ()
            await check(store)
        finally:
            await store.aclose()

    asyncio.run(run())


def _read(store: Store) -> Tables:
    connection: sqlite3.Connection = store._database._writer  # type: ignore[attr-defined]
    tables: Tables = {}
    for name in KEYS:
        cursor = connection.execute(f"SELECT * FROM {name}")
        columns = [column[0] for column in cursor.description]
        tables[name] = [dict(zip(columns, row, strict=True)) for row in cursor]
    return tables


def _write(store: Store, tables: Tables) -> None:
    connection: sqlite3.Connection = store._database._writer  # type: ignore[attr-defined]
    connection.execute("BEGIN")
    for name, rows in tables.items():
        connection.execute(f"DELETE FROM {name}")
        for row in rows:
            columns = ", ".join(f'"{column}"' for column in row)
            connection.execute(
                f"INSERT INTO {name} ({columns}) VALUES ({', '.join('?' * len(row))})", list(row.values())
            )
    connection.execute("COMMIT")


@costly
@given(histories, seeds)
def test_every_tampering_is_found(steps: list[int], seed: int) -> None:
    async def check(store: Store) -> None:
        before = _read(store)
        choose = Random(seed)
        for tampering in TAMPERINGS:
            for _ in range(4):
                try:
                    after = tamper(before, tampering, choose)
                    _write(store, after)
                except NotApplicable:
                    continue
                except sqlite3.IntegrityError:
                    store._database._writer.execute("ROLLBACK")  # type: ignore[attr-defined]
                    continue
                report = await verify_store(store)
                assert report.findings, (tampering.__name__, difference(before, after))
        _write(store, before)
        assert (await verify_store(store)).findings == ()

    run_in_memory(steps, seed, check)


def difference(before: Tables, after: Tables) -> dict[str, Any]:
    return {
        name: (
            [row for row in before[name] if row not in after[name]],
            [row for row in after[name] if row not in before[name]],
        )
        for name in before
        if before[name] != after[name]
    }


@pytest.mark.parametrize("tampering", TAMPERINGS, ids=lambda tampering: tampering.__name__)
@pytest.mark.parametrize("url", [POSTGRESQL], indirect=True)
def test_every_tampering_is_found_in_postgresql(tampering: Tampering, url: str) -> None:
    async def run() -> None:
        clock = Clock()
        store = await open_store(url, clock=clock, recording=Recording(signers=[SIGNER]))
        connection = await asyncpg.connect(url)
        try:
            await run_steps(store, clock, Random(5), [0, 2, 4, 1, 7, 3, 0, 5, 2, 1, 7, 6, 0, 3])
            assert (await verify_store(store)).findings == ()
            before = {name: [dict(row) for row in await connection.fetch(f"SELECT * FROM {name}")] for name in KEYS}
            found_count = 0
            for seed in range(4):
                try:
                    after = tamper(before, tampering, Random(seed))
                    async with connection.transaction():
                        for name, rows in after.items():
                            await connection.execute(f"DELETE FROM {name}")
                            for row in rows:
                                columns = ", ".join(f'"{column}"' for column in row)
                                values = ", ".join(f"${number + 1}" for number in range(len(row)))
                                await connection.execute(
                                    f"INSERT INTO {name} ({columns}) VALUES ({values})", *row.values()
                                )
                except (NotApplicable, asyncpg.PostgresError, asyncpg.DataError):
                    continue
                assert (await verify_store(store)).findings, difference(before, after)
                found_count += 1
            assert found_count
        finally:
            await connection.close()
            await store.aclose()

    asyncio.run(run())


@costly
@given(histories, seeds)
def test_a_salt_is_deleted_with_its_content(steps: list[int], seed: int) -> None:
    """Without the salt, a digest cannot be compared with a guessed content."""

    async def check(store: Store) -> None:
        lines = await lines_of(store)
        tables = _read(store)
        digests = [row for row in tables["record_entries"] if row["digest"] is not None]
        report = verify_lines(lines)[0]
        assert report.contents == len(tables["record_salts"])
        assert report.gone == len(digests) - report.contents

    run_in_memory(steps, seed, check)


def test_a_value_of_a_type_that_is_never_stored_is_found() -> None:
    """SQLite stores any value in any column."""

    async def run() -> None:
        store = await open_store("sqlite://", recording=Recording(signers=[SIGNER]))
        await store.responses.put(response("r"))
        for column, value in (("model", b"m"), ("updated_at", "now")):
            before = _read(store)
            _write(store, {"responses": [{**before["responses"][0], column: value}]})
            assert [finding.what for finding in (await verify_store(store)).findings] == ["content"]
            _write(store, before)
        await store.aclose()

    asyncio.run(run())


def test_an_erased_salt_is_not_in_the_files(tmp_path: Any) -> None:
    """After erasure neither the database file nor its WAL has the salt."""
    path = tmp_path / "store.db"

    async def run() -> None:
        store = await open_store(f"sqlite:///{path}", recording=Recording(signers=[SIGNER]))
        for number in range(50):
            await store.responses.put(response(f"r{number}", header=b"the very words"))
        lines = await lines_of(store)
        salts = [bytes.fromhex(line.salt) for line in lines if isinstance(line, EntryLine) and line.salt is not None]
        assert len(salts) == 50
        for number in range(50):
            await store.responses.delete(OWNER, f"r{number}")
        await store.aclose()
        data = b"".join(file.read_bytes() for file in tmp_path.iterdir())
        assert b"the very words" not in data
        assert not [salt for salt in salts if salt in data]

    asyncio.run(run())
