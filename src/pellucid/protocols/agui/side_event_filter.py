"""Keep the side events of an application legal: ids, owners, and what is open.

Clients end the run at an illegal event, drop it, or merge it with another. So an illegal event is changed or dropped,
such that as little as possible is lost:

* An open entity is not started again. Only an open entity continues and ends. A subagent starts once, after its parent.
* A message whose id is in use gets the suffix `:2`, `:3` …, and later events for it get that id. A second call with the
  same id is dropped, because its result could not be distinguished from that of the first.
* A result belongs to a call of the application that has ended, and is its first. (Results of the model's calls are
  events of the run.)
* An entity keeps its owner: an event that names another subagent gets the owner of its entity.
* An encrypted value comes after its message or call, and only once. A change of an activity needs the activity.
* MESSAGES_SNAPSHOT has each id once, repeats the encrypted values, and has either all reasoning or none (clients keep
  all reasoning if a snapshot has none). What it removes is ended before it.

Events of the model's run are only observed. They end an entity of the application with the same id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from msgspec.structs import replace

from . import events as e
from .messages import AssistantMessage, Message, ReasoningMessage


class _EntityKind(NamedTuple):
    """A kind of entity that is started and ended, with the types of its events."""

    start_type: type[Any]
    delta_type: type[Any] | None
    end_type: type[Any]
    id_field: str = ""
    id_space: str = ""
    """The space of ids in which owners are looked up; empty for kinds without an owner."""


_TEXT = _EntityKind(
    e.TextMessageStartEvent, e.TextMessageContentEvent, e.TextMessageEndEvent, "message_id", id_space="message"
)
_CALL = _EntityKind(e.ToolCallStartEvent, e.ToolCallArgsEvent, e.ToolCallEndEvent, "tool_call_id", id_space="call")
_SPAN = _EntityKind(e.ReasoningStartEvent, None, e.ReasoningEndEvent, "message_id", id_space="reasoning")
_THOUGHT = _EntityKind(
    e.ReasoningMessageStartEvent,
    e.ReasoningMessageContentEvent,
    e.ReasoningMessageEndEvent,
    "message_id",
    id_space="reasoning",
)
_STEP = _EntityKind(e.StepStartedEvent, None, e.StepFinishedEvent, "step_name")
_SUBAGENT = _EntityKind(e.SubagentStartedEvent, None, e.SubagentFinishedEvent, "subagent_run_id")
_THINKING = _EntityKind(e.ThinkingStartEvent, None, e.ThinkingEndEvent)
_THINKING_TEXT = _EntityKind(
    e.ThinkingTextMessageStartEvent, e.ThinkingTextMessageContentEvent, e.ThinkingTextMessageEndEvent
)
_KINDS = (_TEXT, _CALL, _SPAN, _THOUGHT, _STEP, _SUBAGENT, _THINKING, _THINKING_TEXT)
_STARTS: dict[type[Any], _EntityKind] = {pair.start_type: pair for pair in _KINDS}
_DELTAS: dict[type[Any], _EntityKind] = {pair.delta_type: pair for pair in _KINDS if pair.delta_type is not None}
_ENDS: dict[type[Any], _EntityKind] = {**{pair.end_type: pair for pair in _KINDS}, e.SubagentErrorEvent: _SUBAGENT}

_EntityKey = tuple[_EntityKind, str | None, str]
_IMPLICIT_ROLE = ""
"""The role of a message that a call created, until the message itself starts."""


class SideEventFilter:
    """Makes the side events of an application legal.

    `feed` takes the application's events, `observe` those of the model's run. Both return events to send.
    """

    def __init__(self, history: Iterable[Message] = ()) -> None:
        self._open_entities: dict[_EntityKey, str | None] = {}
        """The open entities of the application, by kind, owner (of a step) and id."""
        self._model_open: set[_EntityKey] = set()
        """The open entities of the model's run."""
        self._roles: dict[str, str] = {}
        """The role of each message by its id."""
        self._call_ids: set[str] = set()
        self._unanswered_calls: set[str] = set()
        """The calls that the application has started and that have no result."""
        self._encrypted_values: dict[tuple[str, str], str] = {}
        self._owners: dict[tuple[str, str], str | None] = {}
        self._subagent_ids: set[str] = set()
        """The subagents that started, also those that ended."""
        self._assigned_ids: dict[tuple[str, str], str] = {}
        """The id that a message was sent with, by its id space and the application's id."""
        self._add_messages(history)

    def feed(self, event: Any) -> list[e.AGUIEvent]:
        event_type = type(event)
        if kind := _STARTS.get(event_type):
            return self._start(kind, event)
        if kind := _DELTAS.get(event_type) or _ENDS.get(event_type):
            return self._continue(kind, event)
        handler = _HANDLERS.get(event_type)
        return [event] if handler is None else handler(self, event)

    def observe(self, event: Any) -> list[e.AGUIEvent]:
        """Observe an event of the model's run.

        Returns:
            The end of an open entity of the application with the same id. It must be sent before the event.
        """
        event_type = type(event)
        out: list[e.AGUIEvent] = []
        if kind := _STARTS.get(event_type):
            key = self._entity_key(kind, event, getattr(event, kind.id_field, ""))
            if key in self._open_entities:
                out = self._end_entity(key)
            self._model_open.add(key)
            self._record_start(kind, key[2], event)
        elif kind := _ENDS.get(event_type):
            self._model_open.discard(self._entity_key(kind, event, getattr(event, kind.id_field, "")))
        elif event_type is e.ToolCallResultEvent:
            self._roles.setdefault(event.message_id, "tool")
        elif event_type is e.ReasoningEncryptedValueEvent:
            self._encrypted_values[event.subtype, event.entity_id] = event.encrypted_value
        return out

    def end_all(self, *, failed: bool = False) -> list[e.AGUIEvent]:
        """End all open entities of the application, last opened first.

        Args:
            failed: Whether the run failed; subagents then end with SUBAGENT_ERROR.
        """
        return [end for key in reversed(list(self._open_entities)) for end in self._end_entity(key, failed)]

    # --- entities that start and end ---------------------------------------------------------------------------

    def _entity_key(self, kind: _EntityKind, event: Any, id: str) -> _EntityKey:
        return kind, event.subagent_run_id if kind is _STEP else None, id

    def _entity_id(self, kind: _EntityKind, event: Any) -> str:
        original_id: str = getattr(event, kind.id_field, "")
        return self._assigned_id(kind.id_space, original_id) if kind in (_TEXT, _THOUGHT) else original_id

    def _start(self, kind: _EntityKind, event: Any) -> list[e.AGUIEvent]:
        id = self._entity_id(kind, event)
        key = self._entity_key(kind, event, id)
        if key in self._open_entities or not self._may_start(kind, key):
            return []
        if kind is _SUBAGENT and event.parent_subagent_run_id not in self._subagent_ids:
            event = replace(event, parent_subagent_run_id=None)
        elif kind is _CALL:
            event = self._with_parent(event)
            if event.parent_message_id is None and self._is_taken(id):
                return []
        elif kind in (_TEXT, _THOUGHT):
            role = "reasoning" if kind is _THOUGHT else event.role or "assistant"
            original_id = event.message_id
            id = (
                original_id
                if self._roles.get(original_id) == _IMPLICIT_ROLE and role == "assistant"
                else self._free_id(original_id)
            )
            self._assigned_ids[kind.id_space, original_id] = id
            event = replace(event, message_id=id)
            key = self._entity_key(kind, event, id)
        if kind.id_space:
            event = self._with_owner(event, kind.id_space, id)
        self._open_entities[key] = None
        self._record_start(kind, id, event)
        if kind is _CALL:
            self._unanswered_calls.add(id)
        return [event]

    def _may_start(self, kind: _EntityKind, key: _EntityKey) -> bool:
        if kind is _SUBAGENT:
            return key[2] not in self._subagent_ids
        if kind is _CALL:
            return key[2] not in self._call_ids and ("tool-call", key[2]) not in self._encrypted_values
        if kind is _THINKING_TEXT:
            return (_THINKING, None, "") in self._open_entities and key not in self._model_open
        return key not in self._model_open or kind in (_TEXT, _THOUGHT)

    def _record_start(self, kind: _EntityKind, id: str, event: Any) -> None:
        """Record the ids, roles and owners that clients derive from a start event."""
        if kind is _SUBAGENT:
            self._subagent_ids.add(id)
        elif kind is _CALL:
            self._call_ids.add(id)
            self._roles.setdefault(event.parent_message_id or id, _IMPLICIT_ROLE)
        elif kind is _THOUGHT:
            self._roles[id] = "reasoning"
        elif kind is _TEXT:
            self._roles[id] = event.role or "assistant"
        if kind.id_space:
            self._owners.setdefault((kind.id_space, id), event.subagent_run_id)

    def _with_parent(self, event: e.ToolCallStartEvent) -> e.ToolCallStartEvent:
        """Return the start of a call with a valid parent message, or none, and the owner of that message."""
        parent = event.parent_message_id
        if not parent:
            return replace(event, parent_message_id=None)
        if self._roles.get(parent) not in (_IMPLICIT_ROLE, "assistant") and self._is_taken(parent):
            return replace(event, parent_message_id=None)
        holder, call = ("message", parent), ("call", event.tool_call_id)
        if holder not in self._owners:
            return event
        owner = self._owners[holder]
        if self._owners.get(call, owner) != owner:
            return replace(event, parent_message_id=None)
        return replace(event, subagent_run_id=owner)

    def _continue(self, kind: _EntityKind, event: Any) -> list[e.AGUIEvent]:
        id = self._entity_id(kind, event)
        key = self._entity_key(kind, event, id)
        if key not in self._open_entities:
            return []
        if kind.id_space:
            event = self._with_owner(replace(event, **{kind.id_field: id}), kind.id_space, id)
        if type(event) is kind.delta_type:
            return [event] if event.delta else []
        inner_ends = self._end_entity((_THINKING_TEXT, None, "")) if kind is _THINKING else []
        del self._open_entities[key]
        return [*inner_ends, event]

    def _end_entity(self, key: _EntityKey, failed: bool = False) -> list[e.AGUIEvent]:
        kind, owner, id = key
        if key not in self._open_entities:
            return []
        inner_ends = self._end_entity((_THINKING_TEXT, None, "")) if kind is _THINKING else []
        del self._open_entities[key]
        if kind is _SUBAGENT and failed:
            return [e.SubagentErrorEvent(subagent_run_id=id, message="the run failed")]
        fields = {kind.id_field: id} if kind.id_field else {}
        if kind is _STEP:
            fields["subagent_run_id"] = owner  # type: ignore[assignment]
        end: e.AGUIEvent = kind.end_type(**fields)
        return [*inner_ends, self._with_owner(end, kind.id_space, id) if kind.id_space else end]

    # --- single events -----------------------------------------------------------------------------------------

    def _tool_result(self, event: e.ToolCallResultEvent) -> list[e.AGUIEvent]:
        call_id = event.tool_call_id
        if call_id not in self._unanswered_calls or (_CALL, None, call_id) in self._open_entities:
            return []
        self._unanswered_calls.remove(call_id)
        event = replace(event, message_id=self._free_id(event.message_id))
        self._roles[event.message_id] = "tool"
        return [event]

    def _activity_snapshot(self, event: e.ActivitySnapshotEvent) -> list[e.AGUIEvent]:
        id = self._assigned_id("activity", event.message_id)
        if self._roles.get(id) != "activity":
            id = self._assigned_ids["activity", event.message_id] = self._free_id(event.message_id)
        self._roles[id] = "activity"
        self._owners["activity", id] = event.subagent_run_id
        return [replace(event, message_id=id)]

    def _activity_delta(self, event: e.ActivityDeltaEvent) -> list[e.AGUIEvent]:
        id = self._assigned_id("activity", event.message_id)
        if self._roles.get(id) != "activity":
            return []
        return [self._with_owner(replace(event, message_id=id), "activity", id)]

    def _encrypted_value(self, event: e.ReasoningEncryptedValueEvent) -> list[e.AGUIEvent]:
        of_call = event.subtype == "tool-call"
        id_spaces = ("call",) if of_call else ("message", "reasoning")
        id = next(
            (
                self._assigned_ids[space, event.entity_id]
                for space in id_spaces
                if (space, event.entity_id) in self._assigned_ids
            ),
            None,
        )
        id = id or event.entity_id
        known = id in self._call_ids if of_call else self._roles.get(id, "activity") != "activity"
        if not known or (event.subtype, id) in self._encrypted_values:
            return []
        self._encrypted_values[event.subtype, id] = event.encrypted_value
        id_space = next((one for one in id_spaces if (one, id) in self._owners), id_spaces[0])
        return [self._with_owner(replace(event, entity_id=id), id_space, id)]

    def _messages_snapshot(self, event: e.MessagesSnapshotEvent) -> list[e.AGUIEvent]:
        unique = {message.id: message for message in event.messages}.values()
        # An activity cannot have an encrypted value, so it does not replace a message that has one.
        messages = [
            one for one in unique if _role_of(one) != "activity" or ("message", one.id) not in self._encrypted_values
        ]
        ids = {message.id for message in messages}
        if any(role == "reasoning" and id not in ids for id, role in self._roles.items()):
            messages = [message for message in messages if not isinstance(message, ReasoningMessage)]
        messages = [self._with_values(message) for message in messages]
        by_id = {message.id: message for message in messages}
        kept_roles = {"reasoning", "activity"} - {_role_of(message) for message in messages}
        removed_ids = {id for id, role in self._roles.items() if id not in by_id and role not in kept_roles}
        call_ids = {call.id for one in messages if isinstance(one, AssistantMessage) for call in one.tool_calls or []}
        ends = [
            end
            for key in list(self._open_entities)
            if (key[0] in (_TEXT, _THOUGHT) and key[2] in removed_ids) or (key[0] is _CALL and key[2] not in call_ids)
            for end in self._end_entity(key)
        ]
        for id in removed_ids:
            del self._roles[id]
        self._call_ids = set()
        self._add_messages(messages)
        return [*ends, replace(event, messages=messages)]

    def _with_values(self, message: Message) -> Message:
        """Return the message with the encrypted values that were sent for it and its calls."""
        value = self._encrypted_values.get(("message", message.id))
        if value and isinstance(message, ReasoningMessage):
            message = message if message.sealed else replace(message, encrypted_value=value)
        elif value and hasattr(message, "encrypted_value") and not message.encrypted_value:
            message = replace(message, encrypted_value=value)
        if isinstance(message, AssistantMessage) and message.tool_calls:
            calls = [
                replace(
                    call, encrypted_value=call.encrypted_value or self._encrypted_values.get(("tool-call", call.id))
                )
                for call in message.tool_calls
            ]
            message = replace(message, tool_calls=calls)
        return message

    # --- ids ---------------------------------------------------------------------------------------------------

    def _add_messages(self, messages: Iterable[Message]) -> None:
        """Add messages that were not streamed."""
        for message in messages:
            role = self._roles[message.id] = _role_of(message)
            id_space = role if role in ("reasoning", "activity") else "message"
            self._owners[id_space, message.id] = message.subagent_run_id
            for call in (isinstance(message, AssistantMessage) and message.tool_calls) or []:
                self._call_ids.add(call.id)
                self._owners["call", call.id] = message.subagent_run_id

    def _assigned_id(self, id_space: str, id: str) -> str:
        return self._assigned_ids.get((id_space, id), id)

    def _is_taken(self, id: str) -> bool:
        """Return whether an id is in use by a message, or by the encrypted value of a removed message."""
        return id in self._roles or ("message", id) in self._encrypted_values

    def _free_id(self, id: str) -> str:
        number, candidate = 1, id
        while self._is_taken(candidate):
            number += 1
            candidate = f"{id}:{number}"
        return candidate

    def _with_owner(self, event: Any, id_space: str, id: str) -> Any:
        owner = self._owners.get((id_space, id), event.subagent_run_id)
        return event if owner == event.subagent_run_id else replace(event, subagent_run_id=owner)


def _role_of(message: Message) -> str:
    return str(message.__struct_config__.tag)


_HANDLERS: dict[type[Any], Callable[[SideEventFilter, Any], list[e.AGUIEvent]]] = {
    e.ToolCallResultEvent: SideEventFilter._tool_result,
    e.ActivitySnapshotEvent: SideEventFilter._activity_snapshot,
    e.ActivityDeltaEvent: SideEventFilter._activity_delta,
    e.ReasoningEncryptedValueEvent: SideEventFilter._encrypted_value,
    e.MessagesSnapshotEvent: SideEventFilter._messages_snapshot,
}
"""The handlers of events that start or end no entity."""
