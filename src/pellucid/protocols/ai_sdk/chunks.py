"""The chunks of the AI SDK's UI message stream, version 1, our metadata on them, and the body of an error response.

Only fields that versions 5, 6 and 7 of the AI SDK know are used, because the first releases of version 5 refuse unknown
fields.

Our metadata is in `providerMetadata`, and in the `data` of a `data-pellucid` part:

    {"pellucid": {"item": ID, "sealed": TOKEN, "form": "summary" | "redacted", "complete": false, "refusal": true}}

Each field is optional. `item` is the public id of the item, `sealed` its sealed token, `form` the form of a reasoning
text that is not raw. `complete` is false where the model was cut off; `refusal` is true for the text of a refusal.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ...errors import ErrorInfo
from ...parts import Form

FinishReason = Literal["stop", "length", "content-filter", "tool-calls", "error", "other"]

Metadata = dict[str, dict[str, Any]]
"""`providerMetadata`: ours is under `pellucid` (see `PartMetadata`)."""


class Chunk(msgspec.Struct, tag_field="type", rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Base of all chunks."""


class StartChunk(Chunk, tag="start"):
    message_id: str
    message_metadata: dict[str, Any] | UnsetType = UNSET


class StartStepChunk(Chunk, tag="start-step"):
    """Start of a turn of the model."""


class FinishStepChunk(Chunk, tag="finish-step"):
    pass


class ReasoningStartChunk(Chunk, tag="reasoning-start"):
    id: str
    provider_metadata: Metadata | UnsetType = UNSET


class ReasoningDeltaChunk(Chunk, tag="reasoning-delta"):
    id: str
    delta: str


class ReasoningEndChunk(Chunk, tag="reasoning-end"):
    id: str
    provider_metadata: Metadata | UnsetType = UNSET


class TextStartChunk(Chunk, tag="text-start"):
    id: str
    provider_metadata: Metadata | UnsetType = UNSET


class TextDeltaChunk(Chunk, tag="text-delta"):
    id: str
    delta: str


class TextEndChunk(Chunk, tag="text-end"):
    id: str
    provider_metadata: Metadata | UnsetType = UNSET


class ToolInputStartChunk(Chunk, tag="tool-input-start"):
    tool_call_id: str
    tool_name: str
    provider_executed: bool | UnsetType = UNSET
    dynamic: bool | UnsetType = UNSET


class ToolInputDeltaChunk(Chunk, tag="tool-input-delta"):
    tool_call_id: str
    input_text_delta: str


class ToolInputAvailableChunk(Chunk, tag="tool-input-available"):
    tool_call_id: str
    tool_name: str
    input: Any
    provider_executed: bool | UnsetType = UNSET
    provider_metadata: Metadata | UnsetType = UNSET
    dynamic: bool | UnsetType = UNSET


class ToolInputErrorChunk(Chunk, tag="tool-input-error"):
    tool_call_id: str
    tool_name: str
    input: Any
    error_text: str
    provider_executed: bool | UnsetType = UNSET
    provider_metadata: Metadata | UnsetType = UNSET
    dynamic: bool | UnsetType = UNSET


class ToolOutputAvailableChunk(Chunk, tag="tool-output-available"):
    tool_call_id: str
    output: Any
    provider_executed: bool | UnsetType = UNSET
    dynamic: bool | UnsetType = UNSET


class ToolOutputErrorChunk(Chunk, tag="tool-output-error"):
    tool_call_id: str
    error_text: str
    provider_executed: bool | UnsetType = UNSET
    dynamic: bool | UnsetType = UNSET


class SourceUrlChunk(Chunk, tag="source-url"):
    source_id: str
    url: str
    title: str | UnsetType = UNSET


class FileChunk(Chunk, tag="file"):
    url: str
    media_type: str
    provider_metadata: Metadata | UnsetType = UNSET


class SealChunk(Chunk, tag="data-pellucid"):
    """The sealed token of an item that this protocol does not define. Pages do not show it, and send it back."""

    id: str
    data: dict[str, Any]


class ErrorChunk(Chunk, tag="error"):
    error_text: str


class AbortChunk(Chunk, tag="abort"):
    pass


class FinishChunk(Chunk, tag="finish"):
    finish_reason: FinishReason
    message_metadata: dict[str, Any] | UnsetType = UNSET


AnyChunk = (
    StartChunk
    | StartStepChunk
    | FinishStepChunk
    | ReasoningStartChunk
    | ReasoningDeltaChunk
    | ReasoningEndChunk
    | TextStartChunk
    | TextDeltaChunk
    | TextEndChunk
    | ToolInputStartChunk
    | ToolInputDeltaChunk
    | ToolInputAvailableChunk
    | ToolInputErrorChunk
    | ToolOutputAvailableChunk
    | ToolOutputErrorChunk
    | SourceUrlChunk
    | FileChunk
    | SealChunk
    | ErrorChunk
    | AbortChunk
    | FinishChunk
)


def error_body(error: ErrorInfo) -> str:
    """Return the body of an error response before a stream began: the message, as plain text.

    The AI SDK makes an error of the response with the body as its message, and pages show it.
    """
    return error.full_message


METADATA_KEY = "pellucid"

_FORMS: dict[str, Form] = {"summary": "summary", "redacted": "redacted"}
"""The known values of `form`; without one, the form is raw."""


class PartMetadata:
    """Our metadata as a client sent it back. Clients can change it, so a field of the wrong type is ignored.

    Args:
        value: The value under our key; any JSON value.
    """

    __slots__ = ("form", "is_complete", "is_refusal", "item_id", "token")

    def __init__(self, value: Any) -> None:
        fields = value if isinstance(value, dict) else {}
        self.item_id = _text_or_none(fields.get("item"))
        self.token = _text_or_none(fields.get("sealed"))
        self.form = _FORMS.get(_text_or_none(fields.get("form")) or "", "raw")
        self.is_complete = fields.get("complete") is not False
        self.is_refusal = fields.get("refusal") is True


def part_metadata(metadata: Any) -> PartMetadata:
    """Return our metadata from a part's `providerMetadata`; without any, all fields have their defaults."""
    return PartMetadata(metadata.get(METADATA_KEY) if isinstance(metadata, dict) else None)


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
