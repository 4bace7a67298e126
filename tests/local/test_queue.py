"""The queue for the engine: order, positions, and cancelled requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from pellucid.local.model_index import QueueFull
from pellucid.local.supervisor import EngineQueue
from tests.waiting import LIMIT_SECONDS, loop_turns

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def slot(queue: EngineQueue, on_position: Callable[[int], None] | None = None) -> AsyncIterator[None]:
    """Hold a slot, after waiting for it if necessary."""
    await queue.acquire(on_position)
    try:
        yield
    finally:
        queue.release()


async def test_positions_are_reported_and_requests_run_in_order() -> None:
    queue = EngineQueue()
    positions: dict[str, list[int]] = {name: [] for name in "abc"}
    order: list[str] = []
    gates = {name: asyncio.Event() for name in "abc"}

    async def request(name: str) -> None:
        async with slot(queue, positions[name].append):
            order.append(name)
            await gates[name].wait()

    tasks = []
    for name in "abc":
        tasks.append(asyncio.create_task(request(name)))
        await loop_turns(1)
    assert (queue.running, queue.waiting) == (1, 2)
    for name in "abc":
        gates[name].set()
        await loop_turns()
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c"]
    assert positions == {"a": [], "b": [1, 0], "c": [2, 1, 0]}
    assert (queue.running, queue.waiting) == (0, 0)


async def test_a_cancelled_request_leaves_the_queue() -> None:
    queue = EngineQueue()
    positions: list[int] = []
    async with slot(queue):

        async def wait(on_position: Callable[[int], None] | None = None) -> None:
            async with slot(queue, on_position):
                pass

        first, second = asyncio.create_task(wait()), asyncio.create_task(wait(positions.append))
        await loop_turns()
        first.cancel()
        await loop_turns()
        assert positions == [2, 1]
        assert queue.waiting == 1
    await second
    assert (queue.running, queue.waiting) == (0, 0)


async def test_a_slot_granted_to_a_request_that_is_cancelled_is_passed_on() -> None:
    queue = EngineQueue()
    holder = slot(queue)
    await holder.__aenter__()

    async def wait() -> None:
        async with slot(queue):
            pass

    first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
    await loop_turns()
    await holder.__aexit__(None, None, None)  # the first request's slot is granted …
    first.cancel()  # … and it is cancelled at the same moment
    await asyncio.wait_for(second, LIMIT_SECONDS)
    assert (queue.running, queue.waiting) == (0, 0)


async def test_a_request_cancelled_before_its_grant_does_not_keep_a_slot() -> None:
    queue = EngineQueue()
    holder = slot(queue)
    await holder.__aenter__()

    async def wait() -> None:
        async with slot(queue):
            pass

    waits = asyncio.create_task(wait())
    await loop_turns()
    waits.cancel()  # is cancelled, and before it has left …
    await holder.__aexit__(None, None, None)  # … the slot becomes free
    await asyncio.wait([waits])
    assert (queue.running, queue.waiting) == (0, 0)


async def test_a_full_queue_rejects_at_once() -> None:
    queue = EngineQueue(max_waiting=0)
    async with slot(queue):
        with pytest.raises(QueueFull, match="busy") as caught:
            async with slot(queue):
                pass
        assert caught.value.info.kind == "too_many_requests"
    async with slot(queue):
        pass


async def test_several_slots_run_at_once() -> None:
    queue = EngineQueue(slots=2)
    async with slot(queue), slot(queue):
        assert (queue.running, queue.waiting) == (2, 0)
