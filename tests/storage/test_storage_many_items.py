"""A response with very many items is written in portions, between which other writes go. None of it is visible before
all of it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from pellucid.storage import Store, StoredResponse
from pellucid.storage.errors import StoreUnavailable
from pellucid.storage.responses import ITEMS_PER_WRITE
from pellucid.storage.statement import Execute, Operation, Statement, raw_sql
from tests.storage.storage_kit import response

pytestmark = pytest.mark.anyio

ITEMS = [f"msg_{number:06}" for number in range(4 * ITEMS_PER_WRITE + 1)]
PORTIONS = 5
_COUNT = Statement(raw_sql("SELECT COUNT(*) FROM response_items"))


def _count(_: None) -> Operation[int]:
    rows = yield Execute(_COUNT, {})
    return int(rows[0][0])


async def item_count(store: Store) -> int:
    return await store._database.read(_count, None)


Write = Callable[[Store, StoredResponse], Awaitable[Any]]


async def put(store: Store, row: StoredResponse) -> None:
    await store.responses.put(row, ITEMS)


async def finish(store: Store, row: StoredResponse) -> None:
    assert await store.responses.finish(row, ITEMS, 1)


@pytest.fixture(params=[put, finish], ids=["put", "finish"])
async def write(request: pytest.FixtureRequest, store: Store) -> Write:
    """Write a response: a new one, or one that was begun."""
    if request.param is finish:
        await store.responses.begin(response(status="in_progress", background=True), 1)
    write: Write = request.param
    return write


def finished(write: Write) -> StoredResponse:
    return response(background=write is finish)


class Interrupted:
    """A database whose writes are counted, and of which one fails or waits."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes = 0
        self.fails_at = 0
        self.waits_at = 0
        self.is_waiting = asyncio.Event()
        self._write = store._database.write
        monkeypatch.setattr(store._database, "write", self)

    async def __call__(self, op: Any, argument: Any) -> Any:
        self.writes += 1
        if self.writes == self.waits_at:
            self.is_waiting.set()
            await asyncio.Event().wait()
        if self.writes == self.fails_at:
            raise StoreUnavailable(cause="a test")
        return await self._write(op, argument)


async def test_items_are_written_in_portions(store: Store, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Interrupted(store, monkeypatch)
    await write(store, finished(write))
    assert database.writes == PORTIONS + 1
    assert await item_count(store) == len(ITEMS)
    for item in (ITEMS[0], ITEMS[-1]):
        assert await store.responses.find_item("ann", item) == "resp_1"


async def test_other_writes_go_between_the_portions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    write = store._database.write

    async def recorded(op: Any, argument: Any) -> Any:
        result = await write(op, argument)
        order.append("other" if getattr(getattr(argument, "response", None), "id", "") == "resp_2" else "many")
        return result

    monkeypatch.setattr(store._database, "write", recorded)
    await asyncio.gather(put(store, response()), store.responses.put(response("resp_2"), ["one"]))
    assert order.index("other") < len(order) - 1


@pytest.mark.parametrize("write_number", range(1, PORTIONS + 2))
async def test_nothing_remains_of_a_write_that_was_cancelled(
    store: Store, write: Write, write_number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Interrupted(store, monkeypatch)
    database.waits_at = write_number
    writing = asyncio.ensure_future(write(store, finished(write)))
    await database.is_waiting.wait()
    for item in (ITEMS[0], ITEMS[-1]):
        assert await store.responses.find_item("ann", item) is None
    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing
    await assert_nothing_is_stored(store)


@pytest.mark.parametrize("write_number", range(1, PORTIONS + 2))
async def test_nothing_remains_of_a_write_that_failed(
    store: Store, write: Write, write_number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Interrupted(store, monkeypatch)
    database.fails_at = write_number
    with pytest.raises(StoreUnavailable):
        await write(store, finished(write))
    await assert_nothing_is_stored(store)
    await write(store, finished(write))
    assert await store.responses.find_item("ann", ITEMS[-1]) == "resp_1"


async def assert_nothing_is_stored(store: Store) -> None:
    await store.responses.put(response("resp_2"), [])  # after the writes that wait
    assert await item_count(store) == 0
    stored = await store.responses.get("ann", "resp_1")
    assert stored is None or not stored.is_finished


async def test_a_failure_after_the_response_was_written_deletes_nothing(
    store: Store, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that does not know the result may repeat the write."""
    database = store._database.write

    async def loses_the_result(op: Any, argument: Any) -> Any:
        result = await database(op, argument)
        if isinstance(argument, tuple):
            raise StoreUnavailable(cause="a test")
        return result

    with monkeypatch.context() as patch:
        patch.setattr(store._database, "write", loses_the_result)
        with pytest.raises(StoreUnavailable):
            await write(store, finished(write))
    await write(store, finished(write))
    assert await item_count(store) == len(ITEMS)
    assert await store.responses.find_item("ann", ITEMS[0]) == "resp_1"


async def test_the_response_is_deleted_with_its_items(store: Store, write: Write) -> None:
    await write(store, finished(write))
    await store.responses.put(response("resp_2"), ["other"])
    assert await store.responses.delete("ann", "resp_1")
    assert await item_count(store) == 1


async def test_items_of_another_owner_stay(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.responses.put(response(owner="bob"), ITEMS)
    database = Interrupted(store, monkeypatch)
    database.fails_at = PORTIONS + 1
    with pytest.raises(StoreUnavailable):
        await put(store, response())
    await store.responses.put(response("resp_2"), [])
    assert await item_count(store) == len(ITEMS)


async def test_an_ordinary_response_is_one_write(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Interrupted(store, monkeypatch)
    await store.responses.put(response(), ITEMS[:ITEMS_PER_WRITE])
    assert database.writes == 1
