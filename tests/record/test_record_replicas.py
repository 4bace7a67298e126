"""Two that write into one database at once; and one that is killed."""

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
from tests.record.record_kit import OWNER, SIGNER, append_of, check, checked, entry, lines_of, response, space
from tests.storage.storage_kit import ROOT

pytestmark = pytest.mark.anyio


def recording() -> Recording:
    return Recording(signers=[SIGNER])


@SHARED
async def test_two_that_write_into_one_scope_at_once(url: str) -> None:
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

    async def say(store: Store) -> None:
        said = 0
        while said < 10:
            head = await store.spaces.head(OWNER, "room")
            assert head is not None
            try:
                await store.spaces.append(append_of(head.head, "one", "two"))
                said += 1
            except AppendConflict:
                await asyncio.sleep(0)

    async def sign(store: Store) -> None:
        for _ in range(10):
            with suppress(AlreadyStored):  # the other one does it
                await store.record.sign()
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        for name, store in enumerate(stores):
            for work in (write(store, name), say(store), sign(store)):
                group.create_task(work)
    await stores[1].record.sign()
    scopes = await check(stores[0])
    # Items: two each, one each of the responses, and one that both wanted to add; responses; and what went.
    assert scopes["conversation:c"].contents + scopes["conversation:c"].gone == 2 * 15 * 4 + 1
    assert scopes["space:room"].contents == 40
    assert all(one.signed == one.entries for one in scopes.values())
    for store in stores:
        await store.aclose()


WRITER = """
import asyncio, sys
from tests.record.record_kit import OWNER, append_of, entry, response
from pellucid.record import Recording, read_record_keys
from pellucid.storage import open_store

async def main():
    store = await open_store(sys.argv[1], recording=Recording(signers=read_record_keys(sys.argv[2]).signers))

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
async def test_one_that_is_killed_leaves_record_and_contents_in_agreement(
    url: str, tmp_path: Path, deaths: int
) -> None:
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
        said = b"".join([await writer.stdout.readline() for _ in range(80 + 37 * death)])
        writer.kill()
        said += await writer.stdout.read()
        await writer.wait()
        told = [line.split() for line in said.decode().splitlines(keepends=True) if line.endswith("\n")]
        assert len(told) > 10
        while not await backends(url) <= before:  # noqa: ASYNC110 (PostgreSQL may still be at what it was sent last)
            await asyncio.sleep(0.01)
        # What was acknowledged is there, and the record says so; what is gone, too.
        scopes = await check(store)
        deleted = {id for what, id in told if what == "d"}
        for what, id in told:
            if what == "r" and id not in deleted and int(id.partition(".")[2]) % 3 != 2:
                assert await store.responses.get(OWNER, id) is not None
        head = max([int(id) for what, id in told if what == "s"], default=0)
        assert scopes["space:room"].contents >= head
        # It is as if it had never been, but for that: the next one begins elsewhere.
        await store.erase(OWNER)
        await store.conversations.create(StoredConversation(id="c", owner=OWNER, created_at=time.time()))
        await store.spaces.put(space(), [])
    await store.record.sign()
    assert all(one.contents == 0 for one in (await check(store)).values())
    await store.aclose()


@SHARED
async def test_a_replica_that_dies_leaves_what_another_signs(url: str) -> None:
    one, other = await open_store(url, recording=recording()), await open_store(url, recording=recording())
    await one.responses.put(response("r"))
    await one.aclose()
    assert (await other.record.sign()).signed == 1
    await check(other)
    await other.aclose()


@SHARED
async def test_what_was_written_without_the_key_is_not_signed(url: str) -> None:
    stranger = await open_store(url)
    store = await open_store(url, recording=recording())
    await store.responses.put(response("mine"))
    await stranger.responses.put(response("forged"))
    done = await store.record.sign()
    assert (done.signed, done.refused) == (1, 1)
    report, _ = checked(await lines_of(store))
    assert [(finding.what, finding.scope) for finding in report.findings] == [("seal", "response:forged")]
    for one in (stranger, store):
        await one.aclose()


@SHARED
async def test_what_follows_it_is_not_signed_either_until_somebody_accepts_it(url: str) -> None:
    stranger, store = await open_store(url), await open_store(url, recording=recording())
    for one in (store, stranger):
        await one.spaces.put(space(), [])
    await store.spaces.append(append_of(0, "one"))
    await store.record.sign()
    await stranger.spaces.append(append_of(1, "forged"))
    await store.spaces.append(append_of(2, "three"))
    done = await store.record.sign()
    assert (done.signed, done.refused) == (0, 1)
    report, _ = checked(await lines_of(store))
    assert [(finding.what, finding.scope) for finding in report.findings] == [("seal", "space:room")]
    assert await store.record.accept(owner="bob") == 0
    assert await store.record.accept(scope="space:room") == 1
    assert await store.record.accept() == 0
    assert (await store.record.sign()).signed == 1
    scope = (await check(store))["space:room"]
    assert (scope.entries, scope.contents, scope.signed) == (4, 3, 4)
    for one in (stranger, store):
        await one.aclose()
