"""What a model and its user say to each other: parts, their deltas, and the two messages that hold them.

The names are Pydantic AI's (its guide is one of the documents this package was built from), so that code
written against it reads the same here. Parts are immutable and flat; parts of one *item* (an OpenAI
reasoning item with several summaries, say) carry the same `item_id`.

Three kinds of opaque data are told apart, because providers do:

* a signature over visible text: `ThinkingPart(content="…", signature="…")`;
* a blob in place of the text: `ThinkingPart(content="", signature="…", form="redacted")` or an empty
  `content` with a signature;
* a signature on something that is not reasoning (Gemini): `signature` of a text or tool-call part.

Opaque strings are strings: never decoded, trimmed or re-encoded.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import msgspec

Form = Literal["raw", "summary", "redacted"]
"""How a thinking part's text relates to the model's real thought."""

View = Literal["raw", "summary", "sealed", "hidden"]
"""In what form reasoning leaves for a reader, from most to least: all of it; summaries alone; that there was some, as
an opaque token; not at all. What each shows stands in `pellucid.view.viewer.VIEW_RULES`."""

VIEWS: tuple[View, ...] = get_args(View)

FinishReason = Literal["stop", "length", "content_filter", "tool_call", "pause", "error"]
"""`pause`: the provider is not done and wants to be asked again, with what it said so far."""


class Origin(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """Who made it: opaque data is bound to all four and goes back to nobody else."""

    provider: str
    """Whose endpoint: `openai`, `anthropic`, `deepseek`, or the operator's own name for an upstream."""
    api: str
    """Which wire: `openai_chat`, `openai_responses`, `anthropic`, …"""
    model: str
    """The model as it was asked for (what the provider calls it in its answer may be more precise)."""
    account: str | None = None
    """A label for the account or deployment, where one provider has several."""


def same_origin(a: Origin | None, b: Origin | None) -> bool:
    """Whether opaque data made by `a` may be handed to `b`. Unknown origins match nobody."""
    return a is not None and a == b


class _Part(msgspec.Struct, frozen=True, tag_field="part_kind", omit_defaults=True, repr_omit_defaults=True):
    part_kind: ClassVar[str]


# --- what a model says -----------------------------------------------------------------------------------


class _ModelPart(_Part, frozen=True, kw_only=True):
    """A part that a model or its provider makes: what stands beside its content, and goes back to nobody else."""

    id: str | None = None
    """The provider's id of the item (never shown to clients, used only towards that provider)."""
    signature: str | None = None
    """Anthropic and Bedrock `signature`, OpenAI `encrypted_content`, OpenRouter `signature` or `data`, …"""
    provider_name: str | None = None
    """Signatures are only sent back to the same provider."""
    provider_details: dict[str, Any] | None = None
    item_id: str | None = None
    """Our own public id of the item, the same on every protocol."""
    origin: Origin | None = None
    """Set where the part has travelled alone; otherwise its response's origin holds."""


class _StreamedPart(_ModelPart, frozen=True, kw_only=True):
    """A part that arrives in deltas."""

    complete: bool = True
    """False when the model was cut off in it."""


OPAQUE_FIELDS: dict[str, str] = {"signature": "signature_delta", "provider_details": "provider_details"}
"""Opaque data: the fields of a part that only its provider understands, and the field of a delta that brings each. Who
carries, withholds or compares such data reads this table. (`id` and `provider_name` name things, and do not stream.)"""

PROVIDER_FIELDS = ("id", "provider_name", *OPAQUE_FIELDS)
"""The fields of a part that go back to its provider alone: opaque data, and the names that belong to it."""


class _TextualPart(_StreamedPart, frozen=True):
    content: str


class ThinkingPart(_TextualPart, tag="thinking", frozen=True, kw_only=True):
    """A piece of reasoning. `content` may be empty when there is a `signature`."""

    part_kind: ClassVar[Literal["thinking"]] = "thinking"
    form: Form = "raw"


class TextPart(_TextualPart, tag="text", frozen=True, kw_only=True):
    """A piece of the answer."""

    part_kind: ClassVar[Literal["text"]] = "text"
    annotations: list[dict[str, Any]] | None = None
    """Citations, in OpenAI's shape (`{"type": "url_citation", "start_index": 0, …}`)."""
    logprobs: list[dict[str, Any]] | None = None


class RefusalPart(_TextualPart, tag="refusal", frozen=True):
    """The model declined, in words."""

    part_kind: ClassVar[Literal["refusal"]] = "refusal"


class _CallPart(_StreamedPart, frozen=True):
    tool_name: str
    args: str | dict[str, Any] | None = None
    """JSON text as the model wrote it, or an object where the wire carries one. It may be invalid JSON: models make
    mistakes, and an incomplete call is kept as it was cut."""
    tool_call_id: str = ""

    def args_as_json(self) -> str:
        """The arguments as JSON text; `{}` when there are none."""
        return json_text(self.args)

    def args_as_text(self) -> str:
        """The arguments as JSON text, as far as the model wrote them; empty when it wrote none."""
        return json_text(self.args) if self.args not in (None, "") else ""


class ToolCallPart(_CallPart, tag="tool-call", frozen=True):
    """The model asks for a function to be called."""

    part_kind: ClassVar[Literal["tool-call"]] = "tool-call"

    def args_as_dict(self) -> dict[str, Any]:
        """The arguments as an object. Raises `msgspec.DecodeError` when the model wrote something else."""
        if isinstance(self.args, dict):
            return self.args
        return msgspec.json.decode(self.args, type=dict[str, Any]) if self.args else {}


class BuiltinToolCallPart(_CallPart, tag="builtin-tool-call", frozen=True):
    """The provider itself runs a tool (web search, code interpreter, …)."""

    part_kind: ClassVar[Literal["builtin-tool-call"]] = "builtin-tool-call"


class BuiltinToolReturnPart(_ModelPart, tag="builtin-tool-return", frozen=True):
    """What the provider's own tool returned."""

    part_kind: ClassVar[Literal["builtin-tool-return"]] = "builtin-tool-return"
    tool_name: str
    content: Any = None
    tool_call_id: str = ""


class FilePart(_ModelPart, tag="file", frozen=True):
    """A file the model made (an image, say). `data` is base64, as on every wire that carries files."""

    part_kind: ClassVar[Literal["file"]] = "file"
    data: str
    media_type: str
    thought: bool = False
    """Made while thinking (Gemini marks such images)."""


class CompactionPart(_ModelPart, tag="compaction", frozen=True):
    """A provider's compressed stand-in for earlier turns: readable, opaque, or both."""

    part_kind: ClassVar[Literal["compaction"]] = "compaction"
    content: str | None = None


class OpaquePart(_ModelPart, tag="opaque", frozen=True):
    """A block this version does not know: kept whole, sent back verbatim to who made it, shown to nobody."""

    part_kind: ClassVar[Literal["opaque"]] = "opaque"
    type: str
    """The block's own type name, for diagnostics."""
    native: Any


# --- what goes to a model --------------------------------------------------------------------------------


class SealedPart(_Part, tag="sealed", frozen=True):
    """Reasoning that came back sealed, not opened yet. It must be opened before a provider sees it."""

    part_kind: ClassVar[Literal["sealed"]] = "sealed"
    token: str
    item_id: str | None = None


class SystemPromptPart(_Part, tag="system-prompt", frozen=True):
    """Instructions. `role` keeps the difference that OpenAI makes between `system` and `developer`."""

    part_kind: ClassVar[Literal["system-prompt"]] = "system-prompt"
    content: str
    role: Literal["system", "developer"] = "system"


class _Content(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True, repr_omit_defaults=True):
    kind: ClassVar[str]


class Text(_Content, tag="text", frozen=True):
    """Words."""

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
    """Sound, by `url` or as base64 `data` with its `media_type`."""

    kind: ClassVar[Literal["audio"]] = "audio"
    data: str | None = None
    media_type: str | None = None
    url: str | None = None


class Video(_Content, tag="video", frozen=True):
    """A film, by `url` or as base64 `data` with its `media_type`."""

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


class UserPromptPart(_Part, tag="user-prompt", frozen=True):
    """What the user says, in words alone or with images, sound, films and files. `name` tells users apart."""

    part_kind: ClassVar[Literal["user-prompt"]] = "user-prompt"
    content: str | list[UserContent]
    name: str | None = None


class ToolReturnPart(_Part, tag="tool-return", frozen=True):
    """What a function returned: text, content parts, or any JSON value."""

    part_kind: ClassVar[Literal["tool-return"]] = "tool-return"
    tool_name: str
    content: Any
    tool_call_id: str = ""
    outcome: Literal["success", "failed", "denied"] = "success"

    def __post_init__(self) -> None:
        # Content parts that were written as JSON, and are read again.
        parts = _content_parts(self.content)
        if parts is not None:
            msgspec.structs.force_setattr(self, "content", parts)

    @property
    def contents(self) -> list[UserContent] | None:
        """The content parts, where that is what the function returned; None for text and JSON."""
        content = self.content
        parts = isinstance(content, list) and content and all(isinstance(entry, _Content) for entry in content)
        return content if parts else None

    def content_as_text(self) -> str:
        """The content as the text that chat-like wires carry."""
        if self.content is None:
            return ""
        return self.content if isinstance(self.content, str) else json_text(self.content)


def _content_parts(value: Any) -> list[UserContent] | None:
    """The content parts whose JSON this is, exactly; None for any other value."""
    if not (isinstance(value, list) and value and isinstance(value[0], dict) and "kind" in value[0]):
        return None
    try:
        parts: list[UserContent] = msgspec.convert(value, list[UserContent])
    except msgspec.ValidationError:
        return None
    return parts if msgspec.to_builtins(parts) == value else None


class RetryPromptPart(_Part, tag="retry-prompt", frozen=True):
    """The model is told to try again: its tool arguments or its output did not validate."""

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
    """Whether any of the part's opaque fields holds something."""
    return any(getattr(part, name, None) for name in OPAQUE_FIELDS)


# --- deltas of what a model says -------------------------------------------------------------------------


class _Delta(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="part_delta_kind",
    omit_defaults=True,
    repr_omit_defaults=True,
    gc=False,
):
    """More of a part: text and lists append, a signature replaces, details merge."""

    part_delta_kind: ClassVar[str]
    signature_delta: str | None = None
    provider_name: str | None = None
    provider_details: dict[str, Any] | None = None


class ThinkingPartDelta(_Delta, tag="thinking", frozen=True):
    """More reasoning."""

    part_delta_kind: ClassVar[Literal["thinking"]] = "thinking"
    content_delta: str | None = None


class TextPartDelta(_Delta, tag="text", frozen=True):
    """More answer."""

    part_delta_kind: ClassVar[Literal["text"]] = "text"
    content_delta: str = ""
    logprobs: list[dict[str, Any]] | None = None
    annotations: list[dict[str, Any]] | None = None


class RefusalPartDelta(_Delta, tag="refusal", frozen=True):
    """More words of refusal."""

    part_delta_kind: ClassVar[Literal["refusal"]] = "refusal"
    content_delta: str = ""


class ToolCallPartDelta(_Delta, tag="tool_call", frozen=True):
    """More of a call's arguments, as JSON text."""

    part_delta_kind: ClassVar[Literal["tool_call"]] = "tool_call"
    args_delta: str = ""


class BuiltinToolCallPartDelta(_Delta, tag="builtin_tool_call", frozen=True):
    """More of what the provider's own tool was asked; `status` is how far it is, in the provider's word."""

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
"""Parts that stream, and the delta each takes."""


# --- messages --------------------------------------------------------------------------------------------


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """Tokens. What a provider does not report is None: never 0, never guessed.

    `output_tokens` includes reasoning on every provider (Gemini reports it apart; its decoder adds it).
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    output_reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    input_audio_tokens: int | None = None
    output_audio_tokens: int | None = None
    details: dict[str, int] = {}
    """Every other integer the provider reported, by its own name."""

    @property
    def total_tokens(self) -> int | None:
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        """The sum over turns. A number that one side does not know is the other's; None only if neither knows."""
        known = {
            name: _add_counts(getattr(self, name), getattr(other, name))
            for name in self.__struct_fields__
            if name != "details"
        }
        details = dict(self.details)
        for name, value in other.details.items():
            details[name] = details.get(name, 0) + value
        return Usage(**known, details=details)


def _add_counts(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b


class _Message(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True, repr_omit_defaults=True):
    kind: ClassVar[str]


class ModelRequest(_Message, tag="request", frozen=True):
    """What was said to the model in one go."""

    kind: ClassVar[Literal["request"]] = "request"
    parts: list[ModelRequestPart]
    instructions: str | None = None
    timestamp: datetime | None = None
    metadata: dict[str, Any] | None = None
    """What an application keeps with the message. No model sees it."""


class ModelResponse(_Message, tag="response", frozen=True):
    """What the model said in one turn, in the order in which it said it."""

    kind: ClassVar[Literal["response"]] = "response"
    parts: list[ModelResponsePart]
    usage: Usage = Usage()
    origin: Origin | None = None
    model_name: str | None = None
    """What the provider calls the model in its answer."""
    provider_response_id: str | None = None
    finish_reason: FinishReason | None = None
    native_finish_reason: str | None = None
    provider_details: dict[str, Any] | None = None
    timestamp: datetime | None = None

    @property
    def thinking(self) -> str | None:
        """All readable reasoning, paragraphs apart, or None."""
        texts = [part.content for part in self.parts if isinstance(part, ThinkingPart) and part.content]
        return "\n\n".join(texts) if texts else None

    @property
    def text(self) -> str | None:
        """The answer, or None."""
        texts = [part.content for part in self.parts if isinstance(part, TextPart)]
        return "".join(texts) if texts else None

    @property
    def tool_calls(self) -> list[ToolCallPart]:
        return [part for part in self.parts if isinstance(part, ToolCallPart)]


ModelMessage: TypeAlias = ModelRequest | ModelResponse


def json_text(value: Any) -> str:
    """`value` as JSON text; text is taken for JSON already, nothing at all is `{}`."""
    if isinstance(value, str):
        return value or "{}"
    if value is None:
        return "{}"
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        # Half a surrogate pair, as in a file name that is not text: JSON can still say it, escaped.
        return json.dumps(msgspec.to_builtins(value))


_from_json = msgspec.json.Decoder(list[ModelMessage]).decode


def messages_to_json(messages: list[ModelMessage]) -> bytes:
    """A conversation as JSON, from which `messages_from_json` makes an equal one."""
    return json_text(messages).encode()


def messages_from_json(data: bytes | str) -> list[ModelMessage]:
    """A conversation that was written with `messages_to_json`. Raises `msgspec.DecodeError` for anything else."""
    return _from_json(data)
