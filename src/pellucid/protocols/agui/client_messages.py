"""The messages of a thread as the official client builds them from events, for MESSAGES_SNAPSHOT.

The encoder sets the model's messages, calls and results; events of the application are applied one by one. A call
belongs to the assistant message that its start names, or to a new one. A result comes directly after the message of its
call. A snapshot of the application replaces the messages, except reasoning or activities if it has none of them. The
state of an activity after a patch is known to clients only. Clients keep their activities where a snapshot has none, so
then a snapshot must have none. `adapt_messages` returns messages as a dialect defines them; `redact_messages` removes
what a viewer may not see.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from ...parts import Form
from . import events as e
from .dialects import Dialect
from .messages import (
    ActivityMessage,
    AssistantMessage,
    ContentPart,
    DeveloperMessage,
    FunctionCall,
    Message,
    ReasoningMessage,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from .metadata import form_of, make_metadata

_TextMessage = AssistantMessage | DeveloperMessage | SystemMessage | UserMessage
_ROLES: dict[str, type[_TextMessage]] = {
    "assistant": AssistantMessage,
    "developer": DeveloperMessage,
    "system": SystemMessage,
    "user": UserMessage,
}


class ClientMessages:
    """The messages of a thread during a run.

    Args:
        history: The messages before the run. They are copied.
    """

    def __init__(self, history: Iterable[Message]) -> None:
        self.messages: list[Message] = [_copy(message) for message in history]
        self.is_patched = False
        """Whether a patch changed an activity, so that its state here is out of date."""
        self._open_deltas: dict[tuple[str, str], list[str]] = {}
        """Deltas of open messages and calls of the application, by kind and id."""
        self._span_values: dict[str, str] = {}
        """Tokens that came on REASONING_START, by the id of the span."""

    def set_text(self, new: AssistantMessage | ReasoningMessage) -> None:
        """Set the text and metadata of the message with this id and role; append the message if it is new."""
        message = self._find(new.id)
        if type(message) is type(new):
            message.content, message.metadata = new.content, new.metadata
        else:
            self.messages.append(new)

    def apply(self, event: e.AGUIEvent) -> None:
        """Apply an event of the application."""
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def _find(self, id: str) -> Message | None:
        return next((message for message in self.messages if message.id == id), None)

    def add_call(self, parent: str, id: str, name: str, arguments: str) -> None:
        """Add a call to the assistant message `parent`; append the message if it is new."""
        call = ToolCall(id=id, function=FunctionCall(name=name, arguments=arguments))
        for message in self.messages:
            if isinstance(message, AssistantMessage) and message.id == parent:
                message.tool_calls = [*(message.tool_calls or []), call]
                return
        self.messages.append(AssistantMessage(id=parent, tool_calls=[call]))

    def add_result(self, id: str, call_id: str, content: str | list[ContentPart]) -> None:
        """Insert a tool message after the message of its call and the results of that message."""
        insert_at = len(self.messages)
        for index, message in enumerate(self.messages):
            if isinstance(message, AssistantMessage) and any(call.id == call_id for call in message.tool_calls or []):
                insert_at = index + 1
                while insert_at < len(self.messages) and isinstance(self.messages[insert_at], ToolMessage):
                    insert_at += 1
                break
        self.messages.insert(insert_at, ToolMessage(id=id, tool_call_id=call_id, content=content))

    def set_value(self, id: str, value: str, *, of_call: bool = False) -> None:
        """Set the encrypted value of a message, or of a call."""
        for message in self.messages:
            if isinstance(message, AssistantMessage) and of_call:
                for call in message.tool_calls or []:
                    if call.id == id:
                        call.encrypted_value = value
            elif not isinstance(message, ActivityMessage) and not of_call and message.id == id:
                message.encrypted_value = value

    # --- events of the application -----------------------------------------------------------------------------

    def _text_start(self, event: e.TextMessageStartEvent) -> None:
        if self._find(event.message_id) is not None:
            return  # A call made the message.
        kind: Any = _ROLES[event.role or "assistant"]
        metadata, owner = event.metadata, event.subagent_run_id
        self.messages.append(
            kind(id=event.message_id, content="", name=event.name, metadata=metadata, subagent_run_id=owner)
        )

    def _reasoning_start(self, event: e.ReasoningMessageStartEvent) -> None:
        id, value = event.message_id, self._span_values.get(event.message_id)
        message = ReasoningMessage(id=id, content="", metadata=event.metadata, encrypted_value=value)
        message.subagent_run_id = event.subagent_run_id
        self.messages.append(message)

    def _span_start(self, event: e.ReasoningStartEvent) -> None:
        if event.encrypted_content:
            self._span_values[event.message_id] = event.encrypted_content
            if isinstance(self._find(event.message_id), ReasoningMessage):
                self.set_value(event.message_id, event.encrypted_content)

    def _delta(self, event: e.TextMessageContentEvent | e.ReasoningMessageContentEvent) -> None:
        self._open_deltas.setdefault(("message", event.message_id), []).append(event.delta)

    def _end(self, event: e.TextMessageEndEvent | e.ReasoningMessageEndEvent) -> None:
        deltas, message = self._open_deltas.pop(("message", event.message_id), []), self._find(event.message_id)
        if isinstance(message, ReasoningMessage):
            message.content = message.text + "".join(deltas)
        elif isinstance(message, _TextMessage) and (message.content is None or isinstance(message.content, str)):
            message.content = (message.content or "") + "".join(deltas)
        if message is not None and event.metadata:
            message.metadata = {**(message.metadata or {}), **event.metadata}

    def _call_start(self, event: e.ToolCallStartEvent) -> None:
        parent = event.parent_message_id or event.tool_call_id
        new = self._find(parent) is None
        self.add_call(parent, event.tool_call_id, event.tool_call_name, "")
        if new:
            self.messages[-1].subagent_run_id = event.subagent_run_id

    def _call_delta(self, event: e.ToolCallArgsEvent) -> None:
        self._open_deltas.setdefault(("call", event.tool_call_id), []).append(event.delta)

    def _call_end(self, event: e.ToolCallEndEvent) -> None:
        deltas = self._open_deltas.pop(("call", event.tool_call_id), [])
        for message in self.messages:
            for call in (isinstance(message, AssistantMessage) and message.tool_calls) or []:
                if call.id == event.tool_call_id:
                    arguments = call.function.arguments + "".join(deltas)
                    call.function = replace(call.function, arguments=arguments)

    def _result(self, event: e.ToolCallResultEvent) -> None:
        self.add_result(event.message_id, event.tool_call_id, event.content)
        message = self._find(event.message_id)
        if message is not None:
            message.metadata, message.subagent_run_id = event.metadata, event.subagent_run_id

    def _value(self, event: e.ReasoningEncryptedValueEvent) -> None:
        self.set_value(event.entity_id, event.encrypted_value, of_call=event.subtype == "tool-call")

    def _activity_snapshot(self, event: e.ActivitySnapshotEvent) -> None:
        message = self._find(event.message_id)
        if message is None:
            id, kind, content = event.message_id, event.activity_type, event.content
            new_message = ActivityMessage(id=id, activity_type=kind, content=content)
            new_message.metadata, new_message.subagent_run_id = event.metadata, event.subagent_run_id
            self.messages.append(new_message)
        elif isinstance(message, ActivityMessage) and event.replace is not False:
            message.activity_type, message.content = event.activity_type, event.content
            message.subagent_run_id = event.subagent_run_id
            message.metadata = {**(message.metadata or {}), **(event.metadata or {})} or None

    def _activity_delta(self, event: e.ActivityDeltaEvent) -> None:
        self.is_patched = True

    def _messages_snapshot(self, event: e.MessagesSnapshotEvent) -> None:
        by_id = {message.id: _copy(message) for message in event.messages}
        replaced = {*by_id, *(call.id for one in by_id.values() for call in getattr(one, "tool_calls", None) or [])}
        kept_types = {ReasoningMessage, ActivityMessage} - {type(message) for message in event.messages}
        remaining = [by_id.pop(one.id, one) for one in self.messages if one.id in by_id or type(one) in kept_types]
        self.messages = [*remaining, *by_id.values()]
        self.is_patched = self.is_patched and ActivityMessage in kept_types
        self._open_deltas = {key: deltas for key, deltas in self._open_deltas.items() if key[1] not in replaced}


_HANDLERS: dict[type[Any], Callable[[ClientMessages, Any], None]] = {
    e.TextMessageStartEvent: ClientMessages._text_start,
    e.TextMessageContentEvent: ClientMessages._delta,
    e.TextMessageEndEvent: ClientMessages._end,
    e.ReasoningStartEvent: ClientMessages._span_start,
    e.ReasoningMessageStartEvent: ClientMessages._reasoning_start,
    e.ReasoningMessageContentEvent: ClientMessages._delta,
    e.ReasoningMessageEndEvent: ClientMessages._end,
    e.ToolCallStartEvent: ClientMessages._call_start,
    e.ToolCallArgsEvent: ClientMessages._call_delta,
    e.ToolCallEndEvent: ClientMessages._call_end,
    e.ToolCallResultEvent: ClientMessages._result,
    e.ReasoningEncryptedValueEvent: ClientMessages._value,
    e.ActivitySnapshotEvent: ClientMessages._activity_snapshot,
    e.ActivityDeltaEvent: ClientMessages._activity_delta,
    e.MessagesSnapshotEvent: ClientMessages._messages_snapshot,
}
"""The handler of each event that changes messages."""


def adapt_messages(messages: Sequence[Message], dialect: Dialect, *, reasoning: bool = True) -> list[Message]:
    """Return messages as a dialect defines them, without those of unknown roles.

    Args:
        messages: The messages. They are not changed.
        dialect: What the client speaks.
        reasoning: Whether reasoning messages are included.
    """
    roles = dialect.message_roles if reasoning else dialect.message_roles - {"reasoning"}
    return [_adapt_message(one, dialect) for one in messages if one.__struct_config__.tag in roles]


def _adapt_message(message: Message, dialect: Dialect) -> Message:
    if not dialect.has_subagents and message.subagent_run_id is not None:
        message = replace(message, subagent_run_id=None)
    if isinstance(message, ReasoningMessage):
        text, value = message.text, message.sealed
        if dialect.content_is_list:
            listed = message.content if isinstance(message.content, list) else [text] if text else []
            metadata = message.metadata if dialect.has_metadata else None
            return replace(message, content=listed, encrypted_content=value, encrypted_value=None, metadata=metadata)
        return replace(message, content=text, encrypted_value=value, encrypted_content=None)
    if isinstance(message, ToolMessage) and not dialect.has_media_results:
        return replace(message, content=text_of(message.content))
    if isinstance(message, UserMessage) and dialect.reasoning == "thinking":
        return replace(message, content=text_of(message.content))
    return message


def redact_messages(messages: Sequence[Message], *, forms: Collection[Form], remove_seals: bool) -> list[Message]:
    """Return messages without the reasoning that a viewer may not see.

    Args:
        messages: The messages. They are not changed.
        forms: The forms of reasoning that the viewer may see; text of other forms is removed.
        remove_seals: Whether sealed tokens are removed.
    """
    return [_redact_message(one, forms, remove_seals) for one in messages]


def _redact_message(message: Message, forms: Collection[Form], remove_seals: bool) -> Message:
    if isinstance(message, ReasoningMessage):
        if form_of(message.metadata) not in forms:
            message = replace(message, content="", metadata=make_metadata(form="redacted"))
        return replace(message, encrypted_value=None, encrypted_content=None) if remove_seals else message
    if remove_seals and isinstance(message, AssistantMessage):
        calls = message.tool_calls and [replace(call, encrypted_value=None) for call in message.tool_calls]
        return replace(message, encrypted_value=None, tool_calls=calls)
    return message


def text_of(content: str | list[ContentPart]) -> str:
    """Return the text of a content; the texts of several parts are joined by newlines."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextContent))


def _copy(message: Message) -> Message:
    """Return a copy of a message whose calls can be changed."""
    if isinstance(message, AssistantMessage) and message.tool_calls:
        return replace(message, tool_calls=[replace(call) for call in message.tool_calls])
    return replace(message)
