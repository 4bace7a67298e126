"""Summaries of raw reasoning, written by another model while the first one thinks, paragraph by paragraph.

* A paragraph goes to the writer as soon as it is complete. Its summary is a `SummaryEvent` inside the item.
* The end of the item and all later events wait for the item's summaries, at most `timeout_seconds`. Later summaries are
  dropped. Raw text never replaces a summary, and a text that repeats or quotes the reasoning is not a summary.
* Notes (`SUMMARY_NOTE`) say who writes the summaries of an item, when the model ended it, and whether some are missing:
  the time of the summaries is not that of the reasoning.
* The usage of summaries is not part of the run's usage: it is reported to `on_usage`, and not shown to clients.
* Reasoning of a model that makes summaries itself is not summarized.

The stage exists only if summaries are wanted. Its tasks cost nothing for other runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ..events import (
    SUMMARY_NOTE,
    Event,
    ItemEndEvent,
    ItemStartEvent,
    PartDeltaEvent,
    PartStartEvent,
    RunEndEvent,
    SideEvent,
    SummaryEvent,
)
from ..models import ChatModel
from ..parts import ThinkingPart, ThinkingPartDelta
from ..unicode import TextBuffer
from .model_text import UsageCallback, write_text
from .source import Batch, clock_ms
from .stages import Stage

TIMEOUT_SECONDS = 10.0
"""Seconds that the end of an item waits for its summaries."""

MIN_CHARS, MAX_CHARS = 400, 4_000
"""Characters. A shorter paragraph is summarized with the next one; a longer one is split."""

MAX_QUOTE_CHARS = 60
"""Characters. A summary with a longer quotation from the text is rejected (within a tolerance of one half)."""

INSTRUCTIONS = (
    "You are shown a stretch of a language model's private reasoning. Say in one or two plain sentences, in the first "
    "person, what it considers and decides. Do not quote it, do not answer the question, add nothing of your own."
)


class SummaryWriter:
    """Writes summaries of reasoning, with a model of the operator's configuration."""

    def __init__(self, model: ChatModel, max_tokens: int = 150) -> None:
        self._model = model
        self._max_tokens = max_tokens

    @property
    def name(self) -> str:
        """The name of the model that writes."""
        return self._model.name

    async def summarize(self, text: str, on_usage: UsageCallback | None = None) -> str | None:
        """Summarize one piece of reasoning. Never raises.

        Args:
            text: The piece.
            on_usage: Is called, in a task, with what was used.

        Returns:
            The summary; None if none could be made.
        """
        return await write_text(
            self._model, INSTRUCTIONS, text, max_tokens=self._max_tokens, purpose="a summary", on_usage=on_usage
        )


class SummaryStage(Stage):
    """Stage that adds summaries to the raw reasoning of a run.

    Args:
        writer: Writes the summaries.
        timeout_seconds: Time that the end of an item waits for its summaries.
        on_usage: Is called with the usage of each summary.
    """

    def __init__(
        self, writer: SummaryWriter, timeout_seconds: float = TIMEOUT_SECONDS, on_usage: UsageCallback | None = None
    ) -> None:
        self._writer = writer
        self._timeout_seconds = timeout_seconds
        self._on_usage = on_usage
        self._held_events: list[Event] = []
        """The end of an item that waits for summaries, and all later events."""
        self._is_holding = False
        self._item_index: int | None = None
        """Index of the open reasoning item."""
        self._text = TextBuffer()
        self._is_raw = False
        self._model_summarizes = False
        """Whether the model makes its own summaries."""
        self._queue: list[tuple[int, str]] = []
        self._written: list[SummaryEvent] = []
        self._missing: str | None = None
        """Why the open item lacks summaries."""
        self._is_noted = False
        """Whether the author of the open item's summaries was noted."""
        self._write_task: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_stopping = False

    def process(self, batch: Batch) -> Batch:
        if self._is_stopping:
            # Summaries of the open item precede the events that close it.
            before: list[Event] = [*self._written] if self._item_index is not None else []
            before += self._held_events
            self._written, self._held_events, self._is_holding, self._item_index = [], [], False, None
            return Batch(batch.time_ms, before + batch.events)
        return Batch(batch.time_ms, self._release(self._process_events(batch.events)))

    def on_stopping(self) -> None:
        self._is_stopping = True
        self._cancel_writing()

    def _push_released(self) -> None:
        """Push the events that can be released after a summary was written or the writing has ended."""
        if not self._is_stopping and (events := self._release([])):
            self.push(Batch(clock_ms(), events))

    def _process_events(self, events: list[Event]) -> list[Event]:
        """Process events up to the end of an item that waits for summaries; return those that pass now."""
        out: list[Event] = []
        pending = self._held_events + events
        self._held_events = []
        for index, event in enumerate(pending):
            if self._is_holding:
                self._held_events = pending[index:]
                break
            if type(event) is PartDeltaEvent:
                delta = event.delta
                if self._is_raw and type(delta) is ThinkingPartDelta and delta.content_delta:
                    self._add_thought(delta.content_delta)
                    self._note_author(out)
            elif isinstance(event, ItemStartEvent):
                self._item_index = event.index if event.kind == "reasoning" else None
                self._missing, self._is_noted = None, False
            elif isinstance(event, PartStartEvent):
                form = event.part.form if isinstance(event.part, ThinkingPart) else None
                self._is_raw = form == "raw" and self._item_index is not None
                if form == "summary" and not self._model_summarizes:
                    self._model_summarizes = True
                    self._cancel_writing()
                    self._written.clear()
            elif isinstance(event, ItemEndEvent) and self._item_index is not None:
                self._enqueue(self._item_index, self._text.take())
                self._note_author(out)
                if self._is_noted and not self._model_summarizes:
                    out.append(SideEvent(*SUMMARY_NOTE, {"ended": True}))
                if self._write_task is not None or self._written or self._missing:
                    self._hold()
                    self._held_events = pending[index:]
                    break
                self._item_index = None
            out.append(event)
        return out

    def _release(self, out: list[Event]) -> list[Event]:
        """Append the available summaries to `out`, then the events that need not wait any longer; return `out`."""
        while True:
            if self._written and self._item_index is not None:
                out += self._written
                self._written = []
            if not self._is_holding or self._write_task is not None:
                break
            # All summaries of the item are there, or the time is over.
            self._is_holding = False
            self._item_index = None
            if self._deadline is not None:
                self._deadline.cancel()
            if self._missing is not None and not self._model_summarizes:
                out.append(SideEvent(*SUMMARY_NOTE, {"missing": self._missing}))
            out.append(self._held_events.pop(0))
            out += self._process_events([])
        if out and type(out[-1]) is RunEndEvent:
            self._is_stopping = True
            self._cancel_writing()
        return out

    def _hold(self) -> None:
        self._is_holding = True
        self._deadline = asyncio.get_running_loop().call_later(self._timeout_seconds, self._on_deadline)

    def _note_author(self, out: list[Event]) -> None:
        if self._write_task is not None and not self._is_noted:
            self._is_noted = True
            out.append(SideEvent(*SUMMARY_NOTE, {"author": self._writer.name}))

    def _on_deadline(self) -> None:
        self._missing = "late"
        self._cancel_writing()
        self._push_released()

    def _add_thought(self, text: str) -> None:
        self._text.add(text)
        length = self._text.length
        if length > MAX_CHARS or (
            length > MIN_CHARS and "\n" in text and "\n\n" in self._text.text_from(length - len(text) - 1)
        ):
            assert self._item_index is not None
            self._enqueue(self._item_index, self._text.take())

    def _enqueue(self, item: int, text: str) -> None:
        if self._model_summarizes or not text.strip():
            return
        self._queue += ((item, stretch) for stretch in _split_text(text))
        if self._write_task is None:
            self._write_task = asyncio.create_task(self._write())

    async def _write(self) -> None:
        """Write the queued summaries one after the other, so that they are in order."""
        while self._queue:
            item, text = self._queue.pop(0)
            summary = await self._writer.summarize(text, self._on_usage)
            if summary and not _repeats(summary, text):
                self._written.append(SummaryEvent(item, summary))
                self._push_released()
            else:
                self._missing = "failed"
        self._write_task = None
        self._push_released()

    def _cancel_writing(self) -> None:
        """Cancel all summaries that are queued or in progress."""
        self._queue.clear()
        if self._write_task is not None:
            self._write_task.cancel()
            self._write_task = None
        if self._deadline is not None:
            self._deadline.cancel()


def _split_text(text: str) -> Iterator[str]:
    """Split a text into pieces that a small model can read, at the end of a paragraph, a line or a word."""
    while len(text) > MAX_CHARS + MIN_CHARS:
        ends = (text.rfind(mark, MAX_CHARS // 2, MAX_CHARS) for mark in ("\n\n", "\n", " "))
        end = next((end for end in ends if end > 0), MAX_CHARS)
        yield text[:end]
        text = text[end:]
    if text.strip():
        yield text


def _repeats(summary: str, text: str) -> bool:
    """Whether a summary is part of the text, or contains a long quotation from it."""
    summary_text, thought = (" ".join(words.split()).casefold() for words in (summary, text))
    windows = (
        thought[start : start + MAX_QUOTE_CHARS]
        for start in range(0, len(thought) - MAX_QUOTE_CHARS + 1, MAX_QUOTE_CHARS // 2)
    )
    return summary_text in thought or any(window in summary_text for window in windows)
