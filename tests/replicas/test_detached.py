"""Whatever a relay, a store and other replicas do: a run has one end, and its log says what it said."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ErrorInfo, PellucidError
from pellucid.events import Event, RunEndEvent, SideEvent
from pellucid.fold import fold
from pellucid.relay.memory import MemoryRelay
from pellucid.runs import driving, writing
from pellucid.runs.detached import Detached
from pellucid.runs.keeping import finished, keep_end
from pellucid.runs.lease import name_of
from pellucid.runs.log import Entry, decode_entry, encode_entry, events_of, unpack
from pellucid.runs.replay import LiveLog
from pellucid.storage import Store, StoredResponse, open_store
from tests.examples import costly
from tests.replicas.runs_kit import FaultyStore, MadeUp, batches, faulty_relay, forget_all, row_of

STOPPING = ErrorInfo("unavailable", "stopping", code="stopping")

numbers = itertools.count()


class House:
    """One loop and one store for all examples."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.store: Store = runner.run(open_store("sqlite://"))

    def run(self, coroutine: Any) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(20):
                return await coroutine

        return self.runner.run(bounded())


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setattr(writing, "PAUSE", (0.002, 0.01))
        patch.setattr(driving, "RETRY_SECONDS", 0.002)
        made = House(runner)
        yield made
        runner.run(made.store.aclose())


async def read_all(log: LiveLog) -> list[Event]:
    out: list[Event] = []
    while log.ended is None:
        await log.wait()
        out += log.take() or []
    return out


async def over(store: Store, row: StoredResponse) -> StoredResponse:
    while True:
        found = await store.responses.get(row.owner, row.id, log=True)
        assert found is not None
        if found.finished:
            return found
        await asyncio.sleep(0.002)


def as_kept(events: list[Event]) -> list[Event]:
    return decode_entry(encode_entry(Entry(0, events))).events


@given(
    said=batches(),
    seed=st.integers(0, 2**32),
    faults=st.sampled_from([0.0, 0.1, 0.5]),
    forgets=st.booleans(),
    cancel=st.sampled_from([None, "told", "told twice", "stopped"]),
)
@costly
def test_one_end_and_the_whole_log(
    house: House, said: list[list[Event]], seed: int, faults: float, forgets: bool, cancel: str | None
) -> None:
    dice = random.Random(seed)
    row = row_of(next(numbers))
    healed = False

    def fault(name: str) -> bool:
        return not healed and name != "begin" and dice.random() < faults

    async def main() -> None:
        nonlocal healed
        relay = MemoryRelay()
        home = Detached(
            FaultyStore(house.store, fault),  # type: ignore[arg-type]
            faulty_relay(relay, fault),
            holder="a",
            lease_seconds=0.03,
        )
        run = MadeUp(said, lambda: dice.choice([0, 0, 0, 0.001]))
        while True:
            try:
                await home.start(row, run)
                break
            except PellucidError:
                continue
        whole = [asyncio.create_task(read_all(LiveLog(relay.follow(name_of(row.owner, row.id)))))]
        for _ in range(dice.randrange(6)):
            await asyncio.sleep(dice.choice([0, 0.001]))
            whole.append(asyncio.create_task(read_all(home.follow(row))))
        if forgets:
            forget_all(relay)
        if cancel in ("told", "told twice"):
            for _ in range(2 if cancel == "told twice" else 1):
                await relay.tell(name_of(row.owner, row.id), b"cancel")
                await asyncio.sleep(0)
        elif cancel == "stopped":
            home.hurry(STOPPING)
        await asyncio.sleep(0.01)
        healed = True
        kept = await over(house.store, row)
        await home.aclose(5, STOPPING)
        entries = unpack(kept.log)
        # What was said, and once; the fold refuses a second end.
        assert events_of(entries) == as_kept(run.told)
        end = entries[-1].events[-1]
        assert isinstance(end, RunEndEvent)
        assert (kept.status, fold(events_of(entries)).ended) == (end.status, end)
        if cancel is None:
            assert run.told == [event for batch in said for event in batch]
        for events in await asyncio.gather(*whole):
            folded = fold(events)
            assert folded.ended is not None
            if forgets and folded.ended.error is not None and folded.ended.error.code == "log_lost":
                continue
            assert events == events_of(entries)
        # From every place in it.
        name = name_of(row.owner, row.id)
        if not await relay.exists(name):
            assert forgets  # when all was written
            return
        for after in range(len(entries)):
            follower = relay.follow(name, after)
            read: list[Entry] = []
            while (more := await follower.read()) is not None:
                read += map(decode_entry, more)
            assert read == entries[after:]
        assert await relay.lapsed() == []

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

        house.store.responses.finish = counted  # type: ignore[method-assign]
        cut = Detached(
            FaultyStore(house.store, fault),  # type: ignore[arg-type]
            faulty_relay(relay, fault),
            holder="a",
            lease_seconds=0.02,
        )
        other = Detached(house.store, relay, holder="b", lease_seconds=0.02)
        run = MadeUp(said, lambda: dice.choice([0, 0.005]))
        await cut.start(row, run)
        other.watch()
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
        entries = unpack(kept.log)
        # Who followed read what is kept.
        assert events == events_of(entries)
        end = fold(events).ended
        assert end is not None
        assert kept.status == end.status
        if end.error is not None and end.error.code == "abandoned":
            told = as_kept(run.told)
            before = [event for entry in entries[:-1] for event in entry.events]
            assert told[: len(before)] == before
        else:
            assert events == as_kept([event for batch in said for event in batch])

    house.run(main())


def test_a_log_that_cannot_be_folded_has_an_end_all_the_same(house: House) -> None:
    """A fault of ours in the middle of a run is no reason to let anybody wait for ever."""

    class Wrong(MadeUp):
        def _tell(self, events: list[Event]) -> list[Event]:
            self.ended = events[-1] if isinstance(events[-1], RunEndEvent) else None
            return events

    async def main() -> None:
        relay = MemoryRelay()
        home = Detached(house.store, relay, holder="a", lease_seconds=1)
        row = row_of(next(numbers))
        wrong: list[list[Event]] = [[SideEvent("x", "y")], [RunEndEvent("completed"), RunEndEvent("completed")]]
        await home.start(row, Wrong(wrong))
        kept = await over(house.store, row)
        assert kept.status == "failed"
        await home.aclose(1, STOPPING)

    house.run(main())


def test_what_stops_begins_nothing(house: House) -> None:
    async def main() -> None:
        home = Detached(house.store, MemoryRelay(), holder="a", lease_seconds=1)
        await home.aclose(0, STOPPING)
        row = row_of(next(numbers))
        with pytest.raises(PellucidError, match="stopping"):
            await home.start(row, MadeUp([]))
        assert await house.store.responses.get(row.owner, row.id) is None

    house.run(main())


def test_an_end_that_the_log_takes_late_comes_all_the_same(house: House) -> None:
    """The row is nobody's once its end is kept; the lease goes on until the log has it, too."""
    row = row_of(next(numbers))
    away = False

    def fault(name: str) -> bool:
        return away and name == "append"

    async def main() -> None:
        nonlocal away
        relay = MemoryRelay()
        home = Detached(house.store, faulty_relay(relay, fault), holder="a", lease_seconds=0.03)
        await home.start(row, MadeUp([[SideEvent("x", "y")], [RunEndEvent("completed")]], lambda: 0.02))
        follower = asyncio.create_task(read_all(home.follow(row)))
        away = True
        await over(house.store, row)
        await asyncio.sleep(0.2)  # many renewals
        assert not follower.done()
        away = False
        assert (await follower)[-1] == RunEndEvent("completed")
        await home.aclose(1, STOPPING)
        assert await relay.lapsed() == []

    house.run(main())


def test_a_run_that_was_ended_elsewhere_has_an_end_in_its_log(house: House) -> None:
    """By somebody who could not write there, and by nobody who drives it: who finds the lease lapsed writes it."""
    row = row_of(next(numbers))

    async def main() -> None:
        relay = MemoryRelay()
        home = Detached(house.store, relay, holder="a", lease_seconds=0.03)
        await home.start(row, MadeUp([[SideEvent("x", "y")], [RunEndEvent("completed")]], lambda: 0.3))
        follower = asyncio.create_task(read_all(home.follow(row)))
        ended = Entry(1, [RunEndEvent("failed", error=STOPPING)])
        taken = await house.store.responses.take_over(row.owner, row.id, 2**60)
        assert taken is not None
        assert await keep_end(house.store, finished(taken, [ended]), 2**60)
        home.watch()
        end = (await follower)[-1]
        assert isinstance(end, RunEndEvent)
        assert end.status == "failed"
        await home.aclose(1, STOPPING)

    house.run(main())
