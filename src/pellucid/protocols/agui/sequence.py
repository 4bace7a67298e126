"""The order of events, for the verifier: runs, what is open in them, and what a client's messages come to.

It is fed events without chunks whose fields are right. What 1.0's client verifies (verify.ts) and what it makes of ids
and values (apply/default.ts) is followed here; where older clients differ, the dialect says so.

The rules that a sequence of AG-UI events keeps, by name: what each says, and where it is from.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from .messages import PROTOCOL_VERSION
from .shapes import ROLES

Severity = Literal["fatal", "silent", "style"]
Breach = tuple[str, Severity, str]
"""The rule's name, how grave it is here, and what is wrong."""


class Rule(NamedTuple):
    told: str
    source: str


_CLIENT = "@ag-ui/client 1.0.0"

RULES: dict[str, Rule] = {
    "event": Rule("an event is a JSON object with a type", f"{_CLIENT}, transform/http.ts"),
    "type": Rule("the dialect has events of this type", f"{_CLIENT}, enforce.ts; older: the schema of @ag-ui/core"),
    "fields": Rule("an event has the fields that its type needs, of the right kind, and no nulls", "schema.json 1.0"),
    "unknown": Rule("it has no others: they are removed on the way", f"{_CLIENT}, enforce/strip.ts"),
    "retired": Rule("no shape that clients translate for now", f"{_CLIENT}, middleware/compatibility-boundary.ts"),
    "start": Rule("a run begins with RUN_STARTED, and not while another runs", f"{_CLIENT}, verify.ts"),
    "terminal": Rule("after the end of a run comes at most the next", f"{_CLIENT}, verify.ts"),
    "truncated": Rule("a run ends with RUN_FINISHED or RUN_ERROR", "AG-UI's conformance streams"),
    "version": Rule("the version that RUN_STARTED says it speaks is one that clients know", f"{_CLIENT}, agent.ts"),
    "run": Rule("RUN_FINISHED names its own run and thread; a stream is one thread", "AG-UI's conformance streams"),
    "reopened": Rule("what is open is not started again", f"{_CLIENT}, verify.ts"),
    "unopened": Rule("only what is open goes on or ends", f"{_CLIENT}, verify.ts"),
    "unclosed": Rule("nothing is open when the run finishes", f"{_CLIENT}, verify.ts"),
    "owner": Rule("a subagentRunId is that of whoever started it", f"{_CLIENT}, verify.ts"),
    "subagent": Rule("a subagent starts once, after its parent, and ends once", f"{_CLIENT}, verify.ts"),
    "chunk": Rule(
        "the first chunk of something has its id (and a call's name), later ones agree", "chunks/transform.ts"
    ),
    "ids": Rule(
        "no two messages or calls of a thread have one id: they would be merged", f"{_CLIENT}, apply/default.ts"
    ),
    "anchor": Rule("an encrypted value comes after what it belongs to was started", f"{_CLIENT}, apply/default.ts"),
    "value": Rule("a message or call gets one encrypted value: a second replaces it", f"{_CLIENT}, apply/default.ts"),
    "snapshot": Rule(
        "a MESSAGES_SNAPSHOT with any reasoning has all of it, and every encrypted value again",
        f"{_CLIENT}, apply/default.ts",
    ),
    "interrupt": Rule("no two interrupts have one id", "AG-UI's conformance streams"),
    "activity": Rule("ACTIVITY_DELTA is of an activity that there is", f"{_CLIENT}, apply/default.ts"),
    "empty": Rule("no delta is empty", "the proposal; @ag-ui/core 0.0.45"),
    "order": Rule("reasoning ends as message, encrypted value, span, and then comes something else", "this package"),
}


_Owner = str | None
"""None is the agent itself."""


class _Kind(NamedTuple):
    """Something that is started and ended."""

    name: str
    id: str
    owners: str
    """Whose ids it shares, as far as owners go."""


_TEXT = _Kind("text message", "messageId", "message")
_CALL = _Kind("tool call", "toolCallId", "call")
_THOUGHT = _Kind("reasoning message", "messageId", "reasoning")
_SPAN = _Kind("reasoning span", "messageId", "reasoning")
_THINKING = _Kind("thinking message", "", "")
_STEP = _Kind("thinking", "", "")

_START = {
    "TEXT_MESSAGE_START": _TEXT,
    "TOOL_CALL_START": _CALL,
    "REASONING_MESSAGE_START": _THOUGHT,
    "REASONING_START": _SPAN,
    "THINKING_START": _STEP,
    "THINKING_TEXT_MESSAGE_START": _THINKING,
}
_GO_ON = {
    "TEXT_MESSAGE_CONTENT": _TEXT,
    "TOOL_CALL_ARGS": _CALL,
    "REASONING_MESSAGE_CONTENT": _THOUGHT,
    "THINKING_TEXT_MESSAGE_CONTENT": _THINKING,
}
_END = {
    "TEXT_MESSAGE_END": _TEXT,
    "TOOL_CALL_END": _CALL,
    "REASONING_MESSAGE_END": _THOUGHT,
    "REASONING_END": _SPAN,
    "THINKING_END": _STEP,
    "THINKING_TEXT_MESSAGE_END": _THINKING,
}


class _Run:
    """What is known of a run."""

    def __init__(self, event: Mapping[str, Any]) -> None:
        self.ids = (event.get("threadId"), event.get("runId"))
        self.open: dict[_Kind, dict[str, _Owner]] = {}
        self.steps: set[tuple[_Owner, str]] = set()
        self.owners: dict[tuple[str, str], _Owner] = {}
        self.subagents: dict[str, bool] = {}
        """Whether it is active."""

    def opened(self, kind: _Kind) -> dict[str, _Owner]:
        return self.open.setdefault(kind, {})


class Sequence:
    """The runs of one thread. `after_error`: a run may follow one that failed; `empty`: how grave an empty delta is."""

    def __init__(self, after_error: bool, empty: Severity) -> None:
        self._after_error, self._empty = after_error, empty
        self._run: _Run | None = None
        self._state: Literal["new", "running", "finished", "failed"] = "new"
        self._name: str | None = None
        self._kinds: dict[str, str] = {}
        """What each id of a message names: its role; `""` for a message that a call made."""
        self._calls: set[str] = set()
        self._values: set[tuple[str, str]] = set()
        self._spans: dict[str, str] = {}
        """The last span that was open when a reasoning message began."""

    def end(self) -> Iterator[Breach]:
        if self._state in ("new", "running"):
            yield "truncated", "silent", "the stream stops before the run has ended"

    def feed(self, event: Mapping[str, Any]) -> Iterator[Breach]:
        kind: str = event["type"]
        if self._state == "failed" and not (kind == "RUN_STARTED" and self._after_error):
            yield "terminal", "fatal", f"{kind} after RUN_ERROR"
        elif self._state == "finished" and kind not in ("RUN_STARTED", "RUN_ERROR"):
            yield "terminal", "fatal", f"{kind} after RUN_FINISHED"
        elif self._state == "new" and kind not in ("RUN_STARTED", "RUN_ERROR"):
            yield "start", "fatal", f"the stream begins with {kind}"
        elif kind == "RUN_STARTED":
            yield from self._started(event)
        elif kind == "RUN_ERROR":
            self._state = "failed"
        elif self._run is not None:
            yield from self._inside(self._run, kind, event)

    def _started(self, event: Mapping[str, Any]) -> Iterator[Breach]:
        if self._state == "running":
            yield "start", "fatal", "RUN_STARTED while a run is active"
            return
        self._state, self._run = "running", _Run(event)
        if event.get("protocolVersion", PROTOCOL_VERSION) != PROTOCOL_VERSION:
            yield "version", "silent", f"RUN_STARTED: protocolVersion is not {PROTOCOL_VERSION}"
        if self._name not in (None, event["threadId"]):
            yield "run", "silent", "a run of another thread in the same stream"
        self._name = event["threadId"]
        for message in _known((event.get("input") or {}).get("messages") or []):
            self._learn(self._run, message, replaces=False)

    def _finished(self, run: _Run, event: Mapping[str, Any]) -> Iterator[Breach]:
        for kind, ids in run.open.items():
            if ids and kind not in (_THINKING, _STEP):
                yield "unclosed", "fatal", f"RUN_FINISHED while a {kind.name} is open"
            elif ids:
                yield "unclosed", "silent", f"RUN_FINISHED while {kind.name} is open"
        if run.steps:
            yield "unclosed", "fatal", "RUN_FINISHED while a step is open"
        if any(run.subagents.values()):
            yield "unclosed", "fatal", "RUN_FINISHED while a subagent is active"
        if (event["threadId"], event["runId"]) != run.ids:
            yield "run", "silent", "RUN_FINISHED names another run or thread than RUN_STARTED"
        waits = [one.get("id") for one in (event.get("outcome") or {}).get("interrupts") or []]
        if len(set(waits)) < len(waits):
            yield "interrupt", "silent", "two interrupts have the same id"
        self._state = "finished"

    # --- within a run ------------------------------------------------------------------------------------------

    def _inside(self, run: _Run, kind: str, event: Mapping[str, Any]) -> Iterator[Breach]:
        if kind in _START:
            yield from self._start(run, kind, event)
        elif kind in _GO_ON or kind in _END:
            yield from self._going(run, kind, event)
        elif kind == "RUN_FINISHED":
            yield from self._finished(run, event)
        elif kind in ("STEP_STARTED", "STEP_FINISHED"):
            step = (event.get("subagentRunId"), event["stepName"])
            if (step in run.steps) == (kind == "STEP_STARTED"):
                rule = "reopened" if kind == "STEP_STARTED" else "unopened"
                yield rule, "fatal", f"{kind}: the step is {'' if step in run.steps else 'not '}open for this agent"
            run.steps ^= {step}
        elif kind.startswith("SUBAGENT_"):
            yield from self._subagent(run, kind, event)
        elif kind == "REASONING_ENCRYPTED_VALUE":
            yield from self._value(run, event)
        elif kind == "MESSAGES_SNAPSHOT":
            yield from self._snapshot(run, _known(event["messages"]))
        elif kind == "TOOL_CALL_RESULT":
            yield from self._named(event["messageId"], "tool", kind)
        elif kind == "ACTIVITY_SNAPSHOT":
            if self._kinds.get(event["messageId"]) != "activity":
                yield from self._named(event["messageId"], "activity", kind)
            run.owners["activity", event["messageId"]] = event.get("subagentRunId")
        elif kind == "ACTIVITY_DELTA":
            if self._kinds.get(event["messageId"]) != "activity":
                yield "activity", "silent", "ACTIVITY_DELTA without an activity of this id"
            yield from self._owner(run, "activity", event["messageId"], kind, event)

    def _start(self, run: _Run, type: str, event: Mapping[str, Any]) -> Iterator[Breach]:
        kind, owner = _START[type], event.get("subagentRunId")
        id = event.get(kind.id, "")
        opened = run.opened(kind)
        if id in opened:
            yield "reopened", "fatal", f"{type}: there is an open {kind.name} with this id"
        if kind is _THINKING and not run.opened(_STEP):
            yield "unopened", "fatal", f"{type} without THINKING_START"
        if kind in (_THINKING, _STEP):
            opened[id] = None
            return
        if kind is _CALL:
            owner = yield from self._call(run, event)
        yield from self._owner(run, kind.owners, id, type, event)
        run.owners.setdefault((kind.owners, id), owner)
        opened[id] = owner
        if kind is _THOUGHT:
            yield from self._named(id, "reasoning", type)
            self._spans[id] = next((span for span, whose in run.opened(_SPAN).items() if whose == owner), "")
        elif kind is _TEXT and self._kinds.get(id) == "" and event.get("role", "assistant") == "assistant":
            self._kinds[id] = "assistant"
        elif kind is _TEXT:
            yield from self._named(id, event.get("role", "assistant"), type)
        if kind in (_TEXT, _CALL) and self._thinks(run, owner):
            yield "order", "style", f"{type} while reasoning is open"

    def _call(self, run: _Run, event: Mapping[str, Any]) -> Generator[Breach, None, _Owner]:
        """Gives the owner: a call is its message's."""
        id, parent, tag = event["toolCallId"], event.get("parentMessageId"), event.get("subagentRunId")
        mine = run.owners.get(("message", parent)) if parent is not None else None
        inherits = parent is not None and ("message", parent) in run.owners
        if inherits and tag not in (None, mine):
            yield "owner", "fatal", "TOOL_CALL_START: its message is of another subagent"
        before = ("call", id)
        if inherits and tag is None and before in run.owners and run.owners[before] != mine:
            yield "owner", "fatal", "TOOL_CALL_START: the call was of another subagent"
        if id in self._calls:
            yield "ids", "silent", "TOOL_CALL_START: there is a call with this id already"
        else:
            self._calls.add(id)
            holder = self._kinds.get(parent) if parent else None
            if holder not in (None, "", "assistant"):
                yield "ids", "silent", "TOOL_CALL_START: parentMessageId names a message that is not the assistant's"
            if not parent or holder not in (None, "", "assistant"):
                yield from self._named(id, "", "TOOL_CALL_START")
            elif holder is None:
                self._kinds[parent] = ""
        return tag if tag is not None or not inherits else mine

    def _going(self, run: _Run, type: str, event: Mapping[str, Any]) -> Iterator[Breach]:
        kind = _GO_ON.get(type) or _END[type]
        id = event.get(kind.id, "")
        opened = run.opened(kind)
        if id not in opened:
            yield "unopened", "fatal", f"{type}: there is no open {kind.name}{' with this id' if kind.id else ''}"
            return
        if kind.id:
            yield from self._owner(run, kind.owners, id, type, event)
        if event.get("delta") == "":
            yield "empty", "style" if kind is _CALL else self._empty, f"{type}: the delta is empty"
        if type in _END:
            if kind is _SPAN and any(self._spans.get(one) == id for one in run.opened(_THOUGHT)):
                yield "order", "style", "REASONING_END while a message of it is open"
            del opened[id]

    def _value(self, run: _Run, event: Mapping[str, Any]) -> Iterator[Breach]:
        call, id = event["subtype"] == "tool-call", event["entityId"]
        owners = ("call",) if call else ("message", "reasoning")
        bucket = next((one for one in owners if (one, id) in run.owners), owners[0])
        yield from self._owner(run, bucket, id, "REASONING_ENCRYPTED_VALUE", event)
        if not (id in self._calls if call else self._kinds.get(id, "activity") != "activity"):
            what = "call" if call else "message"
            yield "anchor", "silent", f"REASONING_ENCRYPTED_VALUE: no {what} with the id entityId was started"
            return
        if (event["subtype"], id) in self._values:
            yield "value", "silent", "REASONING_ENCRYPTED_VALUE: this entity has a value already"
        self._values.add((event["subtype"], id))
        if not call and id in run.opened(_THOUGHT):
            yield "order", "style", "REASONING_ENCRYPTED_VALUE before the end of its message"
        elif not call and (span := self._spans.get(id)) and span not in run.opened(_SPAN):
            yield "order", "style", "REASONING_ENCRYPTED_VALUE after the end of its span"

    def _snapshot(self, run: _Run, messages: list[Mapping[str, Any]]) -> Iterator[Breach]:
        there = {message["id"]: message for message in messages}
        if len(there) < len(messages):
            yield "ids", "silent", "MESSAGES_SNAPSHOT: two messages have the same id"
        calls = {call["id"]: call for one in messages for call in one.get("toolCalls") or []}
        keeps = {
            role for role in ("reasoning", "activity") if not any(message.get("role") == role for message in messages)
        }
        gone = [id for id, kind in self._kinds.items() if id not in there and kind not in keeps]
        if any(self._kinds[id] == "reasoning" for id in gone):
            yield "snapshot", "silent", "MESSAGES_SNAPSHOT: it has reasoning, but not all of it"
        for subtype, id in sorted(self._values):
            entity = (calls if subtype == "tool-call" else there).get(id)
            if entity is not None and not (entity.get("encryptedValue") or entity.get("encryptedContent")):
                yield "snapshot", "silent", "MESSAGES_SNAPSHOT: an encrypted value is not repeated"
        for kind in (_TEXT, _THOUGHT, _CALL):
            if any(id not in calls if kind is _CALL else id in gone for id in run.opened(kind)):
                yield "snapshot", "silent", f"MESSAGES_SNAPSHOT: it drops an open {kind.name}"
        for id in gone:
            del self._kinds[id]
        self._calls = set(calls)
        for message in messages:
            self._learn(run, message, replaces=True)

    def _learn(self, run: _Run, message: Mapping[str, Any], replaces: bool) -> None:
        """A message that was not streamed."""
        id, role, owner = message["id"], message["role"], message.get("subagentRunId")
        self._kinds[id] = role if replaces else self._kinds.get(id, role)
        bucket = role if role in ("reasoning", "activity") else "message"
        entities = [(bucket, id), *(("call", call["id"]) for call in message.get("toolCalls") or [])]
        for entity in entities:
            if replaces or entity not in run.owners:
                run.owners[entity] = owner
        self._calls |= {id for bucket, id in entities if bucket == "call"}

    def _named(self, id: str, kind: str, type: str) -> Iterator[Breach]:
        if id in self._kinds:
            yield "ids", "silent", f"{type}: a message of this thread has this id already"
        else:
            self._kinds[id] = kind

    def _owner(self, run: _Run, bucket: str, id: str, type: str, event: Mapping[str, Any]) -> Iterator[Breach]:
        tag = event.get("subagentRunId")
        if tag is not None and (bucket, id) in run.owners and run.owners[bucket, id] != tag:
            yield "owner", "fatal", f"{type}: it is of another subagent"

    def _thinks(self, run: _Run, owner: _Owner) -> bool:
        return any(owner in run.opened(kind).values() for kind in (_THOUGHT, _SPAN, _THINKING, _STEP))

    def _subagent(self, run: _Run, kind: str, event: Mapping[str, Any]) -> Iterator[Breach]:
        id, parent = event["subagentRunId"], event.get("parentSubagentRunId")
        if kind == "SUBAGENT_STARTED":
            if id in run.subagents:
                yield "subagent", "fatal", "SUBAGENT_STARTED: it has started already"
            if parent is not None and parent not in run.subagents:
                yield "subagent", "fatal", "SUBAGENT_STARTED: its parent has not started"
        elif not run.subagents.get(id):
            yield "subagent", "fatal", f"{kind}: it is not active"
        run.subagents[id] = kind == "SUBAGENT_STARTED"


def _known(messages: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Without those that the client removed."""
    return [message for message in messages if message.get("role") in ROLES]
