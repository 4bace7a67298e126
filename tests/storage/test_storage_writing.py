"""What a write promises: it is done when it says so, alone if it must be, and together with others if it can be."""

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
from tests.storage.storage_kit import Clock, opened, response

pytestmark = pytest.mark.anyio

LOG = random.Random(1).randbytes(20_000)


async def test_200_puts_at_once_are_a_few_transactions(store: Store) -> None:
    before = store.transactions
    puts = [store.responses.put(response(f"resp_{n}", log=LOG), [f"msg_{n}"]) for n in range(200)]
    await asyncio.gather(*puts)
    assert store.transactions - before <= 10
    for n in range(200):
        assert await store.responses.find_item("ann", f"msg_{n}") == f"resp_{n}"


async def test_one_that_fails_does_not_take_its_neighbours_along(store: Store) -> None:
    dice = random.Random(2)
    ids = [f"resp_{dice.randrange(60)}" for _ in range(150)]
    outcomes = await asyncio.gather(
        *(store.responses.put(response(id, model=str(place)), [f"{id}-{place}"]) for place, id in enumerate(ids)),
        return_exceptions=True,
    )
    for place, (id, outcome) in enumerate(zip(ids, outcomes, strict=True)):
        first = ids.index(id) == place
        assert outcome is None if first else isinstance(outcome, AlreadyStored)
        # All of it is there or nothing: the items of one that failed are not.
        assert await store.responses.find_item("ann", f"{id}-{place}") == (id if first else None)


async def test_of_one_that_fails_halfway_nothing_is_done(store: Store) -> None:
    said = store.conversations
    await said.create(StoredConversation(id="x", owner="ann", created_at=1.0))
    news = [
        [ConversationEntry(id=str(n % 7 or n), item=b"{}"), ConversationEntry(id=f"-{n}", item=b"{}")]
        for n in range(50)
    ]
    outcomes = await asyncio.gather(*(said.append("ann", "x", new) for new in news), return_exceptions=True)
    assert 0 < sum(isinstance(outcome, AlreadyStored) for outcome in outcomes) < 50
    entries = await said.entries("ann", "x", limit=1000)
    assert entries == [entry for outcome in outcomes if isinstance(outcome, list) for entry in outcome]
    assert [entry.position for entry in entries] == list(range(len(entries)))


async def test_a_value_no_database_takes_is_a_fault_of_that_write_alone(store: Store) -> None:
    begins = [store.responses.begin(response(f"resp_{n}", status="queued"), 2**70 if n == 5 else 1) for n in range(10)]
    outcomes = await asyncio.gather(*begins, return_exceptions=True)
    wrong = outcomes.pop(5)
    assert isinstance(wrong, StoreError)
    assert (wrong.info.kind, wrong.info.code) == ("server_error", "storage_failed")
    assert outcomes == [None] * 9


async def test_writes_are_done_in_order(store: Store) -> None:
    """So that one need not be awaited before the next is asked for."""
    kept = store.responses
    done = await asyncio.gather(
        kept.put(response("a", expires_at=2_000.0)),
        kept.put(response("b", previous_id="a", expires_at=9_000.0)),
        kept.delete("ann", "b"),
        kept.put(response("b")),
        kept.delete("ann", "c"),
        kept.put(response("c")),
    )
    assert done == [None, None, True, None, False, None]
    a = await kept.get("ann", "a")
    assert a is not None
    assert a.expires_at is not None
    assert a.expires_at >= 9_000


async def test_who_leaves_does_not_take_their_write_back(store: Store) -> None:
    tasks = [asyncio.create_task(store.responses.put(response(f"resp_{n}"))) for n in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.responses.put(response("last"))
    for n in range(20):
        assert await store.responses.get("ann", f"resp_{n}") is not None


async def test_exactly_one_end_wins(url: str) -> None:
    """Two replicas on one database; in memory, there is only one."""
    async with opened(url) as one, opened(url) as other:
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
            found = [
                await one.responses.find_item("ann", f"{status}-{n}")
                for status in ["completed", "failed", "cancelled", "incomplete"]
            ]
            assert [item is not None for item in found] == won


async def test_who_was_taken_over_comes_too_late(store: Store, clock: Clock) -> None:
    kept = store.responses
    await kept.begin(response(status="queued", background=True, header=b"{}"), 3)
    assert await kept.unfinished(clock.now) == [("resp_1", "ann", 3)]
    assert await kept.take_over("ann", "resp_1", 3) is None  # not higher
    takers = await asyncio.gather(*(kept.take_over("ann", "resp_1", 4) for _ in range(5)))
    assert sum(taken is not None for taken in takers) == 1
    assert await kept.unfinished(clock.now) == []  # it was touched now
    assert await kept.finish(response(), ["late"], 3) is False
    assert await kept.find_item("ann", "late") is None
    assert await kept.finish(response(status="failed", error=b"{}"), [], 4) is True
    assert await kept.take_over("ann", "resp_1", 9) is None


async def test_two_replicas_append_to_one_conversation(url: str) -> None:
    async with opened(url) as one, opened(url) as other:
        stores = [one, one] if url == "sqlite://" else [one, other]
        for id in "xy":
            await one.conversations.create(StoredConversation(id=id, owner="ann", created_at=1.0))

        async def append(place: int) -> None:
            new = [ConversationEntry(id=f"{place}-{n}", item=b"{}") for n in range(4)]
            # In opposite order on both sides, so that they stand in each other's way if they can.
            for id in "xy" if place % 2 else "yx":
                assert await stores[place % 2].conversations.append("ann", id, new) is not None

        await asyncio.gather(*(append(place) for place in range(40)))
        for id in "xy":
            entries = await one.conversations.entries("ann", id, limit=1000)
            assert entries is not None
            assert [entry.position for entry in entries] == list(range(160))
            for first in range(0, 160, 4):  # each append is whole
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


def test_what_was_acknowledged_outlives_the_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    process = subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE)
    assert process.stdout is not None
    acknowledged = [process.stdout.readline() for _ in range(300)]
    os.kill(process.pid, signal.SIGKILL)
    acknowledged += process.stdout.read().splitlines(keepends=True)
    process.wait()
    process.stdout.close()

    async def look() -> None:
        async with opened(url) as store:
            for line in acknowledged:
                if line.endswith(b"\n"):
                    n = int(line)
                    kept = await store.responses.get("ann", f"resp_{n}", log=True)
                    assert kept is not None
                    assert kept.log == bytes(9000)
                    assert await store.responses.find_item("ann", f"msg_{n}") == kept.id

    asyncio.run(look())


async def test_a_closed_store_finishes_what_waits_and_says_that_it_is_closed(url: str) -> None:
    async with opened(url) as store:
        puts = [asyncio.create_task(store.responses.put(response(f"resp_{n}"))) for n in range(50)]
        await asyncio.sleep(0)
        await store.aclose()
        await asyncio.gather(*puts)
        for asking in (store.check(), store.responses.put(response("late")), store.responses.get("ann", "resp_1")):
            with pytest.raises(StoreError, match="closed") as caught:
                await asking
            assert (caught.value.info.kind, caught.value.info.code) == ("unavailable", "storage_unavailable")


async def test_no_error_quotes_what_was_to_be_kept(store: Store) -> None:
    secret = response("resp_marmalade", owner="marmalade", model="marmalade", header=b"marmalade")
    await store.responses.put(secret)
    another = replace(secret, messages=b"[1]")
    with pytest.raises(AlreadyStored) as caught:
        await store.responses.put(another)
    told = "".join(traceback.format_exception(caught.value, chain=True))
    assert "marmalade" not in told
    assert "INSERT INTO" not in told


@pytest.mark.parametrize("bad", ["nul\0", "half\ud800"])
async def test_a_name_that_cannot_be_kept_is_refused_by_name(store: Store, bad: str) -> None:
    for field in ("id", "owner", "model", "previous_id", "conversation_id"):
        with pytest.raises(RequestError, match=field):
            await store.responses.put(response(**{field: bad}))
    with pytest.raises(RequestError, match=r"item_ids\[1\]"):
        await store.responses.put(response(), ["good", bad])
    assert await store.responses.get("ann", "resp_1") is None


async def test_what_is_over_is_put_and_what_is_not_is_begun(store: Store) -> None:
    with pytest.raises(ValueError, match="queued"):
        await store.responses.put(response(status="queued"))
    with pytest.raises(ValueError, match="completed"):
        await store.responses.begin(response(), 1)
