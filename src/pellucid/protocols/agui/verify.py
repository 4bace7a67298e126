"""Whether a sequence of AG-UI events is legal in a dialect, and which rule the first illegal one breaks.

    violation = verify(events)                       # None, or its index, rule, severity and what is wrong
    verifier = Verifier("0.x"); verifier.feed(event); …; verifier.end()      # while they come

`STRUCT_REDACTORS` names every rule. How grave a breach is depends on the rule and the dialect:

fatal   the official client ends the run with an error
silent  it goes on, at most with a warning, and something is lost, changed, or left to luck
style   nothing is lost; the order that this package keeps, and that readers may expect, is another

The dialects: `1.0` is what client 1.0.0 does; `0.x` what every client from 0.0.45 to 1.0.0 takes; `thinking` what
0.0.39 takes; `proposal` what the proposal of 2025 says, where it says something, and 0.x elsewhere. Streams of several
runs are read as one thread. What stands in fields is never told.

Chunks, for the verifier: which events a chunk stands for, and which an event closes that comes after chunks.

As `@ag-ui/client` 1.0.0 has it (chunks/transform.ts): each agent (a subagent, or the one without a name) has one thing
open at a time; or, for the dialect of the proposal, as that says. It works on the bare objects, and shares nothing with
the classes that the gateway itself expands chunks with, so that the one can be held against the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, get_args

import msgspec

from . import shapes as s
from .dialects import DialectName
from .sequence import Breach, Sequence, Severity

_CHUNK = {
    "TEXT_MESSAGE_CHUNK": ("messageId", "TEXT_MESSAGE", "CONTENT", ("role", "name")),
    "TOOL_CALL_CHUNK": ("toolCallId", "TOOL_CALL", "ARGS", ("toolCallName", "parentMessageId")),
    "REASONING_MESSAGE_CHUNK": ("messageId", "REASONING_MESSAGE", "CONTENT", ()),
}
_PASS_CHUNKS = {"RAW", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "REASONING_ENCRYPTED_VALUE", "SUBAGENT_STARTED"}
_CLOSE_ALL = {"RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT"}


class Broken(Exception):
    """A chunk that belongs to nothing, or disagrees with what it belongs to."""


class _Lane(NamedTuple):
    """What one agent has open in chunks, and what its first chunk said."""

    chunk: str
    id: str
    said: tuple[Any, ...]
    owner: str | None


class Lanes:
    def __init__(self, proposed: bool) -> None:
        self._proposed = proposed
        self._lanes: dict[str | None, _Lane] = {}

    def whole(self, event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The event without chunks, and what it closes before it. Raises `Broken`."""
        return self._expanded(event) if event["type"] in _CHUNK else [*self._closed(event), event]

    def holds(self, id: str) -> bool:
        """Whether this is open in chunks."""
        return any(lane.id == id for lane in self._lanes.values())

    def _closed(self, event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The ends of what chunks have open and this event closes."""
        kind, owner = event["type"], event.get("subagentRunId")
        ends: list[Mapping[str, Any]] = []
        for at, lane in list(self._lanes.items()):
            if self._proposed and lane.chunk == "REASONING_MESSAGE_CHUNK":
                closes = not kind.startswith("REASONING_")
            else:
                closes = kind in _CLOSE_ALL or (kind not in _PASS_CHUNKS and at == owner)
            ends += self._close(at) if closes else []
        return ends

    def _close(self, owner: str | None) -> list[Mapping[str, Any]]:
        lane = self._lanes.pop(owner, None)
        if lane is None:
            return []
        key, base, _, _ = _CHUNK[lane.chunk]
        return [{"type": f"{base}_END", key: lane.id, **_owned(lane.owner)}]

    def _expanded(self, event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The chunk as the events that it stands for."""
        chunk: str = event["type"]
        key, base, more, repeated = _CHUNK[chunk]
        id, delta = event.get(key), event.get("delta")
        at = self._lane_of(chunk, id, event.get("subagentRunId"))
        lane = self._lanes.get(at)
        out: list[Mapping[str, Any]] = []
        if lane is not None and lane.chunk == chunk and id in (None, lane.id):
            for name, said in zip(repeated, lane.said, strict=True):
                if event.get(name, said) != said:
                    raise Broken(f"{chunk}: its {name} is not that of the first chunk")
        else:
            out += self._close(at)
            for name in (key, "toolCallName") if chunk == "TOOL_CALL_CHUNK" else (key,):
                if event.get(name) is None:
                    raise Broken(f"{chunk}: the first one needs a {name}")
            assert isinstance(id, str)
            said = tuple(event.get(name, "assistant" if name == "role" else None) for name in repeated)
            lane = self._lanes[at] = _Lane(chunk, id, said, event.get("subagentRunId"))
            start = {name: event[name] for name in (*repeated, "subagentRunId") if name in event}
            out.append({**start, "type": f"{base}_NO_CHECKPOINT", key: id})
        if self._proposed and chunk == "REASONING_MESSAGE_CHUNK" and not delta:
            # An empty chunk closes; it is no empty delta.
            return out + self._close(at) if delta == "" or not out else out
        if delta is not None or event.get("rawEvent") is not None or (not out and event.get("metadata") is not None):
            owner = event.get("subagentRunId", lane.owner)
            out.append({"type": f"{base}_{more}", key: lane.id, "delta": delta or "", **_owned(owner)})
        return out

    def _lane_of(self, chunk: str, id: str | None, tag: str | None) -> str | None:
        if id is not None:
            for owner, lane in self._lanes.items():
                if (lane.chunk, lane.id) == (chunk, id):
                    if tag not in (None, owner):
                        raise Broken(f"{chunk}: another subagent has this open")
                    return owner
            return tag
        if tag is not None:
            return tag
        mine = [owner for owner, lane in self._lanes.items() if lane.chunk == chunk]
        if None in mine or not mine:
            return None
        if len(mine) > 1:
            raise Broken(f"{chunk}: several are open, and it names neither an id nor a subagent")
        return mine[0]


def _owned(owner: str | None) -> dict[str, Any]:
    return {} if owner is None else {"subagentRunId": owner}


_ORDER: tuple[Severity, ...] = get_args(Severity)


class Violation(msgspec.Struct, frozen=True):
    index: int
    """Which event: the first is 0. At the end of the stream, how many there were."""
    rule: str
    severity: Severity
    message: str

    def __str__(self) -> str:
        return f"event {self.index}: {self.rule} ({self.severity}): {self.message}"


class _Rules(NamedTuple):
    """What a dialect says otherwise."""

    shapes: s.Shapes
    strange: Severity = "fatal"
    """An event of an unknown type."""
    after_error: bool = False
    """Whether a run may follow one that failed."""
    empty: Severity = "fatal"
    proposed: bool = False


_DIALECTS: dict[str, _Rules] = {
    "1.0": _Rules(s.Shapes(s.EVENTS, s.ROWS, s.UNIONS, "removed"), "silent", True, "style"),
    "0.x": _Rules(s.Shapes(s.OLD_EVENTS, s.OLD_ROWS, s.OLD_UNIONS, "refused")),
    "thinking": _Rules(s.Shapes(s.OLDEST_EVENTS, s.OLD_ROWS, s.OLDEST_UNIONS, "refused")),
    "proposal": _Rules(s.Shapes(s.PROPOSED_EVENTS, s.OLD_ROWS, s.PROPOSED_UNIONS, "refused"), proposed=True),
}


def verify(events: Iterable[Any], dialect: DialectName = "1.0", least: Severity = "style") -> Violation | None:
    """The first violation that is at least as grave as `least`; None if there is none.

    An event is a JSON object, or anything that msgspec (or Pydantic) can turn into one.
    """
    verifier = Verifier(dialect)
    wanted = _ORDER[: _ORDER.index(least) + 1]
    found = (one for event in events for one in verifier.feed(event))
    first = next((one for one in found if one.severity in wanted), None)
    return first or next((one for one in verifier.end() if one.severity in wanted), None)


class Verifier:
    """One stream. After something fatal nothing more is said: the client has gone."""

    def __init__(self, dialect: DialectName = "1.0") -> None:
        if dialect not in _DIALECTS:
            raise ValueError(f"there is no dialect {dialect!r}; there are {', '.join(_DIALECTS)}")
        self._rules = _DIALECTS[dialect]
        self._index = 0
        self._dead = False
        self._lanes = Lanes(self._rules.proposed)
        self._sequence = Sequence(self._rules.after_error, self._rules.empty)

    def feed(self, event: Any) -> list[Violation]:
        """What is wrong with the next event, in no order of gravity."""
        return self._said(self._of(event))

    def end(self) -> list[Violation]:
        """What is wrong when nothing more comes."""
        return self._said(self._sequence.end())

    def _said(self, breaches: Iterator[Breach]) -> list[Violation]:
        found: list[Violation] = []
        if not self._dead:
            for rule, severity, message in breaches:
                found.append(Violation(self._index, rule, severity, message))
                if severity == "fatal":
                    self._dead = True
                    break
            self._index += 1
        return found

    def _of(self, event: Any) -> Iterator[Breach]:
        known = _as_object(event)
        kind = known.get("type") if known is not None else None
        if known is None or not isinstance(kind, str) or not kind:
            yield "event", "fatal", "it is not a JSON object with a type"
            return
        if kind in s.THINKING_EVENTS and self._rules.strange == "silent":
            yield "retired", "silent", f"{kind} is translated; what it stands for is not looked at"
            return
        if kind not in self._rules.shapes.types:
            yield "type", self._rules.strange, "no such event is known here"
            return
        flaws = self._rules.shapes.flaws(known)
        for rule, what in flaws:
            yield rule, "fatal" if rule == "fields" else "silent", f"{kind}: {what}"
        clean = {name: value for name, value in known.items() if value is not None} if flaws else known
        try:
            whole = self._lanes.whole(clean)
        except Broken as broken:
            yield "chunk", "fatal", str(broken)
            return
        for one in whole:
            # What comes in chunks has no end of its own, so what is sealed of it follows the last of them.
            ended = one["type"] != "REASONING_ENCRYPTED_VALUE" or not self._lanes.holds(one["entityId"])
            yield from (breach for breach in self._sequence.feed(one) if ended or breach[0] != "order")


def _as_object(event: Any) -> Mapping[str, Any] | None:
    if not isinstance(event, Mapping):
        dump = getattr(event, "model_dump", None)
        try:
            event = dump(mode="json", by_alias=True) if dump is not None else msgspec.to_builtins(event)
        except TypeError:
            return None
    return event if isinstance(event, Mapping) else None
