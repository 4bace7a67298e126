"""However long its envelopes are, what is read of a log at once is bounded; and all of it can be read."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from pellucid.storage import EnvelopePage, Store
from pellucid.storage.paging import MAX_PAGE_BYTES, cut_page
from tests.storage.space_store_kit import (
    OWNER,
    ROOM,
    append,
    space_in_store,
    stored_envelope,
    stored_participant,
    stored_space,
)

pytestmark = pytest.mark.anyio

MANY, LONG = 40, 1 << 19


@pytest.fixture
async def long(store: Store) -> Store:
    await store.spaces.put(stored_space(), [stored_participant("ann")])
    for seq in range(1, MANY + 1):
        kind = "reasoning/start" if seq % 4 == 1 else ("chat", "reasoning/thought")[seq % 2]
        one = stored_envelope(
            seq,
            f"needle {'x' * LONG}",
            kind=kind,
            path=f"c{seq}",
            role="opens" if seq % 4 == 1 else "step",
            correlation_id=("what",),
        )
        await store.spaces.append(append([one], seq - 1))
    return store


async def test_every_way_to_read_gives_portions_and_in_them_everything(long: Store) -> None:
    spaces = long.spaces
    chats = ("chat", "reasoning/thought")

    async def all_of(ways: dict[str, object], newest: bool = False) -> list[int]:
        found: list[int] = []
        while True:
            edge = {"before": found[0] if found else None} if newest else {"after": found[-1] if found else 0}
            some: EnvelopePage = await spaces.page(OWNER, ROOM, **edge, newest=newest, **ways)  # type: ignore[arg-type]
            seqs = check(some)
            found = seqs + found if newest else found + seqs
            if not some.has_more:
                return found

    def check(some: EnvelopePage) -> list[int]:
        assert 0 < len(some) < MANY / 2
        assert some.total_bytes == sum(some.sizes_bytes) <= MAX_PAGE_BYTES
        assert all(size >= LONG for size in some.sizes_bytes)
        return [one.envelope.seq for one in some]

    every = list(range(1, MANY + 1))
    assert await all_of({}) == await all_of({"sender": "ann"}) == await all_of({}, newest=True) == every
    some_of = [seq for seq in every if seq % 4 != 1]
    assert await all_of({"kinds": chats}) == await all_of({"kinds": chats}, newest=True) == some_of

    found, more = list[int](), True
    while more:
        hits = await spaces.search(OWNER, ROOM, "needle", before=found[-1] if found else None)
        found, more = found + check(hits), hits.has_more
    assert found == every[::-1]

    found, more = [], True
    while more:
        about = await spaces.find_correlated(OWNER, ROOM, ["what"], after=found[-1] if found else 0)
        found, more = found + check(about), about.has_more
    assert found == every

    found, more = [], True
    while more:
        opened = await spaces.find_openers(OWNER, ROOM, before=found[-1] if found else None)
        found, more = found + check(opened), opened.has_more
    assert found == [seq for seq in every if seq % 4 == 1][::-1]


async def test_a_page_takes_as_much_memory_as_a_portion(long: Store) -> None:
    tracemalloc.start()
    try:
        await long.spaces.page(OWNER, ROOM)
        assert tracemalloc.get_traced_memory()[1] < 5 * MAX_PAGE_BYTES
    finally:
        tracemalloc.stop()


async def test_as_many_as_were_asked_for_may_not_be_all() -> None:
    async with space_in_store("sqlite://") as store:
        await store.spaces.append(append([stored_envelope(seq) for seq in range(1, 6)], 0))
        for limit, more in ((4, True), (5, True), (6, False)):
            some = await store.spaces.page(OWNER, ROOM, limit=limit)
            assert (len(some), some.has_more) == (min(limit, 5), more)
        assert (await store.spaces.page(OWNER, ROOM, after=5)) == []
        assert not (await store.spaces.page(OWNER, ROOM, after=5)).has_more


def test_a_portion_is_the_most_that_fits_and_never_nothing() -> None:
    chance = random.Random(3)
    for _ in range(500):
        rows = [(seq, chance.randint(1, 150)) for seq in range(chance.randint(0, 12))]
        limit = chance.randint(1, 12)
        chosen, more = cut_page(rows, limit, 100)
        assert chosen == rows[: len(chosen)]
        assert bool(chosen) is bool(rows)
        assert len(chosen) <= 1 or sum(size for _, size in chosen) <= 100
        if len(chosen) < len(rows):
            assert more
            full = sum(size for _, size in rows[: len(chosen) + 1]) > 100
            assert full or len(chosen) == limit
        else:
            assert more is (len(rows) >= limit)
