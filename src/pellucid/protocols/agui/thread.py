"""The messages of a thread, as the official client builds them from a run's events: what MESSAGES_SNAPSHOT repeats.

The encoder says what its model said, whole; what an agent says beside it is applied event by event. A call goes to the
assistant's message that its start names, or to a new one; a result stands right behind the message that holds its call.
A snapshot by the agent replaces the messages, but for reasoning and activities where it has none at all. An activity
that was changed by a patch is only known to the clients, who keep all that they have where a snapshot has none: so none
is repeated then. `shaped` gives messages as a dialect has them, `without` as they are for who may see less.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from ...parts import Form
from . import events as e
from .dialects import Dialect
from .marks import form_of, mark
from .messages import (
    ActivityMessage,
    AssistantMessage,
    ContentPart,
    DeveloperMessage,
    FunctionCall,
    Message,
    Metadata,
    ReasoningMessage,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolMessage,
    UserMessage,
)

_TextMessage = AssistantMessage | DeveloperMessage | SystemMessage | UserMessage
_ROLES: dict[str, type[_TextMessage]] = {
    "assistant": AssistantMessage,
    "developer": DeveloperMessage,
    "system": SystemMessage,
    "user": UserMessage,
}


class Thread:
    """`before` are the messages that a run began with; they are not changed."""

    def __init__(self, before: Iterable[Message]) -> None:
        self.messages: list[Message] = [_own(message) for message in before]
        self.patched = False
        """Whether an activity is not what it is here."""
        self._growing: dict[tuple[str, str], list[str]] = {}
        """What came of the messages and calls that an agent has open."""
        self._sealed: dict[str, str] = {}
        """What was told of a span, before its message."""

    def text(self, id: str, text: str, metadata: Metadata | None) -> None:
        """The assistant's message: a new one, or all of one that has its place already."""
        message = self._found(id)
        if isinstance(message, AssistantMessage):
            message.content, message.metadata = text, metadata
        else:
            self.messages.append(AssistantMessage(id=id, content=text, metadata=metadata))

    def reasoning(self, id: str, text: str, metadata: Metadata | None) -> None:
        message = self._found(id)
        if isinstance(message, ReasoningMessage):
            message.content, message.metadata = text, metadata
        else:
            self.messages.append(ReasoningMessage(id=id, content=text, metadata=metadata))

    def apply(self, event: e.AGUIEvent) -> None:
        """An event by which an agent says something."""
        step = _STEPS.get(type(event))
        if step is not None:
            step(self, event)

    def _found(self, id: str) -> Message | None:
        return next((message for message in self.messages if message.id == id), None)

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
            elif not isinstance(message, ActivityMessage) and not of_call and message.id == id:
                message.encrypted_value = value

    # --- an agent's events -------------------------------------------------------------------------------------

    def _text_start(self, event: e.TextMessageStartEvent) -> None:
        if self._found(event.message_id) is not None:
            return  # a call made it
        kind: Any = _ROLES[event.role or "assistant"]
        metadata, owner = event.metadata, event.subagent_run_id
        self.messages.append(
            kind(id=event.message_id, content="", name=event.name, metadata=metadata, subagent_run_id=owner)
        )

    def _reasoning_start(self, event: e.ReasoningMessageStartEvent) -> None:
        id, value = event.message_id, self._sealed.get(event.message_id)
        made = ReasoningMessage(id=id, content="", metadata=event.metadata, encrypted_value=value)
        made.subagent_run_id = event.subagent_run_id
        self.messages.append(made)

    def _span_start(self, event: e.ReasoningStartEvent) -> None:
        if event.encrypted_content:
            self._sealed[event.message_id] = event.encrypted_content
            if isinstance(self._found(event.message_id), ReasoningMessage):
                self.value(event.message_id, event.encrypted_content)

    def _more(self, event: e.TextMessageContentEvent | e.ReasoningMessageContentEvent) -> None:
        self._growing.setdefault(("message", event.message_id), []).append(event.delta)

    def _end(self, event: e.TextMessageEndEvent | e.ReasoningMessageEndEvent) -> None:
        more, message = self._growing.pop(("message", event.message_id), []), self._found(event.message_id)
        if isinstance(message, ReasoningMessage):
            message.content = message.text + "".join(more)
        elif isinstance(message, _TextMessage) and (message.content is None or isinstance(message.content, str)):
            message.content = (message.content or "") + "".join(more)
        if message is not None and event.metadata:
            message.metadata = {**(message.metadata or {}), **event.metadata}

    def _call_start(self, event: e.ToolCallStartEvent) -> None:
        parent = event.parent_message_id or event.tool_call_id
        new = self._found(parent) is None
        self.call(parent, event.tool_call_id, event.tool_call_name, "")
        if new:
            self.messages[-1].subagent_run_id = event.subagent_run_id

    def _args(self, event: e.ToolCallArgsEvent) -> None:
        self._growing.setdefault(("call", event.tool_call_id), []).append(event.delta)

    def _call_end(self, event: e.ToolCallEndEvent) -> None:
        more = self._growing.pop(("call", event.tool_call_id), [])
        for message in self.messages:
            for call in (isinstance(message, AssistantMessage) and message.tool_calls) or []:
                if call.id == event.tool_call_id:
                    arguments = call.function.arguments + "".join(more)
                    call.function = replace(call.function, arguments=arguments)

    def _result(self, event: e.ToolCallResultEvent) -> None:
        self.result(event.message_id, event.tool_call_id, event.content)
        message = self._found(event.message_id)
        if message is not None:
            message.metadata, message.subagent_run_id = event.metadata, event.subagent_run_id

    def _value(self, event: e.ReasoningEncryptedValueEvent) -> None:
        self.value(event.entity_id, event.encrypted_value, of_call=event.subtype == "tool-call")

    def _activity(self, event: e.ActivitySnapshotEvent) -> None:
        message = self._found(event.message_id)
        if message is None:
            id, kind, content = event.message_id, event.activity_type, event.content
            made = ActivityMessage(id=id, activity_type=kind, content=content)
            made.metadata, made.subagent_run_id = event.metadata, event.subagent_run_id
            self.messages.append(made)
        elif isinstance(message, ActivityMessage) and event.replace is not False:
            message.activity_type, message.content = event.activity_type, event.content
            message.subagent_run_id = event.subagent_run_id
            message.metadata = {**(message.metadata or {}), **(event.metadata or {})} or None

    def _patched(self, event: e.ActivityDeltaEvent) -> None:
        self.patched = True

    def _snapshot(self, event: e.MessagesSnapshotEvent) -> None:
        there = {message.id: _own(message) for message in event.messages}
        replaced = {*there, *(call.id for one in there.values() for call in getattr(one, "tool_calls", None) or [])}
        kept = {ReasoningMessage, ActivityMessage} - {type(message) for message in event.messages}
        before = [there.pop(one.id, one) for one in self.messages if one.id in there or type(one) in kept]
        self.messages = [*before, *there.values()]
        self.patched = self.patched and ActivityMessage in kept
        self._growing = {key: more for key, more in self._growing.items() if key[1] not in replaced}


_STEPS: dict[type[Any], Callable[[Thread, Any], None]] = {
    e.TextMessageStartEvent: Thread._text_start,
    e.TextMessageContentEvent: Thread._more,
    e.TextMessageEndEvent: Thread._end,
    e.ReasoningStartEvent: Thread._span_start,
    e.ReasoningMessageStartEvent: Thread._reasoning_start,
    e.ReasoningMessageContentEvent: Thread._more,
    e.ReasoningMessageEndEvent: Thread._end,
    e.ToolCallStartEvent: Thread._call_start,
    e.ToolCallArgsEvent: Thread._args,
    e.ToolCallEndEvent: Thread._call_end,
    e.ToolCallResultEvent: Thread._result,
    e.ReasoningEncryptedValueEvent: Thread._value,
    e.ActivitySnapshotEvent: Thread._activity,
    e.ActivityDeltaEvent: Thread._patched,
    e.MessagesSnapshotEvent: Thread._snapshot,
}
"""What is in no message is not here."""


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
