"""Chunk events: messages and tool calls without explicit start and end events.

`Expander` replaces chunks by the events that they stand for; `as_chunks` does the opposite. The rules are those of the
official client (its `chunks/transform.ts`):

* The first chunk of a message needs an id; the first of a call needs an id and a name. Later chunks omit both, or
  repeat the values of the first.
* Each agent (a subagent, or the main agent) has at most one message or call open in chunks. Another id, another kind of
  chunk, or an explicit event of that agent ends it. An event of the run, or a snapshot of all messages, ends those of
  all agents.
* RAW, activities, encrypted values and SUBAGENT_STARTED end nothing. An empty delta is ignored.

The proposal has its own rules for reasoning: a reasoning message ends at the next event that is not a reasoning event,
or at an empty chunk. `Expander` returns no empty delta: the `metadata` and `rawEvent` of an empty chunk go to the end
event of its message.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...errors import RequestError
from . import events as e
from .dialects import Dialect


class _ChunkKind(NamedTuple):
    """A kind of chunk event, and the events that it stands for."""

    chunk_type: type[e.TextMessageChunkEvent] | type[e.ToolCallChunkEvent] | type[e.ReasoningMessageChunkEvent]
    start_type: type[Any]
    delta_type: type[Any]
    end_type: type[Any]
    id_field: str
    first_fields: tuple[str, ...]
    """Further fields of the first chunk, which later chunks may repeat."""
    required_fields: tuple[str, ...]


_TEXT = _ChunkKind(
    e.TextMessageChunkEvent,
    e.TextMessageStartEvent,
    e.TextMessageContentEvent,
    e.TextMessageEndEvent,
    "message_id",
    ("role", "name"),
    ("message_id",),
)
_CALL = _ChunkKind(
    e.ToolCallChunkEvent,
    e.ToolCallStartEvent,
    e.ToolCallArgsEvent,
    e.ToolCallEndEvent,
    "tool_call_id",
    ("tool_call_name", "parent_message_id"),
    ("tool_call_id", "tool_call_name"),
)
_THOUGHT = _ChunkKind(
    e.ReasoningMessageChunkEvent,
    e.ReasoningMessageStartEvent,
    e.ReasoningMessageContentEvent,
    e.ReasoningMessageEndEvent,
    "message_id",
    (),
    ("message_id",),
)
_KINDS: dict[type[e.AGUIEvent], _ChunkKind] = {form.chunk_type: form for form in (_TEXT, _CALL, _THOUGHT)}
_STARTS: dict[type[e.AGUIEvent], _ChunkKind] = {form.start_type: form for form in _KINDS.values()}
_DELTAS: dict[type[e.AGUIEvent], _ChunkKind] = {form.delta_type: form for form in _KINDS.values()}
_ENDS: dict[type[e.AGUIEvent], _ChunkKind] = {form.end_type: form for form in _KINDS.values()}

_ENDS_NOTHING = (
    e.RawEvent,
    e.ActivitySnapshotEvent,
    e.ActivityDeltaEvent,
    e.ReasoningEncryptedValueEvent,
    e.SubagentStartedEvent,
    e.ThinkingStartEvent,
    e.ThinkingTextMessageStartEvent,
    e.ThinkingTextMessageContentEvent,
    e.ThinkingTextMessageEndEvent,
    e.ThinkingEndEvent,
)
_ENDS_ALL = (e.RunStartedEvent, e.RunFinishedEvent, e.RunErrorEvent, e.MessagesSnapshotEvent)


class _OpenEntity:
    """The message or call that one agent has open in chunks."""

    __slots__ = ("end_metadata", "first_chunk", "id", "kind", "raw_event", "subagent_run_id")

    def __init__(self, kind: _ChunkKind, id: str, first_chunk: Any) -> None:
        self.kind = kind
        self.id = id
        self.first_chunk = first_chunk
        self.subagent_run_id: str | None = first_chunk.subagent_run_id
        self.end_metadata: dict[str, Any] | None = None
        """The `metadata` of empty chunks, for the end event."""
        self.raw_event: Any = None

    def make_event(self, cls: type[Any], subagent_run_id: str | None = None, **fields: Any) -> e.AGUIEvent:
        event: e.AGUIEvent = cls(
            **{self.kind.id_field: self.id}, subagent_run_id=subagent_run_id or self.subagent_run_id, **fields
        )
        return event


class Expander:
    """Replaces the chunk events of a stream by start, content and end events.

    `feed` takes every event of the stream, in order, and returns events without chunks; `end` returns the end events of
    what is still open.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._open_entities: dict[str | None, _OpenEntity] = {}

    @property
    def is_open(self) -> bool:
        return bool(self._open_entities)

    def feed(self, event: e.AGUIEvent) -> list[e.AGUIEvent]:
        """Return the event without chunks, after the end events that it causes.

        Raises:
            RequestError: (code `bad_chunk`) a chunk belongs to no open message or call and cannot begin one, or
                contradicts the first chunk.
        """
        kind = _KINDS.get(type(event))
        if kind is not None:
            return self._expand(kind, event)
        return [*self._ends_before(event), event] if self._open_entities else [event]

    def end(self) -> list[e.AGUIEvent]:
        return [end for agent in list(self._open_entities) for end in self._end_entity(agent)]

    def _ends_before(self, event: e.AGUIEvent) -> list[e.AGUIEvent]:
        if self._dialect.reasoning_keeps_chunk:
            open_kind = _THOUGHT if event.type.startswith("REASONING_") else None
            return [
                end
                for agent, entity in list(self._open_entities.items())
                if entity.kind is not open_kind
                for end in self._end_entity(agent)
            ]
        if isinstance(event, _ENDS_ALL):
            return self.end()
        return [] if isinstance(event, _ENDS_NOTHING) else self._end_entity(getattr(event, "subagent_run_id", None))

    def _end_entity(self, agent: str | None) -> list[e.AGUIEvent]:
        entity = self._open_entities.pop(agent, None)
        if entity is None:
            return []
        return [entity.make_event(entity.kind.end_type, metadata=entity.end_metadata, raw_event=entity.raw_event)]

    def _expand(self, kind: _ChunkKind, event: Any) -> list[e.AGUIEvent]:
        agent = self._agent_of(kind, event)
        entity, id, delta = self._open_entities.get(agent), getattr(event, kind.id_field), event.delta
        out: list[e.AGUIEvent] = []
        continues = entity is not None and entity.kind is kind and id in (None, entity.id)
        if entity is None or not continues:
            out += self._end_entity(agent)
            entity = self._open_entities[agent] = self._new_entity(kind, event)
            role = {"role": self._dialect.reasoning_role} if kind is _THOUGHT else {}
            first_fields = {name: getattr(event, name) for name in kind.first_fields}
            out.append(
                entity.make_event(
                    kind.start_type, metadata=event.metadata, timestamp=event.timestamp, **role, **first_fields
                )
            )
        for name in kind.first_fields:
            repeated, first = getattr(event, name), getattr(entity.first_chunk, name)
            if repeated is not None and repeated != (first or ("assistant" if name == "role" else None)):
                raise _bad_chunk(f"the {name} of a {kind.chunk_type.type} differs from that of the first chunk")
        if delta:
            fields = {"metadata": event.metadata, "raw_event": event.raw_event, "timestamp": event.timestamp}
            out.append(entity.make_event(kind.delta_type, event.subagent_run_id, delta=delta, **fields))
            return out
        entity.raw_event = event.raw_event if event.raw_event is not None else entity.raw_event
        if continues and event.metadata:
            entity.end_metadata = {**(entity.end_metadata or {}), **event.metadata}
        if kind is _THOUGHT and self._dialect.empty_chunk_closes and (delta == "" or continues):
            out += self._end_entity(agent)
        return out

    def _new_entity(self, kind: _ChunkKind, event: Any) -> _OpenEntity:
        for name in kind.required_fields:
            if getattr(event, name) is None:
                raise _bad_chunk(f"the first {kind.chunk_type.type} needs a {name}")
        return _OpenEntity(kind, getattr(event, kind.id_field), event)

    def _agent_of(self, kind: _ChunkKind, event: Any) -> str | None:
        """Return the subagent run id of a chunk's agent; None for the main agent.

        It is the agent that has the chunk's id open, or that the chunk names, or the only agent with an open entity of
        this kind.
        """
        id, subagent_run_id = getattr(event, kind.id_field), event.subagent_run_id
        if id is not None:
            for agent, entity in self._open_entities.items():
                if entity.kind is kind and entity.id == id:
                    if subagent_run_id not in (None, agent):
                        raise _bad_chunk(f"a {kind.chunk_type.type} continues what another subagent has open")
                    return agent
            return str(subagent_run_id) if subagent_run_id is not None else None
        if subagent_run_id is not None:
            return str(subagent_run_id)
        agents = [agent for agent, entity in self._open_entities.items() if entity.kind is kind]
        if None in agents or not agents:
            return None
        if len(agents) > 1:
            raise _bad_chunk(
                f"a {kind.chunk_type.type} names neither an id nor a subagent, and several agents have one open"
            )
        return agents[0]


def as_chunks(event: e.AGUIEvent, dialect: Dialect) -> list[e.AGUIEvent]:
    """Return the chunks that stand for an event, or the event if no chunk can.

    An end event has no chunk, except the end of reasoning in the proposal.
    """
    event_type = type(event)
    if kind := _STARTS.get(event_type):
        if kind is _THOUGHT and dialect.empty_chunk_closes:
            return []  # A chunk without text would end the message. The first chunk with text begins it.
        fields = {name: getattr(event, name) for name in (kind.id_field, *kind.first_fields)}
        return [_chunk_of(event, kind, **fields)]
    if kind := _DELTAS.get(event_type):
        fields = {name: getattr(event, name) for name in (kind.id_field, "delta")}
        return [_chunk_of(event, kind, **fields)] if fields["delta"] else []
    if kind := _ENDS.get(event_type):
        closes = kind is _THOUGHT and dialect.empty_chunk_closes
        return [_chunk_of(event, kind, message_id=getattr(event, kind.id_field), delta="")] if closes else []
    return [event]


def _chunk_of(event: Any, kind: _ChunkKind, **fields: Any) -> e.AGUIEvent:
    common_fields = ("timestamp", "raw_event", "metadata", "subagent_run_id")
    return kind.chunk_type(**{name: getattr(event, name) for name in common_fields}, **fields)


def _bad_chunk(message: str) -> RequestError:
    return RequestError(message, code="bad_chunk")
