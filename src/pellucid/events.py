"""The one ordered stream: what happens, in the order in which it happened.

Three brackets, one inside the other (`pellucid.fold` states and enforces the legal order):

    ResponseStart … ResponseEnd        one turn of a model; decoders write only these and what is inside
      ItemStart … ItemEnd              one item: a stretch of reasoning, a message, a call
        PartStart PartDelta* PartEnd   one part of it

`run` adds what is outside a turn: tool calls and results, and exactly one RunEnd; enrichment adds seals and summaries.
A part opens without text and its text, signature and details come in deltas, so whoever only reads deltas has read
everything; `PartEnd.part` is the part, whole.
What is known only at the end of an item (OpenAI's encrypted content, say) stands on `ItemEnd` alone.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from .errors import ErrorInfo
from .parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    CompactionPart,
    FilePart,
    FinishReason,
    ModelResponsePart,
    OpaquePart,
    Origin,
    PartDelta,
    RefusalPart,
    RetryPromptPart,
    SealedPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    Usage,
)

Cause = Literal["eof", "error", "cancelled"]
"""Why a machine is told to end: the bytes are over, the transport failed, or nobody is listening any more."""

ItemKind = Literal["reasoning", "message", "tool_call", "builtin_tool", "file", "compaction", "opaque"]
ItemStatus = Literal["completed", "incomplete"]
RunStatus = Literal["completed", "incomplete", "failed", "cancelled"]
IncompleteReason = Literal["max_output_tokens", "max_tool_calls", "content_filter"]


ITEM_OF: dict[type[ModelResponsePart], ItemKind] = {
    ThinkingPart: "reasoning",
    SealedPart: "reasoning",
    TextPart: "message",
    RefusalPart: "message",
    ToolCallPart: "tool_call",
    BuiltinToolCallPart: "builtin_tool",
    BuiltinToolReturnPart: "builtin_tool",
    FilePart: "file",
    CompactionPart: "compaction",
    OpaquePart: "opaque",
}
"""Which kind of item each kind of part lives in."""


# --- events ----------------------------------------------------------------------------------------------


class _Event(
    msgspec.Struct, frozen=True, tag_field="event_kind", omit_defaults=True, repr_omit_defaults=True, gc=False
):
    event_kind: ClassVar[str]


class ResponseStartEvent(_Event, tag="response_start", frozen=True):
    """A model began to answer."""

    event_kind: ClassVar[Literal["response_start"]] = "response_start"
    origin: Origin
    provider_response_id: str | None = None
    model_name: str | None = None


class ResponseEndEvent(_Event, tag="response_end", frozen=True):
    """The turn is over. `native_finish_reason` is the provider's own word for why."""

    event_kind: ClassVar[Literal["response_end"]] = "response_end"
    finish_reason: FinishReason | None = None
    native_finish_reason: str | None = None
    usage: Usage = Usage()
    provider_response_id: str | None = None
    model_name: str | None = None
    provider_details: dict[str, Any] | None = None


class ItemStartEvent(_Event, tag="item_start", frozen=True):
    """An item opens. `index` counts items within the turn; `id` is the public id, minted by the run."""

    event_kind: ClassVar[Literal["item_start"]] = "item_start"
    index: int
    kind: ItemKind
    id: str | None = None
    native_id: str | None = None


class ItemEndEvent(_Event, tag="item_end", frozen=True):
    """An item closes, with what only its end tells.

    `signature` is an opaque value of the whole item, which no part of it carried; `native` is whatever else must
    go back verbatim to the item's maker, in that wire's own JSON. `origin` stands on every item that carries
    anything opaque, here or on a part, and says whose it is. `seal` is our own: the item as its reader may hold it
    and give it back (`pellucid.sealing`), written once by whoever enriches the run.
    """

    event_kind: ClassVar[Literal["item_end"]] = "item_end"
    index: int
    status: ItemStatus = "completed"
    signature: str | None = None
    native: Any = None
    origin: Origin | None = None
    seal: str | None = None


class PartStartEvent(_Event, tag="part_start", frozen=True):
    """A part opens. `index` counts parts within the turn. Parts with text open empty; others are whole."""

    event_kind: ClassVar[Literal["part_start"]] = "part_start"
    index: int
    part: ModelResponsePart
    previous_part_kind: str | None = None


class PartDeltaEvent(_Event, tag="part_delta", frozen=True):
    """More of the open part."""

    event_kind: ClassVar[Literal["part_delta"]] = "part_delta"
    index: int
    delta: PartDelta


class PartEndEvent(_Event, tag="part_end", frozen=True):
    """A part closes; `part` is all of it."""

    event_kind: ClassVar[Literal["part_end"]] = "part_end"
    index: int
    part: ModelResponsePart


class ErrorEvent(_Event, tag="error", frozen=True):
    """Something broke. Within a turn it comes after everything open was closed, and before ResponseEnd."""

    event_kind: ClassVar[Literal["error"]] = "error"
    error: ErrorInfo


class FunctionToolCallEvent(_Event, tag="function_tool_call", frozen=True):
    """The run is about to call a function for the model."""

    event_kind: ClassVar[Literal["function_tool_call"]] = "function_tool_call"
    part: ToolCallPart


class FunctionToolResultEvent(_Event, tag="function_tool_result", frozen=True):
    """What the function returned, or why the model must try again. `id` is the result item's public id."""

    event_kind: ClassVar[Literal["function_tool_result"]] = "function_tool_result"
    result: ToolReturnPart | RetryPromptPart
    id: str | None = None


class FinalResultEvent(_Event, tag="final_result", frozen=True):
    """What follows is the run's result, not a step towards it."""

    event_kind: ClassVar[Literal["final_result"]] = "final_result"
    tool_name: str | None = None
    tool_call_id: str | None = None


class RunEndEvent(_Event, tag="run_end", frozen=True):
    """The run is over: exactly one, last.

    `usage` is the sum over the run's turns; `error` is set when `status` is `failed`, `incomplete_reason` when
    it is `incomplete`.
    """

    event_kind: ClassVar[Literal["run_end"]] = "run_end"
    status: RunStatus
    usage: Usage = Usage()
    error: ErrorInfo | None = None
    incomplete_reason: IncompleteReason | None = None


class SummaryEvent(_Event, tag="summary", frozen=True):
    """One paragraph of a summary of the open reasoning item, written by us and not by its model.

    It may stand anywhere inside the item, also while a part of it is open, and is no part of what the model said: no
    history holds it. Readers who may see it get it as a thinking part of form `summary` (`pellucid.view`).
    """

    event_kind: ClassVar[Literal["summary"]] = "summary"
    index: int
    """The item's."""
    text: str


class SideEvent(_Event, tag="side", frozen=True):
    """What only one protocol knows (AG-UI's state and activity, a local queue's position, …).

    Others ignore it. It may stand anywhere before RunEnd, and changes nothing that is open.
    """

    event_kind: ClassVar[Literal["side"]] = "side"
    namespace: str
    name: str
    value: Any = None


ModelEvent: TypeAlias = (
    ResponseStartEvent
    | ItemStartEvent
    | PartStartEvent
    | PartDeltaEvent
    | PartEndEvent
    | ItemEndEvent
    | ErrorEvent
    | ResponseEndEvent
    | SideEvent
)
"""What a turn is made of. Decoders write all of it but side events."""

Event: TypeAlias = (
    ModelEvent | SummaryEvent | FunctionToolCallEvent | FunctionToolResultEvent | FinalResultEvent | RunEndEvent
)
"""What a run writes, and everything downstream reads."""

AgentStreamEvent: TypeAlias = Event
"""The same, under the name that Pydantic AI has for it."""
