"""Builds one answer from the events of a run: its segments, both for the stream and for the canonical event.

    builder = AnswerBuilder(start_frame, on_frame)
    builder.handle_event(event, now)        # every event except deltas
    builder.handle_delta(event.delta, now)  # a delta, where `wants_delta` is true
    builder.answer                          # the canonical event in its present state

The rules:

* A segment is a reasoning item, a stretch of text (or of a refusal) within a message, one call of a tool, or a file. It
  has the id of its item. Where an item holds several segments, a number follows the id in each but the first.
* A reasoning segment opens with its item. Its parts, and text, open with their first characters: a part that turns out
  to be a signature without text opens nothing. Items that this protocol does not have open nothing either.
* The counters go up as things open: `output_index` with each segment, `sequence_number` with each segment and each
  part.
* Complete text comes from the ends of parts. Deltas are examined only where something opens with them, and for the
  beginning of a call's arguments.
* Calls are tracked in `calls`.

Frames are passed to a function as they arise (`frames`). The time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from ...errors import NOT_KEPT
from ...events import (
    SUMMARY_NOTE,
    AnsweringDeployment,
    Event,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ItemEndEvent,
    ItemStartEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseEndEvent,
    ResponseStartEvent,
    RunEndEvent,
    SideEvent,
)
from ...parts import (
    BuiltinToolCallPart,
    BuiltinToolCallPartDelta,
    BuiltinToolReturnPart,
    FilePart,
    ModelResponsePart,
    PartDelta,
    RefusalPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolCallPartDelta,
    Usage,
)
from ...unicode import json_safe, replace_surrogates
from ...view.viewer import VIEW_RULES
from .. import text_metadata
from ..encoding import PARAGRAPH_BREAK, or_unset
from . import frames as f
from . import types as t
from .calls import CallTracker, PendingCall, SegmentList

_INCOMPLETE_MESSAGES = {
    "max_output_tokens": "the answer reached its maximum number of tokens",
    "max_tool_calls": "the answer reached its maximum number of tool calls",
    "content_filter": "a content filter stopped the answer",
    "repetition": "the answer began to repeat itself, and was stopped",
}


def _ignore_frame(frame: Any) -> None:
    pass


class OpenText:
    """The open text: its segment and, for reasoning, its part of the segment."""

    __slots__ = ("output_index", "part", "segment")

    def __init__(
        self,
        segment: t.ReasoningSegment | t.TextSegment | t.RefusalSegment,
        output_index: int,
        part: t.ReasoningPart | None = None,
    ) -> None:
        self.segment = segment
        self.output_index = output_index
        """The segment's `output_index`."""
        self.part = part


class AnswerBuilder:
    """Builds one answer.

    Args:
        start_frame: The frame that starts the answer.
        on_frame: Receives every frame except deltas of text, which the caller writes itself.
    """

    def __init__(self, start_frame: f.MessageStarted, on_frame: f.FrameSink = _ignore_frame) -> None:
        self.open_text: OpenText | None = None
        """The open text."""
        self.wants_delta = False
        """Whether the next delta must be passed to `handle_delta`."""
        self.ended = False
        self._start_frame = start_frame
        self._on_frame = on_frame
        self._segment_list = SegmentList()
        self._calls = CallTracker(start_frame.event_id, self._segment_list, on_frame)
        self._status: t.Status = "in_progress"
        self._completed_at: int | UnsetType = UNSET
        self._usage: t.TokenCounts | UnsetType = UNSET
        self._deployment: AnsweringDeployment | UnsetType = UNSET
        self._error: t.Fault | UnsetType = UNSET
        self._item_id = ""
        self._open_reasoning: t.ReasoningSegment | None = None
        """The segment of the open reasoning item."""
        self._reasoned_until: int | None = None
        """When the model ended the open reasoning item, if its summaries may still come."""
        self._turn_reasoning: list[t.ReasoningSegment] = []
        """The reasoning segments of this turn."""
        self._item_text: OpenText | None = None
        """The last text of the open item, to which text of the same kind is appended."""
        self._pending_part: ThinkingPart | TextPart | RefusalPart | None = None
        """A part that has started and has no text yet."""
        self._open_call: PendingCall | None = None
        """The call whose arguments are coming."""

    def feed(self, events: Sequence[Event], now: int) -> None:
        """Handle a batch, where only the answer is wanted and not a stream."""
        for event in events:
            if type(event) is not PartDeltaEvent:
                self.handle_event(event, now)
            elif self.wants_delta:
                self.handle_delta(event.delta, now)

    def handle_event(self, event: Event, now: int) -> None:
        """Handle an event that is not a delta."""
        handler = HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event, now)

    def handle_delta(self, delta: PartDelta, now: int) -> None:
        """Handle a delta of the part for which `wants_delta` is true."""
        if type(delta) is ToolCallPartDelta or type(delta) is BuiltinToolCallPartDelta:
            if self._open_call is not None:
                self._calls.add_delta(self._open_call, delta)
                self.wants_delta = self._open_call.wants_delta
        elif self._pending_part is not None and getattr(delta, "content_delta", None):
            self._open_pending(self._pending_part, now)

    @property
    def answer(self) -> t.Answer:
        """The canonical event. Values that JSON cannot hold are replaced."""
        start = self._start_frame
        return json_safe(
            t.Answer(
                id=start.event_id,
                conversation_id=start.conversation_id,
                model=start.model,
                created_at=start.created_at,
                status=self._status,
                segments=self._segment_list.segments,
                completed_at=self._completed_at,
                view=start.view,
                effort_level=start.effort_level,
                usage=self._usage,
                deployment=self._deployment,
                error=self._error,
                timeline=self._segment_list.timeline or UNSET,
            )
        )

    # --- opening -----------------------------------------------------------------------------------------------

    def _open_pending(self, part: ThinkingPart | TextPart | RefusalPart, now: int) -> None:
        self._pending_part, self.wants_delta = None, False
        if isinstance(part, ThinkingPart):
            self._open_reasoning_part(part, now)
            return
        segment_type = t.TextSegment if isinstance(part, TextPart) else t.RefusalSegment
        if self._item_text is None or type(self._item_text.segment) is not segment_type:
            output_index = len(self._segment_list.segments)
            segment = segment_type(id=self._segment_list.unique_id(self._item_id))
            self._segment_list.next_sequence_number()
            self._segment_list.add(segment, now)
            self._item_text = OpenText(segment, output_index)
        self.open_text = self._item_text

    def _open_reasoning_part(self, thinking: ThinkingPart, now: int) -> None:
        segment = self._open_reasoning
        if segment is None:
            return
        part = t.ReasoningPart(
            type="summary_text" if thinking.form == "summary" else "reasoning_text",
            created_at=now,
            summary_index=len(segment.parts),
            sequence_number=self._segment_list.next_sequence_number(),
        )
        segment.parts.append(part)
        self.open_text = OpenText(segment, segment.output_index, part)
        self._on_frame(
            f.ReasoningPartStarted(
                event_id=self._start_frame.event_id,
                segment_id=segment.id,
                summary_index=part.summary_index,
                sequence_number=part.sequence_number,
                created_at=now,
            )
        )

    # --- items -------------------------------------------------------------------------------------------------

    def _item_start(self, event: ItemStartEvent, now: int) -> None:
        self._item_id = replace_surrogates(event.id) if event.id else f"segment_{len(self._segment_list.segments)}"
        if event.kind == "reasoning":
            self._open_reasoning_segment(now)

    def _open_reasoning_segment(self, now: int) -> None:
        start = self._start_frame
        segment = t.ReasoningSegment(
            id=self._segment_list.unique_id(self._item_id),
            parts=[],
            output_index=len(self._segment_list.segments),
            sequence_number=self._segment_list.next_sequence_number(),
            effort_level=start.effort_level,
        )
        self._segment_list.add(segment, now)
        self._open_reasoning, self._reasoned_until = segment, None
        self._turn_reasoning.append(segment)
        self._on_frame(
            f.ReasoningSegmentMeta(
                event_id=start.event_id,
                segment_id=segment.id,
                sequence_number=segment.sequence_number,
                output_index=segment.output_index,
                created_at=now,
                effort_level=start.effort_level,
                form=VIEW_RULES[start.view].form or UNSET,
            )
        )

    def _item_end(self, event: ItemEndEvent, now: int) -> None:
        reasoning, text = self._open_reasoning, self._item_text
        self._open_reasoning = self._item_text = None
        if reasoning is not None:
            reasoning.combined_text = PARAGRAPH_BREAK.join([part.text for part in reasoning.parts])
            if not reasoning.parts and self._reasoned_until is None:
                self._segment_list.timeline[reasoning.output_index].ended_at = now
        elif text is not None:
            self._segment_list.timeline[text.output_index].ended_at = now

    def _side(self, event: SideEvent, now: int) -> None:
        reasoning = self._open_reasoning
        if reasoning is None or (event.namespace, event.name) != SUMMARY_NOTE or self._start_frame.view != "summary":
            return
        note: dict[str, Any] = event.value
        if "ended" in note:
            self._reasoned_until = self._segment_list.timeline[reasoning.output_index].ended_at = now
        if "author" in note:
            reasoning.summary = t.SummaryNote(author=note["author"])
        elif "missing" in note and reasoning.summary:
            reasoning.summary.missing = note["missing"]
        self._on_frame(
            f.ReasoningSegmentMeta(
                event_id=self._start_frame.event_id,
                segment_id=reasoning.id,
                completed_at=now if "ended" in note else UNSET,
                summary=reasoning.summary,
            )
        )

    # --- parts -------------------------------------------------------------------------------------------------

    def _part_start(self, event: PartStartEvent, now: int) -> None:
        part = event.part
        if isinstance(part, ThinkingPart | TextPart | RefusalPart):
            self._pending_part, self.wants_delta = part, True
        elif isinstance(part, ToolCallPart | BuiltinToolCallPart):
            self._open_call = self._calls.open(part, self._item_id, now)
            self.wants_delta = True

    def _part_end(self, event: PartEndEvent, now: int) -> None:
        open_text, self.open_text = self.open_text, None
        self._pending_part, self.wants_delta = None, False
        finish = _ENDS.get(type(event.part))
        if finish is not None:
            finish(self, event.part, open_text, now)

    def _thinking_end(self, thinking: ThinkingPart, open_text: OpenText | None, now: int) -> None:
        if open_text is None or open_text.part is None:
            return
        open_text.part.text = replace_surrogates(thinking.content)
        open_text.part.is_complete = thinking.complete
        self._complete_reasoning_part(open_text, open_text.part, now)

    def _text_end(self, part: TextPart | RefusalPart, open_text: OpenText | None, now: int) -> None:
        if open_text is None or not isinstance(open_text.segment, t.TextSegment | t.RefusalSegment):
            return
        segment = open_text.segment
        if isinstance(part, TextPart) and isinstance(segment, t.TextSegment):
            citations = _citations(part.annotations or [], len(segment.text))
            if citations:
                segment.annotations = [*(segment.annotations or []), *citations]
        segment.text += replace_surrogates(part.content)

    def _file_end(self, part: FilePart, open_text: OpenText | None, now: int) -> None:
        self._segment_list.next_sequence_number()
        id = self._segment_list.unique_id(self._item_id)
        self._segment_list.add(t.FileSegment(id=id, media_type=part.media_type, data=part.data), now)

    # --- calls -------------------------------------------------------------------------------------------------

    def _call_end(self, part: ToolCallPart | BuiltinToolCallPart, open_text: OpenText | None, now: int) -> None:
        call, self._open_call = self._open_call, None
        if call is not None:
            self._calls.complete_arguments(call, part)

    def _builtin_result(self, part: BuiltinToolReturnPart, open_text: OpenText | None, now: int) -> None:
        self._calls.builtin_returned(part, self._item_id, now)

    def _function_started(self, event: FunctionToolCallEvent, now: int) -> None:
        self._calls.start_function(event.part, now)

    def _tool_result(self, event: FunctionToolResultEvent, now: int) -> None:
        self._calls.function_returned(event, now)

    # --- turns, and the end of the run -------------------------------------------------------------------------

    def _turn_start(self, event: ResponseStartEvent, now: int) -> None:
        self._turn_reasoning = []
        self._deployment = or_unset(event.deployment)

    def _turn_end(self, event: ResponseEndEvent, now: int) -> None:
        tokens = event.usage.output_reasoning_tokens
        # One count cannot be divided among several segments. 0, although there was reasoning, means: not counted.
        if not tokens or len(self._turn_reasoning) != 1:
            return
        [reasoning] = self._turn_reasoning
        reasoning.reasoning_tokens = tokens
        self._on_frame(
            f.ReasoningSegmentMeta(
                event_id=self._start_frame.event_id,
                segment_id=reasoning.id,
                effort_level=self._start_frame.effort_level,
                reasoning_tokens=tokens,
                form=_reasoning_form(reasoning),
            )
        )

    def _run_end(self, event: RunEndEvent, now: int) -> None:
        if self.ended:
            return
        self.ended = True
        is_complete = self._close_open_text(now)
        self._calls.end(now)
        self._status, self._completed_at = event.status, now
        self._usage = _usage(event.usage)
        if event.status == "failed":
            error = json_safe(event.failure)
            self._error = t.Fault(message=error.full_message, code=error.code or error.kind)
            self._on_frame(f.MessageError(event_id=self._start_frame.event_id, message=error.full_message))
        elif event.status == "cancelled":
            self._on_frame(f.MessageCancelled(event_id=self._start_frame.event_id))
        elif event.incomplete_reason is not None:
            reason = event.incomplete_reason
            self._error = t.Fault(message=_INCOMPLETE_MESSAGES[reason], code=reason)
        if is_complete and (event.error is None or event.error.code != NOT_KEPT):
            self._on_frame(f.MessageFinal(event=self.answer))

    def _close_open_text(self, now: int) -> bool:
        """Close what the run left open when it broke off.

        Returns:
            False if text was open: its content is not known here.
        """
        open_text, self.open_text = self.open_text, None
        self._pending_part, self.wants_delta = None, False
        if open_text is not None and open_text.part is not None:
            self._complete_reasoning_part(open_text, open_text.part, now)
        return open_text is None

    def _complete_reasoning_part(self, open_text: OpenText, part: t.ReasoningPart, now: int) -> None:
        """End a part, whether or not it is complete, and send the frame. So far, its segment ends with it."""
        if self._reasoned_until is None:
            self._segment_list.timeline[open_text.output_index].ended_at = now
        self._on_frame(
            f.ReasoningPartCompleted(
                event_id=self._start_frame.event_id,
                segment_id=open_text.segment.id,
                summary_index=part.summary_index,
                completed_at=now,
            )
        )


def _reasoning_form(reasoning: t.ReasoningSegment) -> Any:
    if not reasoning.parts:
        return "sealed"
    return "raw" if any(part.type == "reasoning_text" for part in reasoning.parts) else "summary"


def _citations(raw: list[dict[str, Any]], offset: int) -> list[t.Citation]:
    """Return the citations of a text that has `offset` characters of its segment in front of it."""
    return [
        t.Citation(
            url=citation.url,
            title=citation.title,
            start_index=UNSET if citation.start is None else citation.start + offset,
            end_index=UNSET if citation.end is None else citation.end + offset,
        )
        for citation in text_metadata.citations(raw)
    ]


def _usage(usage: Usage) -> t.TokenCounts | UnsetType:
    counts = t.TokenCounts(
        input_tokens=or_unset(usage.input_tokens),
        output_tokens=or_unset(usage.output_tokens),
        reasoning_tokens=or_unset(usage.output_reasoning_tokens),
        cost=or_unset(usage.cost),
        reasoning_cost=or_unset(usage.reasoning_cost or None),
    )
    return counts if counts != t.TokenCounts() else UNSET


_ENDS: dict[type[ModelResponsePart], Callable[[AnswerBuilder, Any, OpenText | None, int], None]] = {
    ThinkingPart: AnswerBuilder._thinking_end,
    TextPart: AnswerBuilder._text_end,
    RefusalPart: AnswerBuilder._text_end,
    ToolCallPart: AnswerBuilder._call_end,
    BuiltinToolCallPart: AnswerBuilder._call_end,
    BuiltinToolReturnPart: AnswerBuilder._builtin_result,
    FilePart: AnswerBuilder._file_end,
}

HANDLERS: dict[type[Any], Callable[[AnswerBuilder, Any, int], None]] = {
    ResponseStartEvent: AnswerBuilder._turn_start,
    ResponseEndEvent: AnswerBuilder._turn_end,
    ItemStartEvent: AnswerBuilder._item_start,
    ItemEndEvent: AnswerBuilder._item_end,
    PartStartEvent: AnswerBuilder._part_start,
    PartEndEvent: AnswerBuilder._part_end,
    FunctionToolCallEvent: AnswerBuilder._function_started,
    FunctionToolResultEvent: AnswerBuilder._tool_result,
    SideEvent: AnswerBuilder._side,
    RunEndEvent: AnswerBuilder._run_end,
}
"""The handler of each kind of event except deltas. Events that are not listed are not shown."""
