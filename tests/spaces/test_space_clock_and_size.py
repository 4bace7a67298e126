"""A space when the system clock is set back, and when every envelope is large."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.envelopes import Envelope
from pellucid.envelopes.reasoning import ContextPlace
from pellucid.spaces.runtime import space as space_module
from pellucid.spaces.runtime.live_state import SNAPSHOT_BYTES, LiveState
from pellucid.spaces.runtime.settings import SpaceSettings
from pellucid.spaces.runtime.space import MonotonicClock, Space
from pellucid.spaces.runtime.state import SpaceState
from pellucid.storage import StoredEnvelope
from tests.spaces.space_kit import Sink, frame, join_space, opened, whole_log
from tests.waiting import eventually


async def received(space: Space, sink: Sink, count: int = 1, kind: str = "chat") -> list[dict[str, Any]]:
    await eventually(lambda: len(sink.of(kind)) >= count, f"{count} {kind}")
    return sink.of(kind)


def test_timeouts_work_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now, ticks = [1_000_000.0], [0.0]
    monkeypatch.setattr(space_module, "monotonic", lambda: ticks[0])

    async def scene() -> None:
        settings = {"idle_seconds": 0.5, "grace_seconds": 0.1}
        async with opened(settings=settings, clock=lambda: now[0]) as (_, space, _store):
            _, watch = await join_space(space, "ada")
            bob, _ = await join_space(space, "bob")
            await bob.receive(frame("reasoning/start", {}, id="r-1"))
            await received(space, watch, kind="reasoning/start")
            now[0] -= 3600
            ticks[0] += 0.6
            (cancel,) = await received(space, watch, kind="reasoning/cancel")
            assert cancel["payload"] == {"reason": "timed out"}
            await bob.receive(frame("reasoning/start", {}, id="r-2"))
            await received(space, watch, 2, kind="reasoning/start")
            await bob.leave()
            await space.catch_up()
            ticks[0] += 0.2
            _, cancel = await received(space, watch, 2, kind="reasoning/cancel")
            assert cancel["payload"] == {"reason": "disconnected"}
            at = [one.at for one in await whole_log(space)]
            assert at == sorted(at)
            assert 1_000_000_000 <= at[0] <= at[-1] < 1_000_060_000

    asyncio.run(scene())


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_the_monotonic_clock_never_goes_back(steps: list[float]) -> None:
    walls = iter(wall := [1e9 + step for step in steps])
    clock = MonotonicClock(lambda: next(walls), 5.0)
    readings = [clock() for _ in steps]
    assert readings == sorted(readings)
    assert all(one >= wall for one, wall in zip(readings, wall, strict=True))
    assert readings[-1] < max(wall) + 1


def test_the_memory_for_rollback_is_bounded() -> None:
    live_state = LiveState(SpaceState(SpaceSettings()))
    for seq in range(1, 200):
        envelope = Envelope(id=f"m-{seq}", ts=0, sender="a", kind="chat", payload={"text": "x" * 200_000}, seq=seq)
        live_state.state.replay(stored := StoredEnvelope(envelope, seq, ContextPlace()))
        live_state.accept([stored])
        assert sum(len(one.envelope.payload["text"]) for one in live_state._since_base) <= 2 * SNAPSHOT_BYTES + 200_000
    live_state.roll_back()
    assert live_state.state.head == 199
