"""Parts of a conversation, their deltas, and the two messages that hold them.

The names are Pydantic AI's (its guide is one of the documents this package was built from), so that code written
against it reads the same here. Parts are immutable and flat. Parts of one *item* (for example an OpenAI reasoning item
with several summaries) have the same `item_id`.

There are three kinds of opaque data, because providers distinguish them:

* a signature over visible text: `ThinkingPart(content="…", signature="…")`;
* a blob in place of the text: `ThinkingPart(content="", signature="…", form="redacted")` or an empty `content` with a
  signature;
* a signature on something that is not reasoning (Gemini): `signature` of a text or tool-call part.

Opaque strings are passed on unchanged: never decoded, trimmed or re-encoded.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

Form = Literal["raw", "summary", "redacted"]
"""How a thinking part's text relates to the model's own reasoning."""

FinishReason = Literal["stop", "length", "content_filter", "tool_call", "pause", "error"]
"""Why a turn ended. `pause`: the provider is not done, and expects another request with its output so far."""


class Origin(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """The model and provider that produced a part. Opaque data is bound to all four fields, and sent to no other."""

    provider: str
    """The provider: `openai`, `anthropic`, `deepseek`, or the operator's own name for an upstream."""
    api: str
    """The wire: `openai_chat`, `openai_responses`, `anthropic`, …"""
    model: str
    """The model's name in the request. The name in the provider's response may be more precise. Empty if the request is
    not known, as in a history that other software recorded."""
    account: str | None = None
    """A label for the account, where there are several at one provider."""

    @property
    def deployment(self) -> str:
        """The name of the deployment, for logs, reports and clients: `PROVIDER/MODEL`."""
        return f"{self.provider}/{self.model}"


def same_origin(a: Origin | None, b: Origin | None) -> bool:
    """Whether opaque data made by `a` may be sent to `b`. An unknown origin matches none.

    An origin whose model is not known matches every model of its provider, wire and account.
    """
    if a is None or b is None or a.model == b.model:
        return a is not None and a == b
    return not a.model and (a.provider, a.api, a.account) == (b.provider, b.api, b.account)


class _Part(msgspec.Struct, frozen=True, tag_field="part_kind", omit_defaults=True, repr_omit_defaults=True):
    part_kind: ClassVar[str]


WireFields: TypeAlias = dict[str, dict[str, Any]]
"""Fields of a client's block that only one wire knows, by the wire's name. They are sent over that wire alone.

If they include `type`, they are the whole block: a text is then what of it is readable, for the models of other wires.
"""


# --- output of a model -----------------------------------------------------------------------------------


class _ModelPart(_Part, frozen=True, kw_only=True):
    """Base of the parts that a model or its provider makes: the fields that are sent back to its origin only."""

    id: str | None = None
    """The provider's id of the item. It is sent to that provider only, never to clients."""
    signature: str | None = None
    """Anthropic and Bedrock `signature`, OpenAI `encrypted_content`, OpenRouter `signature` or `data`, …"""
    provider_name: str | None = None
    """The provider that made the signature. It is sent back to no other."""
    provider_details: dict[str, Any] | None = None
    item_id: str | None = None
    """The gateway's public id of the item, the same in every protocol."""
    origin: Origin | None = None
    """Set on a part that was separated from its response; otherwise the response's origin applies."""
    wire_fields: WireFields | None = None
    """Set on a part that a client sent."""


class _StreamedPart(_ModelPart, frozen=True, kw_only=True):
    """A part that arrives in deltas."""

    complete: bool = True
    """False if the model was cut off within this part."""


OPAQUE_FIELDS: dict[str, str] = {"signature": "signature_delta", "provider_details": "provider_details"}
"""The fields of a part that hold opaque data, each with the field of a delta that carries it.

Code that carries, withholds or compares opaque data reads this table. (`id` and `provider_name` are names, and do not
stream.)"""

PROVIDER_FIELDS = ("id", "provider_name", *OPAQUE_FIELDS)
"""The fields of a part that are sent back to its provider only: opaque data, and the names that belong to it."""


class _TextualPart(_StreamedPart, frozen=True):
    content: str


class ThinkingPart(_TextualPart, tag="thinking", frozen=True, kw_only=True):
    """A piece of reasoning. `content` may be empty if there is a `signature`."""

    part_kind: ClassVar[Literal["thinking"]] = "thinking"
    form: Form = "raw"


class TextPart(_TextualPart, tag="text", frozen=True, kw_only=True):
    """A piece of the answer."""

    part_kind: ClassVar[Literal["text"]] = "text"
    annotations: list[dict[str, Any]] | None = None
    """Citations, in OpenAI's shape (`{"type": "url_citation", "start_index": 0, …}`)."""
    logprobs: list[dict[str, Any]] | None = None


class RefusalPart(_TextualPart, tag="refusal", frozen=True):
    """The model's refusal, as text."""

    part_kind: ClassVar[Literal["refusal"]] = "refusal"


class _CallPart(_StreamedPart, frozen=True):
    tool_name: str
    args: str | dict[str, Any] | None = None
    """JSON text as the model wrote it, or an object where the wire carries one. The text may be invalid JSON, because
    models make mistakes and an incomplete call stays as it was cut off."""
    tool_call_id: str = ""

    def args_as_json(self) -> str:
        """Return the arguments as JSON text; `{}` if there are none."""
        return json_text(self.args)

    def args_as_text(self) -> str:
        """Return the arguments as JSON text, as far as the model wrote them; empty if it wrote none."""
        return json_text(self.args) if self.args not in (None, "") else ""


class ToolCallPart(_CallPart, tag="tool-call", frozen=True):
    """A call of a function, requested by the model."""

    part_kind: ClassVar[Literal["tool-call"]] = "tool-call"

    def args_as_dict(self) -> dict[str, Any]:
        """Return the arguments as an object; empty if there are none.

        Raises:
            msgspec.DecodeError: The model wrote something else than a JSON object.
        """
        if isinstance(self.args, dict):
            return self.args
        return msgspec.json.decode(self.args, type=dict[str, Any]) if self.args else {}


class BuiltinToolCallPart(_CallPart, tag="builtin-tool-call", frozen=True):
    """A call of a tool that the provider runs itself (web search, code interpreter, …)."""

    part_kind: ClassVar[Literal["builtin-tool-call"]] = "builtin-tool-call"


class BuiltinToolReturnPart(_ModelPart, tag="builtin-tool-return", frozen=True):
    """The result of a tool that the provider ran itself."""

    part_kind: ClassVar[Literal["builtin-tool-return"]] = "builtin-tool-return"
    tool_name: str
    content: Any = None
    tool_call_id: str = ""


class FilePart(_ModelPart, tag="file", frozen=True):
    """A file that the model made, for example an image. `data` is base64, as on every wire that carries files."""

    part_kind: ClassVar[Literal["file"]] = "file"
    data: str
    media_type: str
    thought: bool = False
    """Whether the file was made while thinking. Gemini marks such images."""


class CompactionPart(_ModelPart, tag="compaction", frozen=True):
    """A provider's compressed replacement for earlier turns: readable, opaque, or both."""

    part_kind: ClassVar[Literal["compaction"]] = "compaction"
    content: str | None = None

    @property
    def is_own(self) -> bool:
        """Whether the gateway made it, so that every model can read it."""
        return bool(self.content) and self.provider_name is None and self.signature is None


class OpaquePart(_ModelPart, tag="opaque", frozen=True):
    """A block of a type that this version does not know.

    It is stored whole, sent back unchanged to its origin, and shown in no view.
    """

    part_kind: ClassVar[Literal["opaque"]] = "opaque"
    type: str
    """The block's type name, for diagnostics."""
    native: Any
    wire: str | None = None
    """Set on a block that a client sent in the form of this wire; it is sent to every model of the wire."""
    text: str = ""
    """What of such a block is readable: models of other wires get this text."""


# --- input of a model ------------------------------------------------------------------------------------


class SealedPart(_Part, tag="sealed", frozen=True):
    """Reasoning that a client sent back sealed. It must be opened before it is sent to a provider."""

    part_kind: ClassVar[Literal["sealed"]] = "sealed"
    token: str
    item_id: str | None = None
    visible_texts: tuple[str, ...] = ()
    """The readable reasoning that came back with the token, once for each field that has it (see `sealing`)."""


class SystemPromptPart(_Part, tag="system-prompt", frozen=True):
    """Instructions. `role` preserves OpenAI's distinction between `system` and `developer`."""

    part_kind: ClassVar[Literal["system-prompt"]] = "system-prompt"
    content: str
    role: Literal["system", "developer"] = "system"
    wire_fields: WireFields | None = None
    dynamic_ref: str | None = None
    """The name of the function that wrote it, if later runs of its agent replace it. It is never sent to a model."""


class _Content(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True, repr_omit_defaults=True
):
    kind: ClassVar[str]
    wire_fields: WireFields | None = None


class Text(_Content, tag="text", frozen=True):
    """Text content."""

    kind: ClassVar[Literal["text"]] = "text"
    text: str


class Image(_Content, tag="image", frozen=True):
    """An image by `url` (also `data:` URLs), base64 `data` with its `media_type`, or a provider's `file_id`."""

    kind: ClassVar[Literal["image"]] = "image"
    url: str | None = None
    data: str | None = None
    media_type: str | None = None
    file_id: str | None = None
    detail: Literal["low", "high", "auto", "original"] | None = None


class Audio(_Content, tag="audio", frozen=True):
    """Audio by `url`, or as base64 `data` with its `media_type`."""

    kind: ClassVar[Literal["audio"]] = "audio"
    data: str | None = None
    media_type: str | None = None
    url: str | None = None


class Video(_Content, tag="video", frozen=True):
    """A video by `url`, or as base64 `data` with its `media_type`."""

    kind: ClassVar[Literal["video"]] = "video"
    url: str | None = None
    data: str | None = None
    media_type: str | None = None


class File(_Content, tag="file", frozen=True):
    """A file by `url`, base64 `data` with its `media_type`, or a provider's `file_id`."""

    kind: ClassVar[Literal["file"]] = "file"
    url: str | None = None
    data: str | None = None
    media_type: str | None = None
    file_id: str | None = None
    filename: str | None = None


UserContent: TypeAlias = Text | Image | Audio | Video | File

ImageUrl = Image
AudioUrl = Audio
VideoUrl = Video
DocumentUrl = File
"""Pydantic AI's names for content by URL."""


def BinaryContent(data: bytes, *, media_type: str) -> Image | Audio | Video | File:
    """Return bytes as content: an image, audio or video by their media type, else a file.

    Args:
        data: The bytes.
        media_type: Their media type, such as `image/png`.
    """
    kinds: dict[str, type[Image | Audio | Video]] = {"image": Image, "audio": Audio, "video": Video}
    kind = kinds.get(media_type.partition("/")[0], File)
    return kind(data=base64.b64encode(data).decode(), media_type=media_type)


DEFAULT_MEDIA_TYPES = {
    "image": "image/png",
    "audio": "audio/wav",
    "video": "video/mp4",
    "file": "application/octet-stream",
}
"""The media type of content, by its kind, where none is known."""


class UserPromptPart(_Part, tag="user-prompt", frozen=True):
    """A prompt of the user: text, or a list of text, images, audio, videos and files. `name` distinguishes users."""

    part_kind: ClassVar[Literal["user-prompt"]] = "user-prompt"
    content: str | list[UserContent]
    name: str | None = None


class ToolReturnPart(_Part, tag="tool-return", frozen=True):
    """The result of a function: text, content parts, or any JSON value."""

    part_kind: ClassVar[Literal["tool-return"]] = "tool-return"
    tool_name: str
    content: Any
    tool_call_id: str = ""
    outcome: Literal["success", "failed", "denied"] = "success"
    wire_fields: WireFields | None = None

    def __post_init__(self) -> None:
        # Content parts that were encoded as JSON become content parts again.
        parts = _content_parts(self.content)
        if parts is not None:
            msgspec.structs.force_setattr(self, "content", parts)

    @property
    def contents(self) -> list[UserContent] | None:
        """The content parts, if the function returned content parts; None for text and JSON."""
        content = self.content
        parts = isinstance(content, list) and content and all(isinstance(entry, _Content) for entry in content)
        return content if parts else None

    def content_as_text(self) -> str:
        """Return the content as text, for wires whose results are text."""
        if self.content is None:
            return ""
        return self.content if isinstance(self.content, str) else json_text(self.content)


def _content_parts(value: Any) -> list[UserContent] | None:
    """Decode a JSON value that encodes content parts exactly; None for any other value."""
    if not (isinstance(value, list) and value and isinstance(value[0], dict) and "kind" in value[0]):
        return None
    try:
        parts: list[UserContent] = msgspec.convert(value, list[UserContent])
    except msgspec.ValidationError:
        return None
    return parts if msgspec.to_builtins(parts) == value else None


class RetryPromptPart(_Part, tag="retry-prompt", frozen=True):
    """A request to the model to try again, because its tool arguments or its output did not validate."""

    part_kind: ClassVar[Literal["retry-prompt"]] = "retry-prompt"
    content: str
    tool_name: str | None = None
    tool_call_id: str = ""


ModelResponsePart: TypeAlias = (
    ThinkingPart
    | TextPart
    | RefusalPart
    | ToolCallPart
    | BuiltinToolCallPart
    | BuiltinToolReturnPart
    | FilePart
    | CompactionPart
    | OpaquePart
    | SealedPart
)
ModelRequestPart: TypeAlias = SystemPromptPart | UserPromptPart | ToolReturnPart | RetryPromptPart


def has_opaque_data(part: ModelResponsePart) -> bool:
    """Whether any of the part's opaque fields is set."""
    return any(getattr(part, name, None) for name in OPAQUE_FIELDS)


def are_complete(parts: Iterable[ModelResponsePart]) -> bool:
    """Whether the model was cut off in none of these parts."""
    return all(getattr(part, "complete", True) for part in parts)


# --- deltas of a model's output --------------------------------------------------------------------------


class _Delta(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="part_delta_kind",
    omit_defaults=True,
    repr_omit_defaults=True,
    gc=False,
):
    """An addition to a part: text and lists are appended, a signature replaces the last, details are merged."""

    part_delta_kind: ClassVar[str]
    signature_delta: str | None = None
    provider_name: str | None = None
    provider_details: dict[str, Any] | None = None


class ThinkingPartDelta(_Delta, tag="thinking", frozen=True):
    """An addition to a thinking part."""

    part_delta_kind: ClassVar[Literal["thinking"]] = "thinking"
    content_delta: str | None = None


class TextPartDelta(_Delta, tag="text", frozen=True):
    """An addition to a text part."""

    part_delta_kind: ClassVar[Literal["text"]] = "text"
    content_delta: str = ""
    logprobs: list[dict[str, Any]] | None = None
    annotations: list[dict[str, Any]] | None = None


class RefusalPartDelta(_Delta, tag="refusal", frozen=True):
    """An addition to a refusal part."""

    part_delta_kind: ClassVar[Literal["refusal"]] = "refusal"
    content_delta: str = ""


class ToolCallPartDelta(_Delta, tag="tool_call", frozen=True):
    """An addition to a call's arguments, as JSON text."""

    part_delta_kind: ClassVar[Literal["tool_call"]] = "tool_call"
    args_delta: str = ""


class BuiltinToolCallPartDelta(_Delta, tag="builtin_tool_call", frozen=True):
    """An addition to a builtin call's arguments. `status` is the tool's progress in the provider's own word."""

    part_delta_kind: ClassVar[Literal["builtin_tool_call"]] = "builtin_tool_call"
    args_delta: str = ""
    status: str | None = None


PartDelta: TypeAlias = (
    ThinkingPartDelta | TextPartDelta | RefusalPartDelta | ToolCallPartDelta | BuiltinToolCallPartDelta
)

DELTA_OF: dict[type[ModelResponsePart], type[PartDelta]] = {
    ThinkingPart: ThinkingPartDelta,
    TextPart: TextPartDelta,
    RefusalPart: RefusalPartDelta,
    ToolCallPart: ToolCallPartDelta,
    BuiltinToolCallPart: BuiltinToolCallPartDelta,
}
"""The parts that stream, each with the type of its deltas."""


# --- messages --------------------------------------------------------------------------------------------


CHARACTERS_PER_TOKEN = 4
"""For estimates where a provider reports no tokens."""


MAX_TURN_TOKENS = 1_000_000_000
"""More tokens than any turn has."""


def estimated_tokens(characters: int) -> int:
    """Return an estimate of the tokens of a text with this length."""
    return -(-characters // CHARACTERS_PER_TOKEN)


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """Token counts. A count that a provider does not report is None, never 0 and never a guess.

    `output_tokens` includes reasoning for every provider. (Gemini reports it separately; its decoder adds it.)
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    output_reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    input_audio_tokens: int | None = None
    output_audio_tokens: int | None = None
    details: dict[str, int] = {}
    """Every other integer that the provider reported, by the provider's name."""
    cost_nanos: int | None = None
    """The cost in billionths of the currency. The gateway computes it, for models with prices."""
    reasoning_cost_nanos: int | None = None
    """The part of the cost that is for tokens of reasoning. The gateway computes it for a whole run."""

    @property
    def cost(self) -> float | None:
        """The cost in the currency of the gateway's prices; None if it is not known."""
        return None if self.cost_nanos is None else self.cost_nanos / 1_000_000_000

    @property
    def reasoning_cost(self) -> float | None:
        """The part of `cost` that is for tokens of reasoning; None if it is not known."""
        return None if self.reasoning_cost_nanos is None else self.reasoning_cost_nanos / 1_000_000_000

    @property
    def total_tokens(self) -> int | None:
        """The sum of input and output tokens; None if either is unknown."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens

    @property
    def plausible(self) -> Usage:
        """The same without counts that no turn can have, and that its provider thus does not report."""
        wrong = [name for name in TOKEN_COUNTS if not 0 <= (getattr(self, name) or 0) <= MAX_TURN_TOKENS]
        return msgspec.structs.replace(self, **dict.fromkeys(wrong)) if wrong else self

    def __add__(self, other: Usage) -> Usage:
        """Add the counts of two turns. A count that only one side has is kept; it is None only if neither has it."""
        known = {
            name: _add_counts(getattr(self, name), getattr(other, name))
            for name in self.__struct_fields__
            if name != "details"
        }
        details = dict(self.details)
        for name, value in other.details.items():
            details[name] = details.get(name, 0) + value
        return Usage(**known, details=details)


RequestUsage: TypeAlias = Usage
"""Pydantic AI's name for the usage of one turn."""

COSTS = ("cost_nanos", "reasoning_cost_nanos")
"""The fields of `Usage` that are amounts of money."""

TOKEN_COUNTS = tuple(name for name in Usage.__struct_fields__ if name not in ("details", *COSTS))
"""The fields of `Usage` that are numbers of tokens."""


def _add_counts(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b


class _Message(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True, repr_omit_defaults=True):
    kind: ClassVar[str]


class ModelRequest(_Message, tag="request", frozen=True):
    """The input of one turn."""

    kind: ClassVar[Literal["request"]] = "request"
    parts: list[ModelRequestPart]
    instructions: str | None = None
    timestamp: datetime | None = None
    metadata: dict[str, Any] | None = None
    """An application's own data. It is never sent to a model."""


class ModelResponse(_Message, tag="response", frozen=True):
    """The output of one turn, in the order in which the model produced it."""

    kind: ClassVar[Literal["response"]] = "response"
    parts: list[ModelResponsePart]
    usage: Usage = Usage()
    origin: Origin | None = None
    model_name: str | None = None
    """The model's name in the provider's response."""
    provider_response_id: str | None = None
    finish_reason: FinishReason | None = None
    native_finish_reason: str | None = None
    provider_details: dict[str, Any] | None = None
    timestamp: datetime | None = None

    @property
    def thinking(self) -> str | None:
        """All readable reasoning, its parts separated by blank lines; None if there is none."""
        texts = [part.content for part in self.parts if isinstance(part, ThinkingPart) and part.content]
        return "\n\n".join(texts) if texts else None

    @property
    def text(self) -> str | None:
        """The text of the answer; None if there is none."""
        texts = [part.content for part in self.parts if isinstance(part, TextPart)]
        return "".join(texts) if texts else None

    @property
    def tool_calls(self) -> list[ToolCallPart]:
        """The function calls, in order."""
        return [part for part in self.parts if isinstance(part, ToolCallPart)]


ModelMessage: TypeAlias = ModelRequest | ModelResponse


def json_text(value: Any) -> str:
    """Encode a value as JSON text. Text is taken as JSON already; None and empty text become `{}`."""
    if isinstance(value, str):
        return value or "{}"
    if value is None:
        return "{}"
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        # Half of a surrogate pair, as in a file name that is not valid text. JSON can hold it as an escape.
        return json.dumps(msgspec.to_builtins(value))


_from_json = msgspec.json.Decoder(list[ModelMessage]).decode


def messages_to_json(messages: list[ModelMessage]) -> bytes:
    """Encode a conversation as JSON. `messages_from_json` decodes it to an equal conversation.

    Args:
        messages: The messages, in order.

    Returns:
        UTF-8 JSON: a list of messages.
    """
    return json_text(messages).encode()


def messages_from_json(data: bytes | str) -> list[ModelMessage]:
    """Decode a conversation that `messages_to_json` encoded.

    Args:
        data: The JSON, as bytes or text.

    Returns:
        The messages, in order.

    Raises:
        msgspec.DecodeError: The data is something else.
    """
    return _from_json(data)


class _MessagesTypeAdapter:
    """Validates and dumps conversations, with the methods of a pydantic `TypeAdapter`."""

    def validate_json(self, data: bytes | str) -> list[ModelMessage]:
        """Return the messages of JSON that `dump_json`, `messages_to_json` or `all_messages_json` wrote.

        Raises:
            msgspec.DecodeError: The data is something else. It is a `ValueError`.
        """
        return messages_from_json(data)

    def validate_python(self, value: Any) -> list[ModelMessage]:
        """Return the messages of what `dump_python` returned.

        Raises:
            msgspec.ValidationError: The value is something else. It is a `ValueError`.
        """
        return msgspec.convert(value, list[ModelMessage])

    def dump_json(self, messages: list[ModelMessage]) -> bytes:
        """Return the messages as JSON."""
        return messages_to_json(messages)

    def dump_python(self, messages: list[ModelMessage], *, mode: Literal["python", "json"] = "python") -> Any:
        """Return the messages as lists and dictionaries.

        Args:
            messages: The messages, in order.
            mode: `json`: only values that JSON can hold; `python`: with times as `datetime`.
        """
        return msgspec.to_builtins(messages, builtin_types=(datetime,) if mode == "python" else ())


ModelMessagesTypeAdapter = _MessagesTypeAdapter()
"""Pydantic AI's name for what reads and writes conversations."""
