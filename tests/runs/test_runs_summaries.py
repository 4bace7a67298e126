"""The gateway's summaries in any run: the behaviour of the writer does not change the run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.background_tasks import wait_for_tasks
from pellucid.errors import ErrorInfo
from pellucid.events import (
    Event,
    ItemEndEvent,
    ItemStartEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    RunEndEvent,
    SummaryEvent,
)
from pellucid.fold import fold
from pellucid.parts import ThinkingPart, ThinkingPartDelta, Usage
from pellucid.runs import Batch, summaries
from pellucid.runs.summaries import SummaryResult, SummaryStage
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


class RandomWriter:
    """A summary writer with random behaviour."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.at_work = 0
        self.texts: list[str] = []

    async def summarize(self, text: str) -> SummaryResult:
        self.texts.append(text)
        self.at_work += 1
        try:
            whim = self._dice.random()
            await (loop_turns(self._dice.choice([0, 1, 5])) if whim < 0.9 else asyncio.Event().wait())
            return SummaryResult(None if whim < 0.2 else f"gist {len(self.texts)}", Usage(output_tokens=1))
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
    assert [event for event in out if not isinstance(event, SummaryEvent)] == run_of(script)
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


class FixedWriter:
    """A writer that always returns this summary, at once or never."""

    def __init__(self, summary: str | None, usage: Usage = Usage(), *, hangs_after: int | None = None) -> None:  # noqa: B008
        self.texts: list[str] = []
        self.left = 0
        self._summary, self._usage, self._hangs_after = summary, usage, hangs_after

    async def summarize(self, text: str) -> SummaryResult:
        self.texts.append(text)
        if self._hangs_after is not None and len(self.texts) > self._hangs_after:
            try:
                await asyncio.Event().wait()
            finally:
                self.left += 1
        return SummaryResult(self._summary, self._usage)


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
    assert live.events == run_of(thinking_script("one two three four.\n\n", "five"))


@pytest.mark.anyio
async def test_the_answer_waits_for_summaries_only_until_the_deadline() -> None:
    stage = SummaryStage(FixedWriter("gist", hangs_after=1), 0.2)
    live = Live(thinking_script("one two three.\n\n", "four five six.\n\n"), random.Random(3), [stage])
    began = asyncio.get_running_loop().time()
    await live.deliver()  # the writer never returns
    assert summaries_in(live.events) == ["gist"]
    assert asyncio.get_running_loop().time() - began >= 0.2
    assert live.run.ended is not None
    assert live.run.ended.status == "completed"
    await live.check()


@pytest.mark.anyio
async def test_usage_of_summaries_is_reported_separately() -> None:
    reported: list[tuple[Usage, int]] = []

    async def spent(usage: Usage, characters: int) -> None:
        reported.append((usage, characters))

    script = thinking_script("one two three.\n\n", "four five six.\n\n")
    cost = Usage(input_tokens=7, output_tokens=2)
    for writer, counts in (
        (FixedWriter("gist", cost), 1),
        (FixedWriter(None, cost), 1),
        (FixedWriter("gist"), 1),
        (FixedWriter(None), 0),
    ):
        reported.clear()
        live = Live(script, random.Random(1), [SummaryStage(writer, 5, spent)])
        await live.deliver()
        await wait_for_tasks(LIMIT_SECONDS)
        assert writer.texts
        assert len(reported) == len(writer.texts) * counts
        assert live.run.ended == run_of(script)[-1]
        for (usage, characters), text in zip(reported, writer.texts, strict=False):
            assert usage in (cost, Usage())
            assert characters >= len(text)


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
    class EchoWriter:
        async def summarize(self, text: str) -> SummaryResult:
            return SummaryResult(f" {text}")

    live = Live(thinking_script("one two three.\n\n", "four"), random.Random(1), [SummaryStage(EchoWriter(), 5)])
    assert summaries_in(await live.deliver()) == []


@pytest.mark.anyio
@pytest.mark.parametrize("fails", [False, True], ids=["slow", "failing"])
async def test_a_summary_is_shown_before_it_is_charged(fails: bool) -> None:
    """Neither slow nor failing accounting delays the end of a thought."""
    charge, charged = asyncio.Event(), 0

    class ShortWriter:
        async def summarize(self, text: str) -> SummaryResult:
            return SummaryResult("In short.")

    async def spent(usage: Usage, characters: int) -> None:
        nonlocal charged
        if fails:
            raise RuntimeError("the relay is away")
        await charge.wait()
        charged = characters

    stage = SummaryStage(ShortWriter(), LIMIT_SECONDS, spent)
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
    assert charged == (0 if fails else len("I think.") + len("In short."))
