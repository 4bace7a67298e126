"""A page of a log has a bounded size, however long its envelopes are; and all pages together are the whole log."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from pellucid.storage import EnvelopePage, Store
from pellucid.storage.space_log import MAX_PAGE_BYTES, cut_page
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

ENVELOPES, TEXT_LENGTH = 40, 1 << 19


@pytest.fixture
async def long_log(store: Store) -> Store:
    await store.spaces.put(stored_space(), [stored_participant("ann")])
    for seq in range(1, ENVELOPES + 1):
        kind = "reasoning/start" if seq % 4 == 1 else ("chat", "reasoning/thought")[seq % 2]
        one = stored_envelope(
            seq,
            f"needle {'x' * TEXT_LENGTH}",
            kind=kind,
            path=f"c{seq}",
            role="opens" if seq % 4 == 1 else "step",
            correlation_id=("what",),
        )
        await store.spaces.append(append([one], seq - 1))
    return store


async def test_every_query_returns_bounded_pages_that_hold_everything(long_log: Store) -> None:
    spaces = long_log.spaces
    chats = ("chat", "reasoning/thought")

    async def read_all(filters: dict[str, object], newest: bool = False) -> list[int]:
        collected: list[int] = []
        while True:
            edge = (
                {"before": collected[0] if collected else None}
                if newest
                else {"after": collected[-1] if collected else 0}
            )
            page: EnvelopePage = await spaces.page(OWNER, ROOM, **edge, newest=newest, **filters)  # type: ignore[arg-type]
            seqs = check(page)
            collected = seqs + collected if newest else collected + seqs
            if not page.has_more:
                return collected

    def check(page: EnvelopePage) -> list[int]:
        assert 0 < len(page) < ENVELOPES / 2
        assert page.total_bytes == sum(page.sizes_bytes) <= MAX_PAGE_BYTES
        assert all(size >= TEXT_LENGTH for size in page.sizes_bytes)
        return [one.envelope.seq for one in page]

    all_seqs = list(range(1, ENVELOPES + 1))
    assert await read_all({}) == await read_all({"sender": "ann"}) == await read_all({}, newest=True) == all_seqs
    some_of = [seq for seq in all_seqs if seq % 4 != 1]
    assert await read_all({"kinds": chats}) == await read_all({"kinds": chats}, newest=True) == some_of

    collected, more = list[int](), True
    while more:
        hits = await spaces.search(OWNER, ROOM, "needle", before=collected[-1] if collected else None)
        collected, more = collected + check(hits), hits.has_more
    assert collected == all_seqs[::-1]

    collected, more = [], True
    while more:
        correlated = await spaces.find_correlated(OWNER, ROOM, ["what"], after=collected[-1] if collected else 0)
        collected, more = collected + check(correlated), correlated.has_more
    assert collected == all_seqs

    collected, more = [], True
    while more:
        openers = await spaces.find_openers(OWNER, ROOM, before=collected[-1] if collected else None)
        collected, more = collected + check(openers), openers.has_more
    assert collected == [seq for seq in all_seqs if seq % 4 == 1][::-1]


async def test_a_read_takes_memory_for_one_page_only(long_log: Store) -> None:
    tracemalloc.start()
    try:
        await long_log.spaces.page(OWNER, ROOM)
        assert tracemalloc.get_traced_memory()[1] < 5 * MAX_PAGE_BYTES
    finally:
        tracemalloc.stop()


async def test_has_more_is_set_if_the_limit_is_reached() -> None:
    async with space_in_store("sqlite://") as store:
        await store.spaces.append(append([stored_envelope(seq) for seq in range(1, 6)], 0))
        for limit, more in ((4, True), (5, True), (6, False)):
            some = await store.spaces.page(OWNER, ROOM, limit=limit)
            assert (len(some), some.has_more) == (min(limit, 5), more)
        assert (await store.spaces.page(OWNER, ROOM, after=5)) == []
        assert not (await store.spaces.page(OWNER, ROOM, after=5)).has_more


def test_a_page_holds_as_many_rows_as_fit_and_at_least_one() -> None:
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
