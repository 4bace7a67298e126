"""Whatever faults a relay, a store and other replicas have, a run has one end and a log of all its events."""

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
from tests.replicas.runs_kit import FaultyStore, GatedSource, batches, faulty_relay, forget_all, row_of
from tests.scripted_runs import ScriptedSource
from tests.waiting import eventually

STOPPING = ErrorInfo("unavailable", "stopping", code="stopping")

numbers = itertools.count()


class Environment:
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
def environment() -> Iterator[Environment]:
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setattr(driver, "RETRY_PAUSE_SECONDS", (0.002, 0.01))
        patch.setattr(driver, "RETRY_SECONDS", 0.002)
        created = Environment(runner)
        yield created
        runner.run(created.store.aclose())


async def read_all(log: LiveLog) -> list[Event]:
    out: list[Event] = []
    await log.deliver(lambda batch: out.extend(batch.events))
    return out


async def wait_until_over(store: Store, row: StoredResponse) -> StoredResponse:
    while True:
        row_now = await store.responses.get(row.owner, row.id, log=True)
        assert row_now is not None
        if row_now.is_finished:
            return row_now
        await asyncio.sleep(0.002)


def roundtrip(events: list[Event]) -> list[Event]:
    return decode_batch(encode_batch(Batch(0, events))).events


@given(
    event_batches=batches(),
    seed=st.integers(0, 2**32),
    faults=st.sampled_from([0.0, 0.1, 0.5]),
    forgets=st.booleans(),
    cancel=st.sampled_from([None, "signal", "two signals", "stop"]),
    at_once=st.booleans(),
)
@costly
def test_a_run_has_one_end_and_a_complete_log(
    environment: Environment,
    event_batches: list[list[Event]],
    seed: int,
    faults: float,
    forgets: bool,
    cancel: str | None,
    at_once: bool,
) -> None:
    """With `at_once`, the log is in the memory of this process: followers get a batch in the call that writes it."""
    dice = random.Random(seed)
    row = row_of(next(numbers))
    healed = False

    def fault(name: str) -> bool:
        return not healed and name != "begin" and dice.random() < faults

    async def main() -> None:
        nonlocal healed
        relay = MemoryRelay()
        detached_runs = DetachedRuns(
            FaultyStore(environment.store, fault),  # type: ignore[arg-type]
            relay if at_once else faulty_relay(relay, fault),
            holder="a",
            lease_seconds=0.03,
        )
        run = ScriptedSource(event_batches, lambda: dice.choice([0, 0, 0, 0.001]))
        while True:
            try:
                await detached_runs.start(row, run)
                break
            except PellucidError:
                continue
        follower_tasks = [asyncio.create_task(read_all(LiveLog(relay.follow(run_name(row.owner, row.id)))))]
        for _ in range(dice.randrange(6)):
            await asyncio.sleep(dice.choice([0, 0.001]))
            follower_tasks.append(asyncio.create_task(read_all(detached_runs.follow(row))))
        if forgets:
            forget_all(relay)
        if cancel in ("signal", "two signals"):
            for _ in range(2 if cancel == "two signals" else 1):
                await relay.publish(run_name(row.owner, row.id), b"cancel")
                await asyncio.sleep(0)
        elif cancel == "stop":
            detached_runs.stop_all(STOPPING)
        await asyncio.sleep(0.01)
        healed = True
        stored_row = await wait_until_over(environment.store, row)
        await detached_runs.aclose(5, STOPPING)
        entries = unpack_log(stored_row.log)
        # Each delivered event is in the log once; the fold refuses a second end.
        assert events_of(entries) == roundtrip(run.delivered)
        end = entries[-1].events[-1]
        assert isinstance(end, RunEndEvent)
        assert (stored_row.status, fold(events_of(entries)).run_end) == (end.status, end)
        if cancel is None:
            assert run.delivered == [event for batch in event_batches for event in batch]
        for events in await asyncio.gather(*follower_tasks):
            folded = fold(events)
            assert folded.run_end is not None
            if forgets and folded.run_end.error is not None and folded.run_end.error.code == "log_lost":
                continue
            assert roundtrip(events) == events_of(entries)
        # Read the log from every entry.
        name = run_name(row.owner, row.id)
        if not await relay.length(name):
            assert forgets  # after everything was written
            return
        for after in range(len(entries)):
            follower = relay.follow(name, after)
            read: list[Batch] = []
            while (more := await follower.read()) is not None:
                read += [decode_batch(one if isinstance(one, bytes) else encode_batch(one)) for one in more]
            assert read == entries[after:]
        assert await relay.lapsed_leases() == []

    environment.run(main())


@given(event_batches=batches(), seed=st.integers(0, 2**32))
@costly
def test_one_of_two_drivers_writes_the_end(
    environment: Environment, event_batches: list[list[Event]], seed: int
) -> None:
    """One driver is isolated for a while and comes back; another one takes over abandoned runs."""
    dice = random.Random(seed)
    row = row_of(next(numbers))
    away = False
    ends: set[bytes] = set()

    def fault(name: str) -> bool:
        return away

    async def main() -> None:
        nonlocal away
        relay = MemoryRelay()
        finish = environment.store.responses.finish

        async def count_ends(response: StoredResponse, *rest: Any) -> bool:
            nonlocal ends
            done = await finish(response, *rest)
            if done and response.id == row.id:
                ends.add(response.log)
            return done

        environment.store.responses.finish = count_ends  # type: ignore[assignment, method-assign]
        isolated = DetachedRuns(
            FaultyStore(environment.store, fault),  # type: ignore[arg-type]
            faulty_relay(relay, fault),
            holder="a",
            lease_seconds=0.02,
        )
        other = DetachedRuns(environment.store, relay, holder="b", lease_seconds=0.02)
        run = ScriptedSource(event_batches, lambda: dice.choice([0, 0.005]))
        await isolated.start(row, run)
        other.start_watching()
        follower = asyncio.create_task(read_all(other.follow(row)))
        await asyncio.sleep(dice.random() * 0.03)
        away = True
        await asyncio.sleep(dice.random() * 0.08)
        away = False
        stored_row = await wait_until_over(environment.store, row)
        events = await follower
        await asyncio.sleep(0.02)
        await isolated.aclose(5, STOPPING)
        again = await environment.store.responses.get(row.owner, row.id, log=True)
        await other.aclose(0, STOPPING)
        environment.store.responses.finish = finish  # type: ignore[method-assign]
        assert again == stored_row
        assert ends == {stored_row.log}
        entries = unpack_log(stored_row.log)
        # The follower received what is stored.
        assert events == events_of(entries)
        end = fold(events).run_end
        assert end is not None
        assert stored_row.status == end.status
        if end.error is not None and end.error.code == "abandoned":
            delivered_events = roundtrip(run.delivered)
            before = [event for entry in entries[:-1] for event in entry.events]
            assert delivered_events[: len(before)] == before
        else:
            assert events == roundtrip([event for batch in event_batches for event in batch])

    environment.run(main())


def test_a_log_that_cannot_be_folded_still_gets_an_end(environment: Environment) -> None:
    """A bug in the middle of a run must not make followers wait for ever."""

    class WrongEnd(ScriptedSource):
        def note(self, events: list[Event]) -> None:
            self.ended = events[-1] if isinstance(events[-1], RunEndEvent) else None

    async def main() -> None:
        relay = MemoryRelay()
        detached_runs = DetachedRuns(environment.store, relay, holder="a", lease_seconds=1)
        row = row_of(next(numbers))
        wrong_batches: list[list[Event]] = [[SideEvent("x", "y")], [RunEndEvent("completed"), RunEndEvent("completed")]]
        await detached_runs.start(row, WrongEnd(wrong_batches))
        stored_row = await wait_until_over(environment.store, row)
        assert stored_row.status == "failed"
        await detached_runs.aclose(1, STOPPING)

    environment.run(main())


def test_no_run_starts_after_closing(environment: Environment) -> None:
    async def main() -> None:
        detached_runs = DetachedRuns(environment.store, MemoryRelay(), holder="a", lease_seconds=1)
        await detached_runs.aclose(0, STOPPING)
        row = row_of(next(numbers))
        with pytest.raises(PellucidError, match="stopping"):
            await detached_runs.start(row, ScriptedSource([]))
        assert await environment.store.responses.get(row.owner, row.id) is None

    environment.run(main())


def test_an_end_is_retried_until_the_log_takes_it(environment: Environment) -> None:
    """After the end is stored, the lease is still renewed until the log has the end, too."""
    row = row_of(next(numbers))
    away = False
    calls = Counter[str]()

    def fault(name: str) -> bool:
        calls[name] += 1
        return away and name == "append"

    async def main() -> None:
        nonlocal away
        relay = MemoryRelay()
        detached_runs = DetachedRuns(environment.store, faulty_relay(relay, fault), holder="a", lease_seconds=0.03)
        await detached_runs.start(
            row, ScriptedSource([[SideEvent("x", "y")], [RunEndEvent("completed")]], lambda: 0.02)
        )
        follower = asyncio.create_task(read_all(detached_runs.follow(row)))
        away = True
        await wait_until_over(environment.store, row)
        before = calls.copy()
        await eventually(lambda: calls["renew"] > before["renew"] + 6 and calls["append"] > before["append"] + 6)
        assert not follower.done()
        away = False
        assert (await follower)[-1] == RunEndEvent("completed")
        await detached_runs.aclose(1, STOPPING)
        assert await relay.lapsed_leases() == []

    environment.run(main())


def test_a_run_that_was_ended_elsewhere_gets_an_end_in_its_log(environment: Environment) -> None:
    """Another process ended the row but could not write to the log; the watcher that finds the lapsed lease does."""
    row = row_of(next(numbers))

    async def main() -> None:
        relay = MemoryRelay()
        detached_runs = DetachedRuns(environment.store, relay, holder="a", lease_seconds=0.03)
        go = asyncio.Event()
        await detached_runs.start(row, GatedSource([[SideEvent("x", "y")], [RunEndEvent("completed")]], go))
        follower = asyncio.create_task(read_all(detached_runs.follow(row)))
        ended = Batch(1, [RunEndEvent("failed", error=STOPPING)])
        taken = await environment.store.responses.take_over(row.owner, row.id, 2**60)
        assert taken is not None
        assert await store_end(environment.store, build_finished_run(taken, [ended]), 2**60)
        detached_runs.start_watching()
        end = (await follower)[-1]
        assert isinstance(end, RunEndEvent)
        assert end.status == "failed"
        go.set()
        await detached_runs.aclose(1, STOPPING)

    environment.run(main())


EVENT_BATCHES: list[list[Event]] = [[SideEvent("x", "y")], [RunEndEvent("completed")]]


async def kill(detached_runs: DetachedRuns) -> None:
    """Cancel all drivers without writing anything, as if the process were killed."""
    tasks = [task for _, task in detached_runs._drivers.values()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_run_of_a_dead_process_is_ended_by_the_next(environment: Environment) -> None:
    """This holds even if the relay was lost with the process, as an in-memory relay is.

    A process that is the only driver does not wait until a lease has lapsed.
    """

    async def main() -> None:
        for shared, lease_seconds in ((True, 0.03), (False, 0.03), (False, 3600)):
            row, relay = row_of(next(numbers)), MemoryRelay()
            before = DetachedRuns(environment.store, relay, holder="a", lease_seconds=0.03)
            await before.start(row, GatedSource(EVENT_BATCHES, asyncio.Event()))
            await kill(before)
            abandoned_row = await environment.store.responses.get(row.owner, row.id)
            assert abandoned_row is not None
            assert not abandoned_row.is_finished
            after = DetachedRuns(
                environment.store,
                relay if shared else MemoryRelay(),
                holder="b",
                lease_seconds=lease_seconds,
                is_only_driver=lease_seconds == 3600,
            )
            own_row, gate = row_of(next(numbers)), asyncio.Event()
            await after.start(own_row, GatedSource(EVENT_BATCHES, gate))
            after.start_watching()
            stored_row = await wait_until_over(environment.store, row)
            assert (stored_row.status, b"abandoned" in (stored_row.error or b"")) == ("failed", True)
            end = (await read_all(after.follow(row)))[-1]
            assert isinstance(end, RunEndEvent)
            assert end.status == "failed"
            gate.set()
            assert (await wait_until_over(environment.store, own_row)).status == "completed"
            await after.aclose(0, STOPPING)

    environment.run(main())


def test_a_run_that_another_process_drives_is_left_alone(environment: Environment) -> None:
    """Without a common relay, only the row shows that a process drives the run."""

    async def main() -> None:
        driven, abandoned_row = row_of(next(numbers)), row_of(next(numbers))
        go, began = asyncio.Event(), time.time()
        one = DetachedRuns(environment.store, MemoryRelay(), holder="a", lease_seconds=0.03)
        await one.start(driven, GatedSource(EVENT_BATCHES, go))
        while True:  # the driver updates the row soon
            row = await environment.store.responses.get(driven.owner, driven.id)
            assert row is not None
            if row.updated_at >= began:
                break
            await asyncio.sleep(0.002)
        await environment.store.responses.begin(abandoned_row, 1)  # no process drives this one
        other = DetachedRuns(environment.store, MemoryRelay(), holder="b", lease_seconds=60)
        other.start_watching()
        assert (await wait_until_over(environment.store, abandoned_row)).status == "failed"
        go.set()
        assert (await wait_until_over(environment.store, driven)).status == "completed"
        for detached_runs in (one, other):
            await detached_runs.aclose(1, STOPPING)

    environment.run(main())


def test_a_stalled_process_continues_runs_that_were_not_taken_over(environment: Environment) -> None:
    now = 1000.0

    async def main() -> None:
        nonlocal now
        row, abandoned_row = row_of(next(numbers)), row_of(next(numbers))
        go, relay = asyncio.Event(), MemoryRelay(lambda: now)
        detached_runs = DetachedRuns(environment.store, relay, holder="a", lease_seconds=0.03)
        await detached_runs.start(row, GatedSource(EVENT_BATCHES, go))
        now += 100
        assert await relay.lapsed_leases() == [run_name(row.owner, row.id)]
        await environment.store.responses.begin(abandoned_row, 1)  # no process drives this one, so the watcher ends it
        detached_runs.start_watching()
        assert (await wait_until_over(environment.store, abandoned_row)).status == "failed"
        go.set()
        assert (await wait_until_over(environment.store, row)).status == "completed"
        await detached_runs.aclose(1, STOPPING)

    environment.run(main())


def test_runs_finish_within_the_time_to_close_or_are_ended(environment: Environment) -> None:
    async def main() -> None:
        detached_runs = DetachedRuns(environment.store, MemoryRelay(), holder="a", lease_seconds=60)
        quick, slow = row_of(next(numbers)), row_of(next(numbers))
        go = asyncio.Event()
        await detached_runs.start(quick, GatedSource(EVENT_BATCHES, go))
        await detached_runs.start(slow, GatedSource(EVENT_BATCHES, asyncio.Event()))
        closing = asyncio.create_task(detached_runs.aclose(0.1, STOPPING))
        go.set()
        await closing
        stored_rows = [await environment.store.responses.get(row.owner, row.id) for row in (quick, slow)]
        assert [row and row.status for row in stored_rows] == ["completed", "failed"]
        assert stored_rows[1] is not None
        assert b"stopping" in (stored_rows[1].error or b"")

    environment.run(main())
