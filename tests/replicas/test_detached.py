"""Whatever a relay, a store and other replicas do: a run has one end, and its log says what it said."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ErrorInfo, PellucidError
from pellucid.events import Event, RunEndEvent, SideEvent
from pellucid.fold import fold
from pellucid.relay.memory import MemoryRelay
from pellucid.runs import Batch, driver
from pellucid.runs.detached_runs import DetachedRuns
from pellucid.runs.driver import run_name
from pellucid.runs.replay import LiveLog
from pellucid.runs.run_log import decode_batch, encode_batch, events_of, unpack_log
from pellucid.runs.stored_run import build_finished_run, store_end
from pellucid.storage import Store, StoredResponse, open_store
from tests.examples import costly
from tests.pushing import ScriptedSource
from tests.replicas.runs_kit import FaultyStore, Held, batches, faulty_relay, forget_all, row_of
from tests.waiting import eventually

STOPPING = ErrorInfo("unavailable", "stopping", code="stopping")

numbers = itertools.count()


class House:
    """One loop and one store for all examples."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.store: Store = runner.run(open_store("sqlite://"))

    def run(self, coroutine: Any) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(60):
                return await coroutine

        return self.runner.run(bounded())


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setattr(driver, "RETRY_PAUSE_SECONDS", (0.002, 0.01))
        patch.setattr(driver, "RETRY_SECONDS", 0.002)
        made = House(runner)
        yield made
        runner.run(made.store.aclose())


async def read_all(log: LiveLog) -> list[Event]:
    out: list[Event] = []
    await log.deliver(lambda batch: out.extend(batch.events))
    return out


async def over(store: Store, row: StoredResponse) -> StoredResponse:
    while True:
        found = await store.responses.get(row.owner, row.id, log=True)
        assert found is not None
        if found.is_finished:
            return found
        await asyncio.sleep(0.002)


def as_kept(events: list[Event]) -> list[Event]:
    return decode_batch(encode_batch(Batch(0, events))).events


@given(
    said=batches(),
    seed=st.integers(0, 2**32),
    faults=st.sampled_from([0.0, 0.1, 0.5]),
    forgets=st.booleans(),
    cancel=st.sampled_from([None, "told", "told twice", "stopped"]),
    at_once=st.booleans(),
)
@costly
def test_one_end_and_the_whole_log(
    house: House, said: list[list[Event]], seed: int, faults: float, forgets: bool, cancel: str | None, at_once: bool
) -> None:
    """`at_once`: the log is in this process's memory, where a batch is with its readers in the call that writes it."""
    dice = random.Random(seed)
    row = row_of(next(numbers))
    healed = False

    def fault(name: str) -> bool:
        return not healed and name != "begin" and dice.random() < faults

    async def main() -> None:
        nonlocal healed
        relay = MemoryRelay()
        home = DetachedRuns(
            FaultyStore(house.store, fault),  # type: ignore[arg-type]
            relay if at_once else faulty_relay(relay, fault),
            holder="a",
            lease_seconds=0.03,
        )
        run = ScriptedSource(said, lambda: dice.choice([0, 0, 0, 0.001]))
        while True:
            try:
                await home.start(row, run)
                break
            except PellucidError:
                continue
        whole = [asyncio.create_task(read_all(LiveLog(relay.follow(run_name(row.owner, row.id)))))]
        for _ in range(dice.randrange(6)):
            await asyncio.sleep(dice.choice([0, 0.001]))
            whole.append(asyncio.create_task(read_all(home.follow(row))))
        if forgets:
            forget_all(relay)
        if cancel in ("told", "told twice"):
            for _ in range(2 if cancel == "told twice" else 1):
                await relay.publish(run_name(row.owner, row.id), b"cancel")
                await asyncio.sleep(0)
        elif cancel == "stopped":
            home.stop_all(STOPPING)
        await asyncio.sleep(0.01)
        healed = True
        kept = await over(house.store, row)
        await home.aclose(5, STOPPING)
        entries = unpack_log(kept.log)
        # What was said, and once; the fold refuses a second end.
        assert events_of(entries) == as_kept(run.delivered)
        end = entries[-1].events[-1]
        assert isinstance(end, RunEndEvent)
        assert (kept.status, fold(events_of(entries)).run_end) == (end.status, end)
        if cancel is None:
            assert run.delivered == [event for batch in said for event in batch]
        for events in await asyncio.gather(*whole):
            folded = fold(events)
            assert folded.run_end is not None
            if forgets and folded.run_end.error is not None and folded.run_end.error.code == "log_lost":
                continue
            assert as_kept(events) == events_of(entries)
        # From every place in it.
        name = run_name(row.owner, row.id)
        if not await relay.exists(name):
            assert forgets  # when all was written
            return
        for after in range(len(entries)):
            follower = relay.follow(name, after)
            read: list[Batch] = []
            while (more := await follower.read()) is not None:
                read += [decode_batch(one if isinstance(one, bytes) else encode_batch(one)) for one in more]
            assert read == entries[after:]
        assert await relay.lapsed_leases() == []

    house.run(main())


@given(said=batches(), seed=st.integers(0, 2**32))
@costly
def test_of_two_drivers_one_writes_the_end(house: House, said: list[list[Event]], seed: int) -> None:
    """A driver that is cut off from everything for a while, and comes back; another one that looks after it."""
    dice = random.Random(seed)
    row = row_of(next(numbers))
    away = False
    ends: set[bytes] = set()

    def fault(name: str) -> bool:
        return away

    async def main() -> None:
        nonlocal away
        relay = MemoryRelay()
        finish = house.store.responses.finish

        async def counted(response: StoredResponse, *rest: Any) -> bool:
            nonlocal ends
            done = await finish(response, *rest)
            if done and response.id == row.id:
                ends.add(response.log)
            return done

        house.store.responses.finish = counted  # type: ignore[assignment, method-assign]
        cut = DetachedRuns(
            FaultyStore(house.store, fault),  # type: ignore[arg-type]
            faulty_relay(relay, fault),
            holder="a",
            lease_seconds=0.02,
        )
        other = DetachedRuns(house.store, relay, holder="b", lease_seconds=0.02)
        run = ScriptedSource(said, lambda: dice.choice([0, 0.005]))
        await cut.start(row, run)
        other.start_watching()
        follower = asyncio.create_task(read_all(other.follow(row)))
        await asyncio.sleep(dice.random() * 0.03)
        away = True
        await asyncio.sleep(dice.random() * 0.08)
        away = False
        kept = await over(house.store, row)
        events = await follower
        await asyncio.sleep(0.02)
        await cut.aclose(5, STOPPING)
        again = await house.store.responses.get(row.owner, row.id, log=True)
        await other.aclose(0, STOPPING)
        house.store.responses.finish = finish  # type: ignore[method-assign]
        assert again == kept
        assert ends == {kept.log}
        entries = unpack_log(kept.log)
        # Who followed read what is kept.
        assert events == events_of(entries)
        end = fold(events).run_end
        assert end is not None
        assert kept.status == end.status
        if end.error is not None and end.error.code == "abandoned":
            told = as_kept(run.delivered)
            before = [event for entry in entries[:-1] for event in entry.events]
            assert told[: len(before)] == before
        else:
            assert events == as_kept([event for batch in said for event in batch])

    house.run(main())


def test_a_log_that_cannot_be_folded_has_an_end_all_the_same(house: House) -> None:
    """A fault of ours in the middle of a run is no reason to let anybody wait for ever."""

    class Wrong(ScriptedSource):
        def note(self, events: list[Event]) -> None:
            self.ended = events[-1] if isinstance(events[-1], RunEndEvent) else None

    async def main() -> None:
        relay = MemoryRelay()
        home = DetachedRuns(house.store, relay, holder="a", lease_seconds=1)
        row = row_of(next(numbers))
        wrong: list[list[Event]] = [[SideEvent("x", "y")], [RunEndEvent("completed"), RunEndEvent("completed")]]
        await home.start(row, Wrong(wrong))
        kept = await over(house.store, row)
        assert kept.status == "failed"
        await home.aclose(1, STOPPING)

    house.run(main())


def test_what_stops_begins_nothing(house: House) -> None:
    async def main() -> None:
        home = DetachedRuns(house.store, MemoryRelay(), holder="a", lease_seconds=1)
        await home.aclose(0, STOPPING)
        row = row_of(next(numbers))
        with pytest.raises(PellucidError, match="stopping"):
            await home.start(row, ScriptedSource([]))
        assert await house.store.responses.get(row.owner, row.id) is None

    house.run(main())


def test_an_end_that_the_log_takes_late_comes_all_the_same(house: House) -> None:
    """The row is nobody's once its end is kept; the lease goes on until the log has it, too."""
    row = row_of(next(numbers))
    away = False
    calls = Counter[str]()

    def fault(name: str) -> bool:
        calls[name] += 1
        return away and name == "append"

    async def main() -> None:
        nonlocal away
        relay = MemoryRelay()
        home = DetachedRuns(house.store, faulty_relay(relay, fault), holder="a", lease_seconds=0.03)
        await home.start(row, ScriptedSource([[SideEvent("x", "y")], [RunEndEvent("completed")]], lambda: 0.02))
        follower = asyncio.create_task(read_all(home.follow(row)))
        away = True
        await over(house.store, row)
        before = calls.copy()
        await eventually(lambda: calls["renew"] > before["renew"] + 6 and calls["append"] > before["append"] + 6)
        assert not follower.done()
        away = False
        assert (await follower)[-1] == RunEndEvent("completed")
        await home.aclose(1, STOPPING)
        assert await relay.lapsed_leases() == []

    house.run(main())


def test_a_run_that_was_ended_elsewhere_has_an_end_in_its_log(house: House) -> None:
    """By somebody who could not write there, and by nobody who drives it: who finds the lease lapsed writes it."""
    row = row_of(next(numbers))

    async def main() -> None:
        relay = MemoryRelay()
        home = DetachedRuns(house.store, relay, holder="a", lease_seconds=0.03)
        go = asyncio.Event()
        await home.start(row, Held([[SideEvent("x", "y")], [RunEndEvent("completed")]], go))
        follower = asyncio.create_task(read_all(home.follow(row)))
        ended = Batch(1, [RunEndEvent("failed", error=STOPPING)])
        taken = await house.store.responses.take_over(row.owner, row.id, 2**60)
        assert taken is not None
        assert await store_end(house.store, build_finished_run(taken, [ended]), 2**60)
        home.start_watching()
        end = (await follower)[-1]
        assert isinstance(end, RunEndEvent)
        assert end.status == "failed"
        go.set()
        await home.aclose(1, STOPPING)

    house.run(main())


SAID: list[list[Event]] = [[SideEvent("x", "y")], [RunEndEvent("completed")]]


async def die(home: DetachedRuns) -> None:
    """As if its process were killed: nothing of it runs any more, and nothing is written."""
    tasks = [task for _, task in home._drivers.values()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_what_a_dead_process_left_is_ended_by_the_next(house: House) -> None:
    """Also where its relay went with it, as it does in memory."""

    async def main() -> None:
        for shared in (True, False):
            row, relay = row_of(next(numbers)), MemoryRelay()
            before = DetachedRuns(house.store, relay, holder="a", lease_seconds=0.03)
            await before.start(row, Held(SAID, asyncio.Event()))
            await die(before)
            left = await house.store.responses.get(row.owner, row.id)
            assert left is not None
            assert not left.is_finished
            after = DetachedRuns(house.store, relay if shared else MemoryRelay(), holder="b", lease_seconds=0.03)
            after.start_watching()
            kept = await over(house.store, row)
            assert (kept.status, b"abandoned" in (kept.error or b"")) == ("failed", True)
            end = (await read_all(after.follow(row)))[-1]
            assert isinstance(end, RunEndEvent)
            assert end.status == "failed"
            await after.aclose(0, STOPPING)

    house.run(main())


def test_what_another_process_drives_is_left_alone(house: House) -> None:
    """Without a common relay, the row alone says that somebody drives it."""

    async def main() -> None:
        driven, left = row_of(next(numbers)), row_of(next(numbers))
        go, began = asyncio.Event(), time.time()
        one = DetachedRuns(house.store, MemoryRelay(), holder="a", lease_seconds=0.03)
        await one.start(driven, Held(SAID, go))
        while True:  # it says so soon
            row = await house.store.responses.get(driven.owner, driven.id)
            assert row is not None
            if row.updated_at >= began:
                break
            await asyncio.sleep(0.002)
        await house.store.responses.begin(left, 1)  # and this is nobody's
        other = DetachedRuns(house.store, MemoryRelay(), holder="b", lease_seconds=60)
        other.start_watching()
        assert (await over(house.store, left)).status == "failed"
        go.set()
        assert (await over(house.store, driven)).status == "completed"
        for home in (one, other):
            await home.aclose(1, STOPPING)

    house.run(main())


def test_one_that_stood_still_goes_on_with_what_nobody_took(house: House) -> None:
    now = 1000.0

    async def main() -> None:
        nonlocal now
        row, left = row_of(next(numbers)), row_of(next(numbers))
        go, relay = asyncio.Event(), MemoryRelay(lambda: now)
        home = DetachedRuns(house.store, relay, holder="a", lease_seconds=0.03)
        await home.start(row, Held(SAID, go))
        now += 100
        assert await relay.lapsed_leases() == [run_name(row.owner, row.id)]
        await house.store.responses.begin(left, 1)  # it looks after what is nobody's
        home.start_watching()
        assert (await over(house.store, left)).status == "failed"
        go.set()
        assert (await over(house.store, row)).status == "completed"
        await home.aclose(1, STOPPING)

    house.run(main())


def test_what_is_under_way_when_it_stops_finishes_in_its_time_or_is_ended(house: House) -> None:
    async def main() -> None:
        home = DetachedRuns(house.store, MemoryRelay(), holder="a", lease_seconds=60)
        quick, slow = row_of(next(numbers)), row_of(next(numbers))
        go = asyncio.Event()
        await home.start(quick, Held(SAID, go))
        await home.start(slow, Held(SAID, asyncio.Event()))
        closing = asyncio.create_task(home.aclose(0.1, STOPPING))
        go.set()
        await closing
        kept = [await house.store.responses.get(row.owner, row.id) for row in (quick, slow)]
        assert [row and row.status for row in kept] == ["completed", "failed"]
        assert kept[1] is not None
        assert b"stopping" in (kept[1].error or b"")

    house.run(main())
