"""The messages of AG-UI, and the input of a run.

Fields are camelCase on the wire. An optional field is absent, never null; null is read as absent, because some clients
write it. Older forms are read as well: `encryptedContent` and a list as the content of reasoning (the proposal of
2025), and `binary` content (before 1.0).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from ...events import SideEvent

PROTOCOL_VERSION = "1.0"

Metadata: TypeAlias = dict[str, Any]
"""Any keys; `ag-ui` is reserved for the protocol."""
Count: TypeAlias = Annotated[int, Meta(ge=0)]


NAMESPACE = "agui"
"""Namespace of the side events that carry AG-UI events through a run."""


class _WireStruct(msgspec.Struct, rename="camel", omit_defaults=True, repr_omit_defaults=True):
    pass


# --- content -----------------------------------------------------------------------------------------------------


class _Source(_WireStruct, tag_field="type", kw_only=True):
    value: str


class DataSource(_Source, tag="data", kw_only=True):
    """Content in the message itself. `value` is base64."""

    mime_type: str


class UrlSource(_Source, tag="url", kw_only=True):
    mime_type: str | None = None


class FileSource(_Source, tag="file", kw_only=True):
    """A file at the provider. `value` is the provider's id of it."""

    provider: str | None = None
    mime_type: str | None = None


Source: TypeAlias = DataSource | UrlSource | FileSource


class _Content(_WireStruct, tag_field="type", kw_only=True):
    id: str | None = None
    metadata: Any = None


class TextContent(_Content, tag="text", kw_only=True):
    text: str


class ImageContent(_Content, tag="image", kw_only=True):
    source: Source


class AudioContent(_Content, tag="audio", kw_only=True):
    source: Source


class VideoContent(_Content, tag="video", kw_only=True):
    source: Source


class DocumentContent(_Content, tag="document", kw_only=True):
    source: Source


class BinaryContent(_Content, tag="binary", kw_only=True):
    """An image, a sound, a video or a document from clients before 1.0, by `id`, `url` or `data` (base64)."""

    mime_type: str
    url: str | None = None
    data: str | None = None
    filename: str | None = None


ContentPart: TypeAlias = TextContent | ImageContent | AudioContent | VideoContent | DocumentContent | BinaryContent


# --- messages ----------------------------------------------------------------------------------------------------


class _Message(_WireStruct, tag_field="role", kw_only=True):
    id: str
    metadata: Metadata | None = None
    subagent_run_id: str | None = None


class DeveloperMessage(_Message, tag="developer", kw_only=True):
    content: str
    name: str | None = None
    encrypted_value: str | None = None


class SystemMessage(_Message, tag="system", kw_only=True):
    content: str
    name: str | None = None
    encrypted_value: str | None = None


class UserMessage(_Message, tag="user", kw_only=True):
    content: str | list[ContentPart]
    name: str | None = None
    encrypted_value: str | None = None


class FunctionCall(_WireStruct, kw_only=True):
    name: str
    arguments: str


class ToolCall(_WireStruct, tag_field="type", tag="function", kw_only=True):
    id: str
    function: FunctionCall
    encrypted_value: str | None = None
    metadata: Metadata | None = None


class AssistantMessage(_Message, tag="assistant", kw_only=True):
    content: str | None = None
    tool_calls: list[ToolCall] | None = None
    name: str | None = None
    encrypted_value: str | None = None


class ToolMessage(_Message, tag="tool", kw_only=True):
    tool_call_id: str
    content: str | list[ContentPart]
    error: str | None = None
    encrypted_value: str | None = None


class ActivityMessage(_Message, tag="activity", kw_only=True):
    """Progress for people. It is sent to no model, and the official client does not send it back."""

    activity_type: str
    content: dict[str, Any]


class ReasoningMessage(_Message, tag="reasoning", kw_only=True):
    """Reasoning of the model. In the proposal, `content` is a list and the token is `encryptedContent`."""

    content: str | list[str]
    encrypted_value: str | None = None
    encrypted_content: str | None = None

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(self.content)

    @property
    def sealed(self) -> str | None:
        """The sealed token: the encrypted value, under either name."""
        return self.encrypted_value or self.encrypted_content or None


Message: TypeAlias = (
    DeveloperMessage | SystemMessage | UserMessage | AssistantMessage | ToolMessage | ActivityMessage | ReasoningMessage
)


# --- a run -------------------------------------------------------------------------------------------------------


class Tool(_WireStruct, kw_only=True):
    """A function that the client runs. `parameters` is a JSON Schema."""

    name: str
    description: str
    parameters: Any = None
    metadata: Metadata | None = None


class Context(_WireStruct, kw_only=True):
    """Information for the agent in this run, in addition to the conversation."""

    description: str
    value: str


class Interrupt(_WireStruct, kw_only=True):
    """A question that a run waits for. `expires_at` is in ISO 8601; `response_schema` is the answer's JSON Schema."""

    id: str
    reason: str
    message: str | None = None
    tool_call_id: str | None = None
    response_schema: dict[str, Any] | None = None
    expires_at: str | None = None
    metadata: Metadata | None = None
    subagent_run_id: str | None = None

    def as_side_event(self) -> SideEvent:
        """Return the side event that carries this interrupt through a run."""
        return SideEvent(NAMESPACE, "interrupt", msgspec.to_builtins(self))


class ResumeEntry(_WireStruct, kw_only=True):
    """The answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None
    metadata: Metadata | None = None


class TokenUsage(_WireStruct, kw_only=True):
    """Numbers of tokens for one provider and model. The output includes reasoning; the input includes cached tokens."""

    provider: str | None = None
    model: str | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    total_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    cached_input_tokens: Count | None = None
    cache_write_input_tokens: Count | None = None


class RunAgentInput(_WireStruct, kw_only=True):
    """The body of a request. Clients before 1.0 send no `protocol_version`."""

    thread_id: str
    run_id: str
    messages: list[Message]
    protocol_version: str | None = None
    parent_run_id: str | None = None
    state: Any = None
    tools: list[Tool] | None = None
    context: list[Context] | None = None
    forwarded_props: Any = None
    resume: list[ResumeEntry] | None = None
