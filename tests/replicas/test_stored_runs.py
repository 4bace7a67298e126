"""Writes of a run's end that fail before or after they take effect: the end is stored once, completely, as delivered.

A failure after the write is a connection that was lost before the reply.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.errors import ErrorInfo
from pellucid.events import Event, RunEndEvent
from pellucid.fold import fold
from pellucid.record import Recording
from pellucid.relay.memory import MemoryRelay
from pellucid.runs import Batch, driver, stored_run
from pellucid.runs.detached_runs import DetachedRuns
from pellucid.runs.run_log import decode_batch, encode_batch, events_of, unpack_log
from pellucid.runs.stored_run import StoreStage
from pellucid.storage import ConversationEntry, Store, StoredConversation, StoredResponse, open_store
from pellucid.storage.errors import StoreUnavailable
from tests.empty_stores import POSTGRESQL
from tests.examples import costly
from tests.replicas.runs_kit import GatedSource, batches, row_of
from tests.scripted_runs import pass_through_stage, run_events
from tests.service_postgres import PostgresServer

STOPPING = ErrorInfo("unavailable", "the gateway is stopping", code="stopping")

numbers = itertools.count()
LATER = 2**60
"""A fence that is larger than that of any relay."""
mishaps = st.lists(st.sampled_from(["before", "after", "after", None]), max_size=4)
"""The faults of the first writes of an end; later writes succeed."""


class FaultyDatabase:
    """A `Database` whose next writes fail as `faults` says."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.faults: list[str | None] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, op: Any, argument: Any) -> Any:
        fault = self.faults.pop(0) if self.faults else None
        if fault == "before":
            raise StoreUnavailable
        done = await self._inner.write(op, argument)
        if fault == "after":
            raise StoreUnavailable
        return done


@pytest.fixture(params=["sqlite", POSTGRESQL], scope="module")
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('kept')}/kept.sqlite"
    database: PostgresServer = request.getfixturevalue("database")
    return str(database.database())


@pytest.fixture(scope="module")
def environment(url: str) -> Iterator[tuple[asyncio.Runner, Store, FaultyDatabase]]:
    with asyncio.Runner() as runner:
        real = runner.run(open_store(url))
        mishaps = FaultyDatabase(real._database)
        yield runner, Store(cast("Any", mishaps), time.time, Recording()), mishaps
        runner.run(real.aclose())


@pytest.fixture(autouse=True)
def _without_retry_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_run, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(driver, "RETRY_SECONDS", 0.001)


async def make_row(store: Store, *, is_attached: bool) -> tuple[StoredResponse, list[str]]:
    """Make a response in a conversation that has part of its input; return it and the ids that the conversation has."""
    number = next(numbers)
    conversation, known, new = f"conv_{number}", f"msg_{number}a", f"msg_{number}b"
    await store.conversations.create(StoredConversation(id=conversation, owner="ann", created_at=1.0))
    await store.conversations.append("ann", conversation, [ConversationEntry(id=known, item=b'"first"')])
    input_items = [{"type": "message", "id": id} for id in (known, new, new)]
    row = replace(
        row_of(number), conversation_id=conversation, input=msgspec.json.encode(input_items), background=not is_attached
    )
    return row, [known]


async def read_stored(store: Store, row: StoredResponse) -> tuple[StoredResponse | None, list[ConversationEntry]]:
    assert row.conversation_id is not None
    entries = await store.conversations.entries(row.owner, row.conversation_id, limit=1000)
    assert entries is not None
    return await store.responses.get(row.owner, row.id, log=True), entries


def roundtrip(events: list[Event]) -> list[Event]:
    return decode_batch(encode_batch(Batch(0, events))).events


def check_stored(stored: StoredResponse, entries: Sequence[ConversationEntry], known: list[str]) -> None:
    """Check that the conversation has all entries once and in order, and that its earlier ones are unchanged."""
    expected = stored_run.build_finished_run(stored, unpack_log(stored.log)).entries
    assert [entry.id for entry in entries] == [*known, *(entry.id for entry in expected if entry.id not in known)]
    assert entries[0].item == b'"first"'
    positions = [entry.position for entry in entries]
    assert positions == sorted(set(positions))


@given(event_batches=batches(), mishaps=mishaps)
@costly
def test_an_attached_run_is_stored_once_and_completely(
    environment: tuple[asyncio.Runner, Store, FaultyDatabase],
    event_batches: list[list[Event]],
    mishaps: list[str | None],
) -> None:
    runner, store, database = environment

    async def main() -> None:
        row, known = await make_row(store, is_attached=True)
        database.faults = list(mishaps)
        delivered_events = events_of(await pass_through_stage(StoreStage(row, store), event_batches))
        database.faults = []
        stored, entries = await read_stored(store, row)
        assert stored is not None
        assert roundtrip(delivered_events) == events_of(unpack_log(stored.log))
        end = delivered_events[-1]
        assert isinstance(end, RunEndEvent)
        assert stored.status == end.status
        check_stored(stored, entries, known)

    runner.run(main())


@given(event_batches=batches(), mishaps=mishaps, taken_over=st.sampled_from([False, False, True]))
@costly
def test_a_driven_run_is_stored_once_and_completely(
    environment: tuple[asyncio.Runner, Store, FaultyDatabase],
    event_batches: list[list[Event]],
    mishaps: list[str | None],
    taken_over: bool,
) -> None:
    """This holds even if a process without the same relay took the run over and ended it."""
    runner, store, database = environment

    async def main() -> None:
        row, known = await make_row(store, is_attached=False)
        detached_runs = DetachedRuns(store, MemoryRelay(), holder="a", lease_seconds=60)
        go = asyncio.Event()
        await detached_runs.start(row, GatedSource(event_batches, go))
        following = detached_runs.follow(row)
        if taken_over:
            other = await store.responses.take_over(row.owner, row.id, LATER)
            assert other is not None
            end = [RunEndEvent("failed", error=stored_run.ABANDONED)]
            done = await stored_run.prepare_final_run(other, [], Batch(9, list[Event](end)))
            assert await stored_run.store_end(store, done, LATER)
        database.faults = list(mishaps)
        go.set()
        delivered_events = await run_events(following)
        database.faults = []
        await detached_runs.aclose(5, STOPPING)
        stored, entries = await read_stored(store, row)
        assert stored is not None
        assert following.ended is not None
        assert stored.status == following.ended.status
        check_stored(stored, entries, known)
        log = events_of(unpack_log(stored.log))
        if taken_over:
            assert delivered_events[-1] == log[-1]
            assert fold(delivered_events).run_end == log[-1]
        else:
            assert roundtrip(delivered_events) == log

    runner.run(main())


def test_response_and_entries_are_stored_together(environment: tuple[asyncio.Runner, Store, FaultyDatabase]) -> None:
    """A write is atomic: it stores the response and its entries of the conversation, or neither."""
    runner, store, database = environment

    async def main() -> None:
        for is_attached, fault in itertools.product([True, False], ["before", "after"]):
            row, known = await make_row(store, is_attached=is_attached)
            if not is_attached:
                await store.responses.begin(row, 1)
            done = stored_run.build_finished_run(row, [Batch(9, [RunEndEvent("completed")])])
            database.faults = [fault]
            with pytest.raises(StoreUnavailable):
                await (
                    store.responses.put(*done)
                    if is_attached
                    else store.responses.finish(done.row, done.item_ids, 1, done.entries)
                )
            stored, entries = await read_stored(store, row)
            if fault == "before":
                assert stored is None or not stored.is_finished
                assert [entry.id for entry in entries] == known
            else:
                assert stored is not None
                assert stored.is_finished
                check_stored(stored, entries, known)

    runner.run(main())
