"""A store that does what it is asked and cannot say so: what is kept is kept once, whole, and what is told is that.

Each write can fail before it is done or after; the second is a connection that was lost before the answer came.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.errors import ErrorInfo
from pellucid.events import Event, RunEndEvent
from pellucid.fold import fold
from pellucid.relay.memory import MemoryRelay
from pellucid.runs import Batch, driver, stored_run
from pellucid.runs.detached_runs import DetachedRuns
from pellucid.runs.run_log import decode_batch, encode_batch, events_of, unpack_log
from pellucid.runs.stored_run import StoreStage
from pellucid.storage import ConversationEntry, Store, StoredConversation, StoredResponse, open_store
from pellucid.storage.errors import StoreUnavailable
from tests.empty_stores import POSTGRESQL
from tests.examples import costly
from tests.pushing import run_events, staged
from tests.replicas.runs_kit import Held, batches, row_of
from tests.service_postgres import PostgresServer

STOPPING = ErrorInfo("unavailable", "the gateway is stopping", code="stopping")

numbers = itertools.count()
LATER = 2**60
"""A fence that no relay has come to yet."""
mishaps = st.lists(st.sampled_from(["before", "after", "after", None]), max_size=4)
"""What happens to the first writes of an end; those that follow are well."""


class Mishaps:
    """A `Database` to whose writes things happen, once it is told which."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.to_come: list[str | None] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, op: Any, argument: Any) -> Any:
        what = self.to_come.pop(0) if self.to_come else None
        if what == "before":
            raise StoreUnavailable
        done = await self._inner.write(op, argument)
        if what == "after":
            raise StoreUnavailable
        return done


@pytest.fixture(params=["sqlite", POSTGRESQL], scope="module")
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('kept')}/kept.sqlite"
    database: PostgresServer = request.getfixturevalue("database")
    return str(database.database())


@pytest.fixture(scope="module")
def house(url: str) -> Iterator[tuple[asyncio.Runner, Store, Mishaps]]:
    with asyncio.Runner() as runner:
        real = runner.run(open_store(url))
        mishaps = Mishaps(real._database)
        yield runner, Store(mishaps), mishaps
        runner.run(real.aclose())


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_run, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(driver, "RETRY_SECONDS", 0.001)


async def talking(store: Store, *, over: bool) -> tuple[StoredResponse, list[str]]:
    """A response in a conversation that has something of what it was given; the ids that this one had."""
    number = next(numbers)
    conversation, known, new = f"conv_{number}", f"msg_{number}a", f"msg_{number}b"
    await store.conversations.create(StoredConversation(id=conversation, owner="ann", created_at=1.0))
    await store.conversations.append("ann", conversation, [ConversationEntry(id=known, item=b'"first"')])
    given = [{"type": "message", "id": id} for id in (known, new, new)]
    row = replace(row_of(number), conversation_id=conversation, input=msgspec.json.encode(given), background=not over)
    return row, [known]


async def there(store: Store, row: StoredResponse) -> tuple[StoredResponse | None, list[ConversationEntry]]:
    assert row.conversation_id is not None
    entries = await store.conversations.entries(row.owner, row.conversation_id, limit=1000)
    assert entries is not None
    return await store.responses.get(row.owner, row.id, log=True), entries


def as_kept(events: list[Event]) -> list[Event]:
    return decode_batch(encode_batch(Batch(0, events))).events


def check_whole(kept: StoredResponse, entries: Sequence[ConversationEntry], known: list[str]) -> None:
    """The conversation has all of it, each once and in its order; what it had before is as it was."""
    want = stored_run.build_finished_run(kept, unpack_log(kept.log)).entries
    assert [entry.id for entry in entries] == [*known, *(entry.id for entry in want if entry.id not in known)]
    assert entries[0].item == b'"first"'
    positions = [entry.position for entry in entries]
    assert positions == sorted(set(positions))


@given(said=batches(), mishaps=mishaps)
@costly
def test_an_attached_run_is_kept_once_and_whole(
    house: tuple[asyncio.Runner, Store, Mishaps], said: list[list[Event]], mishaps: list[str | None]
) -> None:
    runner, store, database = house

    async def main() -> None:
        row, known = await talking(store, over=True)
        database.to_come = list(mishaps)
        told = events_of(await staged(StoreStage(row, store), said))
        database.to_come = []
        kept, entries = await there(store, row)
        assert kept is not None
        assert as_kept(told) == events_of(unpack_log(kept.log))
        end = told[-1]
        assert isinstance(end, RunEndEvent)
        assert kept.status == end.status
        check_whole(kept, entries, known)

    runner.run(main())


@given(said=batches(), mishaps=mishaps, taken=st.sampled_from([False, False, True]))
@costly
def test_a_driven_run_is_kept_once_and_whole(
    house: tuple[asyncio.Runner, Store, Mishaps], said: list[list[Event]], mishaps: list[str | None], taken: bool
) -> None:
    """Also where somebody who does not share its relay took it over, and ended it."""
    runner, store, database = house

    async def main() -> None:
        row, known = await talking(store, over=False)
        home = DetachedRuns(store, MemoryRelay(), holder="a", lease_seconds=60)
        go = asyncio.Event()
        await home.start(row, Held(said, go))
        following = home.follow(row)
        if taken:
            other = await store.responses.take_over(row.owner, row.id, LATER)
            assert other is not None
            end = [RunEndEvent("failed", error=stored_run.ABANDONED)]
            done = await stored_run.prepare_final_run(other, [], Batch(9, list[Event](end)))
            assert await stored_run.store_end(store, done, LATER)
        database.to_come = list(mishaps)
        go.set()
        told = await run_events(following)
        database.to_come = []
        await home.aclose(5, STOPPING)
        kept, entries = await there(store, row)
        assert kept is not None
        assert following.ended is not None
        assert kept.status == following.ended.status
        check_whole(kept, entries, known)
        log = events_of(unpack_log(kept.log))
        if taken:
            assert told[-1] == log[-1]
            assert fold(told).run_end == log[-1]
        else:
            assert as_kept(told) == log

    runner.run(main())


def test_nothing_of_it_is_there_before_all_is(house: tuple[asyncio.Runner, Store, Mishaps]) -> None:
    """Whoever dies in the middle of keeping leaves the response and its share of the conversation, or neither."""
    runner, store, database = house

    async def main() -> None:
        for over, what in itertools.product([True, False], ["before", "after"]):
            row, known = await talking(store, over=over)
            if not over:
                await store.responses.begin(row, 1)
            done = stored_run.build_finished_run(row, [Batch(9, [RunEndEvent("completed")])])
            database.to_come = [what]
            with pytest.raises(StoreUnavailable):
                await (
                    store.responses.put(*done)
                    if over
                    else store.responses.finish(done.row, done.item_ids, 1, done.entries)
                )
            kept, entries = await there(store, row)
            if what == "before":
                assert kept is None or not kept.is_finished
                assert [entry.id for entry in entries] == known
            else:
                assert kept is not None
                assert kept.is_finished
                check_whole(kept, entries, known)

    runner.run(main())
