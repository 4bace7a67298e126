"""A `LiveRun` of the scripts of `view_kit`, with a scripted model and functions."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sequence
from typing import Any

from pellucid.errors import ErrorInfo
from pellucid.events import Event, RunEndEvent
from pellucid.fold import fold
from pellucid.parts import ModelRequest, ToolCallPart, ToolReturnPart, UserPromptPart
from pellucid.run import Minter
from pellucid.runs import Batch, LiveRun, Stage, ToolOutcomes, TurnHandler
from pellucid.settings import ModelCall
from tests.scripted_runs import Dice, ScriptedModel, cut
from tests.view.view_kit import Turn, turn_of
from tests.waiting import loop_turns


class ReturningHandler(TurnHandler):
    """Turn handler whose functions return the results of `view_kit.run_of`."""

    tool_names: Container[str] = frozenset({"f0", "f1"})

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        self.ended = False

    async def call_tools(self, calls: tuple[ToolCallPart, ...]) -> ToolOutcomes:
        assert not self.ended
        await loop_turns(self._dice.randint(0, 2))
        return ToolOutcomes([ToolReturnPart(call.tool_name, "found", call.tool_call_id) for call in calls])

    def end_run(self) -> None:
        self.ended = True


class Live:
    """A run of `script` with `stages`, and the batches that its receiver got."""

    def __init__(self, script: Sequence[Turn], dice: Dice, stages: Sequence[Stage] = (), *, eager: bool = True) -> None:
        self.model = ScriptedModel(
            *[cut(turn_of(*turn), dice) for turn in script],
            latency=lambda: (0, 0, 1, 4)[dice.randint(0, 3)],
            eager=lambda: (0, 0, 1, 5)[dice.randint(0, 3)] if eager else 0,
        )
        self.handler = ReturningHandler(dice)
        call = ModelCall("m", [ModelRequest([UserPromptPart("Hi")])])
        self.run = LiveRun(self.model, call, Minter(b"seed"), self.handler, stages=stages)
        self.batches: list[Batch] = []
        self._others: set[asyncio.Task[Any]] = set()

    @property
    def events(self) -> list[Event]:
        return [event for batch in self.batches for event in batch.events]

    def receive(self, batch: Batch) -> None:
        self.batches.append(batch)

    async def deliver(self) -> list[Event]:
        """Deliver the whole run and return its events."""
        self._others = asyncio.all_tasks()
        await self.run.open()
        async with asyncio.timeout(60):
            await self.run.deliver(self.receive)
        return self.events

    async def begin(self) -> asyncio.Task[None]:
        """Open the run, and deliver it in a task."""
        self._others = asyncio.all_tasks()
        await self.run.open()
        delivery = asyncio.create_task(self.run.deliver(self.receive))
        await asyncio.sleep(0)
        return delivery

    async def stop(self, delivery: asyncio.Task[None], error: ErrorInfo | None = None) -> list[Event]:
        """Leave the delivery and stop the run, as a server does when its client disconnects."""
        async with asyncio.timeout(60):
            delivery.cancel()
            await asyncio.wait({delivery})
            await self.run.stop(error)
        return self.events

    async def check(self) -> None:
        """Check that the run has ended, is legal, has one end that is last, and released its resources."""
        events = self.events
        assert isinstance(events[-1], RunEndEvent)
        assert self.run.ended is events[-1]
        fold(events)  # raises for events after an end, and for a second end
        assert all(batch.events for batch in self.batches)
        times = [batch.time_ms for batch in self.batches]
        assert times == sorted(times)
        await self.run.stop(ErrorInfo("server_error", "it is over"))
        await loop_turns(10)
        assert self.events == events
        assert self.handler.ended
        for stream in self.model.streams:
            assert stream.is_over
            assert stream.cancelled
            assert stream.raised is None
        assert asyncio.all_tasks() == self._others
