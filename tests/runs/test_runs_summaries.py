"""Summaries of ours, in the midst of any run: whatever their writer does and when, the run is told as it was."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.errors import ErrorInfo
from pellucid.events import Event, ItemStartEvent, RunEndEvent, SummaryEvent
from pellucid.fold import Fold, fold
from pellucid.runs import summaries
from pellucid.runs.summaries import SummarisedRun
from pellucid.view import Reader, Redactor

sys.path.append(str(Path(__file__).parents[1] / "view"))
from view_kit import SECRET, run_of, runs


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

    async def summary(self, text: str) -> str | None:
        self.given.append(text)
        self.at_work += 1
        try:
            whim = self._dice.random()
            await (later(self._dice.choice([0, 1, 5])) if whim < 0.9 else asyncio.sleep(3600))
            return None if whim < 0.2 else f"gist {len(self.given)}"
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
        async with asyncio.timeout(20):
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


@settings(max_examples=120, deadline=None)
@given(runs, dice)
def test_without_our_summaries_it_is_the_run_itself(events: list[Event], dice: random.Random) -> None:
    out, _ = asyncio.run(read(events, dice))
    assert [event for event in out if not isinstance(event, SummaryEvent)] == events
    fold(out)  # which is legal, summaries and all


@settings(max_examples=80, deadline=None)
@given(runs, dice, st.integers(0, 12))
def test_one_that_is_stopped_anywhere_is_closed(events: list[Event], dice: random.Random, after: int) -> None:
    out, _ = asyncio.run(read(events, dice, after))
    assert isinstance(out[-1], RunEndEvent)
    assert sum(isinstance(event, RunEndEvent) for event in out) == 1
    fold(out)


@settings(max_examples=60, deadline=None)
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
    own = [([("summary", 1, "a", False), ("raw", 1, "x" * 40, False)], "eof", "stop")]
    out, author = asyncio.run(read(run_of(own), random.Random(1)))
    assert author.given == []
    assert any(isinstance(event, ItemStartEvent) for event in out)
    assert not any(isinstance(event, SummaryEvent) for event in out)
