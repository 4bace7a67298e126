"""The messages of a thread, as the official client builds them from a run's events: what MESSAGES_SNAPSHOT repeats.

A call goes to the assistant's message that its start names, or to a new one; a result stands right behind the message
that holds its call. `shaped` gives messages as a dialect has them, `without` as they are for who may see less.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from ...parts import Form
from .dialects import Dialect
from .marks import form_of, mark
from .messages import (
    AssistantMessage,
    ContentPart,
    FunctionCall,
    Message,
    Metadata,
    ReasoningMessage,
    TextContent,
    ToolCall,
    ToolMessage,
    UserMessage,
)


class Thread:
    """`before` are the messages that a run began with; they are not changed."""

    def __init__(self, before: Iterable[Message]) -> None:
        self.messages = [_own(message) for message in before]

    def text(self, id: str, text: str, metadata: Metadata | None) -> None:
        self.messages.append(AssistantMessage(id=id, content=text, metadata=metadata))

    def reasoning(self, id: str, text: str, metadata: Metadata | None) -> None:
        self.messages.append(ReasoningMessage(id=id, content=text, metadata=metadata))

    def call(self, parent: str, id: str, name: str, arguments: str) -> None:
        call = ToolCall(id=id, function=FunctionCall(name=name, arguments=arguments))
        for message in self.messages:
            if isinstance(message, AssistantMessage) and message.id == parent:
                message.tool_calls = [*(message.tool_calls or []), call]
                return
        self.messages.append(AssistantMessage(id=parent, tool_calls=[call]))

    def result(self, id: str, call_id: str, content: str | list[ContentPart]) -> None:
        at = len(self.messages)
        for place, message in enumerate(self.messages):
            if isinstance(message, AssistantMessage) and any(call.id == call_id for call in message.tool_calls or []):
                at = place + 1
                while at < len(self.messages) and isinstance(self.messages[at], ToolMessage):
                    at += 1
                break
        self.messages.insert(at, ToolMessage(id=id, tool_call_id=call_id, content=content))

    def value(self, id: str, value: str, *, of_call: bool = False) -> None:
        """What is sealed of a message or a call."""
        for message in self.messages:
            if isinstance(message, AssistantMessage) and of_call:
                for call in message.tool_calls or []:
                    if call.id == id:
                        call.encrypted_value = value
            elif isinstance(message, AssistantMessage | ReasoningMessage) and not of_call and message.id == id:
                message.encrypted_value = value


def shaped(messages: Sequence[Message], dialect: Dialect, *, reasoning: bool = True) -> list[Message]:
    """The messages as clients of this dialect take them, without those that they do not know."""
    roles = dialect.roles if reasoning else dialect.roles - {"reasoning"}
    return [_shaped(one, dialect) for one in messages if one.__struct_config__.tag in roles]


def _shaped(message: Message, dialect: Dialect) -> Message:
    if not dialect.subagents and message.subagent_run_id is not None:
        message = replace(message, subagent_run_id=None)
    if isinstance(message, ReasoningMessage):
        text, value = message.text, message.sealed
        if dialect.content_list:
            listed = message.content if isinstance(message.content, list) else [text] if text else []
            metadata = message.metadata if dialect.marks else None
            return replace(message, content=listed, encrypted_content=value, encrypted_value=None, metadata=metadata)
        return replace(message, content=text, encrypted_value=value, encrypted_content=None)
    if isinstance(message, ToolMessage) and not dialect.media_results:
        return replace(message, content=text_of(message.content))
    if isinstance(message, UserMessage) and dialect.reasoning == "thinking":
        return replace(message, content=text_of(message.content))
    return message


def without(messages: Sequence[Message], *, forms: Collection[Form], sealed: bool) -> list[Message]:
    """The messages without what was thought, but in these forms; `sealed`: also without what is sealed."""
    return [_without(one, forms, sealed) for one in messages]


def _without(message: Message, forms: Collection[Form], sealed: bool) -> Message:
    if isinstance(message, ReasoningMessage):
        if form_of(message.metadata) not in forms:
            message = replace(message, content="", metadata=mark(form="redacted"))
        return replace(message, encrypted_value=None, encrypted_content=None) if sealed else message
    if sealed and isinstance(message, AssistantMessage):
        calls = message.tool_calls and [replace(call, encrypted_value=None) for call in message.tool_calls]
        return replace(message, encrypted_value=None, tool_calls=calls)
    return message


def text_of(content: str | list[ContentPart]) -> str:
    """The words of it."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextContent))


def _own(message: Message) -> Message:
    """A copy, of which calls may be changed."""
    if isinstance(message, AssistantMessage) and message.tool_calls:
        return replace(message, tool_calls=[replace(call) for call in message.tool_calls])
    return replace(message)


__all__ = ["Thread", "shaped", "text_of", "without"]
