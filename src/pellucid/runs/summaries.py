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
from ..models import ChatModel
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
from ..telemetry import error_location, log
from ..unicode import TextBuffer
from .background_tasks import run_in_background
from .live_run import LiveRun
from .source import Batch, clock_ms
from .stages import Stage

TIMEOUT_SECONDS = 10.0
"""How long an answer waits for the last summary."""

MIN_CHARS, MAX_CHARS = 400, 4_000
"""Characters. A paragraph that is shorter is summarised with the next; one that is longer is cut."""

MAX_QUOTE_CHARS = 60
"""Characters. No more in a row are taken from the text, give or take a half."""

INSTRUCTIONS = (
    "You are shown a stretch of a language model's private reasoning. Say in one or two plain sentences, in the first "
    "person, what it considers and decides. Do not quote it, do not answer the question, add nothing of your own."
)


class SummaryResult(NamedTuple):
    """What came of a stretch of reasoning."""

    text: str | None
    """None if there is no summary to be had."""
    usage: Usage = Usage()
    """What that took."""


UsageCallback = Callable[[Usage, int], Coroutine[Any, Any, None]]
"""Told what a summary took: as it was reported, and how many characters were read and written."""


class SummaryWriter(Protocol):
    async def summarize(self, text: str) -> SummaryResult:
        """A summary of this stretch of reasoning. Never raises."""
        ...


class ModelSummaryWriter:
    """Writes with a model that the operator names."""

    def __init__(self, model: ChatModel, max_tokens: int = 150) -> None:
        self._model = model
        self._max_tokens = max_tokens

    async def summarize(self, text: str) -> SummaryResult:
        messages = [ModelRequest([SystemPromptPart(INSTRUCTIONS), UserPromptPart(text)])]
        settings = {"thinking": False, "max_tokens": self._max_tokens, "temperature": 0.0}
        call = ModelCall(self._model.name, messages, settings)  # type: ignore[arg-type]
        run = LiveRun(self._model, call, Minter(b"summary"))
        try:
            await run.open()
            await run.deliver(_ignore)
        except Exception as error:
            log.warning("a summary could not be written: %s", error_location(error))
            return SummaryResult(None)
        finally:
            run.close()
        response = next((response for response in run.run.messages if isinstance(response, ModelResponse)), None)
        ended = run.ended
        # One that was cut is still a summary of what it came to; one that failed is none.
        is_usable = ended is not None and ended.status in ("completed", "incomplete")
        summary = ((response.text or "").strip() or None) if response is not None and is_usable else None
        return SummaryResult(summary, ended.usage if ended is not None else Usage())


def _ignore(batch: Batch) -> None:
    """The run's messages are enough."""


class SummaryStage(Stage):
    """Has the reasoning that passes summarised."""

    def __init__(
        self, writer: SummaryWriter, timeout_seconds: float = TIMEOUT_SECONDS, on_usage: UsageCallback | None = None
    ) -> None:
        self._writer = writer
        self._timeout_seconds = timeout_seconds
        self._on_usage = on_usage
        self._held_events: list[Event] = []
        """What waits behind the end of an item."""
        self._is_holding = False
        self._item_index: int | None = None
        """The open reasoning item."""
        self._text = TextBuffer()
        self._is_raw = False
        self._model_summarizes = False
        """Whether the model makes summaries itself."""
        self._queue: list[tuple[int, str]] = []
        self._written: list[SummaryEvent] = []
        self._write_task: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_stopping = False

    def process(self, batch: Batch) -> Batch:
        if self._is_stopping:
            # What was written of the open item goes before what closes it.
            before: list[Event] = [*self._written] if self._item_index is not None else []
            before += self._held_events
            self._written, self._held_events, self._is_holding, self._item_index = [], [], False, None
            return Batch(batch.time_ms, before + batch.events)
        return Batch(batch.time_ms, self._release(self._process_events(batch.events)))

    def on_stopping(self) -> None:
        self._is_stopping = True
        self._cancel_writing()

    def _push_released(self) -> None:
        """A summary was written, or none will be any more."""
        if not self._is_stopping and (events := self._release([])):
            self.push(Batch(clock_ms(), events))

    def _process_events(self, events: list[Event]) -> list[Event]:
        """What of these events may go on now."""
        out: list[Event] = []
        pending = self._held_events + events
        self._held_events = []
        for at, event in enumerate(pending):
            if self._is_holding:
                self._held_events = pending[at:]
                break
            if type(event) is PartDeltaEvent:
                delta = event.delta
                if self._is_raw and type(delta) is ThinkingPartDelta and delta.content_delta:
                    self._add_thought(delta.content_delta)
            elif isinstance(event, ItemStartEvent):
                self._item_index = event.index if event.kind == "reasoning" else None
            elif isinstance(event, PartStartEvent):
                form = event.part.form if isinstance(event.part, ThinkingPart) else None
                self._is_raw = form == "raw" and self._item_index is not None
                if form == "summary" and not self._model_summarizes:
                    self._model_summarizes = True
                    self._cancel_writing()
                    self._written.clear()
            elif isinstance(event, ItemEndEvent) and self._item_index is not None:
                self._enqueue(self._item_index, self._text.take())
                if self._write_task is not None or self._written:
                    self._hold()
                    self._held_events = pending[at:]
                    break
                self._item_index = None
            out.append(event)
        return out

    def _release(self, out: list[Event]) -> list[Event]:
        """`out`, the summaries that have come, and what need not be held any longer."""
        while True:
            if self._written and self._item_index is not None:
                out += self._written
                self._written = []
            if not self._is_holding or self._write_task is not None:
                break
            # All that could be said of the item was said, or its time is over.
            self._is_holding = False
            self._item_index = None
            if self._deadline is not None:
                self._deadline.cancel()
            out.append(self._held_events.pop(0))
            out += self._process_events([])
        if out and type(out[-1]) is RunEndEvent:
            self._is_stopping = True
            self._cancel_writing()
        return out

    def _hold(self) -> None:
        self._is_holding = True
        self._deadline = asyncio.get_running_loop().call_later(self._timeout_seconds, self._on_deadline)

    def _on_deadline(self) -> None:
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
        """One after the other, so that they come in order."""
        while self._queue:
            item, text = self._queue.pop(0)
            summary, usage = await self._writer.summarize(text)
            if summary and not _repeats(summary, text):
                self._written.append(SummaryEvent(item, summary))
                self._push_released()
            if self._on_usage is not None and (summary or usage != Usage()):
                run_in_background(
                    self._on_usage(usage, len(text) + len(summary or "")), "the tokens of a summary were not charged"
                )
        self._write_task = None
        self._push_released()

    def _cancel_writing(self) -> None:
        """No more summaries of what was handed over so far."""
        self._queue.clear()
        if self._write_task is not None:
            self._write_task.cancel()
            self._write_task = None
        if self._deadline is not None:
            self._deadline.cancel()


def _split_text(text: str) -> Iterator[str]:
    """What came at once, in pieces that a small model can read, cut where a paragraph, a line or a word ends."""
    while len(text) > MAX_CHARS + MIN_CHARS:
        ends = (text.rfind(mark, MAX_CHARS // 2, MAX_CHARS) for mark in ("\n\n", "\n", " "))
        at = next((end for end in ends if end > 0), MAX_CHARS)
        yield text[:at]
        text = text[at:]
    if text.strip():
        yield text


def _repeats(summary: str, text: str) -> bool:
    """Whether it is the text itself, or quotes it at length."""
    summary_text, thought = (" ".join(words.split()).casefold() for words in (summary, text))
    windows = (
        thought[at : at + MAX_QUOTE_CHARS] for at in range(0, len(thought) - MAX_QUOTE_CHARS + 1, MAX_QUOTE_CHARS // 2)
    )
    return summary_text in thought or any(window in summary_text for window in windows)
