"""The gateway's summaries in any run: the behaviour of the writer does not change the run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.background_tasks import wait_for_tasks
from pellucid.emit import Emitter
from pellucid.errors import ErrorInfo, ModelError
from pellucid.events import (
    Event,
    ItemEndEvent,
    ItemStartEvent,
    ModelEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    RunEndEvent,
    SideEvent,
    SummaryEvent,
)
from pellucid.fold import fold
from pellucid.models import ModelStream
from pellucid.parts import Origin, ThinkingPart, ThinkingPartDelta, Usage
from pellucid.runs import Batch, summaries
from pellucid.runs.model_text import TextUsage, UsageCallback
from pellucid.runs.summaries import SummaryStage, SummaryWriter
from pellucid.settings import ModelCall
from pellucid.view import Redactor, Viewer
from tests.examples import costly
from tests.runs.live_kit import Live
from tests.scripted_runs import ScriptedModel
from tests.view.view_kit import SECRET, Turn, run_of, turn_of, turns
from tests.waiting import LIMIT_SECONDS, eventually, loop_turns


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    """Make paragraphs short, so that an item has several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summaries, "MIN_CHARS", 4)
        patch.setattr(summaries, "MAX_CHARS", 12)
        yield


class RandomWriter(SummaryWriter):
    """A summary writer with random behaviour."""

    name = "writer"

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.at_work = 0
        self.texts: list[str] = []

    async def summarize(self, text: str, on_usage: UsageCallback | None = None) -> str | None:
        self.texts.append(text)
        self.at_work += 1
        try:
            whim = self._dice.random()
            await (loop_turns(self._dice.choice([0, 1, 5])) if whim < 0.9 else asyncio.Event().wait())
            return None if whim < 0.2 else f"gist {len(self.texts)}"
        finally:
            self.at_work -= 1


async def read(
    script: list[Turn], dice: random.Random, stop_after: int | None = None
) -> tuple[list[Event], RandomWriter]:
    author = RandomWriter(dice)
    live = Live(script, dice, [SummaryStage(author, timeout_seconds=0.01)])
    if stop_after is None:
        await live.deliver()
    else:
        delivery = await live.begin()
        await loop_turns(stop_after)
        await live.stop(delivery, ErrorInfo("server_error", "enough"))
    await live.check()
    assert author.at_work == 0
    return live.events, author


dice = st.randoms(use_true_random=True)


@given(turns, dice)
def test_without_its_summaries_the_run_is_unchanged(script: list[Turn], dice: random.Random) -> None:
    out, _ = asyncio.run(read(script, dice))
    assert [event for event in out if not isinstance(event, SummaryEvent | SideEvent)] == run_of(script)
    fold(out)  # raises if the events are illegal


@given(turns, dice, st.integers(0, 30))
def test_a_run_that_is_stopped_anywhere_is_closed(script: list[Turn], dice: random.Random, after: int) -> None:
    out, _ = asyncio.run(read(script, dice, after))
    assert isinstance(out[-1], RunEndEvent)
    assert sum(isinstance(event, RunEndEvent) for event in out) == 1
    fold(out)


@costly
@given(turns, dice)
def test_raw_text_is_never_a_summary(script: list[Turn], dice: random.Random) -> None:
    out, _author = asyncio.run(read(script, dice))
    for event in out:
        if isinstance(event, SummaryEvent):
            assert event.text.startswith("gist ")
    shown = Redactor(Viewer("summary")).feed(out)
    fold(shown)
    assert SECRET not in str(shown)
    # Summaries come in the order of their thoughts, each in the item of its thought.
    numbers = [int(event.text.removeprefix("gist ")) for event in out if isinstance(event, SummaryEvent)]
    assert numbers == sorted(numbers)


def test_summaries_of_the_model_are_not_summarised_again() -> None:
    own: list[Turn] = [([("summary", 1, "a", False), ("raw", 1, "x" * 40, False)], "eof", "stop")]
    out, author = asyncio.run(read(own, random.Random(1)))
    assert author.texts == []
    assert any(isinstance(event, ItemStartEvent) for event in out)
    assert not any(isinstance(event, SummaryEvent) for event in out)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class FixedWriter(SummaryWriter):
    """A writer that always returns this summary, at once or never."""

    name = "writer"

    def __init__(self, summary: str | None, *, hangs_after: int | None = None) -> None:
        self.texts: list[str] = []
        self.left = 0
        self._summary, self._hangs_after = summary, hangs_after

    async def summarize(self, text: str, on_usage: UsageCallback | None = None) -> str | None:
        self.texts.append(text)
        if self._hangs_after is not None and len(self.texts) > self._hangs_after:
            try:
                await asyncio.Event().wait()
            finally:
                self.left += 1
        return self._summary


def thinking_script(*paragraphs: str) -> list[Turn]:
    return [([("raw", 1, text, False) for text in paragraphs], "eof", "stop")]


class HoldingRun(Live):
    """A run that stops before the end of its first item until it may continue."""

    def __init__(self, script: list[Turn], stage: SummaryStage) -> None:
        super().__init__(script, random.Random(1), [stage])
        self.go_on = asyncio.Event()
        events = turn_of(*script[0])
        at = next(place for place, event in enumerate(events) if isinstance(event, ItemEndEvent))
        self.model = self.run._model = ScriptedModel([events[:at], self.go_on, events[at:]])


def notes_in(events: list[Event]) -> list[Any]:
    return [event.value for event in events if isinstance(event, SideEvent)]


def summaries_in(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, SummaryEvent)]


@pytest.mark.anyio
async def test_complete_paragraphs_are_summarised_while_the_model_thinks() -> None:
    live = HoldingRun(thinking_script("one two three four.\n\n", "five"), SummaryStage(FixedWriter("gist"), 5))
    delivery = await live.begin()
    await eventually(lambda: summaries_in(live.events))
    assert not any(isinstance(event, ItemEndEvent) for event in live.events)
    live.go_on.set()
    await delivery
    await live.check()


@pytest.mark.anyio
async def test_stopping_a_run_cancels_its_writer_at_once() -> None:
    writer = FixedWriter("gist", hangs_after=0)
    live = HoldingRun(thinking_script("one two three four.\n\n", "five"), SummaryStage(writer, 3600))
    delivery = await live.begin()
    await eventually(lambda: writer.texts)
    assert (len(writer.texts), writer.left) == (1, 0)
    assert isinstance((await live.stop(delivery))[-1], RunEndEvent)
    await loop_turns(1)
    assert writer.left == 1
    await live.check()


@pytest.mark.anyio
async def test_a_run_that_is_stopped_at_its_end_does_not_wait_for_its_writer() -> None:
    """All events were sent except a summary, which takes an hour."""
    writer = FixedWriter("gist", hangs_after=0)
    live = Live(thinking_script("one two three four.\n\n", "five"), random.Random(1), [SummaryStage(writer, 3600)])
    delivery = await live.begin()
    await eventually(lambda: live.model.streams[0].is_over and writer.texts)
    assert live.run.ended is None
    await live.stop(delivery)
    await live.check()
    assert [event for event in live.events if not isinstance(event, SideEvent)] == run_of(
        thinking_script("one two three four.\n\n", "five")
    )


@pytest.mark.anyio
async def test_the_answer_waits_for_summaries_only_until_the_deadline() -> None:
    stage = SummaryStage(FixedWriter("gist", hangs_after=1), 0.2)
    live = Live(thinking_script("one two three.\n\n", "four five six.\n\n"), random.Random(3), [stage])
    began = asyncio.get_running_loop().time()
    await live.deliver()  # the writer never returns
    assert summaries_in(live.events) == ["gist"]
    assert notes_in(live.events) == [{"author": "writer"}, {"ended": True}, {"missing": "late"}]
    assert asyncio.get_running_loop().time() - began >= 0.2
    assert live.run.ended is not None
    assert live.run.ended.status == "completed"
    await live.check()


ORIGIN = Origin("p", "openai_chat", "writer")
COST = Usage(input_tokens=7, output_tokens=2)


def summary_turn(text: str, error: ErrorInfo | None = None) -> list[ModelEvent]:
    """A turn of the model that writes summaries, from its start to its end."""
    emit = Emitter(ORIGIN)
    if text:
        emit.text("t", text)
    if error is None:
        emit.usage = COST
        emit.finish("stop")
    return emit.end("eof" if error is None else "error", error)


class SilentModel(ScriptedModel):
    """A model that never accepts its call."""

    async def open(self, call: ModelCall) -> ModelStream:
        await asyncio.Event().wait()
        raise AssertionError


class RefusingModel(ScriptedModel):
    """A model that refuses each call."""

    async def open(self, call: ModelCall) -> ModelStream:
        raise ModelError(ErrorInfo("unavailable", "not now"))


FAILS = ErrorInfo("model_error", "it failed")
USES: dict[str, tuple[Callable[[], ScriptedModel], list[tuple[Usage, int]]]] = {
    "written": (lambda: ScriptedModel([summary_turn("gist")]), [(COST, 4)]),
    "empty": (lambda: ScriptedModel([summary_turn("")]), [(COST, 0)]),
    "cut off": (lambda: ScriptedModel([summary_turn("gist")[:4], asyncio.Event()]), [(Usage(), 4)]),
    "cut off before a word": (lambda: ScriptedModel([asyncio.Event()], origin=ORIGIN), [(Usage(), 0)]),
    "cut off before it began": (lambda: SilentModel(origin=ORIGIN), [(Usage(), 0)]),
    "broken off": (lambda: ScriptedModel([summary_turn("gist", FAILS)]), [(Usage(), 4)]),
    "failed before a word": (lambda: ScriptedModel([summary_turn("", FAILS)]), []),
    "refused": (lambda: RefusingModel(origin=ORIGIN), []),
}


@pytest.mark.anyio
@pytest.mark.parametrize("case", USES)
async def test_what_a_summary_uses_is_reported(case: str) -> None:
    """Also if it is cut off, by the deadline of the stage; not as part of the run's own usage."""
    make_model, reports = USES[case]
    reported: list[TextUsage] = []

    async def report(used: TextUsage) -> None:
        reported.append(used)

    stage = SummaryStage(SummaryWriter(make_model()), 0.05, report)
    script = thinking_script("one two.")
    live = Live(script, random.Random(1), [stage])
    await live.deliver()
    await wait_for_tasks(LIMIT_SECONDS)
    assert live.run.ended == run_of(script)[-1]
    assert [(used.usage, used.written_characters) for used in reported] == reports
    for used in reported:
        assert used.origin == ORIGIN
        assert len(summaries.INSTRUCTIONS) < used.read_characters <= len(summaries.INSTRUCTIONS) + summaries.MAX_CHARS


@given(st.text(alphabet="ab \n", max_size=400))
def test_a_long_text_is_split_without_loss(text: str) -> None:
    pieces = list(summaries._split_text(text))
    assert all(piece.strip() and len(piece) <= summaries.MAX_CHARS + summaries.MIN_CHARS for piece in pieces[-1:])
    assert "".join("".join(pieces).split()) == "".join(text.split())


words = st.lists(st.text(alphabet="abcdefgh", min_size=1, max_size=9), min_size=1, max_size=60).map(" ".join)


@given(words, words, st.sampled_from(["{}", "  {}\n", "In short: {}", "{} And so on."]), st.data())
def test_a_text_that_repeats_the_thought_is_no_summary(text: str, other: str, form: str, data: st.DataObject) -> None:
    assert summaries._repeats(f"\n{text.upper()} ", text)
    length = summaries.MAX_QUOTE_CHARS * 3 // 2
    if len(text) > length:
        at = data.draw(st.integers(0, len(text) - length))
        assert summaries._repeats(form.format(text[at : at + length]), text)
    assert not summaries._repeats("Quite another matter, 1, 2, 3.", other)


@pytest.mark.anyio
async def test_a_writer_that_repeats_its_input_gives_no_summary() -> None:
    class EchoWriter(SummaryWriter):
        name = "writer"

        def __init__(self) -> None:
            """Use no model."""

        async def summarize(self, text: str, on_usage: UsageCallback | None = None) -> str | None:
            return f" {text}"

    live = Live(thinking_script("one two three.\n\n", "four"), random.Random(1), [SummaryStage(EchoWriter(), 5)])
    assert summaries_in(await live.deliver()) == []
    assert notes_in(live.events)[-1] == {"missing": "failed"}


@pytest.mark.anyio
@pytest.mark.parametrize("fails", [False, True], ids=["slow", "failing"])
async def test_a_summary_is_shown_before_it_is_charged(fails: bool) -> None:
    """Neither slow nor failing accounting delays the end of a thought."""
    charge, charged = asyncio.Event(), 0

    async def report(used: TextUsage) -> None:
        nonlocal charged
        if fails:
            raise RuntimeError("the relay is away")
        await charge.wait()
        charged = used.written_characters

    writer = SummaryWriter(ScriptedModel([summary_turn("In short.")]))
    stage = SummaryStage(writer, LIMIT_SECONDS, report)
    out: list[Batch] = []
    stage.push = out.append
    await stage.open()
    stage.on_opened(queued=False)
    begin: list[Event] = [ItemStartEvent(0, "reasoning", id="rs_1"), PartStartEvent(0, ThinkingPart(""))]
    end: list[Event] = [PartEndEvent(0, ThinkingPart("I think.")), ItemEndEvent(0)]
    thought: list[Event] = [PartDeltaEvent(0, ThinkingPartDelta("I think."))]
    out += [stage.process(Batch(1, events)) for events in (begin, thought, end)]
    await loop_turns(20)
    shown = [type(event) for batch in out for event in batch.events]
    assert shown[-2:] == [SummaryEvent, ItemEndEvent]
    charge.set()
    await wait_for_tasks(LIMIT_SECONDS)
    assert charged == (0 if fails else len("In short."))
