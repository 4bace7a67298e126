"""Edge cases of a detached run: stages that raise while it is closed, leases that are lost or released."""

from __future__ import annotations

import asyncio
import inspect
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pellucid.agent import AgentRun
from pellucid.errors import ErrorInfo, ModelError
from pellucid.events import (
    Event,
    ItemEndEvent,
    ItemStartEvent,
    ModelEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseEndEvent,
    ResponseStartEvent,
    RunEndEvent,
    SideEvent,
)
from pellucid.models import ModelEventReceiver, ModelStream, TextReceiver
from pellucid.parts import Origin, TextPart, TextPartDelta
from pellucid.relay import MemoryRelay
from pellucid.run import Minter
from pellucid.runs import Batch, LiveRun, Stage
from pellucid.runs.driver import Driver, Lease, LogWriter
from pellucid.runs.replay import FinishedLog, LiveLog
from pellucid.runs.run_log import unpack_log
from pellucid.settings import ModelCall
from pellucid.storage import Store, StoredResponse, open_store
from tests.replicas.runs_kit import row_of
from tests.waiting import LIMIT_SECONDS, eventually, loop_turns

pytestmark = pytest.mark.anyio

ORIGIN = Origin("p", "a", "m")


class MidAnswer:
    """A model that stops sending in the middle of its answer."""

    name, origin, queued, request_id = "m", ORIGIN, False, None

    async def open(self, call: ModelCall) -> ModelStream:
        return self

    def warnings(self, call: ModelCall) -> list[str]:
        return []

    def start(self, receive: ModelEventReceiver, texts: TextReceiver | None = None) -> None:
        begin: list[ModelEvent] = [ResponseStartEvent(ORIGIN), ItemStartEvent(0, "message")]
        receive([*begin, PartStartEvent(0, TextPart("")), PartDeltaEvent(0, TextPartDelta("hi"))])

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        return [PartEndEvent(0, TextPart("hi", complete=False)), ItemEndEvent(0, "incomplete"), ResponseEndEvent()]


class RaisingAtPartEnd(Stage):
    def process(self, batch: Batch) -> Batch:
        if any(isinstance(event, PartEndEvent) for event in batch.events):
            raise ValueError("a fault of a stage")
        return batch


async def start_driver(store: Store, relay: MemoryRelay, run: Any) -> tuple[Driver, StoredResponse]:
    row = row_of(0)
    driver = Driver(store, relay, "holder", 15, row, run)
    assert await driver.lease.claim()
    await store.responses.begin(row, driver.lease.fence)
    return driver, row


async def test_the_end_is_stored_if_a_stage_raises_while_the_run_is_closed() -> None:
    store, relay = await open_store("sqlite://"), MemoryRelay()
    run = LiveRun(MidAnswer(), ModelCall("m", []), Minter(b"s"), stages=[RaisingAtPartEnd()])
    driver, row = await start_driver(store, relay, run)
    driving = asyncio.create_task(driver.drive())
    follower = relay.follow(driver.lease.name)
    await follower.wait()
    driver.stop(None)
    await asyncio.wait_for(driving, LIMIT_SECONDS)
    stored = await store.responses.get(row.owner, row.id, log=True)
    assert stored is not None
    assert stored.status == "failed"
    events = [event for batch in unpack_log(stored.log) for event in batch.events]
    assert PartDeltaEvent(0, TextPartDelta("hi")) in events
    assert await relay.claim(driver.lease.name, "another", 1) is not None
    log = LiveLog(relay.follow(driver.lease.name))
    seen: list[Event] = []
    await log.deliver(lambda batch: seen.extend(batch.events))
    assert seen == events
    await store.aclose()


async def test_the_end_is_stored_if_a_refused_run_is_stopped_while_it_stops() -> None:
    class Refused:
        queued = broken_off = False
        ended = None

        async def open(self) -> None:
            raise ModelError(ErrorInfo("model_error", "refused"))

        async def stop(self, error: ErrorInfo | None = None) -> None:
            await loop_turns(10)

    store, relay = await open_store("sqlite://"), MemoryRelay()
    driver, row = await start_driver(store, relay, Refused())
    driving = asyncio.create_task(driver.drive())
    await loop_turns(3)
    driver.stop(None)
    await asyncio.wait_for(driving, LIMIT_SECONDS)
    stored = await store.responses.get(row.owner, row.id)
    assert stored is not None
    assert stored.status == "failed"
    await store.aclose()


def lease_of(relay: MemoryRelay, seconds: float = 15) -> Lease:
    return Lease(cast("Any", SimpleNamespace()), relay, "owner", "id", "holder", seconds, lambda: None)


async def test_the_end_of_a_log_of_another_holder_is_not_awaited() -> None:
    relay = MemoryRelay()
    lease = lease_of(relay)
    await lease.claim()
    writer = LogWriter(relay, lease)
    writer.add(Batch(1, [SideEvent("a", "b")]))
    lease.is_lost = True
    ending = asyncio.create_task(writer.finish(Batch(2, [RunEndEvent("completed")])))
    await loop_turns()
    assert ending.done()
    assert ending.result() is False


async def test_a_released_lease_is_not_claimed_by_a_pending_renewal() -> None:
    renewing, go_on = asyncio.Event(), asyncio.Event()

    class Slow(MemoryRelay):
        async def renew(self, name: str, token: int, seconds: float) -> bool:
            renewing.set()
            await go_on.wait()
            return await super().renew(name, token, seconds)

    relay = Slow()
    lease = lease_of(relay, 0.003)
    await lease.claim()
    lease.is_end_stored = True
    lease.start_renewing()
    await renewing.wait()
    await lease.release()
    go_on.set()
    await loop_turns()
    assert await relay.claim(lease.name, "another", 15) is not None
    await loop_turns()
    assert await relay.claim(lease.name, "a third", 15) is None


async def test_a_failed_renewal_is_tried_again() -> None:
    tries = 0

    class Faulty(MemoryRelay):
        async def renew(self, name: str, token: int, seconds: float) -> bool:
            nonlocal tries
            tries += 1
            raise RuntimeError("a fault")

    lease = lease_of(Faulty(), 0.003)
    await lease.claim()
    lease.start_renewing()
    await eventually(lambda: tries > 2)
    lease.stop_renewing()


@pytest.mark.parametrize("source", [LiveRun, LiveLog, FinishedLog, AgentRun])
def test_every_source_has_the_members_of_run_source(source: type) -> None:
    """Endpoints do not distinguish sources. (Attributes of `self` are searched for in the source code.)"""
    text = "".join(inspect.getsource(base) for base in source.__mro__ if base.__module__.startswith("pellucid"))
    for name in ("open", "deliver", "pause", "resume", "stop", "queued", "ended", "is_interrupted"):
        assert hasattr(source, name) or f"self.{name}" in text, name
