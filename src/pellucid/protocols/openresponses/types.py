"""The objects of the protocol that are written once for a response, those of requests, and their OpenAPI schemas.

Deltas, which are nearly all events, are written from templates (`encode`); a test compares both with the published
schema. An optional field is absent, never null, and a nullable field is always present, as the specification requires.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ...errors import ErrorInfo
from ...events import AnsweringDeployment
from ...settings import Effort, SummaryDetail, Verbosity
from ..errors import KIND_NAMES, error_object

Status = Literal["in_progress", "completed", "incomplete"]

# --- content -----------------------------------------------------------------------------------------------------


class _Typed(msgspec.Struct, tag_field="type", kw_only=True):
    pass


class UrlCitation(_Typed, tag="url_citation"):
    url: str
    title: str
    start_index: int
    end_index: int


class OutputText(_Typed, tag="output_text"):
    text: str
    annotations: list[UrlCitation] = []
    logprobs: list[LogProb] = []


class Refusal(_Typed, tag="refusal"):
    refusal: str


class ReasoningText(_Typed, tag="reasoning_text"):
    """The model's own reasoning, raw."""

    text: str


class SummaryText(_Typed, tag="summary_text"):
    """A summary of the reasoning, safe to show."""

    text: str


class TopLogProb(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]


class LogProb(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogProb]


# --- items -------------------------------------------------------------------------------------------------------


class MessageItem(_Typed, tag="message"):
    id: str
    status: Status
    content: list[OutputText | Refusal]
    role: Literal["assistant"] = "assistant"


class ReasoningItem(_Typed, tag="reasoning"):
    id: str
    summary: list[SummaryText]
    status: Status
    content: list[ReasoningText] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET


class FunctionCallItem(_Typed, tag="function_call"):
    id: str
    call_id: str
    name: str
    arguments: str
    status: Status
    namespace: str | UnsetType = UNSET
    """OpenAI's field: the namespace in which the client defined the function, if in any."""


class CustomToolCallItem(_Typed, tag="custom_tool_call"):
    """OpenAI's item: a call of a tool whose input is text."""

    id: str
    call_id: str
    name: str
    input: str
    status: Status
    namespace: str | UnsetType = UNSET


class ToolSearchCallItem(_Typed, tag="tool_search_call"):
    """OpenAI's item: the client is to look for further tools."""

    id: str
    call_id: str
    arguments: Any
    status: Status
    execution: Literal["client"] = "client"


class LocalShellCallItem(_Typed, tag="local_shell_call"):
    """OpenAI's item: the client is to run a command."""

    id: str
    call_id: str
    action: dict[str, Any]
    status: Status


class ReturnedText(_Typed, tag="input_text"):
    text: str


class ReturnedImage(_Typed, tag="input_image"):
    image_url: str
    detail: Literal["low", "high", "auto"] = "auto"


class ReturnedFile(_Typed, tag="input_file"):
    filename: str
    file_url: str


class FunctionCallOutputItem(_Typed, tag="function_call_output"):
    """The result of a function. `output` is a list where the function returned more than text."""

    id: str
    call_id: str
    output: str | list[ReturnedText | ReturnedImage | ReturnedFile]
    status: Status = "completed"


class CompactionItem(_Typed, tag="compaction"):
    """A shorter form of a conversation, sealed."""

    id: str
    encrypted_content: str


CallItem = FunctionCallItem | CustomToolCallItem | ToolSearchCallItem | LocalShellCallItem
Item = MessageItem | ReasoningItem | CallItem | FunctionCallOutputItem | CompactionItem

# --- the response ------------------------------------------------------------------------------------------------


class FunctionTool(_Typed, tag="function"):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class InputTokensDetails(msgspec.Struct):
    cached_tokens: int


class OutputTokensDetails(msgspec.Struct):
    reasoning_tokens: int


class Usage(msgspec.Struct):
    """Tokens. The schema requires every number."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens_details: OutputTokensDetails
    reasoning_tokens_estimated: Literal[True] | UnsetType = UNSET
    """Present if the model did not count its reasoning, and the number is estimated from its text.

    Not in the details: clients accept only numbers there.
    """
    cost: float | UnsetType = UNSET
    """The cost in the currency of the gateway's prices, if there are prices (an extension of OpenRouter)."""


class IncompleteDetails(msgspec.Struct):
    reason: str


class ResponseError(msgspec.Struct):
    code: str
    message: str


class ReasoningConfig(msgspec.Struct):
    effort: str | None = None
    summary: str | None = None


class ConversationRef(msgspec.Struct):
    """The conversation to which a response added its items."""

    id: str


class Response(msgspec.Struct, kw_only=True):
    """The response resource: the request as it was understood, and its result."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"] = "in_progress"
    incomplete_details: IncompleteDetails | None = None
    model: str
    previous_response_id: str | None = None
    instructions: str | None = None
    output: list[Item] = []
    error: ResponseError | None = None
    tools: list[FunctionTool] = []
    tool_choice: Any = "auto"
    truncation: Literal["auto", "disabled"] = "disabled"
    parallel_tool_calls: bool = True
    text: dict[str, Any] = {}
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_logprobs: int = 0
    temperature: float = 1.0
    reasoning: ReasoningConfig | None = None
    usage: Usage | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    store: bool = False
    background: bool = False
    service_tier: str = "default"
    metadata: dict[str, str] = {}
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    conversation: ConversationRef | UnsetType = UNSET
    """The conversation of the response.

    The published schema does not have this field, so it is absent if there is none.
    """
    deployment: AnsweringDeployment | UnsetType = UNSET
    """The deployment that answered, if the model has several (an extension by Pellucid)."""


class CompactedResponse(msgspec.Struct, kw_only=True):
    """The answer of `POST /v1/responses/compact`."""

    id: str
    object: Literal["response.compaction"] = "response.compaction"
    created_at: int
    output: list[CompactionItem]
    usage: Usage


class InputTokens(msgspec.Struct, kw_only=True):
    """The answer of `POST /v1/responses/input_tokens`."""

    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: int
    estimated: Literal[True] | UnsetType = UNSET
    """Present if the provider did not count, and the number is estimated from the text."""


# --- the request -------------------------------------------------------------------------------------------------

Text10M = Annotated[str, Meta(max_length=10_485_760)]
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern="^[a-zA-Z0-9_-]+$")]


class InputText(_Typed, tag="input_text"):
    text: Text10M


class InputImage(_Typed, tag="input_image"):
    image_url: str | None = None
    file_id: str | None = None
    detail: Literal["low", "high", "auto", "original"] | None = None


class InputFile(_Typed, tag="input_file"):
    filename: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    file_id: str | None = None


class InputVideo(_Typed, tag="input_video"):
    video_url: str


class InputAudioData(msgspec.Struct):
    data: str
    format: str


class InputAudio(_Typed, tag="input_audio"):
    input_audio: InputAudioData


class OutputTextParam(_Typed, tag="output_text"):
    text: Text10M
    annotations: list[dict[str, Any]] | None = None
    logprobs: list[Any] | None = None


class PlainTextParam(_Typed, tag="text"):
    text: Text10M


InputContent = InputText | InputImage | InputFile | InputVideo | InputAudio | OutputTextParam | PlainTextParam | Refusal


class MessageParam(_Typed, tag="message"):
    role: Literal["user", "assistant", "system", "developer"]
    content: Text10M | list[InputContent]
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class ReasoningParam(_Typed, tag="reasoning"):
    summary: list[SummaryText] = []
    id: str | None = None
    content: list[ReasoningText | PlainTextParam] | None = None
    encrypted_content: str | None = None
    status: str | None = None


CallId = Annotated[str, Meta(min_length=1)]


class FunctionCallParam(_Typed, tag="function_call"):
    call_id: CallId
    name: Annotated[str, Meta(min_length=1)]
    arguments: str
    namespace: str | None = None
    id: str | None = None
    status: str | None = None


class CustomToolCallParam(_Typed, tag="custom_tool_call"):
    call_id: CallId
    name: Annotated[str, Meta(min_length=1)]
    input: Text10M
    namespace: str | None = None
    id: str | None = None
    status: str | None = None


class ToolSearchCallParam(_Typed, tag="tool_search_call"):
    call_id: CallId
    arguments: Any = None
    id: str | None = None
    status: str | None = None


class LocalShellCallParam(_Typed, tag="local_shell_call"):
    call_id: CallId
    action: dict[str, Any]
    id: str | None = None
    status: str | None = None


class FunctionCallOutputParam(_Typed, tag="function_call_output"):
    """The result of a call. Without the call, it is readable text."""

    output: Text10M | list[InputContent]
    call_id: str | None = None
    name: str | None = None
    id: str | None = None
    status: str | None = None


class CustomToolCallOutputParam(FunctionCallOutputParam, tag="custom_tool_call_output"):
    pass


class LocalShellCallOutputParam(FunctionCallOutputParam, tag="local_shell_call_output"):
    pass


class ToolSearchOutputParam(_Typed, tag="tool_search_output"):
    """The tools that the client found. The model may call them from now on."""

    tools: list[ToolParam]
    call_id: str | None = None
    id: str | None = None
    status: str | None = None


class AdditionalToolsParam(_Typed, tag="additional_tools"):
    """Tools that are added in the course of a conversation."""

    tools: list[ToolParam]
    id: str | None = None


class ItemReference(_Typed, tag="item_reference"):
    id: str


class CompactionParam(_Typed, tag="compaction"):
    encrypted_content: str
    id: str | None = None


class CompactionTriggerParam(_Typed, tag="compaction_trigger"):
    """Asks for a compaction of the conversation instead of an answer."""

    id: str | None = None


class OtherItemParam(_Typed, tag="other"):
    """An item of a type that is not known here, as it was received (`items.known_form`)."""

    native: dict[str, Any]
    id: str | None = None


CallOutputParam = FunctionCallOutputParam | CustomToolCallOutputParam | LocalShellCallOutputParam
ItemParam = (
    MessageParam
    | ReasoningParam
    | FunctionCallParam
    | CustomToolCallParam
    | ToolSearchCallParam
    | LocalShellCallParam
    | CallOutputParam
    | ToolSearchOutputParam
    | AdditionalToolsParam
    | ItemReference
    | CompactionParam
    | CompactionTriggerParam
    | OtherItemParam
)


class FunctionToolParam(_Typed, tag="function"):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class McpToolParam(_Typed, tag="mcp"):
    """An MCP server whose tools are called here. There is no way to approve a call, so none can require approval."""

    server_label: Name
    server_url: Annotated[str, Meta(min_length=1, max_length=2048)]
    server_description: str | None = None
    headers: dict[str, str] | None = None
    authorization: str | None = None
    allowed_tools: Any = None
    require_approval: Any = None


class CustomToolParam(_Typed, tag="custom"):
    """OpenAI's type: a tool whose input is text, of any form or in a grammar."""

    name: Name
    description: str | None = None
    format: ToolFormatText | ToolFormatGrammar | None = None


class ToolFormatText(_Typed, tag="text"):
    pass


class ToolFormatGrammar(_Typed, tag="grammar"):
    syntax: Literal["lark", "regex"]
    definition: Annotated[str, Meta(max_length=100_000)]


class NamespaceToolParam(_Typed, tag="namespace"):
    """OpenAI's type: tools whose names are unique in their namespace only."""

    name: Name
    tools: list[FunctionToolParam | CustomToolParam]
    description: str | None = None


class ToolSearchToolParam(_Typed, tag="tool_search"):
    """OpenAI's type: the model asks the client for further tools."""

    execution: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None


class LocalShellToolParam(_Typed, tag="local_shell"):
    """OpenAI's type: the client runs commands."""


class NativeToolParam(_Typed, tag="native"):
    """A tool that OpenAI runs, as it was received (`client_tools.known_form`)."""

    native: dict[str, Any]


ToolParam = (
    FunctionToolParam
    | CustomToolParam
    | NamespaceToolParam
    | ToolSearchToolParam
    | LocalShellToolParam
    | McpToolParam
    | NativeToolParam
)


class FormatText(_Typed, tag="text"):
    pass


class FormatJsonObject(_Typed, tag="json_object"):
    pass


class FormatJsonSchema(_Typed, tag="json_schema"):
    name: str = "output"
    schema: dict[str, Any] = {}
    description: str | None = None
    strict: bool | None = None


class TextParam(msgspec.Struct):
    format: FormatText | FormatJsonObject | FormatJsonSchema | None = None
    verbosity: Verbosity | None = None


class ReasoningConfigParam(msgspec.Struct):
    effort: Effort | None = None
    summary: SummaryDetail | None = None
    generate_summary: SummaryDetail | None = None


class StreamOptions(msgspec.Struct):
    include_obfuscation: bool = False


Include = Literal[
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    # Of tools that OpenAI runs.
    "web_search_call.action.sources",
    "web_search_call.results",
    "file_search_call.results",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "message.input_image.image_url",
]


class CreateResponse(msgspec.Struct, kw_only=True):
    """The body of `POST /v1/responses`."""

    model: str | None = None
    input: Text10M | list[ItemParam] | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    include: list[Include] | None = None
    tools: list[ToolParam] | None = None
    tool_choice: Any = None
    metadata: (
        Annotated[dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)]
        | None
    ) = None
    text: TextParam | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    background: bool | None = None
    max_output_tokens: Annotated[int, Meta(ge=16)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1)] | None = None
    reasoning: ReasoningConfigParam | None = None
    safety_identifier: Annotated[str, Meta(max_length=64)] | None = None
    prompt_cache_key: Annotated[str, Meta(max_length=64)] | None = None
    user: str | None = None
    truncation: Literal["auto", "disabled"] | None = None
    instructions: str | None = None
    store: bool | None = None
    service_tier: Literal["auto", "default", "flex", "priority"] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None


# --- errors ------------------------------------------------------------------------------------------------------


def error_payload(error: ErrorInfo) -> dict[str, Any]:
    """Return the `error` object, for a body or for the `error` event."""
    return error_object(error, KIND_NAMES[error.kind].openresponses_type)


def error_body(error: ErrorInfo) -> dict[str, Any]:
    """Return the body of an error response."""
    return {"error": error_payload(error)}
