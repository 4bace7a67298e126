"""A live run is one legal run for any reads, pauses and stops."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import NOT_KEPT, ErrorInfo, PellucidError
from pellucid.events import (
    SUMMARY_NOTE,
    ErrorEvent,
    Event,
    FunctionToolCallEvent,
    ItemStartEvent,
    ModelEvent,
    PartStartEvent,
    RunEndEvent,
    SideEvent,
)
from pellucid.fold import fold
from pellucid.parts import ToolCallPart
from pellucid.runs import Batch, LiveRun, Stage, ToolOutcomes, clock_ms
from pellucid.runs.model_text import UsageCallback
from pellucid.runs.run_log import events_of, unpack_log
from pellucid.runs.seal_stage import SealStage
from pellucid.runs.stored_run import StoreStage
from pellucid.runs.summaries import SummaryStage, SummaryWriter
from pellucid.storage import Store, open_store
from tests.examples import many
from tests.replicas.runs_kit import row_of
from tests.runs.live_kit import Live, ReturningHandler
from tests.scripted_runs import Dice, ScriptedModel, ScriptedStream
from tests.view.view_kit import Turn, plain, run_of, turn_of, turns
from tests.waiting import eventually, loop_turns

WHY = ErrorInfo("unavailable", "the server stops", code="stopping")
THINKS: list[Turn] = [([("raw", 1, "Hm.", False), ("text", 2, "42.", False)], "eof", "stop")]
CALLS: list[Turn] = [([("raw", 1, "Hm.", False), ("tool", 0, '{"x":1}', False)], "eof", "stop"), THINKS[0]]

dice = st.randoms(use_true_random=True)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class RandomWriter(SummaryWriter):
    """A summary writer that is slow or never returns."""

    name = "writer"

    def __init__(self, dice: Dice) -> None:
        self._dice = dice

    async def summarize(self, text: str, on_usage: UsageCallback | None = None) -> str | None:
        turns = (0, 1, 9, None)[self._dice.randint(0, 3)]
        await (loop_turns(turns) if turns is not None else asyncio.Event().wait())
        return "gist"


class PushingStage(Stage):
    """Stage that pushes its own events later, and delays the end for a moment."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    def process(self, batch: Batch) -> Batch:
        events = batch.events
        if events and isinstance(events[-1], RunEndEvent):
            self._later([SideEvent("late", "end"), events[-1]])
            return Batch(batch.time_ms, events[:-1])
        if events and self._dice.randint(0, 3) == 0:
            self._later([SideEvent("late", "word")])
        return batch

    def _later(self, events: list[Event]) -> None:
        before = list(self._tasks)

        async def push() -> None:
            await loop_turns(self._dice.randint(0, 5))
            await asyncio.gather(*before)
            self.push(Batch(clock_ms(), events))

        self._tasks.add(asyncio.create_task(push()))


def stages_of(choice: str, dice: Dice) -> list[Stage]:
    seal = SealStage(lambda sealed: "token")
    match choice:
        case "summaries":
            return [seal, SummaryStage(RandomWriter(dice), timeout_seconds=0.005)]
        case "late":
            return [seal, PushingStage(dice)]
        case "all":
            return [seal, SummaryStage(RandomWriter(dice), timeout_seconds=0.005), PushingStage(dice)]
        case _:
            return []


stage_choices = st.sampled_from(["none", "summaries", "late", "all"])


class PausingRun(Live):
    """A run whose receiver pauses and resumes at random; while it is paused, there are no new events."""

    def __init__(self, script: list[Turn], dice: Dice, stages: list[Stage]) -> None:
        super().__init__(script, dice, stages, eager=False)
        self._dice = dice
        self.pauses = 0

    def receive(self, batch: Batch) -> None:
        super().receive(batch)
        if self._dice.randint(0, 2) == 0:
            self.pauses += 1
            self.run.pause()
            self.run.pause()
            stream = self.model.streams[-1]
            left = len(stream.reads)
            asyncio.get_running_loop().call_later(0, self._resume, stream, left, self._dice.randint(0, 5))

    def _resume(self, stream: ScriptedStream, left: int, turns: int) -> None:
        if stream.paused:
            assert len(stream.reads) == left
        if turns:
            asyncio.get_running_loop().call_soon(self._resume, stream, left, turns - 1)
        else:
            self.run.resume()
            self.run.resume()


def own(events: list[Event]) -> list[Event]:
    """Return the events of the run without those of stages."""
    return plain([event for event in events if not (isinstance(event, SideEvent) and is_of_a_stage(event))])


def is_of_a_stage(event: SideEvent) -> bool:
    return event.namespace == "late" or (event.namespace, event.name) == SUMMARY_NOTE


@given(turns, dice, stage_choices, st.booleans())
@many
def test_reads_pauses_and_latency_do_not_change_the_run(
    script: list[Turn], dice: random.Random, choice: str, fickle: bool
) -> None:
    async def main() -> None:
        live = (PausingRun if fickle else Live)(script, dice, stages_of(choice, dice))
        events = await live.deliver()
        assert own(events) == run_of(script)
        await live.check()

    asyncio.run(main())


@given(turns, dice, stage_choices, st.integers(0, 40), st.sampled_from([None, WHY]), st.booleans(), st.booleans())
@many
def test_a_run_that_is_stopped_at_any_moment_is_closed(
    script: list[Turn],
    dice: random.Random,
    choice: str,
    after: int,
    error: ErrorInfo | None,
    paused: bool,
    meanwhile: bool,
) -> None:
    """Also while it is paused, and while `deliver` waits."""

    async def main() -> None:
        live = (PausingRun if dice.randint(0, 1) else Live)(script, dice, stages_of(choice, dice))
        delivery = await live.begin()
        await loop_turns(after)
        if paused:
            live.run.pause()
        if meanwhile:
            async with asyncio.timeout(60):
                await asyncio.gather(live.run.stop(error), delivery)
        else:
            await live.stop(delivery, error)
        await live.check()
        end = live.events[-1]
        assert isinstance(end, RunEndEvent)
        if end != run_of(script)[-1]:
            # An earlier error of the model is the error of the run.
            why = next((event.error for event in live.events if isinstance(event, ErrorEvent)), error)
            assert (end.status, end.error) == (("cancelled", None) if error is None else ("failed", why))
        # Events until the stop are those of the run; then open parts are closed, and none is opened.
        events, expected = own(live.events), run_of(script)
        same = next(
            (at for at, (one, other) in enumerate(zip(events, expected, strict=False)) if one != other), len(expected)
        )
        assert not any(isinstance(event, ItemStartEvent | PartStartEvent) for event in events[same:])

    asyncio.run(main())


@given(turns, dice, stage_choices, st.integers(0, 40))
@many
def test_a_run_that_another_task_aborts_at_any_moment_ends_with_the_error(
    script: list[Turn], dice: random.Random, choice: str, after: int
) -> None:
    """Also while the model is called, and between `open` and `deliver`."""

    async def main() -> None:
        live = (PausingRun if dice.randint(0, 1) else Live)(script, dice, stages_of(choice, dice))
        between = dice.randint(0, 3)

        async def serve() -> None:
            await live.run.open()
            await loop_turns(between)
            await live.run.deliver(live.receive)

        live._others = asyncio.all_tasks()
        serving = asyncio.create_task(serve())
        await loop_turns(after)
        async with asyncio.timeout(60):
            await asyncio.gather(live.run.abort(WHY), live.run.abort(WHY))
            await asyncio.wait({serving})
        error = serving.exception()
        if error is not None:
            assert isinstance(error, PellucidError)
            assert error.info == WHY
            assert (live.batches, live.run.ended, live.handler.ended) == ([], None, True)
            return
        await live.check()
        end = live.events[-1]
        assert isinstance(end, RunEndEvent)
        if end != run_of(script)[-1]:
            why = next((event.error for event in live.events if isinstance(event, ErrorEvent)), WHY)
            assert (end.status, end.error) == ("failed", why)

    asyncio.run(main())


@given(turns, dice, st.integers(0, 20))
def test_a_program_that_reads_sets_the_pace_and_may_stop_anywhere(
    script: list[Turn], dice: random.Random, count: int
) -> None:
    async def main() -> None:
        live = Live(script, dice, eager=False)
        live._others = asyncio.all_tasks()
        await live.run.open()
        while count > len(live.batches) and (batch := await live.run.read()) is not None:
            live.receive(batch)
            stream = live.model.streams[-1]
            left = len(stream.reads)
            await loop_turns(dice.randint(0, 5))
            # The model sends nothing that the program has not requested.
            assert len(stream.reads) == left
        if live.run.ended is None or live.run._queue:
            live.batches.append(Batch(live.batches[-1].time_ms if live.batches else 0, live.run.cancel()))
        assert await live.run.read() is None
        fold(live.events)
        assert isinstance(live.events[-1], RunEndEvent)
        assert live.run.cancel() == []
        await loop_turns(10)
        assert asyncio.all_tasks() == live._others

    asyncio.run(main())


class Broken(Exception):
    pass


class RaisingStage(Stage):
    """Stage that raises at the `nth` batch; with None, at the batch with the end."""

    def __init__(self, nth: int | None) -> None:
        self._left = nth

    def process(self, batch: Batch) -> Batch:
        if self._left is None:
            if batch.events and isinstance(batch.events[-1], RunEndEvent):
                raise Broken
        elif batch.events:
            self._left -= 1
            if self._left < 0:
                raise Broken
        return batch


@given(turns, dice, st.none() | st.integers(0, 12), st.sampled_from(["receiver", "stage"]), stage_choices)
@many
def test_an_exception_of_a_receiver_or_a_stage_is_raised_and_the_run_can_be_stopped(
    script: list[Turn], dice: random.Random, nth: int | None, who: str, choice: str
) -> None:
    async def main() -> None:
        breaks = RaisingStage(nth)
        others = stages_of(choice, dice)
        place = dice.randint(0, len(others))
        stages = [*others[:place], breaks, *others[place:]] if who == "stage" else others
        live = Live(script, dice, stages)
        live._others = asyncio.all_tasks()
        await live.run.open()

        def receive(batch: Batch) -> None:
            live.receive(batch)
            if who == "receiver":
                breaks.process(batch)

        raised = False
        async with asyncio.timeout(60):
            try:
                await live.run.deliver(receive)
            except Broken:
                raised = True
            breaks._left = 1000
            await live.run.stop(WHY)
        ends = [event for event in live.events if isinstance(event, RunEndEvent)]
        assert ends == [live.events[-1]]
        assert live.run.ended is ends[0]
        if (raised and who == "receiver") or not raised:
            fold(live.events)
            await live.check()
        if raised and who == "stage":
            assert ends[0].error == WHY
        elif raised and nth is not None:
            assert ends[0].error in (WHY, run_of(script)[-1].error)  # type: ignore[union-attr]
        if nth is None:
            assert raised
        await loop_turns(30)
        assert asyncio.all_tasks() == live._others
        assert all(stream.is_over and stream.raised is None for stream in live.model.streams)

    asyncio.run(main())


@pytest.mark.anyio
async def test_an_end_that_a_stage_holds_is_lost_if_a_later_stage_raises() -> None:
    """The end that it pushes later is not delivered."""

    class HoldingStage(Stage):
        def process(self, batch: Batch) -> Batch:
            *events, last = batch.events
            if not isinstance(last, RunEndEvent):
                return batch
            asyncio.get_running_loop().call_soon(self.push, Batch(batch.time_ms, [last]))
            return Batch(batch.time_ms, events)

    class RaisingAtTheEnd(RaisingStage):
        def process(self, batch: Batch) -> Batch:
            if live.run.run.run_end is not None:
                raise Broken
            return batch

    live = Live(THINKS, random.Random(1), [HoldingStage(), RaisingAtTheEnd(None)])
    await live.run.open()
    with pytest.raises(Broken):
        await live.run.deliver(live.receive)
    await live.run.stop(WHY)
    await loop_turns(5)
    ends = [event for event in live.events if isinstance(event, RunEndEvent)]
    assert [end.error for end in ends] == [WHY]
    assert live.run.ended is ends[0] is live.events[-1]


@pytest.mark.anyio
async def test_a_program_may_exit_while_it_receives() -> None:
    """Its output may have been closed; the connection that was read does not handle this."""

    def exits(batch: Batch) -> None:
        live.receive(batch)
        if len(live.batches) == 1:
            raise SystemExit(1)

    for stages in ([], [PushingStage(random.Random(1))]):
        live = Live(THINKS, random.Random(1), stages)
        await live.run.open()
        with pytest.raises(SystemExit):
            await live.run.deliver(exits)
        await live.run.stop()
        fold(live.events)
        assert isinstance(live.events[-1], RunEndEvent)
        assert live.model.streams[0].is_over
        assert live.model.streams[0].raised is None


@pytest.mark.anyio
async def test_a_side_event_that_cannot_be_received_ends_the_delivery_at_once() -> None:
    """While functions run, for which the delivery would otherwise wait."""
    left = asyncio.Event()

    class EmittingHandler(ReturningHandler):
        async def call_tools(self, calls: tuple[ToolCallPart, ...]) -> ToolOutcomes:
            live.run.emit(SideEvent("agui", "STATE"))
            try:
                await asyncio.Event().wait()
            finally:
                left.set()
            raise AssertionError

    live = Live(CALLS, random.Random(1))
    live.handler = live.run._handler = EmittingHandler(random.Random(1))

    def receive(batch: Batch) -> None:
        live.receive(batch)
        if any(isinstance(event, SideEvent) for event in batch.events):
            raise Broken

    await live.run.open()
    with pytest.raises(Broken):
        async with asyncio.timeout(30):
            await live.run.deliver(receive)
    await live.run.stop()
    await asyncio.wait_for(left.wait(), 30)
    fold(live.events)


@pytest.mark.anyio
async def test_a_run_that_is_paused_before_it_begins_or_between_turns_reads_nothing() -> None:
    class PausesAfterCalls(Live):
        pauses = False

        def receive(self, batch: Batch) -> None:
            super().receive(batch)
            if self.pauses and any(isinstance(event, FunctionToolCallEvent) for event in batch.events):
                self.run.pause()

    live = PausesAfterCalls(CALLS, random.Random(1), eager=False)
    await live.run.open()
    live.run.pause()
    delivery = asyncio.create_task(live.run.deliver(live.receive))
    await loop_turns(30)
    assert live.batches == []
    [first] = live.model.streams
    assert first.paused
    live.pauses = True
    live.run.resume()
    await eventually(lambda: len(live.model.streams) == 2)
    # The functions and the model were called; the model's answer is not read.
    [_, second] = live.model.streams
    left = len(second.reads)
    count = len(live.batches)
    await loop_turns(50)
    assert second.paused
    assert (len(second.reads), len(live.batches)) == (left, count)
    live.run.resume()
    await delivery
    assert live.events == run_of(CALLS)


@pytest.mark.anyio
async def test_a_model_that_stops_without_an_end_event_fails_the_run() -> None:
    live = Live(THINKS, random.Random(1))
    events: list[ModelEvent] = turn_of(*THINKS[0])
    for count in range(len(events)):
        live = Live(THINKS, random.Random(1))
        live.model = live.run._model = ScriptedModel([events[:count], None] if count else [None])
        end = (await live.deliver())[-1]
        assert isinstance(end, RunEndEvent)
        assert end.error is not None
        assert "without an end" in end.error.message
        fold(live.events)


@pytest.mark.anyio
async def test_a_stop_during_the_next_model_call_cancels_its_stream() -> None:
    """The stop comes from another task than the delivery."""
    opened, answer = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedModel):
        async def open(self, call: Any) -> Any:
            if self.calls:
                opened.set()
                await answer.wait()
            return await super().open(call)

    live = Live(CALLS, random.Random(1))
    live.model = live.run._model = Slow(*[[turn_of(*turn)] for turn in CALLS])
    delivery = await live.begin()
    await asyncio.wait_for(opened.wait(), 30)
    await live.run.stop()
    answer.set()
    await asyncio.wait_for(delivery, 30)
    await live.check()


class Stored:
    """A store with a scripted `put`."""

    def __init__(self, put: Callable[[], Any]) -> None:
        self.responses = self
        self.rows: list[Any] = []
        self._put = put

    async def put(self, row: Any, *rest: Any) -> None:
        await self._put()
        self.rows.append(row)


@pytest.mark.anyio
async def test_the_end_of_a_stored_run_waits_until_it_is_stored() -> None:
    stored = asyncio.Event()
    store = Stored(stored.wait)
    live = Live(THINKS, random.Random(1), [StoreStage(row_of(1), cast("Store", store))])
    delivery = await live.begin()
    await eventually(lambda: live.events == run_of(THINKS)[:-1])
    await loop_turns(50)
    assert live.run.ended is None
    stored.set()
    await delivery
    assert live.events == run_of(THINKS)
    assert [row.status for row in store.rows] == ["completed"]
    await live.check()


@pytest.mark.anyio
async def test_a_run_that_cannot_be_stored_ends_as_failed() -> None:
    async def fails() -> None:
        raise RuntimeError("the dark")

    for stop in (False, True):
        live = Live(THINKS, random.Random(1), [StoreStage(row_of(1), cast("Store", Stored(fails)))])
        delivery = await live.begin()
        if stop:
            await live.stop(delivery)
        await asyncio.wait({delivery})
        end = live.events[-1]
        assert isinstance(end, RunEndEvent)
        assert end.status == "failed"
        assert end.error is not None
        assert end.error.code == NOT_KEPT
        assert "dark" not in repr(end)
        await live.check()


@given(dice, st.integers(0, 60))
def test_the_response_is_stored_if_a_reader_leaves_at_any_moment(dice: random.Random, after: int) -> None:
    """Also if it leaves while its response is being stored, or does not wait for that."""

    async def main(patient: bool) -> None:
        store = await open_store("sqlite://")
        live = Live(THINKS, dice, [StoreStage(row_of(1), store)])
        delivery = await live.begin()
        await loop_turns(after)
        if patient:
            await live.stop(delivery)
        else:
            delivery.cancel()
            stop = asyncio.create_task(live.run.stop())
            await asyncio.sleep(0)
            stop.cancel()
        await eventually(lambda: live.run.ended)
        row = await store.responses.get("ann", "resp_1", log=True)
        assert row is not None
        assert live.run.ended is not None
        assert row.status == live.run.ended.status
        assert events_of(unpack_log(row.log)) == live.events
        await store.aclose()
        await live.check()

    for patient in (True, False):
        asyncio.run(main(patient))


def test_events_that_a_stage_pushes_pass_only_the_stages_after_it() -> None:
    """Stages before it do not get the events."""

    async def main() -> None:
        seen: list[list[Event]] = [[], []]

        class RecordingStage(Stage):
            def __init__(self, into: list[Event]) -> None:
                self._into = into

            def process(self, batch: Batch) -> Batch:
                self._into += batch.events
                return batch

        before, pushes, after = RecordingStage(seen[0]), Stage(), RecordingStage(seen[1])
        live = Live(THINKS, random.Random(1), [before, pushes, after])
        delivery = await live.begin()
        pushes.push(Batch(clock_ms(), [SideEvent("x", "y")]))
        await delivery
        assert SideEvent("x", "y") not in seen[0]
        assert seen[1] == live.events
        assert isinstance(live.run, LiveRun)

    asyncio.run(main())
