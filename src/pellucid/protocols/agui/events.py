"""The events of AG-UI: the 31 of version 1.0, and the five that the oldest clients have for reasoning.

Names of classes and attributes are those of the official Python package. On the wire fields are camelCase, and `type`
selects the event. An optional field is absent, never null; null is read as absent. Two fields are only in the proposal
of 2025: `encryptedContent` of REASONING_START, and `assistant` as the role of reasoning.

`dialects` lists the events of each dialect; `verify` checks whether a sequence of them is legal.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import Meta

from ...errors import RequestError
from ...events import SideEvent
from ...unicode import json_safe
from .messages import NAMESPACE, ContentPart, Interrupt, Message, Metadata, RunAgentInput, TokenUsage

Milliseconds: TypeAlias = Annotated[int, Meta(ge=-(2**53) + 1, le=2**53 - 1)]
"""Milliseconds since 1970, in the range of JavaScript's safe integers."""
TextRole = Literal["developer", "system", "assistant", "user"]
Patch: TypeAlias = list[dict[str, Any]]
"""Operations of JSON Patch (RFC 6902)."""


class _Event(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    tag_field="type",
    omit_defaults=True,
    repr_omit_defaults=True,
):
    type: ClassVar[str]
    timestamp: Milliseconds | None = None
    raw_event: Any = None
    metadata: Metadata | None = None

    def as_side_event(self) -> SideEvent:
        """Return the side event that carries this event through a run."""
        value = msgspec.to_builtins(self)
        return SideEvent(NAMESPACE, value.pop("type"), value)


class _AttributedEvent(_Event, frozen=True, kw_only=True):
    """An event of the agent, or of a subagent if `subagent_run_id` is set."""

    subagent_run_id: str | None = None


class _Outcome(msgspec.Struct, frozen=True, rename="camel", tag_field="type", omit_defaults=True):
    pass


# --- the run -------------------------------------------------------------------------------------------------------


class RunStartedEvent(_Event, tag="RUN_STARTED", frozen=True, kw_only=True):
    type: ClassVar[Literal["RUN_STARTED"]] = "RUN_STARTED"
    thread_id: str
    run_id: str
    protocol_version: str | None = None
    parent_run_id: str | None = None
    input: RunAgentInput | None = None


class RunFinishedSuccessOutcome(_Outcome, tag="success", frozen=True):
    """Outcome of a successful run. `pending_tool_call_ids`: the calls whose results the client must send."""

    type: ClassVar[Literal["success"]] = "success"
    pending_tool_call_ids: list[str] | None = None


class RunFinishedInterruptOutcome(_Outcome, tag="interrupt", frozen=True):
    """Outcome of a run that waits for answers. The next run must answer all interrupts."""

    type: ClassVar[Literal["interrupt"]] = "interrupt"
    interrupts: Annotated[list[Interrupt], Meta(min_length=1)]


class RunFinishedCancelledOutcome(_Outcome, tag="cancelled", frozen=True):
    type: ClassVar[Literal["cancelled"]] = "cancelled"


RunFinishedOutcome: TypeAlias = RunFinishedSuccessOutcome | RunFinishedInterruptOutcome | RunFinishedCancelledOutcome


class RunFinishedEvent(_Event, tag="RUN_FINISHED", frozen=True, kw_only=True):
    """End of a run. No outcome means success. `usage` has an entry for each provider and model."""

    type: ClassVar[Literal["RUN_FINISHED"]] = "RUN_FINISHED"
    thread_id: str
    run_id: str
    result: Any = None
    outcome: RunFinishedOutcome | None = None
    usage: list[TokenUsage] | None = None


class RunErrorEvent(_Event, tag="RUN_ERROR", frozen=True, kw_only=True):
    type: ClassVar[Literal["RUN_ERROR"]] = "RUN_ERROR"
    message: str
    code: str | None = None
    usage: list[TokenUsage] | None = None


class StepStartedEvent(_AttributedEvent, tag="STEP_STARTED", frozen=True, kw_only=True):
    type: ClassVar[Literal["STEP_STARTED"]] = "STEP_STARTED"
    step_name: str


class StepFinishedEvent(_AttributedEvent, tag="STEP_FINISHED", frozen=True, kw_only=True):
    type: ClassVar[Literal["STEP_FINISHED"]] = "STEP_FINISHED"
    step_name: str


# --- text ----------------------------------------------------------------------------------------------------------


class TextMessageStartEvent(_AttributedEvent, tag="TEXT_MESSAGE_START", frozen=True, kw_only=True):
    """Start of a text message. Without a role it is the assistant's."""

    type: ClassVar[Literal["TEXT_MESSAGE_START"]] = "TEXT_MESSAGE_START"
    message_id: str
    role: TextRole | None = None
    name: str | None = None


class TextMessageContentEvent(_AttributedEvent, tag="TEXT_MESSAGE_CONTENT", frozen=True, kw_only=True):
    type: ClassVar[Literal["TEXT_MESSAGE_CONTENT"]] = "TEXT_MESSAGE_CONTENT"
    message_id: str
    delta: str


class TextMessageEndEvent(_AttributedEvent, tag="TEXT_MESSAGE_END", frozen=True, kw_only=True):
    type: ClassVar[Literal["TEXT_MESSAGE_END"]] = "TEXT_MESSAGE_END"
    message_id: str


class TextMessageChunkEvent(_AttributedEvent, tag="TEXT_MESSAGE_CHUNK", frozen=True, kw_only=True):
    """Start, content and end of a text message in one event. The first chunk of a message needs the id."""

    type: ClassVar[Literal["TEXT_MESSAGE_CHUNK"]] = "TEXT_MESSAGE_CHUNK"
    message_id: str | None = None
    role: TextRole | None = None
    delta: str | None = None
    name: str | None = None


# --- tools ---------------------------------------------------------------------------------------------------------


class ToolCallStartEvent(_AttributedEvent, tag="TOOL_CALL_START", frozen=True, kw_only=True):
    """Start of a call. `parent_message_id`: its assistant message, which clients make if there is none with this id."""

    type: ClassVar[Literal["TOOL_CALL_START"]] = "TOOL_CALL_START"
    tool_call_id: str
    tool_call_name: str
    parent_message_id: str | None = None


class ToolCallArgsEvent(_AttributedEvent, tag="TOOL_CALL_ARGS", frozen=True, kw_only=True):
    type: ClassVar[Literal["TOOL_CALL_ARGS"]] = "TOOL_CALL_ARGS"
    tool_call_id: str
    delta: str


class ToolCallEndEvent(_AttributedEvent, tag="TOOL_CALL_END", frozen=True, kw_only=True):
    type: ClassVar[Literal["TOOL_CALL_END"]] = "TOOL_CALL_END"
    tool_call_id: str


class ToolCallChunkEvent(_AttributedEvent, tag="TOOL_CALL_CHUNK", frozen=True, kw_only=True):
    """Start, arguments and end of a call in one event. The first chunk of a call needs the id and the name."""

    type: ClassVar[Literal["TOOL_CALL_CHUNK"]] = "TOOL_CALL_CHUNK"
    tool_call_id: str | None = None
    tool_call_name: str | None = None
    parent_message_id: str | None = None
    delta: str | None = None


class ToolCallResultEvent(_AttributedEvent, tag="TOOL_CALL_RESULT", frozen=True, kw_only=True):
    """Result of a tool. It becomes a message with the id `message_id`."""

    type: ClassVar[Literal["TOOL_CALL_RESULT"]] = "TOOL_CALL_RESULT"
    message_id: str
    tool_call_id: str
    content: str | list[ContentPart]
    role: Literal["tool"] | None = None


# --- state, activities, raw and custom events ----------------------------------------------------------------------


class StateSnapshotEvent(_AttributedEvent, tag="STATE_SNAPSHOT", frozen=True, kw_only=True):
    type: ClassVar[Literal["STATE_SNAPSHOT"]] = "STATE_SNAPSHOT"
    snapshot: Any


class StateDeltaEvent(_AttributedEvent, tag="STATE_DELTA", frozen=True, kw_only=True):
    type: ClassVar[Literal["STATE_DELTA"]] = "STATE_DELTA"
    delta: Patch


class MessagesSnapshotEvent(_Event, tag="MESSAGES_SNAPSHOT", frozen=True, kw_only=True):
    """All messages of the thread. If it has any reasoning message, it must have all of them."""

    type: ClassVar[Literal["MESSAGES_SNAPSHOT"]] = "MESSAGES_SNAPSHOT"
    messages: list[Message]


class ActivitySnapshotEvent(_AttributedEvent, tag="ACTIVITY_SNAPSHOT", frozen=True, kw_only=True):
    """State of an activity. It replaces an earlier one with this id, unless `replace` is false."""

    type: ClassVar[Literal["ACTIVITY_SNAPSHOT"]] = "ACTIVITY_SNAPSHOT"
    message_id: str
    activity_type: str
    content: dict[str, Any]
    replace: bool | None = None


class ActivityDeltaEvent(_AttributedEvent, tag="ACTIVITY_DELTA", frozen=True, kw_only=True):
    type: ClassVar[Literal["ACTIVITY_DELTA"]] = "ACTIVITY_DELTA"
    message_id: str
    activity_type: str
    patch: Patch


class RawEvent(_AttributedEvent, tag="RAW", frozen=True, kw_only=True):
    type: ClassVar[Literal["RAW"]] = "RAW"
    event: Any
    source: str | None = None


class CustomEvent(_AttributedEvent, tag="CUSTOM", frozen=True, kw_only=True):
    type: ClassVar[Literal["CUSTOM"]] = "CUSTOM"
    name: str
    value: Any


# --- reasoning -----------------------------------------------------------------------------------------------------


class ReasoningStartEvent(_AttributedEvent, tag="REASONING_START", frozen=True, kw_only=True):
    """Start of a span of reasoning. `encrypted_content` is only in the proposal; 1.0 has an event for it."""

    type: ClassVar[Literal["REASONING_START"]] = "REASONING_START"
    message_id: str
    encrypted_content: str | None = None


class ReasoningMessageStartEvent(_AttributedEvent, tag="REASONING_MESSAGE_START", frozen=True, kw_only=True):
    """Start of a reasoning message. Clients require the role `reasoning`; the proposal has `assistant`."""

    type: ClassVar[Literal["REASONING_MESSAGE_START"]] = "REASONING_MESSAGE_START"
    message_id: str
    role: Literal["reasoning", "assistant"]


class ReasoningMessageContentEvent(_AttributedEvent, tag="REASONING_MESSAGE_CONTENT", frozen=True, kw_only=True):
    type: ClassVar[Literal["REASONING_MESSAGE_CONTENT"]] = "REASONING_MESSAGE_CONTENT"
    message_id: str
    delta: str


class ReasoningMessageEndEvent(_AttributedEvent, tag="REASONING_MESSAGE_END", frozen=True, kw_only=True):
    type: ClassVar[Literal["REASONING_MESSAGE_END"]] = "REASONING_MESSAGE_END"
    message_id: str


class ReasoningMessageChunkEvent(_AttributedEvent, tag="REASONING_MESSAGE_CHUNK", frozen=True, kw_only=True):
    """Start, content and end of a reasoning message in one event, without a span.

    The first chunk of a message needs the id. In the proposal, an empty chunk ends the message.
    """

    type: ClassVar[Literal["REASONING_MESSAGE_CHUNK"]] = "REASONING_MESSAGE_CHUNK"
    message_id: str | None = None
    delta: str | None = None


class ReasoningEndEvent(_AttributedEvent, tag="REASONING_END", frozen=True, kw_only=True):
    type: ClassVar[Literal["REASONING_END"]] = "REASONING_END"
    message_id: str


class ReasoningEncryptedValueEvent(_AttributedEvent, tag="REASONING_ENCRYPTED_VALUE", frozen=True, kw_only=True):
    """A value that the client returns with a message or a call. Clients drop it if they do not know the entity yet."""

    type: ClassVar[Literal["REASONING_ENCRYPTED_VALUE"]] = "REASONING_ENCRYPTED_VALUE"
    subtype: Literal["tool-call", "message"]
    entity_id: str
    encrypted_value: str


# --- subagents -----------------------------------------------------------------------------------------------------


class SubagentStartedEvent(_Event, tag="SUBAGENT_STARTED", frozen=True, kw_only=True):
    """Start of a subagent. `subagent_run_id` identifies this one invocation."""

    type: ClassVar[Literal["SUBAGENT_STARTED"]] = "SUBAGENT_STARTED"
    subagent_run_id: str
    name: str
    description: str | None = None
    parent_subagent_run_id: str | None = None
    parent_tool_call_id: str | None = None
    parent_message_id: str | None = None


class SubagentFinishedSuccessOutcome(_Outcome, tag="success", frozen=True):
    type: ClassVar[Literal["success"]] = "success"


class SubagentFinishedSuspendedOutcome(_Outcome, tag="suspended", frozen=True):
    type: ClassVar[Literal["suspended"]] = "suspended"
    interrupt_ids: list[str] | None = None


class SubagentFinishedEvent(_Event, tag="SUBAGENT_FINISHED", frozen=True, kw_only=True):
    type: ClassVar[Literal["SUBAGENT_FINISHED"]] = "SUBAGENT_FINISHED"
    subagent_run_id: str
    result: Any = None
    outcome: SubagentFinishedSuccessOutcome | SubagentFinishedSuspendedOutcome | None = None


class SubagentErrorEvent(_Event, tag="SUBAGENT_ERROR", frozen=True, kw_only=True):
    type: ClassVar[Literal["SUBAGENT_ERROR"]] = "SUBAGENT_ERROR"
    subagent_run_id: str
    message: str
    code: str | None = None


# --- reasoning, as the oldest clients have it ----------------------------------------------------------------------


class ThinkingStartEvent(_Event, tag="THINKING_START", frozen=True, kw_only=True):
    type: ClassVar[Literal["THINKING_START"]] = "THINKING_START"
    title: str | None = None


class ThinkingTextMessageStartEvent(_Event, tag="THINKING_TEXT_MESSAGE_START", frozen=True, kw_only=True):
    type: ClassVar[Literal["THINKING_TEXT_MESSAGE_START"]] = "THINKING_TEXT_MESSAGE_START"


class ThinkingTextMessageContentEvent(_Event, tag="THINKING_TEXT_MESSAGE_CONTENT", frozen=True, kw_only=True):
    type: ClassVar[Literal["THINKING_TEXT_MESSAGE_CONTENT"]] = "THINKING_TEXT_MESSAGE_CONTENT"
    delta: str


class ThinkingTextMessageEndEvent(_Event, tag="THINKING_TEXT_MESSAGE_END", frozen=True, kw_only=True):
    type: ClassVar[Literal["THINKING_TEXT_MESSAGE_END"]] = "THINKING_TEXT_MESSAGE_END"


class ThinkingEndEvent(_Event, tag="THINKING_END", frozen=True, kw_only=True):
    type: ClassVar[Literal["THINKING_END"]] = "THINKING_END"


RunEvent: TypeAlias = RunStartedEvent | RunFinishedEvent | RunErrorEvent | StepStartedEvent | StepFinishedEvent
TextMessageEvent: TypeAlias = (
    TextMessageStartEvent | TextMessageContentEvent | TextMessageEndEvent | TextMessageChunkEvent
)
ToolCallEvent: TypeAlias = (
    ToolCallStartEvent | ToolCallArgsEvent | ToolCallEndEvent | ToolCallChunkEvent | ToolCallResultEvent
)
StateEvent: TypeAlias = (
    StateSnapshotEvent
    | StateDeltaEvent
    | MessagesSnapshotEvent
    | ActivitySnapshotEvent
    | ActivityDeltaEvent
    | RawEvent
    | CustomEvent
)
ReasoningEvent: TypeAlias = (
    ReasoningStartEvent
    | ReasoningMessageStartEvent
    | ReasoningMessageContentEvent
    | ReasoningMessageEndEvent
    | ReasoningMessageChunkEvent
    | ReasoningEndEvent
    | ReasoningEncryptedValueEvent
)
SubagentEvent: TypeAlias = SubagentStartedEvent | SubagentFinishedEvent | SubagentErrorEvent
ThinkingEvent: TypeAlias = (
    ThinkingStartEvent
    | ThinkingTextMessageStartEvent
    | ThinkingTextMessageContentEvent
    | ThinkingTextMessageEndEvent
    | ThinkingEndEvent
)
AGUIEvent: TypeAlias = (
    RunEvent | TextMessageEvent | ToolCallEvent | StateEvent | ReasoningEvent | SubagentEvent | ThinkingEvent
)

TYPE_OF: dict[str, type[AGUIEvent]] = {cls.type: cls for cls in get_args(AGUIEvent)}
"""The class of each `type`."""

_decode = msgspec.json.Decoder(AGUIEvent).decode
_encode = msgspec.json.Encoder().encode


def decode_event(data: bytes | str | dict[str, Any]) -> AGUIEvent:
    """Decode an event from JSON, or convert it from a JSON object.

    Fields that this version does not define are ignored.

    Args:
        data: The JSON text, or the object.

    Raises:
        RequestError: (code `bad_event`) the data is not an event of AG-UI.
    """
    try:
        if isinstance(data, dict):
            return cast("AGUIEvent", msgspec.convert(data, AGUIEvent))
        return cast("AGUIEvent", _decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"not an AG-UI event: {_describe_error(error)}", code="bad_event") from None


def encode_event(event: AGUIEvent) -> bytes:
    """Encode an event as JSON on one line. Surrogates, which UTF-8 cannot encode, become U+FFFD."""
    try:
        return _encode(event)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        return _encode(json_safe(event))


def _describe_error(error: Exception) -> str:
    # The messages of msgspec have the path and the types, or the position of invalid JSON.
    return str(error) if isinstance(error, msgspec.DecodeError) else "it is not UTF-8"
