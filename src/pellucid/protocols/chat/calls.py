"""The calls of one answer, of functions and of the provider's own tools: from their arguments to what came back.

* A call is told when it opens, and the beginning of its arguments each time that it has doubled, and when they are
  whole. Then it runs: a provider's tool at once, a function when the run says so.
* A result goes to the call that waits under its id; one for which nobody waits opens its call itself.
* Ids of calls are one to a call: where a provider gives one twice, or none, the segment's stands in.
* A call that has no result when the run is over is incomplete.

The segments of one answer in their order, and what counts them.

A tool's call, from either side: which events and which segment tell of it, and whether what came back is a failure.

What a provider's own tool returned is in that provider's shape. It failed if it says so in one of the words that there
are for that; everything else is a result.
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
from . import frames as f
from . import types as t


class CallTypes(NamedTuple):
    """How calls of one kind are told."""

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
"""The provider's tools that have events of their own, by what they are called among ours."""


class Outcome(NamedTuple):
    """What came back: a result, or an error."""

    result: Any
    error: str | None = None


def decoded_arguments(part: ToolCallPart | BuiltinToolCallPart) -> Any:
    """The arguments as JSON; as text, where the model wrote none or was cut off in it."""
    args = part.args
    if args is None or args == "":
        return {} if part.complete else ""
    if not isinstance(args, str):
        return args
    try:
        return msgspec.json.decode(args)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return args


def function_outcome(result: ToolReturnPart | RetryPromptPart) -> Outcome:
    """Of a function that was called here."""
    if isinstance(result, RetryPromptPart):
        return Outcome(None, result.content)
    if result.outcome != "success":
        return Outcome(None, result.content_as_text() or f"the call was {result.outcome}")
    return Outcome(result.content)


def builtin_outcome(content: Any) -> Outcome:
    """Of a tool of the provider's, in whichever shape it says so."""
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
    """`segments` and their `timeline` as they open."""

    def __init__(self) -> None:
        self.segments: list[t.Segment] = []
        self.timeline: list[t.Span] = []
        self._ids: set[str] = set()
        self._sequence = 0

    def next_sequence_number(self) -> int:
        """The `sequence_number` of what opens now."""
        self._sequence += 1
        return self._sequence - 1

    def unique_id(self, id: str) -> str:
        """The id of a segment that opens now, of the item with this id: its own, or one behind it."""
        candidate, number = id, 1
        while candidate in self._ids:
            number += 1
            candidate = f"{id}_{number}"
        self._ids.add(candidate)
        return candidate

    def add(self, segment: t.Segment, now: int) -> t.Span:
        """It opens; the span is to be ended by whoever closes it."""
        span = t.Span(segment_id=segment.id, started_at=now, ended_at=now)
        self.segments.append(segment)
        self.timeline.append(span)
        return span


_PREVIEW_LENGTHS = (32, 64, 128, 256, f.MAX_PREVIEW_CHARS)
"""How long the arguments of a call are, each time that their beginning is told."""


class PendingCall:
    """A call without a result, and what was told of it."""

    __slots__ = ("has_unsent_preview", "id", "preview", "segment", "span", "status", "types")

    def __init__(self, id: str, types: CallTypes, segment: t.ToolSegment, span: t.Span) -> None:
        self.id = id
        """As results name it."""
        self.types = types
        self.segment = segment
        self.span = span
        self.status = "arguments"
        self.preview = ""
        self.has_unsent_preview = False
        """Whether there is more to show of the arguments than was shown."""

    @property
    def wants_delta(self) -> bool:
        """Whether a delta may change anything. A provider also says how far its tool is, between the arguments."""
        return self.types is not FUNCTION or len(self.preview) < f.MAX_PREVIEW_CHARS


class CallTracker:
    """All calls of one answer. `tell` gets their frames."""

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
        """More of its arguments, or a word of the provider's about how far its tool is."""
        status: str | None = getattr(delta, "status", None)
        length_before, has_new_preview = len(call.preview), False
        if delta.args_delta and length_before < f.MAX_PREVIEW_CHARS:
            call.preview += replace_surrogates(delta.args_delta[: f.MAX_PREVIEW_CHARS - length_before])
            call.has_unsent_preview = True
            has_new_preview = any(length_before < length <= len(call.preview) for length in _PREVIEW_LENGTHS)
        if status or has_new_preview:
            self._update(call, replace_surrogates(status) if status else call.status)

    def complete_arguments(self, call: PendingCall, part: ToolCallPart | BuiltinToolCallPart) -> None:
        """Its arguments are whole, or as far as they will come."""
        call.segment.args = decoded_arguments(part)
        is_running = isinstance(part, BuiltinToolCallPart) and part.complete and call.status == "arguments"
        if is_running or call.has_unsent_preview:
            self._update(call, "running" if is_running else call.status)

    def start_function(self, part: ToolCallPart, now: int) -> None:
        """The run calls a function."""
        call = self._find_pending(part.tool_call_id, is_function=True)
        if call is None:
            # One that an earlier answer left.
            preview = replace_surrogates(part.args_as_json()[: f.MAX_PREVIEW_CHARS])
            call = self.open(part, replace_surrogates(part.item_id or f"fc_{part.tool_call_id}"), now, preview)
            call.segment.args = decoded_arguments(part)
        self._update(call, "running")

    def function_returned(self, event: FunctionToolResultEvent, now: int) -> None:
        """What a function gave."""
        result = event.result
        call = self._find_pending(result.tool_call_id, is_function=True)
        # Without a name it is a word to the model about its answer, and no call's result.
        if call is not None and result.tool_name is not None:
            self._complete(call, function_outcome(result), now)

    def builtin_returned(self, part: BuiltinToolReturnPart, item_id: str, now: int) -> None:
        """What a tool of the provider's gave; one whose call nobody saw opens it."""
        call = self._find_pending(part.tool_call_id, is_function=False)
        if call is None:
            call = self.open(part, item_id, now)
            call.segment.args = {}
        self._complete(call, builtin_outcome(part.content), now)

    def end(self, now: int) -> None:
        """Nobody answers any more."""
        for call in self._pending:
            call.span.ended_at = now
            self._update(call, "incomplete")
        self._pending = []

    def _find_pending(self, id: str, *, is_function: bool) -> PendingCall | None:
        """The call that waits under this id: of several, the last."""
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
                event_id=self._event_id, call_id=segment.call_id, result=outcome.result, error=segment.error
            )
        )
