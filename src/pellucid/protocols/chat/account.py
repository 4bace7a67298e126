"""One answer as it comes about: the one account of its segments, for its stream and for its canonical event alike.

    account = Account(head, tell)
    account.step(event, now)         # every event but deltas
    account.delta(event.delta, now)  # a delta, where `asks` says that it changes something
    account.answer                   # the canonical event as it stands

The rules:

* A segment is a reasoning item, a stretch of text (or of refusal) within a message, one call of a tool, a file. It has
  its item's id; where an item holds several, those that follow have a number behind it.
* Reasoning opens with its item. Its parts, and text, open with their first characters: what turns out to be a signature
  and nothing to read opens nothing. What this protocol has no word for opens nothing either.
* The counters go up as things open: `output_index` by each segment, `sequence_number` by each segment and each part.
* Text comes from the ends of parts, whole. Deltas are looked at only where something opens with them, and for the
  beginning of a call's arguments.
* Calls are an account of their own (`calls`).

What is to be told is told to whoever made the account, as it happens (`frames`). The time is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from ...errors import NOT_KEPT, ErrorInfo
from ...events import (
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
    View,
)
from ...text import shown, writable
from .. import beside
from . import frames as f
from . import types as t
from .calls import Call, Calls, Ledger

APART = "\n\n"

_FORMS: dict[View, Any] = {"summary": "summary", "sealed": "sealed"}
"""What a segment of reasoning is to a reader before anything of it came; of raw reasoning, its parts will say."""

_LIMITS = {
    "max_output_tokens": "the answer reached the most tokens that it may have",
    "max_tool_calls": "the answer reached the most calls that it may make",
    "content_filter": "a filter stopped the answer",
}


def _nobody(frame: Any) -> None:
    pass


class Writing:
    """The open text: its segment, and its part of it, where it is reasoning."""

    __slots__ = ("part", "place", "segment")

    def __init__(
        self,
        segment: t.ReasoningSegment | t.TextSegment | t.RefusalSegment,
        place: int,
        part: t.ReasoningPart | None = None,
    ) -> None:
        self.segment = segment
        self.place = place
        """The segment's `output_index`."""
        self.part = part


class Account:
    """One answer. `tell` gets its frames, but for the deltas of text, which are whoever reads them's to write."""

    def __init__(self, head: f.MessageStarted, tell: f.Tell = _nobody) -> None:
        self.writing: Writing | None = None
        """The open text."""
        self.asks = False
        """Whether the next delta is to be handed in."""
        self.ended = False
        self._head = head
        self._tell = tell
        self._ledger = Ledger()
        self._calls = Calls(head.event_id, self._ledger, tell)
        self._status: t.Status = "in_progress"
        self._completed_at: int | UnsetType = UNSET
        self._usage: t.TokenCounts | UnsetType = UNSET
        self._error: t.Fault | UnsetType = UNSET
        self._item = ""
        self._thought: t.ReasoningSegment | None = None
        """The open reasoning item."""
        self._thoughts: list[t.ReasoningSegment] = []
        """Those of this turn."""
        self._stretch: Writing | None = None
        """The text that the open item ended with, should more of it follow."""
        self._begun: ThinkingPart | TextPart | RefusalPart | None = None
        """A part that has begun, and says nothing yet."""
        self._call: Call | None = None
        """The call whose arguments come."""

    def read(self, events: Sequence[Event], now: int) -> None:
        """Take a batch, for whoever wants the answer and no stream."""
        for event in events:
            if type(event) is not PartDeltaEvent:
                self.step(event, now)
            elif self.asks:
                self.delta(event.delta, now)

    def step(self, event: Event, now: int) -> None:
        """Take an event that is no delta."""
        handler = HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event, now)

    def delta(self, delta: PartDelta, now: int) -> None:
        """Take a delta: one of the part that `asks` is about."""
        if type(delta) is ToolCallPartDelta or type(delta) is BuiltinToolCallPartDelta:
            if self._call is not None:
                self._calls.delta(self._call, delta)
                self.asks = self._call.listens
        elif self._begun is not None and getattr(delta, "content_delta", None):
            self._open(self._begun, now)

    @property
    def answer(self) -> t.Answer:
        """The canonical event. What JSON cannot hold is replaced in it."""
        head = self._head
        return writable(
            t.Answer(
                id=head.event_id,
                conversation_id=head.conversation_id,
                model=head.model,
                created_at=head.created_at,
                status=self._status,
                segments=self._ledger.segments,
                completed_at=self._completed_at,
                view=head.view,
                effort_level=head.effort_level,
                usage=self._usage,
                error=self._error,
                timeline=self._ledger.timeline or UNSET,
            )
        )

    # --- opening -----------------------------------------------------------------------------------------------

    def _open(self, part: ThinkingPart | TextPart | RefusalPart, now: int) -> None:
        self._begun, self.asks = None, False
        if isinstance(part, ThinkingPart):
            self._open_part(part, now)
            return
        kind = t.TextSegment if isinstance(part, TextPart) else t.RefusalSegment
        if self._stretch is None or type(self._stretch.segment) is not kind:
            place = len(self._ledger.segments)
            segment = kind(id=self._ledger.name(self._item))
            self._ledger.number()
            self._ledger.add(segment, now)
            self._stretch = Writing(segment, place)
        self.writing = self._stretch

    def _open_part(self, thought: ThinkingPart, now: int) -> None:
        segment = self._thought
        if segment is None:
            return
        part = t.ReasoningPart(
            type="summary_text" if thought.form == "summary" else "reasoning_text",
            created_at=now,
            summary_index=len(segment.parts),
            sequence_number=self._ledger.number(),
        )
        segment.parts.append(part)
        self.writing = Writing(segment, segment.output_index, part)
        self._tell(
            f.ReasoningPartStarted(
                event_id=self._head.event_id,
                segment_id=segment.id,
                summary_index=part.summary_index,
                sequence_number=part.sequence_number,
                created_at=now,
            )
        )

    # --- items -------------------------------------------------------------------------------------------------

    def _item_start(self, event: ItemStartEvent, now: int) -> None:
        self._item = shown(event.id) if event.id else f"segment_{len(self._ledger.segments)}"
        if event.kind == "reasoning":
            self._open_thought(now)

    def _open_thought(self, now: int) -> None:
        head = self._head
        segment = t.ReasoningSegment(
            id=self._ledger.name(self._item),
            parts=[],
            output_index=len(self._ledger.segments),
            sequence_number=self._ledger.number(),
            effort_level=head.effort_level,
        )
        self._ledger.add(segment, now)
        self._thought = segment
        self._thoughts.append(segment)
        self._tell(
            f.ReasoningSegmentMeta(
                event_id=head.event_id,
                segment_id=segment.id,
                sequence_number=segment.sequence_number,
                output_index=segment.output_index,
                created_at=now,
                effort_level=head.effort_level,
                form=_FORMS.get(head.view, UNSET),
            )
        )

    def _item_end(self, event: ItemEndEvent, now: int) -> None:
        thought, stretch = self._thought, self._stretch
        self._thought = self._stretch = None
        if thought is not None:
            thought.combined_text = APART.join([part.text for part in thought.parts])
            self._ledger.timeline[thought.output_index].ended_at = now
        elif stretch is not None:
            self._ledger.timeline[stretch.place].ended_at = now

    # --- parts -------------------------------------------------------------------------------------------------

    def _part_start(self, event: PartStartEvent, now: int) -> None:
        part = event.part
        if isinstance(part, ThinkingPart | TextPart | RefusalPart):
            self._begun, self.asks = part, True
        elif isinstance(part, ToolCallPart | BuiltinToolCallPart):
            self._call = self._calls.open(part, self._item, now)
            self.asks = True

    def _part_end(self, event: PartEndEvent, now: int) -> None:
        writing, self.writing = self.writing, None
        self._begun, self.asks = None, False
        finish = _ENDS.get(type(event.part))
        if finish is not None:
            finish(self, event.part, writing, now)

    def _thinking_end(self, thought: ThinkingPart, writing: Writing | None, now: int) -> None:
        if writing is None or writing.part is None:
            return
        writing.part.text = shown(thought.content)
        writing.part.is_complete = thought.complete
        self._tell_over(writing.segment.id, writing.part)

    def _text_end(self, part: TextPart | RefusalPart, writing: Writing | None, now: int) -> None:
        if writing is None or not isinstance(writing.segment, t.TextSegment | t.RefusalSegment):
            return
        segment = writing.segment
        if isinstance(part, TextPart) and isinstance(segment, t.TextSegment):
            cited = _citations(part.annotations or [], len(segment.text))
            if cited:
                segment.annotations = [*(segment.annotations or []), *cited]
        segment.text += shown(part.content)

    def _file(self, part: FilePart, writing: Writing | None, now: int) -> None:
        self._ledger.number()
        id = self._ledger.name(self._item)
        self._ledger.add(t.FileSegment(id=id, media_type=part.media_type, data=part.data), now)

    # --- calls -------------------------------------------------------------------------------------------------

    def _call_end(self, part: ToolCallPart | BuiltinToolCallPart, writing: Writing | None, now: int) -> None:
        call, self._call = self._call, None
        if call is not None:
            self._calls.whole(call, part)

    def _builtin_result(self, part: BuiltinToolReturnPart, writing: Writing | None, now: int) -> None:
        self._calls.builtin_returned(part, self._item, now)

    def _running(self, event: FunctionToolCallEvent, now: int) -> None:
        self._calls.running(event.part, now)

    def _tool_result(self, event: FunctionToolResultEvent, now: int) -> None:
        self._calls.returned(event, now)

    # --- turns and the run -------------------------------------------------------------------------------------

    def _turn_start(self, event: ResponseStartEvent, now: int) -> None:
        self._thoughts = []

    def _turn_end(self, event: ResponseEndEvent, now: int) -> None:
        tokens = event.usage.output_reasoning_tokens
        # Tokens of several thoughts cannot be told apart; none, for a thought that there was, is nobody's count.
        if not tokens or len(self._thoughts) != 1:
            return
        [thought] = self._thoughts
        thought.reasoning_tokens = tokens
        self._tell(
            f.ReasoningSegmentMeta(
                event_id=self._head.event_id,
                segment_id=thought.id,
                effort_level=self._head.effort_level,
                reasoning_tokens=tokens,
                form=_form(thought),
            )
        )

    def _run_end(self, event: RunEndEvent, now: int) -> None:
        if self.ended:
            return
        self.ended = True
        whole = self._close()
        self._calls.end(now)
        self._status, self._completed_at = event.status, now
        self._usage = _usage(event.usage)
        error = event.error
        if event.status == "failed":
            error = writable(error or ErrorInfo("server_error", "the run failed without saying why"))
            self._error = t.Fault(message=error.told, code=error.code or error.kind)
            self._tell(f.MessageError(event_id=self._head.event_id, message=error.told))
        elif event.status == "cancelled":
            self._tell(f.MessageCancelled(event_id=self._head.event_id))
        elif event.incomplete_reason is not None:
            reason = event.incomplete_reason
            self._error = t.Fault(message=_LIMITS[reason], code=reason)
        if whole and (error is None or error.code != NOT_KEPT):
            self._tell(f.MessageFinal(event=self.answer))

    def _close(self) -> bool:
        """Close what a run left open that was broken off without a word. False if it did: its text is unknown here."""
        writing, self.writing = self.writing, None
        self._begun, self.asks = None, False
        if writing is not None and writing.part is not None:
            self._tell_over(writing.segment.id, writing.part)
        return writing is None

    def _tell_over(self, segment_id: str, part: t.ReasoningPart) -> None:
        """No more of the part comes, whether or not it is whole."""
        self._tell(
            f.ReasoningPartCompleted(
                event_id=self._head.event_id, segment_id=segment_id, summary_index=part.summary_index
            )
        )


def _form(thought: t.ReasoningSegment) -> Any:
    if not thought.parts:
        return "sealed"
    return "raw" if any(part.type == "reasoning_text" for part in thought.parts) else "summary"


def _citations(raw: list[dict[str, Any]], before: int) -> list[t.Citation]:
    """The citations of a text that has `before` characters of its segment before it."""
    return [
        t.Citation(
            url=one.url,
            title=one.title,
            start_index=UNSET if one.start is None else one.start + before,
            end_index=UNSET if one.end is None else one.end + before,
        )
        for one in beside.citations(raw)
    ]


def _usage(usage: Usage) -> t.TokenCounts | UnsetType:
    counts = t.TokenCounts(
        input_tokens=_known(usage.input_tokens),
        output_tokens=_known(usage.output_tokens),
        reasoning_tokens=_known(usage.output_reasoning_tokens),
    )
    return counts if counts != t.TokenCounts() else UNSET


def _known(count: int | None) -> int | UnsetType:
    return UNSET if count is None else count


_ENDS: dict[type[ModelResponsePart], Callable[[Account, Any, Writing | None, int], None]] = {
    ThinkingPart: Account._thinking_end,
    TextPart: Account._text_end,
    RefusalPart: Account._text_end,
    ToolCallPart: Account._call_end,
    BuiltinToolCallPart: Account._call_end,
    BuiltinToolReturnPart: Account._builtin_result,
    FilePart: Account._file,
}

HANDLERS: dict[type[Any], Callable[[Account, Any, int], None]] = {
    ResponseStartEvent: Account._turn_start,
    ResponseEndEvent: Account._turn_end,
    ItemStartEvent: Account._item_start,
    ItemEndEvent: Account._item_end,
    PartStartEvent: Account._part_start,
    PartEndEvent: Account._part_end,
    FunctionToolCallEvent: Account._running,
    FunctionToolResultEvent: Account._tool_result,
    RunEndEvent: Account._run_end,
}
"""What handles each kind of event but deltas. An event that is not here is not shown."""
