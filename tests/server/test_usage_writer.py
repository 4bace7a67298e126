"""What is used is added up, written together, and known to budgets; with a store that fails, and other replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

from pellucid.server import usage_writer
from pellucid.server.access.budgets import Budget, Budgets
from pellucid.server.access.errors import AccessError
from pellucid.server.access.policy import Policy, Principal
from pellucid.server.spend import NANOS
from pellucid.server.usage_writer import REFRESH_SECONDS, UsageWriter
from pellucid.storage import CostTotals, Store, StoreError, UsageCounts, UsageKey
from tests.empty_stores import SHARED, one_database, postgres_server, url
from tests.storage.storage_kit import store_at
from tests.waiting import LIMIT_SECONDS, eventually, loop_turns

__all__ = ["one_database", "postgres_server", "url"]

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Clock:
    """A wall clock and a monotonic clock that advance only when a test moves them."""

    def __init__(self, day: str = "2026-01-31T12:00:00") -> None:
        self.now = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()

    def __call__(self) -> float:
        return self.now


class UnreliableStore:
    """The sums of a store that can be down, and that can wait in the middle of a write or a read."""

    def __init__(self, store: Store) -> None:
        self.usage = store.usage
        self.is_down = False
        self.reads = self.writes = 0
        self.may_write, self.may_read, self.may_return = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.may_write.set()
        self.may_read.set()
        self.may_return.set()

    async def add(self, sums: Iterable[tuple[UsageKey, UsageCounts]]) -> None:
        self.writes += 1
        await self.may_write.wait()
        if self.is_down:
            raise StoreError("the database does not answer")
        await self.usage.add(sums)
        await self.may_return.wait()

    async def cost_totals(self, owner: str, key_id: str | None, currency: str, today: str) -> CostTotals:
        self.reads += 1
        if self.is_down:
            raise StoreError("the database does not answer")
        spent = await self.usage.cost_totals(owner, key_id, currency, today)
        await self.may_read.wait()
        return spent


@pytest.fixture
async def store() -> AsyncIterator[UnreliableStore]:
    async with store_at("sqlite://") as opened:
        yield UnreliableStore(opened)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def writer_of(store: Any, clock: Clock) -> UsageWriter:
    return UsageWriter(store, "USD", clock=clock, monotonic=clock)


@pytest.fixture
async def writer(store: UnreliableStore, clock: Clock) -> AsyncIterator[UsageWriter]:
    created = writer_of(store, clock)
    yield created
    store.is_down = False
    store.may_write.set()
    await created.aclose()


def use(writer: UsageWriter, cost: int = 1, key_id: str | None = "key_1") -> None:
    writer.add("ann", key_id, "m", "vllm/m", UsageCounts(requests=1, cost_nanos=cost), has_prices=True)


async def total(store: UnreliableStore) -> int:
    return sum(row.counts.cost_nanos for row in await store.usage.report([]))


async def test_many_turns_are_one_write(store: UnreliableStore, writer: UsageWriter) -> None:
    for _ in range(1000):
        use(writer)
    await writer.write()
    await writer.write()
    assert store.writes == 1
    assert await total(store) == 1000


async def test_what_is_used_is_written_by_itself(
    store: UnreliableStore, writer: UsageWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_writer, "WRITE_SECONDS", 0.01)
    store.is_down = True
    use(writer)
    await eventually(lambda: store.writes >= 2, "the write was tried again")
    store.is_down = False
    await eventually(lambda: writer.unwritten_count == 0, "it is written")
    use(writer)
    await eventually(lambda: writer.unwritten_count == 0, "the next one is written, too")
    await writer.write()  # which waits for the end of the other write
    assert await total(store) == 2


async def test_the_rest_is_written_at_the_end(store: UnreliableStore, clock: Clock) -> None:
    writer = writer_of(store, clock)
    use(writer, 5)
    await writer.aclose()
    assert await total(store) == 5


async def test_nothing_is_lost_while_the_store_is_down(store: UnreliableStore, writer: UsageWriter) -> None:
    store.is_down = True
    for _ in range(3):
        use(writer)
        await writer.write()
    store.is_down = False
    use(writer)
    await writer.write()
    assert await total(store) == 4


async def test_a_sum_that_cannot_be_stored_does_not_hold_back_others(
    store: UnreliableStore, writer: UsageWriter, caplog: pytest.LogCaptureFixture
) -> None:
    writer.add("ann", "key_1", "n", "vllm/n", UsageCounts(requests=1, cost_nanos=2**70), has_prices=True)
    use(writer, 3)
    await writer.write()
    assert await total(store) == 3
    assert "what 1 requests to n used cannot be stored" in caplog.text
    await writer.write()
    use(writer, 4)
    await writer.write()
    assert await total(store) == 7


async def test_an_end_during_a_write_counts_it_once(store: UnreliableStore, clock: Clock) -> None:
    writer = writer_of(store, clock)
    use(writer)
    store.may_write.clear()
    writing = asyncio.create_task(writer.write())
    closing = asyncio.create_task(writer.aclose())
    await asyncio.sleep(0)
    use(writer)
    store.may_write.set()
    await asyncio.gather(writing, closing)
    assert await total(store) == 2


@pytest.mark.parametrize("is_periodic", [True, False])
async def test_a_write_whose_caller_leaves_counts_once(
    store: UnreliableStore, clock: Clock, is_periodic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_writer, "WRITE_SECONDS", 0.01 if is_periodic else 1000)
    writer = writer_of(store, clock)
    store.may_return.clear()
    use(writer)
    caller = None if is_periodic else asyncio.create_task(writer.write())

    async with asyncio.timeout(LIMIT_SECONDS):
        while await total(store) != 1:  # noqa: ASYNC110 (the store has no event for it)
            await asyncio.sleep(0)
    if caller is not None:
        caller.cancel()
        await asyncio.wait({caller})
    closing = asyncio.create_task(writer.aclose())
    await loop_turns(10)
    store.may_return.set()
    await closing
    assert await total(store) == 1


async def test_a_key_knows_its_own_costs_at_once(store: UnreliableStore, writer: UsageWriter) -> None:
    assert await writer.cost_totals("ann", "key_1") == (0, 0)
    use(writer, 3)
    use(writer, 100, None)
    assert await writer.cost_totals("ann", "key_1") == (3, 3)
    assert await writer.cost_totals("ann", "") == (100, 100)
    assert await writer.cost_totals("ann", None) == (103, 103)
    await writer.write()
    use(writer, 10)
    assert await writer.cost_totals("ann", "key_1") == (13, 13)
    assert await writer.cost_totals("ann", None) == (113, 113)
    assert store.reads == 3


async def test_a_write_during_a_read_is_neither_missed_nor_counted_twice(
    store: UnreliableStore, writer: UsageWriter
) -> None:
    use(writer, 3)
    store.may_read.clear()
    reading = asyncio.create_task(writer.cost_totals("ann", "key_1"))
    await eventually(lambda: store.reads == 1, "the read has begun")
    await writer.write()
    use(writer, 4)
    store.may_read.set()
    assert await reading == (7, 7)
    assert store.reads == 2


async def test_requests_of_a_key_share_one_read(store: UnreliableStore, writer: UsageWriter) -> None:
    costs = await asyncio.gather(*(writer.cost_totals("ann", "key_1") for _ in range(20)))
    assert set(costs) == {(0, 0)}
    assert store.reads == 1


async def test_a_new_day_and_a_new_month_begin_at_midnight(writer: UsageWriter, clock: Clock) -> None:
    use(writer, 3)
    assert await writer.cost_totals("ann", "key_1") == (3, 3)
    clock.now = Clock("2026-02-01T00:00:00").now
    use(writer, 4)
    assert await writer.cost_totals("ann", "key_1") == (4, 4)
    clock.now = Clock("2026-02-02T00:00:00").now
    use(writer, 5)
    assert await writer.cost_totals("ann", "key_1") == (5, 9)


@SHARED
async def test_a_replica_notices_what_others_wrote(url: str, clock: Clock) -> None:
    async with store_at(url) as first_store, store_at(url) as second_store:
        first, second = writer_of(first_store.usage, clock), writer_of(second_store.usage, clock)
        assert await second.cost_totals("ann", "key_1") == (0, 0)
        use(first, 3)
        await first.write()
        use(second, 4)
        assert await second.cost_totals("ann", "key_1") == (4, 4)
        clock.now += REFRESH_SECONDS + 0.1
        assert await second.cost_totals("ann", "key_1") == (7, 7)
        await second.write()
        assert await second.cost_totals("ann", "key_1") == (7, 7)
        clock.now += REFRESH_SECONDS + 0.1
        assert await first.cost_totals("ann", "key_1") == (7, 7)
        await first.aclose()
        await second.aclose()


# --- budgets -----------------------------------------------------------------------------------------------------


def principal(**policy: Any) -> Principal:
    return Principal("ann", "key_1", policy=Policy(**policy))


async def refusal(budgets: Budgets, **policy: Any) -> AccessError:
    with pytest.raises(AccessError) as caught:
        await budgets.check(principal(**policy))
    return caught.value


async def test_a_key_without_a_budget_needs_no_store(store: UnreliableStore, writer: UsageWriter, clock: Clock) -> None:
    await Budgets(writer, "refuse", clock=clock).check(principal())
    assert store.reads == 0


async def test_a_budget_is_used_when_its_cost_is_reached(writer: UsageWriter, clock: Clock) -> None:
    budgets = Budgets(writer, "refuse", clock=clock)
    use(writer, NANOS - 1)
    await budgets.check(principal(cost_per_day=1, cost_per_month=1))
    use(writer, 1)
    await budgets.check(principal(cost_per_day=1.000000001, cost_per_month=2))
    assert (await refusal(budgets, cost_per_day=1)).info.code == "budget_exceeded"


async def test_an_owner_has_a_budget_for_all_keys_together(writer: UsageWriter, clock: Clock) -> None:
    budgets = Budgets(writer, "refuse", {"ann": Budget(cost_per_month=3)}, clock)
    use(writer, NANOS)
    use(writer, NANOS, None)
    await budgets.check(principal())
    use(writer, NANOS, "key_2")
    error = (await refusal(budgets, cost_per_day=2)).info
    assert error.message.startswith(
        "the budget of 'ann' for all keys together, 3 USD a month, is used up; it renews at "
    )
    await budgets.check(Principal("bob", "key_3"))


@pytest.mark.parametrize(
    ("now", "policy", "renewal", "seconds"),
    [
        ("2026-01-31T12:00:00", {"cost_per_day": 1}, "2026-02-01T00:00:00Z", 43_200),
        ("2026-01-01T00:00:00", {"cost_per_month": 1}, "2026-02-01T00:00:00Z", 31 * 86_400),
        ("2026-02-28T23:59:59", {"cost_per_month": 1}, "2026-03-01T00:00:00Z", 1),
        ("2026-12-31T23:00:00", {"cost_per_month": 1}, "2027-01-01T00:00:00Z", 3_600),
        ("2026-12-01T00:00:00", {"cost_per_day": 1, "cost_per_month": 1}, "2027-01-01T00:00:00Z", 31 * 86_400),
    ],
)
async def test_the_error_says_when_the_budget_renews(
    store: UnreliableStore, now: str, policy: dict[str, Any], renewal: str, seconds: float
) -> None:
    clock = Clock(now)
    writer = writer_of(store, clock)
    use(writer, 2 * NANOS)
    budgets = Budgets(writer, "refuse", clock=clock)
    error = (await refusal(budgets, **policy)).info
    assert error.retry_after == seconds
    assert error.message.endswith(f"2 USD are used; it renews at {renewal}")
    hidden = (await refusal(budgets, counts=False, **policy)).info
    assert "are used" not in hidden.message
    await writer.aclose()


async def test_a_store_that_is_down_refuses_or_allows(
    store: UnreliableStore, clock: Clock, writer: UsageWriter
) -> None:
    store.is_down = True
    error = (await refusal(Budgets(writer, "refuse", clock=clock), cost_per_day=1)).info
    assert (error.kind, error.code) == ("unavailable", "limits_unavailable")
    assert error.message.startswith("the budget of this key cannot be checked now")
    error = (await refusal(Budgets(writer, "refuse", {"ann": Budget(cost_per_day=1)}, clock))).info
    assert error.message.startswith("the budget of 'ann' for all keys together cannot be checked now")
    await Budgets(writer, "allow", clock=clock).check(principal(cost_per_day=1))
