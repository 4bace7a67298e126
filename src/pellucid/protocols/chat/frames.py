"""The events of an answer while it comes, each with exactly the fields that the specification gives it.

`event_id` is the answer's, `segment_id` that of the segment that will hold it in the end.

Errors before a stream: `{"error": {message, code, param?}}` and an HTTP status.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import UNSET, UnsetType

from ...errors import CONVERSATION_BUSY, CONVERSATION_MOVED, ErrorInfo
from ...parts import View
from ...unicode import replace_surrogates
from ..errors import STATUSES
from .types import Answer

MAX_PREVIEW_CHARS = 500
"""How many characters of its arguments a call shows while it is under way."""


class _Frame(msgspec.Struct, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    pass


class _MessageFrame(_Frame, kw_only=True):
    event_id: str


class MessageStarted(_MessageFrame, kw_only=True, tag="message_started"):
    """The answer begins: always the first, once."""

    conversation_id: str
    model: str
    created_at: int
    view: View
    effort_level: str | UnsetType = UNSET


def message_started(
    event_id: str, conversation_id: str, model: str, created_at: int, view: View, effort_level: str | None
) -> MessageStarted:
    """The beginning of an answer. What UTF-8 cannot hold is U+FFFD in it."""
    return MessageStarted(
        event_id=replace_surrogates(event_id),
        conversation_id=replace_surrogates(conversation_id),
        model=replace_surrogates(model),
        created_at=created_at,
        view=view,
        effort_level=UNSET if effort_level is None else effort_level,
    )


# --- reasoning ---------------------------------------------------------------------------------------------------


class _PartFrame(_MessageFrame, kw_only=True):
    segment_id: str
    summary_index: int


class ReasoningPartStarted(_PartFrame, kw_only=True, tag="reasoning_part_started"):
    """A part of the thought begins; told with its first text."""

    sequence_number: int
    created_at: int


class ReasoningPartDelta(_PartFrame, kw_only=True, tag="reasoning_part_delta"):
    """More of the part."""

    text_delta: str


class ReasoningPartCompleted(_PartFrame, kw_only=True, tag="reasoning_part_completed"):
    """The part is over."""

    is_complete: Literal[True] = True


class ReasoningSegmentMeta(_MessageFrame, kw_only=True, tag="reasoning_segment_meta"):
    """A segment of reasoning opens: so one without parts is seen, too. And again, once its tokens are known."""

    segment_id: str
    sequence_number: int | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    created_at: int | UnsetType = UNSET
    effort_level: str | UnsetType = UNSET
    reasoning_tokens: int | UnsetType = UNSET
    form: Literal["raw", "summary", "sealed"] | UnsetType = UNSET


# --- the answer --------------------------------------------------------------------------------------------------


class TextDelta(_MessageFrame, kw_only=True, tag="text_delta"):
    """More of the answer, or of a refusal. `output_index`: the place of its segment."""

    text_delta: str
    output_index: int


# --- tools -------------------------------------------------------------------------------------------------------


class CallStarted(_MessageFrame, kw_only=True):
    """A call opens. `args_preview` is empty while its arguments are still to come."""

    call_id: str
    name: str
    args_preview: str
    sequence_number: int
    created_at: int


class CallUpdate(_MessageFrame, kw_only=True):
    """How far a call is: `arguments`, then `running`, or a provider's own word; `incomplete` if nobody answered it."""

    call_id: str
    status: str
    progress: float | None = None
    """From 0 to 1; null where that is unknown."""
    logs_delta: str | UnsetType = UNSET
    args_preview: str | UnsetType = UNSET
    """The beginning of the arguments as they stand."""


class CallResult(_MessageFrame, kw_only=True):
    """What came back: any JSON, or null and an `error`."""

    call_id: str
    result: Any
    error: str | UnsetType = UNSET


class ToolCallStarted(CallStarted, kw_only=True, tag="tool_call_started"):
    """A function is called, or a tool of the provider's that has no events of its own."""


class ToolCallUpdate(CallUpdate, kw_only=True, tag="tool_call_update"):
    """How far it is."""


class ToolResult(CallResult, kw_only=True, tag="tool_result"):
    """What it returned."""


class WebSearchCallStarted(CallStarted, kw_only=True, tag="web_search_call_started"):
    """The provider searches."""


class WebSearchCallUpdate(CallUpdate, kw_only=True, tag="web_search_call_update"):
    """How far the search is."""


class WebSearchCallResult(CallResult, kw_only=True, tag="web_search_call_result"):
    """What was found."""


class CodeInterpreterCallStarted(CallStarted, kw_only=True, tag="code_interpreter_call_started"):
    """The provider runs code."""


class CodeInterpreterCallUpdate(CallUpdate, kw_only=True, tag="code_interpreter_call_update"):
    """How far the code is."""


class CodeInterpreterCallResult(CallResult, kw_only=True, tag="code_interpreter_call_result"):
    """What the code gave."""


# --- the end -----------------------------------------------------------------------------------------------------


class MessageError(_MessageFrame, kw_only=True, tag="message_error"):
    """The answer failed. What came of it follows as `message_final`, unless it could not be kept."""

    message: str


class MessageCancelled(_MessageFrame, kw_only=True, tag="message_cancelled"):
    """Somebody stopped it. What came of it follows as `message_final`."""


class MessageFinal(_Frame, kw_only=True, tag="message_final"):
    """The answer as it is kept: once, last."""

    event: Answer


Frame: TypeAlias = (
    MessageStarted
    | ReasoningSegmentMeta
    | ReasoningPartStarted
    | ReasoningPartDelta
    | ReasoningPartCompleted
    | TextDelta
    | ToolCallStarted
    | ToolCallUpdate
    | ToolResult
    | WebSearchCallStarted
    | WebSearchCallUpdate
    | WebSearchCallResult
    | CodeInterpreterCallStarted
    | CodeInterpreterCallUpdate
    | CodeInterpreterCallResult
    | MessageError
    | MessageCancelled
    | MessageFinal
)

FrameSink: TypeAlias = Callable[[Any], None]
"""Who is told a frame."""

FRAME_NAMES: dict[type[Any], str] = {frame: str(frame.__struct_config__.tag) for frame in get_args(Frame)}
"""What each is called, as an event and as its `type`."""


CONFLICT_CODES = (CONVERSATION_BUSY, CONVERSATION_MOVED)
"""The request is right, and the chat is not as it would have to be."""


def status_of(error: ErrorInfo) -> int:
    """The HTTP status for an error that comes before anything was streamed."""
    return 409 if error.code in CONFLICT_CODES and error.kind == "invalid_request" else STATUSES[error.kind]


def error_body(error: ErrorInfo) -> dict[str, Any]:
    """The body beside it; `code` is always there."""
    payload: dict[str, Any] = {"message": error.full_message, "code": error.code or error.kind}
    return {"error": payload if error.param is None else {**payload, "param": error.param}}
