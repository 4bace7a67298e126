"""The calls of one answer, of functions and of the provider's own tools: from their arguments to their results.

* A call is reported when it opens, each time that the shown beginning of its arguments has doubled, and when the
  arguments are complete. Then it runs: a provider's tool at once, a function when the run calls it.
* A result belongs to the pending call with its id. A result of a provider's tool without a pending call opens its call.
* Ids of calls are unique: where a provider sends an id twice, or none, the segment's id replaces it.
* A call that has no result at the end of the run is incomplete.

`SegmentList` holds the segments of one answer in order, and assigns their numbers and ids. `CallTypes` are the frames
and the segment of one kind of call.

The result of a provider's own tool has the shape that the provider gives it. The tool failed if the result says so in
one of the known ways; everything else is a result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from ...events import FunctionToolResultEvent
from ...parts import (
    BuiltinToolCallPart,
    BuiltinToolCallPartDelta,
    BuiltinToolReturnPart,
    RetryPromptPart,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
)
from ...unicode import replace_surrogates
from ..encoding import complete_arguments
from . import frames as f
from . import types as t


class CallTypes(NamedTuple):
    """The segment and the frames that represent calls of one kind."""

    segment: type[t.ToolSegment]
    started: type[f.CallStarted]
    update: type[f.CallUpdate]
    result: type[f.CallResult]


FUNCTION = CallTypes(t.ToolCallSegment, f.ToolCallStarted, f.ToolCallUpdate, f.ToolResult)
BUILTIN = FUNCTION._replace(segment=t.BuiltinToolSegment)
_WEB_SEARCH = CallTypes(t.WebSearchSegment, f.WebSearchCallStarted, f.WebSearchCallUpdate, f.WebSearchCallResult)
_CODE = CallTypes(
    t.CodeInterpreterSegment,
    f.CodeInterpreterCallStarted,
    f.CodeInterpreterCallUpdate,
    f.CodeInterpreterCallResult,
)
BUILTIN_CALL_TYPES: dict[str, CallTypes] = {
    "web_search": _WEB_SEARCH,
    "code_interpreter": _CODE,
    "code_execution": _CODE,
}
"""The provider's tools that have events of their own, by their name in Pellucid."""


class Outcome(NamedTuple):
    """The outcome of a call: a result, or an error message."""

    result: Any
    error: str | None = None


def set_arguments(segment: t.ToolSegment, part: ToolCallPart | BuiltinToolCallPart) -> None:
    """Set a segment's arguments: JSON values with their text, or the text alone.

    There is no other where the model wrote no valid JSON or was cut off. There is no text where the provider sent
    values, or the model wrote no arguments at all.
    """
    if isinstance(part.args, dict):
        segment.args = part.args
        return
    arguments, _ = complete_arguments(part)
    try:
        segment.args = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        segment.args = arguments
        return
    if part.args:
        segment.args_text = arguments


def function_outcome(result: ToolReturnPart | RetryPromptPart) -> Outcome:
    """Return the outcome of a function that was called here."""
    if isinstance(result, RetryPromptPart):
        return Outcome(None, result.content)
    if result.outcome != "success":
        return Outcome(None, result.content_as_text() or f"the call was {result.outcome}")
    return Outcome(result.content)


def builtin_outcome(content: Any) -> Outcome:
    """Return the outcome of a provider's own tool, whose result may have any shape."""
    error = _error_message(content)
    return Outcome(content) if error is None else Outcome(None, replace_surrogates(error))


_FAILURE_STATUSES = ("failed", "incomplete", "cancelled", "error")


def _error_message(content: Any) -> str | None:
    if not isinstance(content, dict):
        return None
    for name in ("error", "error_code"):
        if content.get(name):
            return _error_text(content[name])
    if content.get("is_error") is True:
        return _error_text(content.get("content")) or "the tool failed"
    status = content.get("status")
    return f"the tool ended as {status}" if status in _FAILURE_STATUSES else None


def _error_text(value: Any) -> str:
    if isinstance(value, dict) and isinstance(value.get("message"), str):
        value = value["message"]
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        return "the tool failed"


class SegmentList:
    """The `segments` of one answer and their `timeline`, in the order in which they open."""

    def __init__(self) -> None:
        self.segments: list[t.Segment] = []
        self.timeline: list[t.Span] = []
        self._ids: set[str] = set()
        self._sequence = 0

    def next_sequence_number(self) -> int:
        """Return the `sequence_number` of the segment or part that opens now."""
        self._sequence += 1
        return self._sequence - 1

    def unique_id(self, id: str) -> str:
        """Return the id of a segment that opens now in the item with this id.

        It is the item's id, or that id with a number appended.
        """
        candidate, number = id, 1
        while candidate in self._ids:
            number += 1
            candidate = f"{id}_{number}"
        self._ids.add(candidate)
        return candidate

    def add(self, segment: t.Segment, now: int) -> t.Span:
        """Add a segment that opens now. The caller sets the end of the returned span when the segment closes."""
        span = t.Span(segment_id=segment.id, started_at=now, ended_at=now)
        self.segments.append(segment)
        self.timeline.append(span)
        return span


_PREVIEW_LENGTHS = (32, 64, 128, 256, f.MAX_PREVIEW_CHARS)
"""The lengths of a call's arguments, in characters, at which their beginning is sent."""


class PendingCall:
    """A call without a result, and what was sent of it."""

    __slots__ = ("has_unsent_preview", "id", "preview", "segment", "span", "status", "types")

    def __init__(self, id: str, types: CallTypes, segment: t.ToolSegment, span: t.Span) -> None:
        self.id = id
        """The id by which results refer to the call."""
        self.types = types
        self.segment = segment
        self.span = span
        self.status = "arguments"
        self.preview = ""
        self.has_unsent_preview = False
        """Whether more of the arguments can be shown than was sent."""

    @property
    def wants_delta(self) -> bool:
        """Whether a delta can change anything.

        For its own tools, a provider also reports the progress between pieces of the arguments.
        """
        return self.types is not FUNCTION or len(self.preview) < f.MAX_PREVIEW_CHARS


class CallTracker:
    """Tracks all calls of one answer."""

    def __init__(self, event_id: str, segment_list: SegmentList, on_frame: f.FrameSink) -> None:
        self._event_id = event_id
        self._segment_list = segment_list
        self._on_frame = on_frame
        self._pending: list[PendingCall] = []
        self._call_ids: set[str] = set()

    def open(
        self,
        part: ToolCallPart | BuiltinToolCallPart | BuiltinToolReturnPart,
        item_id: str,
        now: int,
        preview: str = "",
    ) -> PendingCall:
        """Open a call and return it."""
        segment_list, name = self._segment_list, replace_surrogates(part.tool_name)
        types = FUNCTION if isinstance(part, ToolCallPart) else BUILTIN_CALL_TYPES.get(name, BUILTIN)
        id = segment_list.unique_id(item_id)
        call_id = replace_surrogates(part.tool_call_id)
        if not call_id or call_id in self._call_ids:
            call_id = id
        self._call_ids.add(call_id)
        segment = types.segment(
            id=id,
            call_id=call_id,
            name=name,
            created_at=now,
            sequence_number=segment_list.next_sequence_number(),
            output_index=len(segment_list.segments),
        )
        call = PendingCall(part.tool_call_id, types, segment, segment_list.add(segment, now))
        self._pending.append(call)
        self._on_frame(
            types.started(
                event_id=self._event_id,
                call_id=call_id,
                name=name,
                args_preview=preview,
                sequence_number=segment.sequence_number,
                created_at=now,
            )
        )
        return call

    def add_delta(self, call: PendingCall, delta: ToolCallPartDelta | BuiltinToolCallPartDelta) -> None:
        """Handle a piece of the arguments, or a provider's report of its tool's progress."""
        status: str | None = getattr(delta, "status", None)
        length_before, has_new_preview = len(call.preview), False
        if delta.args_delta and length_before < f.MAX_PREVIEW_CHARS:
            call.preview += replace_surrogates(delta.args_delta[: f.MAX_PREVIEW_CHARS - length_before])
            call.has_unsent_preview = True
            has_new_preview = any(length_before < length <= len(call.preview) for length in _PREVIEW_LENGTHS)
        if status or has_new_preview:
            self._update(call, replace_surrogates(status) if status else call.status)

    def complete_arguments(self, call: PendingCall, part: ToolCallPart | BuiltinToolCallPart) -> None:
        """Handle the end of the arguments, which may be cut off."""
        set_arguments(call.segment, part)
        is_running = isinstance(part, BuiltinToolCallPart) and part.complete and call.status == "arguments"
        if is_running or call.has_unsent_preview:
            self._update(call, "running" if is_running else call.status)

    def start_function(self, part: ToolCallPart, now: int) -> None:
        """Handle the start of a function call by the run."""
        call = self._find_pending(part.tool_call_id, is_function=True)
        if call is None:
            # An earlier answer left this call without a result.
            preview = replace_surrogates(part.args_as_json()[: f.MAX_PREVIEW_CHARS])
            call = self.open(part, replace_surrogates(part.item_id or f"fc_{part.tool_call_id}"), now, preview)
            set_arguments(call.segment, part)
        self._update(call, "running")

    def function_returned(self, event: FunctionToolResultEvent, now: int) -> None:
        """Handle the result of a function."""
        result = event.result
        call = self._find_pending(result.tool_call_id, is_function=True)
        # Without a tool's name it is a message to the model about its answer, not the result of a call.
        if call is not None and result.tool_name is not None:
            self._complete(call, function_outcome(result), now)

    def builtin_returned(self, part: BuiltinToolReturnPart, item_id: str, now: int) -> None:
        """Handle the result of a provider's tool. If its call was never seen, open it."""
        call = self._find_pending(part.tool_call_id, is_function=False)
        if call is None:
            call = self.open(part, item_id, now)
            call.segment.args = {}
        self._complete(call, builtin_outcome(part.content), now)

    def end(self, now: int) -> None:
        """Mark all pending calls as incomplete."""
        for call in self._pending:
            call.span.ended_at = now
            self._update(call, "incomplete")
        self._pending = []

    def _find_pending(self, id: str, *, is_function: bool) -> PendingCall | None:
        """Return the pending call with this id, the last one if there are several."""
        matches = (one for one in reversed(self._pending) if one.id == id and (one.types is FUNCTION) == is_function)
        return next(matches, None)

    def _update(self, call: PendingCall, status: str) -> None:
        call.status = status
        self._on_frame(
            call.types.update(
                event_id=self._event_id,
                call_id=call.segment.call_id,
                status=status,
                args_preview=call.preview if call.has_unsent_preview else UNSET,
            )
        )
        call.has_unsent_preview = False

    def _complete(self, call: PendingCall, outcome: Outcome, now: int) -> None:
        self._pending.remove(call)
        call.span.ended_at = now
        segment: Any = call.segment
        if outcome.error is None:
            segment.status, segment.result = "completed", outcome.result
        else:
            segment.status, segment.error = "failed", replace_surrogates(outcome.error)
        self._on_frame(
            call.types.result(
                event_id=self._event_id,
                call_id=segment.call_id,
                result=outcome.result,
                error=segment.error,
                completed_at=now,
            )
        )
