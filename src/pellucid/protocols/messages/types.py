"""The objects of the protocol: those of requests, those that an answer holds, and their OpenAPI schemas.

A request is read leniently: blocks, tools and fields that are not listed here are for the wire whose form they have
(`WIRE`), and go to that wire alone. Events are written from templates (`encode`); a test compares them with these types
and with those of the official client.

Errors have the form `{"type": "error", "error": {type, message}, "request_id"}`. In a stream, the same object is the
data of an event `error`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ...errors import ErrorInfo
from ...events import AnsweringDeployment
from ...settings import Effort
from ..errors import KIND_NAMES

StopReason = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "model_context_window_exceeded"
]

# --- the answer --------------------------------------------------------------------------------------------------


class OutputTokensDetails(msgspec.Struct):
    thinking_tokens: int


class MessageUsage(msgspec.Struct, kw_only=True):
    """Tokens. `input_tokens` does not include those that were read from a cache or written to it.

    The protocol requires both numbers. Where the model reports none, `output_tokens` is estimated from the text that
    this reader got, and `estimated` is present.
    """

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int | UnsetType = UNSET
    cache_read_input_tokens: int | UnsetType = UNSET
    output_tokens_details: OutputTokensDetails | UnsetType = UNSET
    estimated: Literal[True] | UnsetType = UNSET
    """An extension by Pellucid."""
    cost: float | UnsetType = UNSET
    """The cost in the currency of the gateway's prices, if there are prices (an extension of OpenRouter)."""


class Message(msgspec.Struct, kw_only=True):
    """A complete answer."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[dict[str, Any]]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage
    deployment: AnsweringDeployment | UnsetType = UNSET
    """The deployment that answered, if the model has several (an extension by Pellucid)."""


class TokenCount(msgspec.Struct):
    """The answer of `count_tokens`."""

    input_tokens: int
    estimated: Literal[True] | UnsetType = UNSET
    """An extension by Pellucid: the provider did not count, and the number is estimated from the text."""


# --- events ------------------------------------------------------------------------------------------------------


class _Event(msgspec.Struct, tag_field="type"):
    pass


class MessageStart(_Event, tag="message_start"):
    message: Message


class ContentBlockStart(_Event, tag="content_block_start"):
    index: int
    content_block: dict[str, Any]


class _Delta(msgspec.Struct, tag_field="type"):
    pass


class TextDelta(_Delta, tag="text_delta"):
    text: str


class ThinkingDelta(_Delta, tag="thinking_delta"):
    thinking: str


class SignatureDelta(_Delta, tag="signature_delta"):
    signature: str


class InputJsonDelta(_Delta, tag="input_json_delta"):
    partial_json: str


class CitationsDelta(_Delta, tag="citations_delta"):
    citation: dict[str, Any]


Delta: TypeAlias = TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta | CitationsDelta


class ContentBlockDelta(_Event, tag="content_block_delta"):
    index: int
    delta: Delta


class ContentBlockStop(_Event, tag="content_block_stop"):
    index: int


class StopDelta(msgspec.Struct):
    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(_Event, tag="message_delta"):
    delta: StopDelta
    usage: MessageUsage
    deployment: AnsweringDeployment | UnsetType = UNSET
    """As in `Message`."""


class MessageStop(_Event, tag="message_stop"):
    pass


class Ping(_Event, tag="ping"):
    pass


class ErrorObject(msgspec.Struct):
    type: str
    message: str
    details: dict[str, Any] | UnsetType = UNSET


class ErrorBody(_Event, tag="error"):
    """An error, as a body or as the data of an event."""

    error: ErrorObject
    request_id: str | UnsetType = UNSET
    """The request's id; only in a body."""


MessageStreamEvent: TypeAlias = (
    MessageStart
    | ContentBlockStart
    | ContentBlockDelta
    | ContentBlockStop
    | MessageDelta
    | MessageStop
    | Ping
    | ErrorBody
)

# --- the request -------------------------------------------------------------------------------------------------

Name = Annotated[str, Meta(min_length=1, max_length=128)]
Text = Annotated[str, Meta(max_length=10_485_760)]


class MessageParam(msgspec.Struct):
    role: Literal["user", "assistant", "system"]
    content: Text | list[dict[str, Any]]


class ThinkingParam(msgspec.Struct):
    type: Literal["adaptive", "enabled", "disabled", "between_tools"]
    budget_tokens: int | None = None
    """Zero and less is no budget; clients on the AI SDK send -1."""
    display: str | None = None


class OutputFormatParam(msgspec.Struct):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfigParam(msgspec.Struct):
    effort: Effort | None = None
    format: OutputFormatParam | None = None


class ToolParam(msgspec.Struct):
    """A function of the client, or, with another type than `custom`, a tool that the model's provider defines."""

    name: Name | None = None
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class ToolChoiceParam(msgspec.Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class MetadataParam(msgspec.Struct):
    user_id: str | None = None


class CountTokens(msgspec.Struct, kw_only=True):
    """The body of `POST /v1/messages/count_tokens`."""

    model: str | None = None
    messages: Annotated[list[MessageParam], Meta(extra_json_schema={"minItems": 1})]
    system: Text | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoiceParam | None = None
    thinking: ThinkingParam | None = None
    output_config: OutputConfigParam | None = None
    output_format: OutputFormatParam | None = None
    """The older name of `output_config.format`."""


class CreateMessage(CountTokens, kw_only=True):
    """The body of `POST /v1/messages`. Fields that are not listed are sent to Anthropic's models alone."""

    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    metadata: MetadataParam | None = None
    service_tier: str | None = None


# --- content blocks of a request -------------------------------------------------------------------------------


class TextParam(msgspec.Struct):
    text: Text


class SourceParam(msgspec.Struct):
    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    content: Any = None


class ImageParam(msgspec.Struct):
    source: SourceParam


class DocumentParam(msgspec.Struct):
    source: SourceParam
    title: str | None = None


class ThinkingBlockParam(msgspec.Struct):
    thinking: Text
    signature: str | None = None


class RedactedThinkingParam(msgspec.Struct):
    data: str


class ToolUseParam(msgspec.Struct):
    id: Annotated[str, Meta(min_length=1)]
    name: Name
    input: dict[str, Any]


class ToolResultParam(msgspec.Struct):
    tool_use_id: Annotated[str, Meta(min_length=1)]
    content: Text | list[dict[str, Any]] | None = None
    is_error: bool | None = None


# --- errors ------------------------------------------------------------------------------------------------------


NO_THREADS = "thread_unsupported_request"
"""The code by which a client learns that it must send all messages of its thread."""


def error_body(error: ErrorInfo) -> dict[str, Any]:
    """Return the body of an error response, which is also the data of the event of an error."""
    payload: dict[str, Any] = {"type": KIND_NAMES[error.kind].messages_type, "message": error.full_message}
    if error.code == NO_THREADS:
        payload["details"] = {"error_code": NO_THREADS, "unsupported": ["thread"]}
    return {"type": "error", "error": payload}
