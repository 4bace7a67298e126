"""The events of an answer's stream, each with exactly the fields of its specification.

`event_id` is the id of the answer. `segment_id` is the id of the segment that will hold the content in the end.

An error before a stream is `{"error": {message, code, param?}}` with an HTTP status.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import UNSET, UnsetType

from ...errors import ErrorInfo
from ...unicode import replace_surrogates
from ...view import View
from .types import Answer, SummaryNote

MAX_PREVIEW_CHARS = 500
"""The maximum number of characters of its arguments that a call shows while it is in progress."""


class _Frame(msgspec.Struct, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    pass


class _MessageFrame(_Frame, kw_only=True):
    event_id: str


class MessageStarted(_MessageFrame, kw_only=True, tag="message_started"):
    """The answer starts: always the first event, once."""

    conversation_id: str
    model: str
    created_at: int
    view: View
    effort_level: str | UnsetType = UNSET


def message_started(
    event_id: str,
    conversation_id: str,
    model: str,
    created_at: int,
    *,
    view: View = "raw",
    effort_level: str | None = None,
) -> MessageStarted:
    """Return the event that starts an answer. What UTF-8 cannot hold is replaced by U+FFFD.

    Args:
        event_id: The id of the answer's event.
        conversation_id: The id of the chat.
        model: The model's public name.
        created_at: The time of the question, in milliseconds since 1970.
        view: The view in which the reader gets reasoning.
        effort_level: The effort that was requested of the model.
    """
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
    """A part of the reasoning starts; sent with its first text."""

    sequence_number: int
    created_at: int


class ReasoningPartDelta(_PartFrame, kw_only=True, tag="reasoning_part_delta"):
    """More of the part."""

    text_delta: str


class ReasoningPartCompleted(_PartFrame, kw_only=True, tag="reasoning_part_completed"):
    """The part has ended."""

    is_complete: Literal[True] = True
    completed_at: int | UnsetType = UNSET


class ReasoningSegmentMeta(_MessageFrame, kw_only=True, tag="reasoning_segment_meta"):
    """A reasoning segment opens, also one without parts.

    Sent again when its number of tokens is known, and with what becomes known about summaries of another model.
    """

    segment_id: str
    sequence_number: int | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    created_at: int | UnsetType = UNSET
    effort_level: str | UnsetType = UNSET
    reasoning_tokens: int | UnsetType = UNSET
    form: Literal["raw", "summary", "sealed"] | UnsetType = UNSET
    completed_at: int | UnsetType = UNSET
    """When the reasoning ended, if summaries of it may still come."""
    summary: SummaryNote | UnsetType = UNSET


# --- the answer --------------------------------------------------------------------------------------------------


class TextDelta(_MessageFrame, kw_only=True, tag="text_delta"):
    """More of the answer, or of a refusal. `output_index` is the place of its segment."""

    text_delta: str
    output_index: int


# --- tools -------------------------------------------------------------------------------------------------------


class CallStarted(_MessageFrame, kw_only=True):
    """A call opens. `args_preview` is empty while its arguments are not known."""

    call_id: str
    name: str
    args_preview: str
    sequence_number: int
    created_at: int


class CallUpdate(_MessageFrame, kw_only=True):
    """The progress of a call.

    The status is `arguments`, then `running` or a status that the provider reports, and `incomplete` if it got no
    result.
    """

    call_id: str
    status: str
    progress: float | None = None
    """From 0 to 1; null where it is unknown."""
    logs_delta: str | UnsetType = UNSET
    args_preview: str | UnsetType = UNSET
    """The beginning of the arguments that have come so far."""


class CallResult(_MessageFrame, kw_only=True):
    """The result of a call: any JSON value, or null with an `error`."""

    call_id: str
    result: Any
    error: str | UnsetType = UNSET
    completed_at: int | UnsetType = UNSET


class ToolCallStarted(CallStarted, kw_only=True, tag="tool_call_started"):
    """A call of a function, or of a provider's tool that has no events of its own, opens."""


class ToolCallUpdate(CallUpdate, kw_only=True, tag="tool_call_update"):
    """The progress of the call."""


class ToolResult(CallResult, kw_only=True, tag="tool_result"):
    """The result of the call."""


class WebSearchCallStarted(CallStarted, kw_only=True, tag="web_search_call_started"):
    """The provider starts a search."""


class WebSearchCallUpdate(CallUpdate, kw_only=True, tag="web_search_call_update"):
    """The progress of the search."""


class WebSearchCallResult(CallResult, kw_only=True, tag="web_search_call_result"):
    """The result of the search."""


class CodeInterpreterCallStarted(CallStarted, kw_only=True, tag="code_interpreter_call_started"):
    """The provider starts to run code."""


class CodeInterpreterCallUpdate(CallUpdate, kw_only=True, tag="code_interpreter_call_update"):
    """The progress of the code."""


class CodeInterpreterCallResult(CallResult, kw_only=True, tag="code_interpreter_call_result"):
    """The result of the code."""


# --- the end -----------------------------------------------------------------------------------------------------


class MessageError(_MessageFrame, kw_only=True, tag="message_error"):
    """The answer failed. Its content so far follows as `message_final`, unless it could not be stored."""

    message: str


class MessageCancelled(_MessageFrame, kw_only=True, tag="message_cancelled"):
    """The answer was cancelled. Its content so far follows as `message_final`."""


class MessageFinal(_Frame, kw_only=True, tag="message_final"):
    """The answer as it is stored: once, last."""

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
"""Receives a frame."""

FRAME_NAMES: dict[type[Any], str] = {frame: str(frame.__struct_config__.tag) for frame in get_args(Frame)}
"""The name of each event, which is also its `type`."""


def error_body(error: ErrorInfo) -> dict[str, Any]:
    """Return the body of an error that occurs before a stream begins. `code` is always present."""
    payload: dict[str, Any] = {"message": error.full_message, "code": error.code or error.kind}
    return {"error": payload if error.param is None else {**payload, "param": error.param}}
