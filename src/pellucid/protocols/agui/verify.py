"""Check whether a sequence of AG-UI events is legal in a dialect, and which rule the first illegal event breaks.

    violation = verify(events)                       # None, or its index, rule, severity and message
    verifier = Verifier("0.x"); verifier.feed(event); …; verifier.end()      # event by event

`sequence.RULES` has all rules. The severity of a violation depends on the rule and the dialect:

fatal   the official client ends the run with an error
silent  the client continues, at most with a warning; something is lost or changed, or the result is undefined
style   nothing is lost, but the order of events is not the one that this package writes

The dialects: `1.0` is the behaviour of client 1.0.0; `0.x` is accepted by every client from 0.0.45 to 1.0.0; `thinking`
by 0.0.39; `proposal` is the proposal of 2025, and 0.x where it defines nothing. A stream of several runs is read as one
thread. Messages do not quote the content of fields.

Chunks are expanded as `@ag-ui/client` 1.0.0 does (chunks/transform.ts): each agent (a subagent, or the main agent) has
one message or call open at a time. For the proposal, its own rules apply. `ChunkExpander` works on JSON objects and
shares no code with the `Expander` of the gateway, so that one can be tested against the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, get_args

import msgspec

from ...framing import SSEDecoder
from . import event_schema as s
from .dialects import DialectName
from .sequence import RULES, Breach, SequenceVerifier, Severity

_CHUNK_EVENTS = {
    "TEXT_MESSAGE_CHUNK": ("messageId", "TEXT_MESSAGE", "CONTENT", ("role", "name")),
    "TOOL_CALL_CHUNK": ("toolCallId", "TOOL_CALL", "ARGS", ("toolCallName", "parentMessageId")),
    "REASONING_MESSAGE_CHUNK": ("messageId", "REASONING_MESSAGE", "CONTENT", ()),
}
_ENDS_NOTHING = {"RAW", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "REASONING_ENCRYPTED_VALUE", "SUBAGENT_STARTED"}
_ENDS_ALL = {"RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT"}


class BadChunk(Exception):
    """A chunk that belongs to no message or call, or contradicts the first chunk."""


class _OpenEntity(NamedTuple):
    """The message or call that one agent has open in chunks, with the fields of the first chunk."""

    chunk: str
    id: str
    first_fields: tuple[Any, ...]
    subagent_run_id: str | None


class ChunkExpander:
    """Replaces chunk events by start, content and end events, on JSON objects."""

    def __init__(self, is_proposal: bool) -> None:
        self._is_proposal = is_proposal
        self._open_entities: dict[str | None, _OpenEntity] = {}

    def expand(self, event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the event without chunks, after the end events that it causes.

        Raises:
            BadChunk: A chunk belongs to nothing, or contradicts the first chunk.
        """
        return self._expand_chunk(event) if event["type"] in _CHUNK_EVENTS else [*self._ends_before(event), event]

    def is_open(self, id: str) -> bool:
        """Return whether a message or call with this id is open in chunks."""
        return any(entity.id == id for entity in self._open_entities.values())

    def _ends_before(self, event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the end events of what is open in chunks and ends at this event."""
        event_type, owner = event["type"], event.get("subagentRunId")
        ends: list[Mapping[str, Any]] = []
        for agent, entity in list(self._open_entities.items()):
            if self._is_proposal and entity.chunk == "REASONING_MESSAGE_CHUNK":
                closes = not event_type.startswith("REASONING_")
            else:
                closes = event_type in _ENDS_ALL or (event_type not in _ENDS_NOTHING and agent == owner)
            ends += self._end_entity(agent) if closes else []
        return ends

    def _end_entity(self, agent: str | None) -> list[Mapping[str, Any]]:
        entity = self._open_entities.pop(agent, None)
        if entity is None:
            return []
        key, base, _, _ = _CHUNK_EVENTS[entity.chunk]
        return [{"type": f"{base}_END", key: entity.id, **_subagent_field(entity.subagent_run_id)}]

    def _expand_chunk(self, event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the events that a chunk stands for."""
        chunk: str = event["type"]
        key, base, delta_suffix, repeated = _CHUNK_EVENTS[chunk]
        id, delta = event.get(key), event.get("delta")
        agent = self._agent_of(chunk, id, event.get("subagentRunId"))
        entity = self._open_entities.get(agent)
        out: list[Mapping[str, Any]] = []
        if entity is not None and entity.chunk == chunk and id in (None, entity.id):
            for name, expected in zip(repeated, entity.first_fields, strict=True):
                if event.get(name, expected) != expected:
                    raise BadChunk(f"{chunk}: its {name} differs from that of the first chunk")
        else:
            out += self._end_entity(agent)
            for name in (key, "toolCallName") if chunk == "TOOL_CALL_CHUNK" else (key,):
                if event.get(name) is None:
                    raise BadChunk(f"{chunk}: the first one needs a {name}")
            assert isinstance(id, str)
            expected = tuple(event.get(name, "assistant" if name == "role" else None) for name in repeated)
            entity = self._open_entities[agent] = _OpenEntity(chunk, id, expected, event.get("subagentRunId"))
            start = {name: event[name] for name in (*repeated, "subagentRunId") if name in event}
            out.append({**start, "type": f"{base}_START", key: id})
        if self._is_proposal and chunk == "REASONING_MESSAGE_CHUNK" and not delta:
            # An empty chunk ends the message; it is not an empty delta.
            return out + self._end_entity(agent) if delta == "" or not out else out
        if delta is not None or event.get("rawEvent") is not None or (not out and event.get("metadata") is not None):
            owner = event.get("subagentRunId", entity.subagent_run_id)
            out.append(
                {"type": f"{base}_{delta_suffix}", key: entity.id, "delta": delta or "", **_subagent_field(owner)}
            )
        return out

    def _agent_of(self, chunk: str, id: str | None, subagent_run_id: str | None) -> str | None:
        if id is not None:
            for agent, entity in self._open_entities.items():
                if (entity.chunk, entity.id) == (chunk, id):
                    if subagent_run_id not in (None, agent):
                        raise BadChunk(f"{chunk}: another subagent has this open")
                    return agent
            return subagent_run_id
        if subagent_run_id is not None:
            return subagent_run_id
        agents = [agent for agent, entity in self._open_entities.items() if entity.chunk == chunk]
        if None in agents or not agents:
            return None
        if len(agents) > 1:
            raise BadChunk(f"{chunk}: several are open, and it names neither an id nor a subagent")
        return agents[0]


def _subagent_field(subagent_run_id: str | None) -> dict[str, Any]:
    return {} if subagent_run_id is None else {"subagentRunId": subagent_run_id}


_SEVERITIES: tuple[Severity, ...] = get_args(Severity)


class Violation(msgspec.Struct, frozen=True):
    """An event that breaks a rule."""

    index: int
    """The index of the event, from 0. At the end of the stream, the number of events."""
    rule: str
    severity: Severity
    message: str

    def __str__(self) -> str:
        return f"event {self.index}: {self.rule} ({self.severity}): {self.message}"


def _gravity(violation: Violation) -> int:
    return _SEVERITIES.index(violation.severity)


def verify_stream(stream: bytes, dialect: Any) -> list[str]:
    """Return all violations in the bytes of a stream, each with the statement of its rule; the gravest come first."""
    verifier, framing = Verifier(dialect), []
    violations: list[Violation] = []
    for name, data in SSEDecoder(max_bytes=len(stream) + 1).feed(stream):
        if name:
            framing.append(f"framing: an event with the name {name}")
        try:
            event = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            event = None
        violations += verifier.feed(event)
    violations += verifier.end()
    violations.sort(key=_gravity)
    return framing + [f"{violation} ({RULES[violation.rule].statement})" for violation in violations]


class _DialectRules(NamedTuple):
    """The rules of a dialect."""

    schema: s.EventSchema
    unknown_type_severity: Severity = "fatal"
    """The severity of an event of an unknown type."""
    allows_run_after_error: bool = False
    """Whether a run may follow one that failed."""
    empty_delta_severity: Severity = "fatal"
    is_proposal: bool = False


_DIALECTS: dict[str, _DialectRules] = {
    "1.0": _DialectRules(s.EventSchema(s.EVENTS, s.OBJECTS, s.UNIONS, "removed"), "silent", True, "style"),
    "0.x": _DialectRules(s.EventSchema(s.OLD_EVENTS, s.OLD_OBJECTS, s.OLD_UNIONS, "refused")),
    "thinking": _DialectRules(s.EventSchema(s.OLDEST_EVENTS, s.OLD_OBJECTS, s.OLDEST_UNIONS, "refused")),
    "proposal": _DialectRules(
        s.EventSchema(s.PROPOSED_EVENTS, s.OLD_OBJECTS, s.PROPOSED_UNIONS, "refused"), is_proposal=True
    ),
}


def verify(events: Iterable[Any], dialect: DialectName = "1.0", least: Severity = "style") -> Violation | None:
    """Return the first violation in a stream; None if there is none.

    Args:
        events: The events: JSON objects, or what msgspec or Pydantic can convert to one.
        dialect: The dialect of the stream.
        least: The lowest severity to report.
    """
    verifier = Verifier(dialect)
    severities = _SEVERITIES[: _SEVERITIES.index(least) + 1]
    violations = (violation for event in events for violation in verifier.feed(event))
    first = next((violation for violation in violations if violation.severity in severities), None)
    return first or next((violation for violation in verifier.end() if violation.severity in severities), None)


class Verifier:
    """Verifies one stream, event by event. After a fatal violation it reports nothing, as a client would have left.

    Raises:
        ValueError: There is no such dialect.
    """

    def __init__(self, dialect: DialectName = "1.0") -> None:
        if dialect not in _DIALECTS:
            raise ValueError(f"there is no dialect {dialect!r}; there are {', '.join(_DIALECTS)}")
        self._rules = _DIALECTS[dialect]
        self._index = 0
        self._has_failed = False
        self._chunk_expander = ChunkExpander(self._rules.is_proposal)
        self._sequence = SequenceVerifier(self._rules.allows_run_after_error, self._rules.empty_delta_severity)

    def feed(self, event: Any) -> list[Violation]:
        """Return the violations of the next event, the gravest first."""
        return self._violations(self._breaches(event))

    def end(self) -> list[Violation]:
        """Return the violations at the end of the stream."""
        return self._violations(self._sequence.end())

    def _violations(self, breaches: Iterator[Breach]) -> list[Violation]:
        violations: list[Violation] = []
        if not self._has_failed:
            for rule, severity, message in breaches:
                violations.append(Violation(self._index, rule, severity, message))
                if severity == "fatal":
                    self._has_failed = True
                    break
            self._index += 1
        return sorted(violations, key=_gravity)

    def _breaches(self, event: Any) -> Iterator[Breach]:
        fields = _as_object(event)
        kind = fields.get("type") if fields is not None else None
        if fields is None or not isinstance(kind, str) or not kind:
            yield "event", "fatal", "it is not a JSON object with a type"
            return
        if kind in s.THINKING_EVENTS and self._rules.unknown_type_severity == "silent":
            yield "retired", "silent", f"{kind} is translated; the result is not verified"
            return
        if kind not in self._rules.schema.event_types:
            yield "type", self._rules.unknown_type_severity, "the dialect has no such event"
            return
        flaws = self._rules.schema.flaws(fields)
        for rule, message in flaws:
            yield rule, "fatal" if rule == "fields" else "silent", f"{kind}: {message}"
        clean = {name: value for name, value in fields.items() if value is not None} if flaws else fields
        try:
            expanded = self._chunk_expander.expand(clean)
        except BadChunk as error:
            yield "chunk", "fatal", str(error)
            return
        for one in expanded:
            # A message in chunks has no end event, so its encrypted value follows the last chunk.
            ended = one["type"] != "REASONING_ENCRYPTED_VALUE" or not self._chunk_expander.is_open(one["entityId"])
            yield from (breach for breach in self._sequence.feed(one) if ended or breach[0] != "order")


def _as_object(event: Any) -> Mapping[str, Any] | None:
    if not isinstance(event, Mapping):
        dump = getattr(event, "model_dump", None)
        try:
            event = dump(mode="json", by_alias=True) if dump is not None else msgspec.to_builtins(event)
        except TypeError:
            return None
    return event if isinstance(event, Mapping) else None
