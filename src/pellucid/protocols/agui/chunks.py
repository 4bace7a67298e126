"""Chunks: a message or a call without explicit start and end, and back.

`Expander` gives the events that chunks stand for, `chunked` the chunks for events. Which chunk belongs where, and what
ends it, are the official client's rules (its `chunks/transform.ts`):

* The first chunk needs an id, and a call's name; later ones may leave both out, or repeat what the first one said.
* Each agent (a subagent, or the one that runs) has one message or call open in chunks at a time. Another id, another
  kind of chunk, or an explicit event of that agent ends it; what tells of the run or of all messages ends everybody's.
* RAW, activities, encrypted values and a subagent's start end nothing. An empty delta says nothing.

The proposal has its own rules for reasoning: it ends at the next event that is not of reasoning, or at an empty chunk.
No empty delta comes out: what an empty chunk has in `metadata` and `rawEvent` goes to the message's end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...errors import RequestError
from . import events as e
from .dialects import Dialect


class _Form(NamedTuple):
    """A kind of chunk, and what it stands for."""

    chunk: type[e.TextMessageChunkEvent] | type[e.ToolCallChunkEvent] | type[e.ReasoningMessageChunkEvent]
    start: type[Any]
    more: type[Any]
    end: type[Any]
    id: str
    said: tuple[str, ...]
    """What else the first one tells; the rest may repeat it."""
    needed: tuple[str, ...]


_TEXT = _Form(
    e.TextMessageChunkEvent,
    e.TextMessageStartEvent,
    e.TextMessageContentEvent,
    e.TextMessageEndEvent,
    "message_id",
    ("role", "name"),
    ("message_id",),
)
_CALL = _Form(
    e.ToolCallChunkEvent,
    e.ToolCallStartEvent,
    e.ToolCallArgsEvent,
    e.ToolCallEndEvent,
    "tool_call_id",
    ("tool_call_name", "parent_message_id"),
    ("tool_call_id", "tool_call_name"),
)
_THOUGHT = _Form(
    e.ReasoningMessageChunkEvent,
    e.ReasoningMessageStartEvent,
    e.ReasoningMessageContentEvent,
    e.ReasoningMessageEndEvent,
    "message_id",
    (),
    ("message_id",),
)
_FORMS: dict[type[e.AGUIEvent], _Form] = {form.chunk: form for form in (_TEXT, _CALL, _THOUGHT)}
_STARTS: dict[type[e.AGUIEvent], _Form] = {form.start: form for form in _FORMS.values()}
_MORES: dict[type[e.AGUIEvent], _Form] = {form.more: form for form in _FORMS.values()}
_ENDS: dict[type[e.AGUIEvent], _Form] = {form.end: form for form in _FORMS.values()}

_END_NONE = (
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
_END_ALL = (e.RunStartedEvent, e.RunFinishedEvent, e.RunErrorEvent, e.MessagesSnapshotEvent)


class _Lane:
    """What one agent has open in chunks."""

    __slots__ = ("first", "form", "id", "metadata", "owner", "raw")

    def __init__(self, form: _Form, id: str, first: Any) -> None:
        self.form = form
        self.id = id
        self.first = first
        self.owner: str | None = first.subagent_run_id
        self.metadata: dict[str, Any] | None = None
        """What came without text, and is told at the end."""
        self.raw: Any = None

    def event(self, cls: type[Any], owner: str | None = None, **fields: Any) -> e.AGUIEvent:
        made: e.AGUIEvent = cls(**{self.form.id: self.id}, subagent_run_id=owner or self.owner, **fields)
        return made


class Expander:
    """`feed` any event; what comes out has no chunks. `end` closes what is open."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._lanes: dict[str | None, _Lane] = {}

    @property
    def open(self) -> bool:
        return bool(self._lanes)

    def feed(self, event: e.AGUIEvent) -> list[e.AGUIEvent]:
        """Raises `RequestError` (code `bad_chunk`) for a chunk that belongs nowhere."""
        form = _FORMS.get(type(event))
        if form is not None:
            return self._chunk(form, event)
        return [*self._ended_by(event), event] if self._lanes else [event]

    def end(self) -> list[e.AGUIEvent]:
        return [end for lane in list(self._lanes) for end in self._close(lane)]

    def _ended_by(self, event: e.AGUIEvent) -> list[e.AGUIEvent]:
        if self._dialect.reasoning_keeps_chunk:
            stays = _THOUGHT if event.type.startswith("REASONING_") else None
            return [end for at, lane in list(self._lanes.items()) if lane.form is not stays for end in self._close(at)]
        if isinstance(event, _END_ALL):
            return self.end()
        return [] if isinstance(event, _END_NONE) else self._close(getattr(event, "subagent_run_id", None))

    def _close(self, at: str | None) -> list[e.AGUIEvent]:
        lane = self._lanes.pop(at, None)
        if lane is None:
            return []
        return [lane.event(lane.form.end, metadata=lane.metadata, raw_event=lane.raw)]

    def _chunk(self, form: _Form, event: Any) -> list[e.AGUIEvent]:
        at = self._lane_of(form, event)
        lane, id, delta = self._lanes.get(at), getattr(event, form.id), event.delta
        out: list[e.AGUIEvent] = []
        goes_on = lane is not None and lane.form is form and id in (None, lane.id)
        if lane is None or not goes_on:
            out += self._close(at)
            lane = self._lanes[at] = self._opened(form, event)
            role = {"role": self._dialect.role} if form is _THOUGHT else {}
            said = {name: getattr(event, name) for name in form.said}
            out.append(lane.event(form.start, metadata=event.metadata, timestamp=event.timestamp, **role, **said))
        for name in form.said:
            again, first = getattr(event, name), getattr(lane.first, name)
            if again is not None and again != (first or ("assistant" if name == "role" else None)):
                raise _wrong(f"the {name} of a {form.chunk.type} is not that of the first one")
        if delta:
            fields = {"metadata": event.metadata, "raw_event": event.raw_event, "timestamp": event.timestamp}
            out.append(lane.event(form.more, event.subagent_run_id, delta=delta, **fields))
            return out
        lane.raw = event.raw_event if event.raw_event is not None else lane.raw
        if goes_on and event.metadata:
            lane.metadata = {**(lane.metadata or {}), **event.metadata}
        if form is _THOUGHT and self._dialect.empty_chunk_closes and (delta == "" or goes_on):
            out += self._close(at)
        return out

    def _opened(self, form: _Form, event: Any) -> _Lane:
        for name in form.needed:
            if getattr(event, name) is None:
                raise _wrong(f"the first {form.chunk.type} needs a {name}")
        return _Lane(form, getattr(event, form.id), event)

    def _lane_of(self, form: _Form, event: Any) -> str | None:
        """Whose chunk it is: whoever has its id open, whom it names, or the only one who has such a thing open."""
        id, tag = getattr(event, form.id), event.subagent_run_id
        if id is not None:
            for owner, lane in self._lanes.items():
                if lane.form is form and lane.id == id:
                    if tag not in (None, owner):
                        raise _wrong(f"a {form.chunk.type} goes on with what another subagent has open")
                    return owner
            return str(tag) if tag is not None else None
        if tag is not None:
            return str(tag)
        having = [owner for owner, lane in self._lanes.items() if lane.form is form]
        if None in having or not having:
            return None
        if len(having) > 1:
            raise _wrong(
                f"a {form.chunk.type} names neither what it goes on with nor whose it is, and several could be"
            )
        return having[0]


def chunked(event: e.AGUIEvent, dialect: Dialect) -> list[e.AGUIEvent]:
    """The chunks that say the same; the end of a message says nothing, but for reasoning in the proposal."""
    kind = type(event)
    if form := _STARTS.get(kind):
        if form is _THOUGHT and dialect.empty_chunk_closes:
            return []  # a chunk without text would close it; the first one with text opens it
        said = {name: getattr(event, name) for name in (form.id, *form.said)}
        return [_like(event, form, **said)]
    if form := _MORES.get(kind):
        said = {name: getattr(event, name) for name in (form.id, "delta")}
        return [_like(event, form, **said)] if said["delta"] else []
    if form := _ENDS.get(kind):
        closes = form is _THOUGHT and dialect.empty_chunk_closes
        return [_like(event, form, message_id=getattr(event, form.id), delta="")] if closes else []
    return [event]


def _like(event: Any, form: _Form, **said: Any) -> e.AGUIEvent:
    common = ("timestamp", "raw_event", "metadata", "subagent_run_id")
    return form.chunk(**{name: getattr(event, name) for name in common}, **said)


def _wrong(message: str) -> RequestError:
    return RequestError(message, code="bad_chunk")
