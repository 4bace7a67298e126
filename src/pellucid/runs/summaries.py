"""Summaries of reasoning by a model that makes none, written while it thinks, paragraph by paragraph.

* A paragraph goes to the writer as soon as it is whole; its summary comes as a `SummaryEvent` inside the item.
* The end of the item, and all that follows it, waits for the summaries of that item, for `seconds` at most. What has
  not come by then does not come: raw text never stands in for it, and what only repeats or quotes it is no summary.
* What a summary takes is not the model's usage: it is told apart (`spent`), and shown to nobody.
* A model that summarises by itself is left alone.

The stage is only there where somebody wants summaries; it alone pays for its tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NamedTuple, Protocol

from ..events import Event, ItemEndEvent, ItemStartEvent, PartDeltaEvent, PartStartEvent, RunEndEvent, SummaryEvent
from ..models import Asked
from ..parts import (
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    ThinkingPart,
    ThinkingPartDelta,
    Usage,
    UserPromptPart,
)
from ..run import Minter
from ..settings import ModelCall
from ..telemetry import log, place_of
from ..text import GrowingText
from .later import later
from .live_run import LiveRun
from .source import Batch, clock_ms
from .stages import Stage

SECONDS = 10.0
"""How long an answer waits for the last summary."""

SHORT, LONG = 400, 4_000
"""Characters. A paragraph that is shorter is summarised with the next; one that is longer is cut."""

QUOTE = 60
"""Characters. No more in a row are taken from the text, give or take a half."""

INSTRUCTIONS = (
    "You are shown a stretch of a language model's private reasoning. Say in one or two plain sentences, in the first "
    "person, what it considers and decides. Do not quote it, do not answer the question, add nothing of your own."
)


class Written(NamedTuple):
    """What came of a stretch of reasoning."""

    text: str | None
    """None if there is no summary to be had."""
    usage: Usage = Usage()
    """What that took."""


Spent = Callable[[Usage, int], Coroutine[Any, Any, None]]
"""Told what a summary took: as it was reported, and how many characters were read and written."""


class Writer(Protocol):
    async def summary(self, text: str) -> Written:
        """A summary of this stretch of reasoning. Never raises."""
        ...


class ModelWriter:
    """Writes with a model that the operator names."""

    def __init__(self, model: Asked, max_tokens: int = 150) -> None:
        self._model = model
        self._max_tokens = max_tokens

    async def summary(self, text: str) -> Written:
        messages = [ModelRequest([SystemPromptPart(INSTRUCTIONS), UserPromptPart(text)])]
        settings = {"thinking": False, "max_tokens": self._max_tokens, "temperature": 0.0}
        call = ModelCall(self._model.name, messages, settings)  # type: ignore[arg-type]
        run = LiveRun(self._model, call, Minter(b"summary"))
        try:
            await run.open()
            await run.deliver(_ignore)
        except Exception as error:
            log.warning("a summary could not be written: %s", place_of(error))
            return Written(None)
        finally:
            run.close()
        said = next((said for said in run.run.messages if isinstance(said, ModelResponse)), None)
        ended = run.ended
        # One that was cut is still a summary of what it came to; one that failed is none.
        whole = ended is not None and ended.status in ("completed", "incomplete")
        summary = ((said.text or "").strip() or None) if said is not None and whole else None
        return Written(summary, ended.usage if ended is not None else Usage())


def _ignore(batch: Batch) -> None:
    """The run's messages are enough."""


class SummaryStage(Stage):
    """Has the reasoning that passes summarised."""

    def __init__(self, writer: Writer, seconds: float = SECONDS, spent: Spent | None = None) -> None:
        self._writer = writer
        self._seconds = seconds
        self._spent = spent
        self._held: list[Event] = []
        """What waits behind the end of an item."""
        self._holding = False
        self._item: int | None = None
        """The open reasoning item."""
        self._text = GrowingText()
        self._raw = False
        self._own = False
        """Whether the model makes summaries itself."""
        self._queue: list[tuple[int, str]] = []
        self._written: list[SummaryEvent] = []
        self._writing: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stopping = False

    def process(self, batch: Batch) -> Batch:
        if self._stopping:
            # What was written of the open item goes before what closes it.
            before: list[Event] = [*self._written] if self._item is not None else []
            before += self._held
            self._written, self._held, self._holding, self._item = [], [], False, None
            return Batch(batch.time_ms, before + batch.events)
        return Batch(batch.time_ms, self._release(self._pass(batch.events)))

    def stopping(self) -> None:
        self._stopping = True
        self._give_up()

    def _on_news(self) -> None:
        """A summary was written, or none will be any more."""
        if not self._stopping and (events := self._release([])):
            self.push(Batch(clock_ms(), events))

    def _pass(self, events: list[Event]) -> list[Event]:
        """What of these events may go on now."""
        out: list[Event] = []
        todo = self._held + events
        self._held = []
        for at, event in enumerate(todo):
            if self._holding:
                self._held = todo[at:]
                break
            if type(event) is PartDeltaEvent:
                delta = event.delta
                if self._raw and type(delta) is ThinkingPartDelta and delta.content_delta:
                    self._thought(delta.content_delta)
            elif isinstance(event, ItemStartEvent):
                self._item = event.index if event.kind == "reasoning" else None
            elif isinstance(event, PartStartEvent):
                form = event.part.form if isinstance(event.part, ThinkingPart) else None
                self._raw = form == "raw" and self._item is not None
                if form == "summary" and not self._own:
                    self._own = True
                    self._give_up()
                    self._written.clear()
            elif isinstance(event, ItemEndEvent) and self._item is not None:
                self._hand_over(self._item, self._text.take())
                if self._writing is not None or self._written:
                    self._hold()
                    self._held = todo[at:]
                    break
                self._item = None
            out.append(event)
        return out

    def _release(self, out: list[Event]) -> list[Event]:
        """`out`, the summaries that have come, and what need not be held any longer."""
        while True:
            if self._written and self._item is not None:
                out += self._written
                self._written = []
            if not self._holding or self._writing is not None:
                break
            # All that could be said of the item was said, or its time is over.
            self._holding = False
            self._item = None
            if self._deadline is not None:
                self._deadline.cancel()
            out.append(self._held.pop(0))
            out += self._pass([])
        if out and type(out[-1]) is RunEndEvent:
            self._stopping = True
            self._give_up()
        return out

    def _hold(self) -> None:
        self._holding = True
        self._deadline = asyncio.get_running_loop().call_later(self._seconds, self._on_deadline)

    def _on_deadline(self) -> None:
        self._give_up()
        self._on_news()

    def _thought(self, text: str) -> None:
        self._text.add(text)
        length = self._text.length
        if length > LONG or (length > SHORT and "\n" in text and "\n\n" in self._text.since(length - len(text) - 1)):
            assert self._item is not None
            self._hand_over(self._item, self._text.take())

    def _hand_over(self, item: int, text: str) -> None:
        if self._own or not text.strip():
            return
        self._queue += ((item, stretch) for stretch in _stretches(text))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        """One after the other, so that they come in order."""
        while self._queue:
            item, text = self._queue.pop(0)
            summary, usage = await self._writer.summary(text)
            if summary and not _repeats(summary, text):
                self._written.append(SummaryEvent(item, summary))
                self._on_news()
            if self._spent is not None and (summary or usage != Usage()):
                later(self._spent(usage, len(text) + len(summary or "")), "the tokens of a summary were not charged")
        self._writing = None
        self._on_news()

    def _give_up(self) -> None:
        """No more summaries of what was handed over so far."""
        self._queue.clear()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        if self._deadline is not None:
            self._deadline.cancel()


def _stretches(text: str) -> Iterator[str]:
    """What came at once, in pieces that a small model can read, cut where a paragraph, a line or a word ends."""
    while len(text) > LONG + SHORT:
        ends = (text.rfind(mark, LONG // 2, LONG) for mark in ("\n\n", "\n", " "))
        at = next((end for end in ends if end > 0), LONG)
        yield text[:at]
        text = text[at:]
    if text.strip():
        yield text


def _repeats(summary: str, text: str) -> bool:
    """Whether it is the text itself, or quotes it at length."""
    said, thought = (" ".join(words.split()).casefold() for words in (summary, text))
    windows = (thought[at : at + QUOTE] for at in range(0, len(thought) - QUOTE + 1, QUOTE // 2))
    return said in thought or any(window in said for window in windows)
