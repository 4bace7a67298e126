"""Two replicas that write to one database concurrently; and one that is killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from pellucid.record import Recording
from pellucid.storage import AlreadyStored, AppendConflict, Store, StoredConversation, open_store
from tests.empty_stores import SHARED
from tests.record.record_kit import (
    OWNER,
    SIGNER,
    append_of,
    check_record,
    entry,
    lines_of,
    response,
    space,
    verify_lines,
)
from tests.storage.storage_kit import ROOT

pytestmark = pytest.mark.anyio


def recording() -> Recording:
    return Recording(signers=[SIGNER])


@SHARED
async def test_two_replicas_write_to_one_scope(url: str) -> None:
    stores = [await open_store(url, recording=recording()) for _ in range(2)]
    await stores[0].conversations.create(StoredConversation(id="c", owner=OWNER, created_at=time.time()))
    await stores[0].spaces.put(space(), [])

    async def write(store: Store, name: int) -> None:
        for number in range(15):
            id = f"{name}.{number}"
            await store.conversations.append(OWNER, "c", [entry(f"i{id}"), entry(f"j{id}")])
            await store.responses.put(response(f"r{id}", conversation_id="c"), [], [entry("shared"), entry(f"k{id}")])
            await store.responses.put(response(f"alone{id}"))
            if number % 4 == name:
                await store.conversations.delete_entry(OWNER, "c", f"i{id}")
                await store.responses.delete(OWNER, f"r{id}")

    async def append_envelopes(store: Store) -> None:
        append_count = 0
        while append_count < 10:
            head = await store.spaces.head(OWNER, "room")
            assert head is not None
            try:
                await store.spaces.append(append_of(head.head, "one", "two"))
                append_count += 1
            except AppendConflict:
                await asyncio.sleep(0)

    async def sign(store: Store) -> None:
        for _ in range(10):
            with suppress(AlreadyStored):  # the other replica signs
                await store.record.sign()
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        for name, store in enumerate(stores):
            for work in (write(store, name), append_envelopes(store), sign(store)):
                group.create_task(work)
    await stores[1].record.sign()
    scopes = await check_record(stores[0])
    # Each iteration adds four: two items, a response and its item; and "shared" is added once.
    assert scopes["conversation:c"].contents + scopes["conversation:c"].gone == 2 * 15 * 4 + 1
    assert scopes["space:room"].contents == 40
    assert all(one.signed == one.entries for one in scopes.values())
    for store in stores:
        await store.aclose()


WRITER = """
import asyncio, sys
from tests.record.record_kit import OWNER, append_of, entry, response
from pathlib import Path
from pellucid.record import read_recording
from pellucid.storage import open_store

async def main():
    store = await open_store(sys.argv[1], recording=read_recording(Path(sys.argv[2])))

    async def respond(name):
        number = 0
        while True:
            id = f"{name}.{number}"
            await store.responses.put(response(id, conversation_id="c" if number % 2 else None), [], [entry(id)])
            print(f"r {id}", flush=True)
            if number % 3 == 2:
                await store.responses.delete(OWNER, id)
                print(f"d {id}", flush=True)
            number += 1

    async def say():
        head = 0
        while True:
            await store.spaces.append(append_of(head, "one", "two", "three"))
            head += 3
            print(f"s {head}", flush=True)

    async def sign():
        while True:
            await store.record.sign()
            await asyncio.sleep(0.005)

    await asyncio.gather(*(respond(name) for name in range(6)), say(), sign())

asyncio.run(main())
"""


async def backends(url: str) -> set[int]:
    """The processes of PostgreSQL that serve this database."""
    if url.startswith("sqlite"):
        return set()
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    finally:
        await connection.close()
    return {row["pid"] for row in rows}


@SHARED
@pytest.mark.parametrize("deaths", [1, pytest.param(3, marks=pytest.mark.needs("long"))])
async def test_a_killed_writer_leaves_record_and_contents_consistent(url: str, tmp_path: Path, deaths: int) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes(SIGNER.pem())
    key.chmod(0o600)
    store = await open_store(url, recording=recording())
    await store.conversations.create(StoredConversation(id="c", owner=OWNER, created_at=time.time()))
    await store.spaces.put(space(), [])
    command = [sys.executable, "-c", WRITER, url, str(key)]
    for death in range(deaths):
        before = await backends(url)
        writer = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, cwd=ROOT)
        assert writer.stdout is not None
        output = b"".join([await writer.stdout.readline() for _ in range(80 + 37 * death)])
        writer.kill()
        output += await writer.stdout.read()
        await writer.wait()
        acknowledged = [line.split() for line in output.decode().splitlines(keepends=True) if line.endswith("\n")]
        assert len(acknowledged) > 10
        while not await backends(url) <= before:  # noqa: ASYNC110 (PostgreSQL may still be at what it was sent last)
            await asyncio.sleep(0.01)
        # Acknowledged writes and deletions are in the store and in the record.
        scopes = await check_record(store)
        deleted = {id for verb, id in acknowledged if verb == "d"}
        for verb, id in acknowledged:
            if verb == "r" and id not in deleted and int(id.partition(".")[2]) % 3 != 2:
                assert await store.responses.get(OWNER, id) is not None
        head = max([int(id) for verb, id in acknowledged if verb == "s"], default=0)
        assert scopes["space:room"].contents >= head
        # Erase everything for the next iteration.
        await store.erase(OWNER)
        await store.conversations.create(StoredConversation(id="c", owner=OWNER, created_at=time.time()))
        await store.spaces.put(space(), [])
    await store.record.sign()
    assert all(one.contents == 0 for one in (await check_record(store)).values())
    await store.aclose()


@SHARED
async def test_another_replica_signs_what_a_dead_one_wrote(url: str) -> None:
    one, other = await open_store(url, recording=recording()), await open_store(url, recording=recording())
    await one.responses.put(response("r"))
    await one.aclose()
    assert (await other.record.sign()).done == 1
    await check_record(other)
    await other.aclose()


@SHARED
async def test_entries_written_without_the_key_are_not_signed(url: str) -> None:
    store_without_key = await open_store(url)
    store = await open_store(url, recording=recording())
    await store.responses.put(response("mine"))
    await store_without_key.responses.put(response("forged"))
    done = await store.record.sign()
    assert (done.done, done.refused) == (1, 1)
    report, _ = verify_lines(await lines_of(store))
    assert [(finding.what, finding.scope) for finding in report.findings] == [("seal", "response:forged")]
    for one in (store_without_key, store):
        await one.aclose()


@SHARED
async def test_a_scope_with_an_unsealed_entry_is_not_signed_until_accepted(url: str) -> None:
    store_without_key, store = await open_store(url), await open_store(url, recording=recording())
    for one in (store, store_without_key):
        await one.spaces.put(space(), [])
    await store.spaces.append(append_of(0, "one"))
    await store.record.sign()
    await store_without_key.spaces.append(append_of(1, "forged"))
    await store.spaces.append(append_of(2, "three"))
    done = await store.record.sign()
    assert (done.done, done.refused) == (0, 1)
    report, _ = verify_lines(await lines_of(store))
    assert [(finding.what, finding.scope) for finding in report.findings] == [("seal", "space:room")]
    assert await store.record.accept(owner="bob") == 0
    assert await store.record.accept(scope="space:room") == 1
    assert await store.record.accept() == 0
    assert (await store.record.sign()).done == 1
    scope = (await check_record(store))["space:room"]
    assert (scope.entries, scope.contents, scope.signed) == (4, 3, 4)
    for one in (store_without_key, store):
        await one.aclose()
