"""Guarantees of writes: an acknowledged write is durable, and writes share transactions but not failures."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from msgspec.structs import replace

from pellucid.errors import RequestError
from pellucid.storage import AlreadyStored, ConversationEntry, Store, StoredConversation, StoreError
from tests.storage.storage_kit import Clock, response, store_at

pytestmark = pytest.mark.anyio

LOG = random.Random(1).randbytes(20_000)


async def test_200_concurrent_puts_take_few_transactions(store: Store) -> None:
    before = store.transactions
    puts = [store.responses.put(response(f"resp_{n}", log=LOG), [f"msg_{n}"]) for n in range(200)]
    await asyncio.gather(*puts)
    assert store.transactions - before <= 10
    for n in range(200):
        assert await store.responses.find_item("ann", f"msg_{n}") == f"resp_{n}"


async def test_a_failed_write_does_not_fail_its_batch(store: Store) -> None:
    dice = random.Random(2)
    ids = [f"resp_{dice.randrange(60)}" for _ in range(150)]
    outcomes = await asyncio.gather(
        *(store.responses.put(response(id, model=str(place)), [f"{id}-{place}"]) for place, id in enumerate(ids)),
        return_exceptions=True,
    )
    for place, (id, outcome) in enumerate(zip(ids, outcomes, strict=True)):
        first = ids.index(id) == place
        assert outcome is None if first else isinstance(outcome, AlreadyStored)
        # A write is atomic: the items of a failed one are not stored.
        assert await store.responses.find_item("ann", f"{id}-{place}") == (id if first else None)


async def test_a_write_that_fails_halfway_stores_nothing(store: Store) -> None:
    conversations = store.conversations
    await conversations.create(StoredConversation(id="x", owner="ann", created_at=1.0))
    new_entries = [
        [ConversationEntry(id=str(n % 7 or n), item=b"{}"), ConversationEntry(id=f"-{n}", item=b"{}")]
        for n in range(50)
    ]
    outcomes = await asyncio.gather(
        *(conversations.append("ann", "x", new) for new in new_entries), return_exceptions=True
    )
    assert 0 < sum(isinstance(outcome, AlreadyStored) for outcome in outcomes) < 50
    entries = await conversations.entries("ann", "x", limit=1000)
    assert entries == [entry for outcome in outcomes if isinstance(outcome, list) for entry in outcome]
    assert [entry.position for entry in entries] == list(range(len(entries)))


async def test_an_invalid_value_fails_only_its_own_write(store: Store) -> None:
    begins = [store.responses.begin(response(f"resp_{n}", status="queued"), 2**70 if n == 5 else 1) for n in range(10)]
    outcomes = await asyncio.gather(*begins, return_exceptions=True)
    wrong = outcomes.pop(5)
    assert isinstance(wrong, StoreError)
    assert (wrong.info.kind, wrong.info.code) == ("server_error", "storage_failed")
    assert outcomes == [None] * 9


async def test_writes_are_done_in_order(store: Store) -> None:
    """A caller need not await a write before it requests the next one."""
    responses = store.responses
    done = await asyncio.gather(
        responses.put(response("a", expires_at=2_000.0)),
        responses.put(response("b", previous_id="a", expires_at=9_000.0)),
        responses.delete("ann", "b"),
        responses.put(response("b")),
        responses.delete("ann", "c"),
        responses.put(response("c")),
    )
    assert done == [None, None, True, None, False, None]
    a = await responses.get("ann", "a")
    assert a is not None
    assert a.expires_at is not None
    assert a.expires_at >= 9_000


async def test_a_cancelled_caller_does_not_cancel_its_write(store: Store) -> None:
    tasks = [asyncio.create_task(store.responses.put(response(f"resp_{n}"))) for n in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.responses.put(response("last"))
    for n in range(20):
        assert await store.responses.get("ann", f"resp_{n}") is not None


async def test_exactly_one_finish_succeeds(url: str) -> None:
    """Two replicas on one database; in memory there is only one."""
    async with store_at(url) as one, store_at(url) as other:
        stores = [one, one] if url == "sqlite://" else [one, other]
        for n in range(30):
            id = f"resp_{n}"
            await one.responses.begin(response(id, status="in_progress", background=True), 1)
            ends = [
                store.responses.finish(response(id, status=status), [f"{status}-{n}"], 1)
                for store, status in zip(stores * 2, ["completed", "failed", "cancelled", "incomplete"], strict=True)
            ]
            won = await asyncio.gather(*ends)
            assert sorted(won) == [False, False, False, True]
            status = ["completed", "failed", "cancelled", "incomplete"][won.index(True)]
            for store in stores:
                ended = await store.responses.get("ann", id)
                assert ended is not None
                assert ended.status == status
            item_owners = [
                await one.responses.find_item("ann", f"{status}-{n}")
                for status in ["completed", "failed", "cancelled", "incomplete"]
            ]
            assert [item is not None for item in item_owners] == won


async def test_a_finish_with_an_old_fence_is_refused(store: Store, clock: Clock) -> None:
    responses = store.responses
    await responses.begin(response(status="queued", background=True, header=b"{}"), 3)
    assert await responses.unfinished(clock.now) == [("resp_1", "ann", 3)]
    assert await responses.take_over("ann", "resp_1", 3) is None  # the fence is not higher
    takers = await asyncio.gather(*(responses.take_over("ann", "resp_1", 4) for _ in range(5)))
    assert sum(taken is not None for taken in takers) == 1
    assert await responses.unfinished(clock.now) == []  # `updated_at` is now
    assert await responses.finish(response(), ["late"], 3) is False
    assert await responses.find_item("ann", "late") is None
    assert await responses.finish(response(status="failed", error=b"{}"), [], 4) is True
    assert await responses.take_over("ann", "resp_1", 9) is None


async def test_two_replicas_append_to_one_conversation(url: str) -> None:
    async with store_at(url) as one, store_at(url) as other:
        stores = [one, one] if url == "sqlite://" else [one, other]
        for id in "xy":
            await one.conversations.create(StoredConversation(id=id, owner="ann", created_at=1.0))

        async def append(place: int) -> None:
            new = [ConversationEntry(id=f"{place}-{n}", item=b"{}") for n in range(4)]
            # The two sides use opposite orders, to provoke deadlocks.
            for id in "xy" if place % 2 else "yx":
                assert await stores[place % 2].conversations.append("ann", id, new) is not None

        await asyncio.gather(*(append(place) for place in range(40)))
        for id in "xy":
            entries = await one.conversations.entries("ann", id, limit=1000)
            assert entries is not None
            assert [entry.position for entry in entries] == list(range(160))
            for first in range(0, 160, 4):  # each append is contiguous
                assert len({entry.id.split("-")[0] for entry in entries[first : first + 4]}) == 1


WRITER = """
import asyncio, sys
from pellucid.storage import open_store, StoredResponse

async def main():
    store = await open_store(sys.argv[1])
    async def write(n):
        while True:
            id = f"resp_{n}"
            await store.responses.put(
                StoredResponse(id=id, owner="ann", created_at=1, updated_at=1, status="completed",
                    model="m", log=bytes(9000)),
                [f"msg_{n}"],
            )
            print(n, flush=True)
            n += 50
    await asyncio.gather(*(write(n) for n in range(50)))

asyncio.run(main())
"""


def test_acknowledged_writes_survive_a_killed_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    process = subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE)
    assert process.stdout is not None
    acknowledged = [process.stdout.readline() for _ in range(300)]
    os.kill(process.pid, signal.SIGKILL)
    acknowledged += process.stdout.read().splitlines(keepends=True)
    process.wait()
    process.stdout.close()

    async def check() -> None:
        async with store_at(url) as store:
            for line in acknowledged:
                if line.endswith(b"\n"):
                    n = int(line)
                    row = await store.responses.get("ann", f"resp_{n}", log=True)
                    assert row is not None
                    assert row.log == bytes(9000)
                    assert await store.responses.find_item("ann", f"msg_{n}") == row.id

    asyncio.run(check())


async def test_closing_finishes_waiting_writes_and_refuses_new_calls(url: str) -> None:
    async with store_at(url) as store:
        puts = [asyncio.create_task(store.responses.put(response(f"resp_{n}"))) for n in range(50)]
        await asyncio.sleep(0)
        await store.aclose()
        await asyncio.gather(*puts)
        for call in (store.check(), store.responses.put(response("late")), store.responses.get("ann", "resp_1")):
            with pytest.raises(StoreError, match="closed") as caught:
                await call
            assert (caught.value.info.kind, caught.value.info.code) == ("unavailable", "storage_unavailable")


async def test_errors_do_not_quote_data(store: Store) -> None:
    secret = response("resp_marmalade", owner="marmalade", model="marmalade", header=b"marmalade")
    await store.responses.put(secret)
    another = replace(secret, messages=b"[1]")
    with pytest.raises(AlreadyStored) as caught:
        await store.responses.put(another)
    traceback_text = "".join(traceback.format_exception(caught.value, chain=True))
    assert "marmalade" not in traceback_text
    assert "INSERT INTO" not in traceback_text


@pytest.mark.parametrize("bad", ["nul\0", "half\ud800"])
async def test_an_invalid_field_is_named(store: Store, bad: str) -> None:
    for field in ("id", "owner", "model", "previous_id", "conversation_id"):
        with pytest.raises(RequestError, match=field):
            await store.responses.put(response(**{field: bad}))
    with pytest.raises(RequestError, match=r"item_ids\[1\]"):
        await store.responses.put(response(), ["good", bad])
    assert await store.responses.get("ann", "resp_1") is None


async def test_put_takes_finished_and_begin_unfinished_responses(store: Store) -> None:
    with pytest.raises(ValueError, match="queued"):
        await store.responses.put(response(status="queued"))
    with pytest.raises(ValueError, match="completed"):
        await store.responses.begin(response(), 1)
