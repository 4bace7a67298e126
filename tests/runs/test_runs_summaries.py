"""Summaries of ours, in the midst of any run: whatever their writer does and when, the run is told as it was."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ErrorInfo
from pellucid.events import Event, ItemEndEvent, ItemStartEvent, RunEndEvent, SummaryEvent
from pellucid.fold import Fold, fold
from pellucid.parts import Usage
from pellucid.runs import summaries
from pellucid.runs.summaries import SummarisedRun, Written
from pellucid.view import Reader, Redactor
from tests.examples import costly
from tests.view.view_kit import SECRET, Turn, run_of, runs


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    """Paragraphs of a few characters, so that there are several in an item."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summaries, "SHORT", 4)
        patch.setattr(summaries, "LONG", 12)
        yield


class Told:
    """A run that was told before, in batches that end anywhere and come at any time."""

    def __init__(self, events: list[Event], dice: random.Random) -> None:
        self._left = list(events)
        self._dice = dice
        self._told: list[Event] = []
        self.ended: RunEndEvent | None = None
        self.waiting = False
        self.now = 0

    async def open(self) -> None:
        pass

    def wait(self) -> Awaitable[None]:
        return later(self._dice.choice([0, 0, 1, 4]))

    def take(self) -> list[Event] | None:
        if self.ended is not None:
            return None
        count = self._dice.choice([0, 1, 2, 7])
        return self._gave([self._left.pop(0) for _ in range(min(count, len(self._left)))])

    async def stop(self, error: ErrorInfo | None = None) -> list[Event]:
        await later(self._dice.choice([0, 1]))
        if self.ended is not None:
            return []
        so_far = Fold()
        for event in self._told:
            so_far.feed(event)
        return self._gave([*so_far.closing(error), RunEndEvent("failed", error=error)])

    def _gave(self, events: list[Event]) -> list[Event]:
        self._told += events
        if events and isinstance(events[-1], RunEndEvent):
            self.ended = events[-1]
        return events


async def later(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


class Author:
    """A writer with whims."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.at_work = 0
        self.given: list[str] = []

    async def summary(self, text: str) -> Written:
        self.given.append(text)
        self.at_work += 1
        try:
            whim = self._dice.random()
            await (later(self._dice.choice([0, 1, 5])) if whim < 0.9 else asyncio.Event().wait())
            return Written(None if whim < 0.2 else f"gist {len(self.given)}", Usage(output_tokens=1))
        finally:
            self.at_work -= 1


async def read(events: list[Event], dice: random.Random, stop_after: int | None = None) -> tuple[list[Event], Author]:
    author = Author(dice)
    run = SummarisedRun(Told(events, dice), author, seconds=0.01)
    out: list[Event] = []
    await run.open()
    taken = 0
    while run.ended is None:
        if taken == stop_after:
            out += await run.stop(ErrorInfo("server_error", "enough"))
            break
        async with asyncio.timeout(60):
            await run.wait()
        out += run.take() or []
        taken += 1
    assert isinstance(run.ended, RunEndEvent)
    assert run.take() is None
    assert await run.stop() == []
    await later(3)
    assert author.at_work == 0
    return out, author


dice = st.randoms(use_true_random=True)


@given(runs, dice)
def test_without_our_summaries_it_is_the_run_itself(events: list[Event], dice: random.Random) -> None:
    out, _ = asyncio.run(read(events, dice))
    assert [event for event in out if not isinstance(event, SummaryEvent)] == events
    fold(out)  # which is legal, summaries and all


@given(runs, dice, st.integers(0, 12))
def test_one_that_is_stopped_anywhere_is_closed(events: list[Event], dice: random.Random, after: int) -> None:
    out, _ = asyncio.run(read(events, dice, after))
    assert isinstance(out[-1], RunEndEvent)
    assert sum(isinstance(event, RunEndEvent) for event in out) == 1
    fold(out)


@costly
@given(runs, dice)
def test_raw_text_never_stands_in(events: list[Event], dice: random.Random) -> None:
    out, _author = asyncio.run(read(events, dice))
    for event in out:
        if isinstance(event, SummaryEvent):
            assert event.text.startswith("gist ")
    shown = Redactor(Reader("summary")).feed(out)
    fold(shown)
    assert SECRET not in str(shown)
    # They come in the order of what they are about, each in the item that it is about.
    numbers = [int(event.text.removeprefix("gist ")) for event in out if isinstance(event, SummaryEvent)]
    assert numbers == sorted(numbers)


def test_a_model_that_summarises_by_itself_is_left_alone() -> None:
    own: list[Turn] = [([("summary", 1, "a", False), ("raw", 1, "x" * 40, False)], "eof", "stop")]
    out, author = asyncio.run(read(run_of(own), random.Random(1)))
    assert author.given == []
    assert any(isinstance(event, ItemStartEvent) for event in out)
    assert not any(isinstance(event, SummaryEvent) for event in out)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Silent:
    """A run that has said this, and says nothing more until it is told to go on."""

    def __init__(self, events: list[Event], rest: list[Event]) -> None:
        self._events, self._rest = events, rest
        self.go_on = asyncio.Event()
        self.ended: RunEndEvent | None = None
        self.waiting = False
        self.now = 0

    async def open(self) -> None:
        pass

    async def wait(self) -> None:
        if not self._events:
            await self.go_on.wait()
            self._events = self._rest

    def take(self) -> list[Event] | None:
        if self.ended is not None:
            return None
        events, self._events = self._events, []
        if events and isinstance(events[-1], RunEndEvent):
            self.ended = events[-1]
        return events

    async def stop(self, error: ErrorInfo | None = None) -> list[Event]:
        self.ended = RunEndEvent("cancelled")
        return [self.ended]


class Says:
    """A writer that says this of everything, at once or never."""

    def __init__(self, said: str | None, usage: Usage = Usage(), *, hangs_after: int | None = None) -> None:  # noqa: B008
        self.given: list[str] = []
        self.left = 0
        self._said, self._usage, self._hangs_after = said, usage, hangs_after

    async def summary(self, text: str) -> Written:
        self.given.append(text)
        if self._hangs_after is not None and len(self.given) > self._hangs_after:
            try:
                await asyncio.Event().wait()
            finally:
                self.left += 1
        return Written(self._said, self._usage)


def thinks(*paragraphs: str) -> list[Event]:
    return run_of([([("raw", 1, text, False) for text in paragraphs], "eof", "stop")])


def summaries_in(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, SummaryEvent)]


@pytest.mark.anyio
async def test_what_is_whole_is_summarised_while_it_still_thinks() -> None:
    events = thinks("one two three four.\n\n", "five")
    at = next(place for place, event in enumerate(events) if isinstance(event, ItemEndEvent))
    inner = Silent(events[:at], events[at:])
    run = SummarisedRun(inner, Says("gist"), 5)
    seen: list[Event] = []
    while not summaries_in(seen):
        async with asyncio.timeout(60):
            await run.wait()
        seen += run.take() or []
    assert not any(isinstance(event, ItemEndEvent) for event in seen)
    inner.go_on.set()
    while run.ended is None:
        await run.wait()
        seen += run.take() or []
    fold(seen)


@pytest.mark.anyio
async def test_a_run_that_is_stopped_leaves_its_writer_at_once() -> None:
    events = thinks("one two three four.\n\n", "five")
    at = next(place for place, event in enumerate(events) if isinstance(event, ItemEndEvent))
    writer = Says("gist", hangs_after=0)
    run = SummarisedRun(Silent(events[:at], events[at:]), writer, 3600)
    await run.wait()
    run.take()
    await later(2)
    assert (len(writer.given), writer.left) == (1, 0)
    async with asyncio.timeout(60):
        assert isinstance((await run.stop())[-1], RunEndEvent)
    await later(1)
    assert writer.left == 1


@pytest.mark.anyio
async def test_what_was_written_by_the_deadline_comes_and_the_answer_waits_no_longer() -> None:
    run = SummarisedRun(
        Told(thinks("one two three.\n\n", "four five six.\n\n"), random.Random(3)), Says("gist", hangs_after=1), 0.2
    )
    seen: list[Event] = []
    began = asyncio.get_running_loop().time()
    while run.ended is None:
        async with asyncio.timeout(60):  # the writer would take for ever
            await run.wait()
        seen += run.take() or []
    assert summaries_in(seen) == ["gist"]
    assert asyncio.get_running_loop().time() - began >= 0.2
    assert run.ended.status == "completed"


@pytest.mark.anyio
async def test_what_it_took_is_told_apart_and_is_no_usage_of_the_run() -> None:
    told: list[tuple[Usage, int]] = []

    async def spent(usage: Usage, characters: int) -> None:
        told.append((usage, characters))

    events = thinks("one two three.\n\n", "four five six.\n\n")
    cost = Usage(input_tokens=7, output_tokens=2)
    for writer, counts in ((Says("gist", cost), 1), (Says(None, cost), 1), (Says("gist"), 1), (Says(None), 0)):
        told.clear()
        run = SummarisedRun(Told(events, random.Random(1)), writer, 5, spent)
        while run.ended is None:
            await run.wait()
            run.take()
        assert writer.given
        assert len(told) == len(writer.given) * counts
        assert run.ended == events[-1]
        for (usage, characters), text in zip(told, writer.given, strict=False):
            assert usage in (cost, Usage())
            assert characters >= len(text)


@given(st.text(alphabet="ab \n", max_size=400))
def test_what_came_at_once_is_cut_into_pieces_and_nothing_is_lost(text: str) -> None:
    pieces = list(summaries._stretches(text))
    assert all(piece.strip() and len(piece) <= summaries.LONG + summaries.SHORT for piece in pieces[-1:])
    assert "".join("".join(pieces).split()) == "".join(text.split())


words = st.lists(st.text(alphabet="abcdefgh", min_size=1, max_size=9), min_size=1, max_size=60).map(" ".join)


@given(words, words, st.sampled_from(["{}", "  {}\n", "In short: {}", "{} And so on."]), st.data())
def test_what_repeats_the_thought_is_no_summary(text: str, other: str, form: str, data: st.DataObject) -> None:
    assert summaries._repeats(f"\n{text.upper()} ", text)
    length = summaries.QUOTE * 3 // 2
    if len(text) > length:
        at = data.draw(st.integers(0, len(text) - length))
        assert summaries._repeats(form.format(text[at : at + length]), text)
    assert not summaries._repeats("Quite another matter, 1, 2, 3.", other)


@pytest.mark.anyio
async def test_a_writer_that_repeats_what_it_was_told_says_nothing() -> None:
    class Echo:
        async def summary(self, text: str) -> Written:
            return Written(f" {text}")

    run = SummarisedRun(Told(thinks("one two three.\n\n", "four"), random.Random(1)), Echo(), 5)
    seen: list[Event] = []
    while run.ended is None:
        await run.wait()
        seen += run.take() or []
    assert summaries_in(seen) == []
