"""Compactions: a shorter form of a conversation, in an item that only this gateway can read.

The model itself writes a summary, which is sealed. A client sends the item in place of the conversation, to any
replica, and any model can continue from it. Nothing needs to be stored here.

A client asks for one with `POST /v1/responses/compact`, or with an item `compaction_trigger` at the end of the input of
a response, which then has the compaction as its output.
"""

from __future__ import annotations

from msgspec.structs import replace

from ...conversation import join_messages
from ...errors import ErrorInfo
from ...events import (
    Event,
    ItemEndEvent,
    ItemStartEvent,
    Mint,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseEndEvent,
    RunEndEvent,
)
from ...parts import CompactionPart, ModelRequest, TextPart, UserPromptPart
from ...runs import Batch
from ...runs.stages import Stage
from ...settings import ModelCall, OutputFormat, ToolChoice

EMPTY_COMPACTION = ErrorInfo(
    "model_error", "the model wrote an empty compaction of the conversation", code="empty_compaction"
)
INCOMPLETE_COMPACTION = ErrorInfo(
    "model_error",
    "the model did not finish the compaction of the conversation, so that it would be incomplete",
    code="incomplete_compaction",
)
COMPACTION_PROMPT = (
    "Write a summary of the conversation so far that can stand in its place: someone who reads only it must be able to "
    "go on. Keep every fact, decision, name, number, open question and instruction that may matter, and what was tried "
    "and came of it. Write plain prose, no greeting, nothing about this task."
)


def compaction_call(call: ModelCall) -> ModelCall:
    """Return the call in which the model writes the compaction of the conversation of `call`."""
    return replace(
        call,
        messages=join_messages(call.messages, [ModelRequest([UserPromptPart(COMPACTION_PROMPT)])]),
        tools=(),
        native_tools=(),
        tool_choice=ToolChoice(),
        output=OutputFormat(),
    )


class CompactionStage(Stage):
    """Stage that turns the model's text into a compaction, and leaves out its reasoning."""

    def __init__(self, mint: Mint) -> None:
        self._mint = mint
        self._texts: list[str] = []
        self._error: ErrorInfo | None = None

    def process(self, batch: Batch) -> Batch:
        events: list[Event] = []
        for event in batch.events:
            if isinstance(event, PartEndEvent):
                if isinstance(event.part, TextPart):
                    self._texts.append(event.part.content)
            elif isinstance(event, ResponseEndEvent):
                events += [*self._compaction(event), event]
            elif isinstance(event, RunEndEvent) and event.error is None and self._error is not None:
                events.append(replace(event, status="failed", error=self._error, incomplete_reason=None))
            elif not isinstance(event, ItemStartEvent | ItemEndEvent | PartStartEvent | PartDeltaEvent):
                events.append(event)
        return Batch(batch.time_ms, events)

    def _compaction(self, end: ResponseEndEvent) -> list[Event]:
        text = "".join(self._texts)
        if end.finish_reason != "stop":
            self._error = INCOMPLETE_COMPACTION
        elif not text.strip():
            self._error = EMPTY_COMPACTION
        if self._error is not None:
            return []
        part = CompactionPart(text)
        return [
            ItemStartEvent(0, "compaction", id=self._mint("cmp")),
            PartStartEvent(0, part),
            PartEndEvent(0, part),
            ItemEndEvent(0),
        ]
