"""Events of a run: one ordered stream of what happened.

Three brackets, one inside the other (`pellucid.fold` defines and enforces the legal order):

    ResponseStartEvent … ResponseEndEvent             one turn of a model; decoders write only this and what is inside
      ItemStartEvent … ItemEndEvent                   one item: a stretch of reasoning, a message, a call
        PartStartEvent PartDeltaEvent* PartEndEvent   one part of it

`run` adds the events outside a turn: tool calls and results, and exactly one `RunEndEvent`. Stages add seals and
summaries. A part opens without text. Its text, signature and details come in deltas, so that a consumer of deltas alone
receives everything. `PartEndEvent.part` is the whole part. Data that is known only at the end of an item (for example
OpenAI's encrypted content) is on `ItemEndEvent` only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from .errors import UNKNOWN_FAILURE, ErrorInfo
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
"""Why the stream that a decoder reads ends: it is complete, the transport failed, or the receiver has gone. It is the
argument of `end` of `Emitter` and of the decoders."""

Mint: TypeAlias = Callable[[str], str]
"""`mint("rs")` returns a new unique id with that prefix."""

ItemKind = Literal["reasoning", "message", "tool_call", "builtin_tool", "file", "compaction", "opaque"]
ItemStatus = Literal["completed", "incomplete"]
RunStatus = Literal["completed", "incomplete", "failed", "cancelled"]
IncompleteReason = Literal["max_output_tokens", "max_tool_calls", "content_filter", "repetition"]


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
"""The kind of item that holds each kind of part."""


# --- events ----------------------------------------------------------------------------------------------


class _Event(
    msgspec.Struct, frozen=True, tag_field="event_kind", omit_defaults=True, repr_omit_defaults=True, gc=False
):
    event_kind: ClassVar[str]


class DeploymentFailure(msgspec.Struct, frozen=True):
    """A deployment of a model that did not answer, and why: `rate_limit`, `down`, `context_length` or `refused`."""

    name: str
    cause: str


class AnsweringDeployment(msgspec.Struct, frozen=True):
    """The deployment of a model that answers, and those that were called before it in the same request."""

    name: str
    failed: list[DeploymentFailure]


class ResponseStartEvent(_Event, tag="response_start", frozen=True):
    """A turn of a model begins. `deployment` is set if the model has several."""

    event_kind: ClassVar[Literal["response_start"]] = "response_start"
    origin: Origin
    provider_response_id: str | None = None
    model_name: str | None = None
    deployment: AnsweringDeployment | None = None


class ResponseEndEvent(_Event, tag="response_end", frozen=True):
    """A turn of a model ends. `native_finish_reason` is the provider's own word for the reason."""

    event_kind: ClassVar[Literal["response_end"]] = "response_end"
    finish_reason: FinishReason | None = None
    native_finish_reason: str | None = None
    usage: Usage = Usage()
    provider_response_id: str | None = None
    model_name: str | None = None
    provider_details: dict[str, Any] | None = None


class ItemStartEvent(_Event, tag="item_start", frozen=True):
    """An item begins.

    Attributes:
        index: The number of the item within the turn, from 0.
        kind: The kind of its parts.
        id: The public id, which the run assigns.
        native_id: The provider's id, which is sent to that provider only.
    """

    event_kind: ClassVar[Literal["item_start"]] = "item_start"
    index: int
    kind: ItemKind
    id: str | None = None
    native_id: str | None = None


class ItemEndEvent(_Event, tag="item_end", frozen=True):
    """An item ends, with the data that is known only then.

    Attributes:
        index: The item's index.
        status: Whether the item is complete.
        signature: An opaque value of the whole item, which no part of it carries.
        native: Other data that must be sent back unchanged to the item's origin, in the wire's own JSON.
        origin: The item's origin; set on every item that has opaque data, here or on a part.
        seal: The item as a sealed token, which a client may store and send back (`pellucid.sealing`). A stage of the
            run writes it, once.
    """

    event_kind: ClassVar[Literal["item_end"]] = "item_end"
    index: int
    status: ItemStatus = "completed"
    signature: str | None = None
    native: Any = None
    origin: Origin | None = None
    seal: str | None = None


class PartStartEvent(_Event, tag="part_start", frozen=True):
    """A part begins. `index` counts parts within the turn. Parts with text begin empty; others are whole."""

    event_kind: ClassVar[Literal["part_start"]] = "part_start"
    index: int
    part: ModelResponsePart
    previous_part_kind: str | None = None


class PartDeltaEvent(_Event, tag="part_delta", frozen=True):
    """More of the open part: text, arguments, opaque data."""

    event_kind: ClassVar[Literal["part_delta"]] = "part_delta"
    index: int
    delta: PartDelta


class PartEndEvent(_Event, tag="part_end", frozen=True):
    """A part ends. `part` has all that its start and its deltas brought."""

    event_kind: ClassVar[Literal["part_end"]] = "part_end"
    index: int
    part: ModelResponsePart


class ErrorEvent(_Event, tag="error", frozen=True):
    """A turn fails. Everything that was open is closed before it, and `ResponseEndEvent` follows."""

    event_kind: ClassVar[Literal["error"]] = "error"
    error: ErrorInfo


class FunctionToolCallEvent(_Event, tag="function_tool_call", frozen=True):
    """The run is about to call a function that the model requested."""

    event_kind: ClassVar[Literal["function_tool_call"]] = "function_tool_call"
    part: ToolCallPart

    @property
    def tool_call_id(self) -> str:
        """The id of the call."""
        return self.part.tool_call_id


class FunctionToolResultEvent(_Event, tag="function_tool_result", frozen=True):
    """A function's result, or the reason why the model must try again. `id` is the result item's public id."""

    event_kind: ClassVar[Literal["function_tool_result"]] = "function_tool_result"
    result: ToolReturnPart | RetryPromptPart
    id: str | None = None

    @property
    def part(self) -> ToolReturnPart | RetryPromptPart:
        """The result, by the name that Pydantic AI has for it."""
        return self.result

    @property
    def tool_call_id(self) -> str:
        """The id of the call."""
        return self.result.tool_call_id


class FinalResultEvent(_Event, tag="final_result", frozen=True):
    """The parts that follow are the run's result, not a step towards it."""

    event_kind: ClassVar[Literal["final_result"]] = "final_result"
    tool_name: str | None = None
    tool_call_id: str | None = None


class RunEndEvent(_Event, tag="run_end", frozen=True):
    """The run ends. There is exactly one, and it is the last event.

    `usage` is the sum over the run's turns. `error` is set if `status` is `failed`, `incomplete_reason` if it is
    `incomplete`.
    """

    event_kind: ClassVar[Literal["run_end"]] = "run_end"
    status: RunStatus
    usage: Usage = Usage()
    error: ErrorInfo | None = None
    incomplete_reason: IncompleteReason | None = None

    @property
    def failure(self) -> ErrorInfo:
        """The error of a failed run, also if it did not say which."""
        return self.error or UNKNOWN_FAILURE


class SummaryEvent(_Event, tag="summary", frozen=True):
    """One paragraph of the gateway's own summary of the open reasoning item.

    It may come anywhere inside the item, also while a part of it is open. It is not part of the model's output, and no
    history holds it. Viewers who may see it receive it as a thinking part of form `summary` (`pellucid.view`).
    """

    event_kind: ClassVar[Literal["summary"]] = "summary"
    index: int
    """The item's index."""
    text: str


SUMMARY_NOTE = "reasoning", "summary"
"""Namespace and name of the side event about the gateway's summaries of the open reasoning item. Its value has `author`
(the model that writes them), `ended` (true: the model has ended the item, and its summaries may still come) or
`missing` (why there are none, or not all: `late` or `failed`)."""


class SideEvent(_Event, tag="side", frozen=True):
    """An event that only one protocol knows (AG-UI's state and activity, a local queue's position, …).

    Other protocols ignore it. It may come anywhere before RunEnd, and changes nothing that is open.
    """

    event_kind: ClassVar[Literal["side"]] = "side"
    namespace: str
    name: str
    value: Any = None


DEFERRED = ("run", "deferred")
"""The namespace and the name of the `SideEvent` for a call that a run waits for (see `tools.deferred`)."""


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
"""The events of a turn. Decoders write all of them except side events."""

Event: TypeAlias = (
    ModelEvent | SummaryEvent | FunctionToolCallEvent | FunctionToolResultEvent | FinalResultEvent | RunEndEvent
)
"""The events that a run writes and everything downstream reads."""

AgentStreamEvent: TypeAlias = Event
"""Pydantic AI's name for `Event`."""
