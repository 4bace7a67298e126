"""What an agent may still say: the ids that a run's clients know, whose they are, and what is open.

An event that would end a run, or that a client would lose or merge with another, is mended so that least is lost:

* What is open is not started again, only what is open goes on and ends; a subagent starts once, after its parent.
* A message whose id is taken gets that id with `:2`, `:3` … behind it, and what follows for it goes there. A second
  call of one id is left out: its result could not be told from the first one's.
* Whose something is, it stays: what names another subagent is said to be its owner's.
* An encrypted value has its message or call before it, and is the only one; a change to an activity has its activity.
* A snapshot of all messages has no id twice, repeats the values, and has either all reasoning or none, which clients
  take as all; what it drops is closed before it.

The model's own events are only noted, and end what an agent left open under the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from msgspec.structs import replace

from . import events as e
from .messages import AssistantMessage, Message, ReasoningMessage


class _Pair(NamedTuple):
    start: type[Any]
    more: type[Any] | None
    end: type[Any]
    id: str = ""
    bucket: str = ""
    """Among what the ids are told apart, as far as owners go."""


_TEXT = _Pair(e.TextMessageStartEvent, e.TextMessageContentEvent, e.TextMessageEndEvent, "message_id", bucket="message")
_CALL = _Pair(e.ToolCallStartEvent, e.ToolCallArgsEvent, e.ToolCallEndEvent, "tool_call_id", bucket="call")
_SPAN = _Pair(e.ReasoningStartEvent, None, e.ReasoningEndEvent, "message_id", bucket="reasoning")
_THOUGHT = _Pair(
    e.ReasoningMessageStartEvent,
    e.ReasoningMessageContentEvent,
    e.ReasoningMessageEndEvent,
    "message_id",
    bucket="reasoning",
)
_STEP = _Pair(e.StepStartedEvent, None, e.StepFinishedEvent, "step_name")
_SUBAGENT = _Pair(e.SubagentStartedEvent, None, e.SubagentFinishedEvent, "subagent_run_id")
_THINKING = _Pair(e.ThinkingStartEvent, None, e.ThinkingEndEvent)
_THINKING_TEXT = _Pair(
    e.ThinkingTextMessageStartEvent, e.ThinkingTextMessageContentEvent, e.ThinkingTextMessageEndEvent
)
_PAIRS = (_TEXT, _CALL, _SPAN, _THOUGHT, _STEP, _SUBAGENT, _THINKING, _THINKING_TEXT)
_STARTS: dict[type[Any], _Pair] = {pair.start: pair for pair in _PAIRS}
_MORES: dict[type[Any], _Pair] = {pair.more: pair for pair in _PAIRS if pair.more is not None}
_ENDS: dict[type[Any], _Pair] = {**{pair.end: pair for pair in _PAIRS}, e.SubagentErrorEvent: _SUBAGENT}

_Key = tuple[_Pair, str | None, str]
_HELD = ""
"""The role of a message that a call made."""


class Ledger:
    """`feed` what an agent says, `note` what the model's run says; both give the events to send."""

    def __init__(self, history: Iterable[Message] = ()) -> None:
        self._open: dict[_Key, str | None] = {}
        """What an agent has open, by what it is, whose step, and its id."""
        self._models: set[_Key] = set()
        """What the model has open."""
        self._roles: dict[str, str] = {}
        """The messages that there are."""
        self._calls: set[str] = set()
        self._values: dict[tuple[str, str], str] = {}
        self._owners: dict[tuple[str, str], str | None] = {}
        self._subagents: set[str] = set()
        """Those that ever started."""
        self._names: dict[tuple[str, str], str] = {}
        """The id that a message got, by its bucket and the id that it was given."""
        self._learn(history)

    def feed(self, event: Any) -> list[e.AGUIEvent]:
        kind = type(event)
        if pair := _STARTS.get(kind):
            return self._start(pair, event)
        if pair := _MORES.get(kind) or _ENDS.get(kind):
            return self._goes_on(pair, event)
        step = _STEPS.get(kind)
        return [event] if step is None else step(self, event)

    def note(self, event: Any) -> list[e.AGUIEvent]:
        """What an agent has open and the model's event would collide with ends."""
        kind = type(event)
        out: list[e.AGUIEvent] = []
        if pair := _STARTS.get(kind):
            key = self._key(pair, event, getattr(event, pair.id, ""))
            if key in self._open:
                out = self._closed(key)
            self._models.add(key)
            self._started(pair, key[2], event)
        elif pair := _ENDS.get(kind):
            self._models.discard(self._key(pair, event, getattr(event, pair.id, "")))
        elif kind is e.ToolCallResultEvent:
            self._roles.setdefault(event.message_id, "tool")
        elif kind is e.ReasoningEncryptedValueEvent:
            self._values[event.subtype, event.entity_id] = event.encrypted_value
        return out

    def closing(self, *, failed: bool = False) -> list[e.AGUIEvent]:
        """The ends of all that is open, what was opened last first."""
        return [end for key in reversed(list(self._open)) for end in self._closed(key, failed)]

    # --- what starts and ends ----------------------------------------------------------------------------------

    def _key(self, pair: _Pair, event: Any, id: str) -> _Key:
        return pair, event.subagent_run_id if pair is _STEP else None, id

    def _id(self, pair: _Pair, event: Any) -> str:
        said: str = getattr(event, pair.id, "")
        return self._name(pair.bucket, said) if pair in (_TEXT, _THOUGHT) else said

    def _start(self, pair: _Pair, event: Any) -> list[e.AGUIEvent]:
        id = self._id(pair, event)
        key = self._key(pair, event, id)
        if key in self._open or not self._may_start(pair, key):
            return []
        if pair is _SUBAGENT and event.parent_subagent_run_id not in self._subagents:
            event = replace(event, parent_subagent_run_id=None)
        elif pair is _CALL:
            event = self._held(event)
            if event.parent_message_id is None and self._taken(id):
                return []
        elif pair in (_TEXT, _THOUGHT):
            role = "reasoning" if pair is _THOUGHT else event.role or "assistant"
            said = event.message_id
            id = said if self._roles.get(said) == _HELD and role == "assistant" else self._free(said)
            self._names[pair.bucket, said] = id
            event = replace(event, message_id=id)
            key = self._key(pair, event, id)
        if pair.bucket:
            event = self._owned(event, pair.bucket, id)
        self._open[key] = None
        self._started(pair, id, event)
        return [event]

    def _may_start(self, pair: _Pair, key: _Key) -> bool:
        if pair is _SUBAGENT:
            return key[2] not in self._subagents
        if pair is _CALL:
            return key[2] not in self._calls and ("tool-call", key[2]) not in self._values
        if pair is _THINKING_TEXT:
            return (_THINKING, None, "") in self._open and key not in self._models
        return key not in self._models or pair in (_TEXT, _THOUGHT)

    def _started(self, pair: _Pair, id: str, event: Any) -> None:
        """What clients make of a start."""
        if pair is _SUBAGENT:
            self._subagents.add(id)
        elif pair is _CALL:
            self._calls.add(id)
            self._roles.setdefault(event.parent_message_id or id, _HELD)
        elif pair is _THOUGHT:
            self._roles[id] = "reasoning"
        elif pair is _TEXT:
            self._roles[id] = event.role or "assistant"
        if pair.bucket:
            self._owners.setdefault((pair.bucket, id), event.subagent_run_id)

    def _held(self, event: e.ToolCallStartEvent) -> e.ToolCallStartEvent:
        """A call, in its message if that can hold it; it is its message's owner's."""
        parent = event.parent_message_id
        if not parent:
            return replace(event, parent_message_id=None)
        if self._roles.get(parent) not in (_HELD, "assistant") and self._taken(parent):
            return replace(event, parent_message_id=None)
        holder, call = ("message", parent), ("call", event.tool_call_id)
        if holder not in self._owners:
            return event
        owner = self._owners[holder]
        if self._owners.get(call, owner) != owner:
            return replace(event, parent_message_id=None)
        return replace(event, subagent_run_id=owner)

    def _goes_on(self, pair: _Pair, event: Any) -> list[e.AGUIEvent]:
        id = self._id(pair, event)
        key = self._key(pair, event, id)
        if key not in self._open:
            return []
        if pair.bucket:
            event = self._owned(replace(event, **{pair.id: id}), pair.bucket, id)
        if type(event) is pair.more:
            return [event] if event.delta else []
        inner = self._closed((_THINKING_TEXT, None, "")) if pair is _THINKING else []
        del self._open[key]
        return [*inner, event]

    def _closed(self, key: _Key, failed: bool = False) -> list[e.AGUIEvent]:
        pair, owner, id = key
        if key not in self._open:
            return []
        inner = self._closed((_THINKING_TEXT, None, "")) if pair is _THINKING else []
        del self._open[key]
        if pair is _SUBAGENT and failed:
            return [e.SubagentErrorEvent(subagent_run_id=id, message="the run failed")]
        told = {pair.id: id} if pair.id else {}
        if pair is _STEP:
            told["subagent_run_id"] = owner  # type: ignore[assignment]
        end: e.AGUIEvent = pair.end(**told)
        return [*inner, self._owned(end, pair.bucket, id) if pair.bucket else end]

    # --- what stands alone -------------------------------------------------------------------------------------

    def _result(self, event: e.ToolCallResultEvent) -> list[e.AGUIEvent]:
        event = replace(event, message_id=self._free(event.message_id))
        self._roles[event.message_id] = "tool"
        return [event]

    def _activity(self, event: e.ActivitySnapshotEvent) -> list[e.AGUIEvent]:
        id = self._name("activity", event.message_id)
        if self._roles.get(id) != "activity":
            id = self._names["activity", event.message_id] = self._free(event.message_id)
        self._roles[id] = "activity"
        self._owners["activity", id] = event.subagent_run_id
        return [replace(event, message_id=id)]

    def _changed(self, event: e.ActivityDeltaEvent) -> list[e.AGUIEvent]:
        id = self._name("activity", event.message_id)
        if self._roles.get(id) != "activity":
            return []
        return [self._owned(replace(event, message_id=id), "activity", id)]

    def _value(self, event: e.ReasoningEncryptedValueEvent) -> list[e.AGUIEvent]:
        of_call = event.subtype == "tool-call"
        buckets = ("call",) if of_call else ("message", "reasoning")
        id = next((self._names[at, event.entity_id] for at in buckets if (at, event.entity_id) in self._names), None)
        id = id or event.entity_id
        known = id in self._calls if of_call else self._roles.get(id, "activity") != "activity"
        if not known or (event.subtype, id) in self._values:
            return []
        self._values[event.subtype, id] = event.encrypted_value
        bucket = next((one for one in buckets if (one, id) in self._owners), buckets[0])
        return [self._owned(replace(event, entity_id=id), bucket, id)]

    def _snapshot(self, event: e.MessagesSnapshotEvent) -> list[e.AGUIEvent]:
        only = {message.id: message for message in event.messages}.values()
        # An activity can have no value: it does not take the place of what has one.
        messages = [one for one in only if _role(one) != "activity" or ("message", one.id) not in self._values]
        ids = {message.id for message in messages}
        if any(role == "reasoning" and id not in ids for id, role in self._roles.items()):
            messages = [message for message in messages if not isinstance(message, ReasoningMessage)]
        messages = [self._valued(message) for message in messages]
        there = {message.id: message for message in messages}
        kept = {"reasoning", "activity"} - {_role(message) for message in messages}
        gone = {id for id, role in self._roles.items() if id not in there and role not in kept}
        calls = {call.id for one in messages if isinstance(one, AssistantMessage) for call in one.tool_calls or []}
        ends = [
            end
            for key in list(self._open)
            if (key[0] in (_TEXT, _THOUGHT) and key[2] in gone) or (key[0] is _CALL and key[2] not in calls)
            for end in self._closed(key)
        ]
        for id in gone:
            del self._roles[id]
        self._calls = set()
        self._learn(messages)
        return [*ends, replace(event, messages=messages)]

    def _valued(self, message: Message) -> Message:
        """The message, with the values that were told of it and its calls."""
        value = self._values.get(("message", message.id))
        if value and isinstance(message, ReasoningMessage):
            message = message if message.sealed else replace(message, encrypted_value=value)
        elif value and hasattr(message, "encrypted_value") and not message.encrypted_value:
            message = replace(message, encrypted_value=value)
        if isinstance(message, AssistantMessage) and message.tool_calls:
            calls = [
                replace(call, encrypted_value=call.encrypted_value or self._values.get(("tool-call", call.id)))
                for call in message.tool_calls
            ]
            message = replace(message, tool_calls=calls)
        return message

    # --- ids ---------------------------------------------------------------------------------------------------

    def _learn(self, messages: Iterable[Message]) -> None:
        """Messages that were not streamed."""
        for message in messages:
            role = self._roles[message.id] = _role(message)
            bucket = role if role in ("reasoning", "activity") else "message"
            self._owners[bucket, message.id] = message.subagent_run_id
            for call in (isinstance(message, AssistantMessage) and message.tool_calls) or []:
                self._calls.add(call.id)
                self._owners["call", call.id] = message.subagent_run_id

    def _name(self, bucket: str, id: str) -> str:
        return self._names.get((bucket, id), id)

    def _taken(self, id: str) -> bool:
        """Whether a message has it, or one had that is gone, and whose value would be taken for the next one's."""
        return id in self._roles or ("message", id) in self._values

    def _free(self, id: str) -> str:
        number, free = 1, id
        while self._taken(free):
            number += 1
            free = f"{id}:{number}"
        return free

    def _owned(self, event: Any, bucket: str, id: str) -> Any:
        owner = self._owners.get((bucket, id), event.subagent_run_id)
        return event if owner == event.subagent_run_id else replace(event, subagent_run_id=owner)


def _role(message: Message) -> str:
    return str(message.__struct_config__.tag)


_STEPS: dict[type[Any], Callable[[Ledger, Any], list[e.AGUIEvent]]] = {
    e.ToolCallResultEvent: Ledger._result,
    e.ActivitySnapshotEvent: Ledger._activity,
    e.ActivityDeltaEvent: Ledger._changed,
    e.ReasoningEncryptedValueEvent: Ledger._value,
    e.MessagesSnapshotEvent: Ledger._snapshot,
}
"""What is neither started nor ended."""
