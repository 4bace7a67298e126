"""The objects of the protocol: those of requests, those that an answer holds once, and their OpenAPI schemas.

Chunks are written from templates (`encode`); a test compares them with the schemas of these types and with the types of
the official client. In what is written, an optional field is absent, never null, and a nullable field is always
present. Unknown fields of a request are ignored, as every server of this protocol ignores them.

Errors have OpenAI's form: `{"error": {message, type, param, code}}` with an HTTP status. In a stream, the same object
is the data of an event.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ...errors import ErrorInfo
from ...events import AnsweringDeployment
from ...settings import Effort, SummaryDetail, Verbosity
from ..errors import KIND_NAMES, error_object

ReasoningFields = Literal["both", "reasoning_content", "reasoning"]
"""The field that carries readable reasoning: DeepSeek's, that of OpenRouter and vLLM, or both with the same text."""

FORMAT = "pellucid-v1"
"""The `format` of a detail that holds a token sealed by Pellucid."""

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]

# --- the answer --------------------------------------------------------------------------------------------------


class ReasoningDetail(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A piece of reasoning in OpenRouter's form. The type says which of `text`, `summary` and `data` is present."""

    type: Literal["reasoning.text", "reasoning.summary", "reasoning.encrypted"]
    text: str | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    data: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    format: str | UnsetType = UNSET
    index: int | UnsetType = UNSET
    after: tuple[int, int] | UnsetType = UNSET
    """The number of characters of `content` and of `tool_calls` before the sealed item, where there are any."""


class ChatUrlCitation(msgspec.Struct):
    url: str
    title: str
    start_index: int
    end_index: int


class ChatAnnotation(msgspec.Struct):
    url_citation: ChatUrlCitation
    type: Literal["url_citation"] = "url_citation"


class ChatTopLogProb(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int] | None


class ChatLogProb(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[ChatTopLogProb]


class ChatLogProbs(msgspec.Struct):
    content: list[ChatLogProb] | None = None
    refusal: list[ChatLogProb] | None = None


class ChatFunction(msgspec.Struct):
    name: str
    arguments: str


class ChatToolCall(msgspec.Struct):
    id: str
    function: ChatFunction
    type: Literal["function"] = "function"


class ChatMessage(msgspec.Struct, kw_only=True):
    """The content of the model's answer, from all its turns."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: str | None
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_details: list[ReasoningDetail] | UnsetType = UNSET
    tool_calls: list[ChatToolCall] | UnsetType = UNSET
    annotations: list[ChatAnnotation] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, kw_only=True):
    index: int = 0
    message: ChatMessage
    logprobs: ChatLogProbs | None
    finish_reason: FinishReason


class ChatPromptTokensDetails(msgspec.Struct, omit_defaults=True):
    cached_tokens: int | UnsetType = UNSET
    cache_write_tokens: int | UnsetType = UNSET
    audio_tokens: int | UnsetType = UNSET


class ChatCompletionTokensDetails(msgspec.Struct, omit_defaults=True):
    reasoning_tokens: int | UnsetType = UNSET
    audio_tokens: int | UnsetType = UNSET


class ChatUsage(msgspec.Struct, kw_only=True):
    """Tokens. `completion_tokens` includes reasoning. A count that the model did not report is absent, never 0."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: ChatPromptTokensDetails | UnsetType = UNSET
    completion_tokens_details: ChatCompletionTokensDetails | UnsetType = UNSET
    cost: float | UnsetType = UNSET
    """The cost in the currency of the gateway's prices, if there are prices (an extension of OpenRouter)."""


class ChatCompletion(msgspec.Struct, kw_only=True):
    """A complete answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage | UnsetType = UNSET
    deployment: AnsweringDeployment | UnsetType = UNSET
    """The deployment that answered, if the model has several (an extension by Pellucid)."""


# --- chunks ------------------------------------------------------------------------------------------------------


class ChatFunctionDelta(msgspec.Struct):
    arguments: str
    name: str | UnsetType = UNSET


class ChatToolCallDelta(msgspec.Struct):
    """A piece of a call. The first has the call's id, type and name, the others more of its arguments."""

    index: int
    function: ChatFunctionDelta
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class ChatDelta(msgspec.Struct, kw_only=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    refusal: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_details: list[ReasoningDetail] | UnsetType = UNSET
    tool_calls: list[ChatToolCallDelta] | UnsetType = UNSET
    annotations: list[ChatAnnotation] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, kw_only=True):
    index: int
    delta: ChatDelta
    logprobs: ChatLogProbs | UnsetType = UNSET
    finish_reason: FinishReason | None


class ChatCompletionChunk(msgspec.Struct, kw_only=True):
    """One event of a stream. The last one has no choices and holds the usage, where the request includes it."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: Annotated[list[ChatChunkChoice], Meta(max_length=1)]
    usage: ChatUsage | UnsetType | None = UNSET
    obfuscation: str | UnsetType = UNSET
    deployment: AnsweringDeployment | UnsetType = UNSET
    """As in `ChatCompletion`; in the chunk that has the finish reason."""


# --- the request -------------------------------------------------------------------------------------------------

Text10M = Annotated[str, Meta(max_length=10_485_760)]
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern="^[a-zA-Z0-9_-]+$")]
Id = Annotated[str, Meta(min_length=1)]


class _Content(msgspec.Struct, tag_field="type"):
    pass


class ChatTextContent(_Content, tag="text"):
    text: Text10M


class ChatRefusalContent(_Content, tag="refusal"):
    refusal: Text10M


class ChatImageUrl(msgspec.Struct):
    url: Id
    detail: Literal["low", "high", "auto", "original"] | None = None


class ChatImageContent(_Content, tag="image_url"):
    image_url: ChatImageUrl


class ChatVideoUrl(msgspec.Struct):
    url: Id


class ChatVideoContent(_Content, tag="video_url"):
    video_url: ChatVideoUrl


class ChatAudioData(msgspec.Struct):
    data: str
    format: str


class ChatAudioContent(_Content, tag="input_audio"):
    input_audio: ChatAudioData


class ChatFileData(msgspec.Struct):
    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class ChatFileContent(_Content, tag="file"):
    file: ChatFileData


UserContent: TypeAlias = ChatTextContent | ChatImageContent | ChatVideoContent | ChatAudioContent | ChatFileContent
AssistantContent: TypeAlias = ChatTextContent | ChatRefusalContent


class _Message(msgspec.Struct, tag_field="role", kw_only=True):
    name: str | None = None


class ChatSystemMessage(_Message, tag="system"):
    content: Text10M | list[ChatTextContent]


class ChatDeveloperMessage(_Message, tag="developer"):
    content: Text10M | list[ChatTextContent]


class ChatUserMessage(_Message, tag="user"):
    content: Text10M | list[UserContent]


class ChatFunctionParam(msgspec.Struct):
    name: Id
    arguments: str


class ChatToolCallParam(msgspec.Struct, kw_only=True):
    id: Id
    type: str = "function"
    function: ChatFunctionParam | None = None


class ReasoningDetailParam(msgspec.Struct):
    """A reasoning detail that a client sends back.

    Fragments with the same `index` and type are one entry. Types other than the three known ones are ignored.
    """

    type: str = "reasoning.text"
    text: str | None = None
    summary: str | None = None
    data: str | None = None
    id: str | None = None
    format: str | None = None
    index: int | None = None
    after: Any = None


class ChatAssistantMessage(_Message, tag="assistant"):
    content: Text10M | list[AssistantContent] | None = None
    refusal: Text10M | None = None
    reasoning_content: Text10M | None = None
    reasoning: Text10M | None = None
    reasoning_details: list[ReasoningDetailParam] | None = None
    tool_calls: list[ChatToolCallParam] | None = None
    function_call: ChatFunctionParam | None = None
    audio: Any = None


class ChatToolMessage(_Message, tag="tool"):
    tool_call_id: Id
    content: Text10M | list[ChatTextContent]


class ChatFunctionMessage(_Message, tag="function"):
    """The result of a call in OpenAI's first form, which is matched by the function's name."""

    content: Text10M | None = None


Message: TypeAlias = (
    ChatSystemMessage
    | ChatDeveloperMessage
    | ChatUserMessage
    | ChatAssistantMessage
    | ChatToolMessage
    | ChatFunctionMessage
)


class ChatFunctionDefinition(msgspec.Struct):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ChatToolParam(msgspec.Struct):
    type: str = "function"
    function: ChatFunctionDefinition | None = None


class ChatJsonSchema(msgspec.Struct):
    name: str = "output"
    schema: dict[str, Any] = {}
    description: str | None = None
    strict: bool | None = None


class ChatFormatText(_Content, tag="text"):
    pass


class ChatFormatJsonObject(_Content, tag="json_object"):
    pass


class ChatFormatJsonSchema(_Content, tag="json_schema"):
    json_schema: ChatJsonSchema


class ChatReasoningParam(msgspec.Struct):
    """OpenRouter's settings of reasoning."""

    effort: Effort | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    exclude: bool | None = None
    enabled: bool | None = None
    summary: SummaryDetail | None = None


class ChatStreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class CreateChatCompletion(msgspec.Struct, kw_only=True):
    """The body of `POST /v1/chat/completions`."""

    model: str | None = None
    messages: Annotated[list[Message], Meta(extra_json_schema={"minItems": 1})]
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None
    reasoning_effort: Effort | None = None
    reasoning: ChatReasoningParam | None = None
    include_reasoning: bool | None = None
    reasoning_fields: ReasoningFields | None = None
    """An extension by Pellucid: the field that carries readable reasoning. If absent, the server's default."""
    tools: list[ChatToolParam] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    response_format: ChatFormatText | ChatFormatJsonObject | ChatFormatJsonSchema | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: int | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    logit_bias: dict[str, int] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    n: Annotated[int, Meta(ge=1)] | None = None
    verbosity: Verbosity | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    modalities: list[str] | None = None
    audio: Any = None
    functions: Any = None
    function_call: Any = None
    web_search_options: Any = None
    moderation: Any = None


def error_payload(error: ErrorInfo) -> dict[str, Any]:
    """Return the `error` object, for a body or for the data of an event."""
    return error_object(error, KIND_NAMES[error.kind].openai_type)


def error_body(error: ErrorInfo) -> dict[str, Any]:
    """Return the body of an error response."""
    return {"error": error_payload(error)}
