"""What was used: sums that several replicas add to, and their reports."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from pellucid.storage import Store, UsageCounts, UsageFilter, UsageKey, UsageRow
from pellucid.storage.usage import COLUMNS, COUNTS, MAX_ROWS, Column
from tests.empty_stores import SHARED
from tests.storage.storage_kit import store_at

pytestmark = pytest.mark.anyio

DAY = "2026-01-31"


def key(owner: str = "ann", key_id: str = "key_1", day: str = DAY, model: str = "m", currency: str = "USD") -> UsageKey:
    return UsageKey(owner, key_id, day, model, "openai/m", currency)


def counts(cost: int = 1, **others: int) -> UsageCounts:
    return UsageCounts(requests=1, cost_nanos=cost, **others)


async def costs(store: Store, *columns: Column, **filter: str) -> dict[tuple[str | None, ...], int]:
    rows = await store.usage.report(columns, UsageFilter(**filter))
    return {tuple(getattr(row, column) for column in columns): row.counts.cost_nanos for row in rows}


async def test_sums_are_added_to_the_row_of_their_key(store: Store) -> None:
    every_count = UsageCounts(**{name: number + 1 for number, name in enumerate(COUNTS)})
    await store.usage.add([(key(), every_count), (key(model="n"), counts(5))])
    await store.usage.add([(key(), every_count)])
    expected = UsageCounts(**{name: 2 * (number + 1) for number, name in enumerate(COUNTS)})
    assert await store.usage.report(["model"]) == (
        UsageRow(model="m", currency="USD", counts=expected),
        UsageRow(model="n", currency="USD", counts=counts(5)),
    )
    every_count.add(every_count)
    assert every_count == expected


async def test_sums_are_larger_than_32_bits(store: Store) -> None:
    for _ in range(3):
        await store.usage.add([(key(), counts(2**61))])
    assert await costs(store) == {(): 3 * 2**61}
    assert (await store.usage.cost_totals("ann", "key_1", "USD", DAY)).day == 3 * 2**61


@SHARED
async def test_no_addition_of_two_replicas_is_lost(url: str) -> None:
    async with store_at(url) as first, store_at(url) as second:

        async def add(store: Store, keys: Iterable[UsageKey]) -> None:
            for _ in range(20):
                await store.usage.add([(one, counts()) for one in keys])

        keys = [key(model="m"), key(model="n"), key(owner="bob")]
        await asyncio.gather(add(first, keys), add(second, keys[::-1]), add(first, keys))
        assert await costs(second, "owner", "model") == {("ann", "m"): 60, ("ann", "n"): 60, ("bob", "m"): 60}


@pytest.mark.parametrize("columns", [(), *((column,) for column in COLUMNS), ("month", "owner"), COLUMNS])
async def test_every_grouping_has_the_same_total(store: Store, columns: tuple[Column, ...]) -> None:
    keys = [
        key(owner, key_id, day, model)
        for owner in ("ann", "bob")
        for key_id in ("", "key_1")
        for day in ("2025-12-31", "2026-01-01", "2026-01-31")
        for model in ("m", "n")
    ]
    await store.usage.add([(one, counts(2**index)) for index, one in enumerate(keys)])
    rows = await costs(store, *columns)
    assert sum(rows.values()) == 2 ** len(keys) - 1
    assert list(rows) == sorted(rows, key=str)


async def test_a_filter_limits_the_rows(store: Store) -> None:
    await store.usage.add(
        [
            (key(day="2025-12-31"), counts(1)),
            (key(day="2026-01-01", model="n"), counts(2)),
            (key("bob", "key_2", "2026-01-02"), counts(4)),
            (key("bob", "", "2026-01-03"), counts(8)),
        ]
    )
    assert await costs(store, first_day="2026-01-01") == {(): 14}
    assert await costs(store, last_day="2026-01-01") == {(): 3}
    assert await costs(store, first_day="2026-01-01", last_day="2026-01-02") == {(): 6}
    assert await costs(store, owner="bob") == {(): 12}
    assert await costs(store, key="") == {(): 8}
    assert await costs(store, model="m", key="key_1") == {(): 1}
    assert await costs(store, "day", model="x\0") == {}


async def test_currencies_are_never_added(store: Store) -> None:
    await store.usage.add([(key(currency="USD"), counts(1)), (key(currency="EUR"), counts(2))])
    assert [(row.currency, row.counts.cost_nanos) for row in await store.usage.report([])] == [("EUR", 2), ("USD", 1)]
    assert (await store.usage.cost_totals("ann", "key_1", "EUR", DAY)).day == 2


async def test_what_a_key_spent_counts_from_the_first_of_the_month(store: Store) -> None:
    await store.usage.add(
        [
            (key(day="2025-12-31"), counts(1)),
            (key(day="2026-01-01"), counts(2)),
            (key(day=DAY), counts(4)),
            (key(day=DAY, model="n"), counts(8)),
            (key(day="2026-02-01"), counts(16)),
            (key("bob", day=DAY), counts(32)),
            (key(key_id="", day=DAY), counts(64)),
        ]
    )
    assert await store.usage.cost_totals("ann", "key_1", "USD", DAY) == (12, 14)
    assert await store.usage.cost_totals("ann", "", "USD", DAY) == (64, 64)
    assert await store.usage.cost_totals("ann", "key_3", "USD", DAY) == (0, 0)
    assert await store.usage.cost_totals("ann", None, "USD", DAY) == (76, 78)


async def test_a_report_is_bounded(store: Store) -> None:
    await store.usage.add([(key(model=f"m{number}"), counts()) for number in range(MAX_ROWS + 1)])
    assert len(await store.usage.report(["model"])) == MAX_ROWS


async def test_erasing_an_owner_erases_what_it_used(store: Store) -> None:
    await store.usage.add([(key(), counts()), (key("bob"), counts())])
    await store.erase("ann")
    assert await costs(store, "owner") == {("bob",): 1}
