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
from ...text import shown
from . import frames as f
from . import types as t


class Family(NamedTuple):
    """How calls of one kind are told."""

    segment: type[t.ToolSegment]
    started: type[f.CallStarted]
    update: type[f.CallUpdate]
    result: type[f.CallResult]


FUNCTION = Family(t.ToolCallSegment, f.ToolCallStarted, f.ToolCallUpdate, f.ToolResult)
BUILTIN = FUNCTION._replace(segment=t.BuiltinToolSegment)
_WEB_SEARCH = Family(t.WebSearchSegment, f.WebSearchCallStarted, f.WebSearchCallUpdate, f.WebSearchCallResult)
_CODE = Family(
    t.CodeInterpreterSegment,
    f.CodeInterpreterCallStarted,
    f.CodeInterpreterCallUpdate,
    f.CodeInterpreterCallResult,
)
BUILTINS: dict[str, Family] = {"web_search": _WEB_SEARCH, "code_interpreter": _CODE, "code_execution": _CODE}
"""The provider's tools that have events of their own, by what they are called among ours."""


class Outcome(NamedTuple):
    """What came back: a result, or an error."""

    result: Any
    error: str | None = None


def arguments(part: ToolCallPart | BuiltinToolCallPart) -> Any:
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
    error = _error(content)
    return Outcome(content) if error is None else Outcome(None, shown(error))


_FAILED = ("failed", "incomplete", "cancelled", "error")


def _error(content: Any) -> str | None:
    if not isinstance(content, dict):
        return None
    for name in ("error", "error_code"):
        if content.get(name):
            return _text(content[name])
    if content.get("is_error") is True:
        return _text(content.get("content")) or "the tool failed"
    status = content.get("status")
    return f"the tool ended as {status}" if status in _FAILED else None


def _text(value: Any) -> str:
    if isinstance(value, dict) and isinstance(value.get("message"), str):
        value = value["message"]
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        return "the tool failed"


class Ledger:
    """`segments` and their `timeline` as they open."""

    def __init__(self) -> None:
        self.segments: list[t.Segment] = []
        self.timeline: list[t.Span] = []
        self._ids: set[str] = set()
        self._sequence = 0

    def number(self) -> int:
        """The `sequence_number` of what opens now."""
        self._sequence += 1
        return self._sequence - 1

    def name(self, id: str) -> str:
        """The id of a segment that opens now, of the item with this id: its own, or one behind it."""
        name, number = id, 1
        while name in self._ids:
            number += 1
            name = f"{id}_{number}"
        self._ids.add(name)
        return name

    def add(self, segment: t.Segment, now: int) -> t.Span:
        """It opens; the span is to be ended by whoever closes it."""
        span = t.Span(segment_id=segment.id, started_at=now, ended_at=now)
        self.segments.append(segment)
        self.timeline.append(span)
        return span


_LOOKS = (32, 64, 128, 256, f.PREVIEW)
"""How long the arguments of a call are, each time that their beginning is told."""


class Call:
    """A call without a result, and what was told of it."""

    __slots__ = ("family", "id", "preview", "segment", "span", "status", "untold")

    def __init__(self, id: str, family: Family, segment: t.ToolSegment, span: t.Span) -> None:
        self.id = id
        """As results name it."""
        self.family = family
        self.segment = segment
        self.span = span
        self.status = "arguments"
        self.preview = ""
        self.untold = False
        """Whether there is more to show of the arguments than was shown."""

    @property
    def listens(self) -> bool:
        """Whether a delta may change anything. A provider also says how far its tool is, between the arguments."""
        return self.family is not FUNCTION or len(self.preview) < f.PREVIEW


class Calls:
    """All calls of one answer. `tell` gets their frames."""

    def __init__(self, event_id: str, ledger: Ledger, tell: f.Tell) -> None:
        self._event_id = event_id
        self._ledger = ledger
        self._tell = tell
        self._waiting: list[Call] = []
        self._ids: set[str] = set()

    def open(
        self, part: ToolCallPart | BuiltinToolCallPart | BuiltinToolReturnPart, item: str, now: int, preview: str = ""
    ) -> Call:
        ledger, name = self._ledger, shown(part.tool_name)
        family = FUNCTION if isinstance(part, ToolCallPart) else BUILTINS.get(name, BUILTIN)
        id = ledger.name(item)
        call_id = shown(part.tool_call_id)
        if not call_id or call_id in self._ids:
            call_id = id
        self._ids.add(call_id)
        segment = family.segment(
            id=id,
            call_id=call_id,
            name=name,
            created_at=now,
            sequence_number=ledger.number(),
            output_index=len(ledger.segments),
        )
        call = Call(part.tool_call_id, family, segment, ledger.add(segment, now))
        self._waiting.append(call)
        self._tell(
            family.started(
                event_id=self._event_id,
                call_id=call_id,
                name=name,
                args_preview=preview,
                sequence_number=segment.sequence_number,
                created_at=now,
            )
        )
        return call

    def delta(self, call: Call, delta: ToolCallPartDelta | BuiltinToolCallPartDelta) -> None:
        """More of its arguments, or a word of the provider's about how far its tool is."""
        status: str | None = getattr(delta, "status", None)
        before, look = len(call.preview), False
        if delta.args_delta and before < f.PREVIEW:
            call.preview += shown(delta.args_delta[: f.PREVIEW - before])
            call.untold = True
            look = any(before < length <= len(call.preview) for length in _LOOKS)
        if status or look:
            self._update(call, shown(status) if status else call.status)

    def whole(self, call: Call, part: ToolCallPart | BuiltinToolCallPart) -> None:
        """Its arguments are whole, or as far as they will come."""
        call.segment.args = arguments(part)
        runs = isinstance(part, BuiltinToolCallPart) and part.complete and call.status == "arguments"
        if runs or call.untold:
            self._update(call, "running" if runs else call.status)

    def running(self, part: ToolCallPart, now: int) -> None:
        """The run calls a function."""
        call = self._called(part.tool_call_id, function=True)
        if call is None:
            # One that an earlier answer left.
            preview = shown(part.args_as_json()[: f.PREVIEW])
            call = self.open(part, shown(part.item_id or f"fc_{part.tool_call_id}"), now, preview)
            call.segment.args = arguments(part)
        self._update(call, "running")

    def returned(self, event: FunctionToolResultEvent, now: int) -> None:
        """What a function gave."""
        result = event.result
        call = self._called(result.tool_call_id, function=True)
        # Without a name it is a word to the model about its answer, and no call's result.
        if call is not None and result.tool_name is not None:
            self._settle(call, function_outcome(result), now)

    def builtin_returned(self, part: BuiltinToolReturnPart, item: str, now: int) -> None:
        """What a tool of the provider's gave; one whose call nobody saw opens it."""
        call = self._called(part.tool_call_id, function=False)
        if call is None:
            call = self.open(part, item, now)
            call.segment.args = {}
        self._settle(call, builtin_outcome(part.content), now)

    def end(self, now: int) -> None:
        """Nobody answers any more."""
        for call in self._waiting:
            call.span.ended_at = now
            self._update(call, "incomplete")
        self._waiting = []

    def _called(self, id: str, *, function: bool) -> Call | None:
        """The call that waits under this id: of several, the last."""
        waiting = (one for one in reversed(self._waiting) if one.id == id and (one.family is FUNCTION) == function)
        return next(waiting, None)

    def _update(self, call: Call, status: str) -> None:
        call.status = status
        self._tell(
            call.family.update(
                event_id=self._event_id,
                call_id=call.segment.call_id,
                status=status,
                args_preview=call.preview if call.untold else UNSET,
            )
        )
        call.untold = False

    def _settle(self, call: Call, outcome: Outcome, now: int) -> None:
        self._waiting.remove(call)
        call.span.ended_at = now
        segment: Any = call.segment
        if outcome.error is None:
            segment.status, segment.result = "completed", outcome.result
        else:
            segment.status, segment.error = "failed", shown(outcome.error)
        self._tell(
            call.family.result(
                event_id=self._event_id, call_id=segment.call_id, result=outcome.result, error=segment.error
            )
        )
