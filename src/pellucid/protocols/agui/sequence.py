"""Verify the order of events: runs, what is open in them, and the messages that a client builds.

`RULES` has the rules for a sequence of AG-UI events by name, with their sources. `SequenceVerifier` takes events with
valid fields and without chunks. It follows what client 1.0.0 verifies (verify.ts) and how it applies ids and values
(apply/default.ts). Where older clients differ, the dialect sets it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from ...emit import is_complete_json
from .event_schema import ROLES
from .messages import PROTOCOL_VERSION
from .metadata import METADATA_KEY

Severity = Literal["fatal", "silent", "style"]
Breach = tuple[str, Severity, str]
"""Name of the rule, severity in this dialect, and what is wrong."""


class Rule(NamedTuple):
    """A rule for sequences of events: what it requires, and its source."""

    statement: str
    source: str


_CLIENT = "@ag-ui/client 1.0.0"

RULES: dict[str, Rule] = {
    "event": Rule("an event is a JSON object with a type", f"{_CLIENT}, transform/http.ts"),
    "type": Rule("the dialect has events of this type", f"{_CLIENT}, enforce.ts; older: the schema of @ag-ui/core"),
    "fields": Rule("an event has the fields that its type needs, of the right kind, and no nulls", "schema.json 1.0"),
    "unknown": Rule("an event has no other fields: clients remove them", f"{_CLIENT}, enforce/strip.ts"),
    "retired": Rule(
        "no deprecated form, which clients still translate", f"{_CLIENT}, middleware/compatibility-boundary.ts"
    ),
    "start": Rule("a run begins with RUN_STARTED, and not while another runs", f"{_CLIENT}, verify.ts"),
    "terminal": Rule("only another run may follow the end of a run", f"{_CLIENT}, verify.ts"),
    "truncated": Rule("a run ends with RUN_FINISHED or RUN_ERROR", "AG-UI's conformance streams"),
    "version": Rule("RUN_STARTED has a protocolVersion that clients know", f"{_CLIENT}, agent.ts"),
    "run": Rule("RUN_FINISHED names its own run and thread; a stream is one thread", "AG-UI's conformance streams"),
    "reopened": Rule("what is open is not started again", f"{_CLIENT}, verify.ts"),
    "unopened": Rule("only what is open continues or ends", f"{_CLIENT}, verify.ts"),
    "unclosed": Rule("nothing is open when the run finishes", f"{_CLIENT}, verify.ts"),
    "owner": Rule("a subagentRunId is that of the agent that started the entity", f"{_CLIENT}, verify.ts"),
    "subagent": Rule("a subagent starts once, after its parent, and ends once", f"{_CLIENT}, verify.ts"),
    "chunk": Rule("a first chunk has an id (and a call's name), later chunks agree with it", "chunks/transform.ts"),
    "ids": Rule(
        "no two messages or calls of a thread have one id: they would be merged", f"{_CLIENT}, apply/default.ts"
    ),
    "anchor": Rule("an encrypted value comes after the start of its message or call", f"{_CLIENT}, apply/default.ts"),
    "value": Rule("a message or call gets one encrypted value: a second replaces it", f"{_CLIENT}, apply/default.ts"),
    "snapshot": Rule(
        "a MESSAGES_SNAPSHOT with any reasoning has all of it, and every encrypted value again",
        f"{_CLIENT}, apply/default.ts",
    ),
    "result": Rule(
        "a result belongs to a call that has ended, and that has no result yet; results of an earlier run's calls come "
        "before the model's first message",
        "the messages of a thread, for every provider",
    ),
    "arguments": Rule(
        "the arguments of a call are JSON, unless the run was cut off", "CopilotKit and front-end tools parse them"
    ),
    "interrupt": Rule("no two interrupts have one id", "AG-UI's conformance streams"),
    "activity": Rule("ACTIVITY_DELTA names an existing activity", f"{_CLIENT}, apply/default.ts"),
    "empty": Rule("no delta is empty", "the proposal; @ag-ui/core 0.0.45"),
    "order": Rule("reasoning ends in the order message, encrypted value, span, before anything else", "this package"),
}


_Owner = str | None
"""The subagent run id of an owner; None is the main agent."""


class _EntityKind(NamedTuple):
    """A kind of entity that is started and ended."""

    name: str
    id_field: str
    id_space: str
    """The space of ids in which owners are looked up; kinds with one space share ids."""


_TEXT = _EntityKind("text message", "messageId", "message")
_CALL = _EntityKind("tool call", "toolCallId", "call")
_THOUGHT = _EntityKind("reasoning message", "messageId", "reasoning")
_SPAN = _EntityKind("reasoning span", "messageId", "reasoning")
_THINKING = _EntityKind("thinking message", "", "")
_STEP = _EntityKind("thinking", "", "")

_STARTS = {
    "TEXT_MESSAGE_START": _TEXT,
    "TOOL_CALL_START": _CALL,
    "REASONING_MESSAGE_START": _THOUGHT,
    "REASONING_START": _SPAN,
    "THINKING_START": _STEP,
    "THINKING_TEXT_MESSAGE_START": _THINKING,
}
_DELTAS = {
    "TEXT_MESSAGE_CONTENT": _TEXT,
    "TOOL_CALL_ARGS": _CALL,
    "REASONING_MESSAGE_CONTENT": _THOUGHT,
    "THINKING_TEXT_MESSAGE_CONTENT": _THINKING,
}
_ENDS = {
    "TEXT_MESSAGE_END": _TEXT,
    "TOOL_CALL_END": _CALL,
    "REASONING_MESSAGE_END": _THOUGHT,
    "REASONING_END": _SPAN,
    "THINKING_END": _STEP,
    "THINKING_TEXT_MESSAGE_END": _THINKING,
}


class _RunState:
    """The state of one run: what is open, and who owns it."""

    def __init__(self, event: Mapping[str, Any]) -> None:
        self.ids = (event.get("threadId"), event.get("runId"))
        self.open: dict[_EntityKind, dict[str, _Owner]] = {}
        self.steps: set[tuple[_Owner, str]] = set()
        self.owners: dict[tuple[str, str], _Owner] = {}
        self.subagent_is_active: dict[str, bool] = {}
        """For each subagent that started, whether it is active."""
        self.has_content = False
        """Whether a message, a call or reasoning has started."""
        self.arguments: dict[str, list[str]] = {}
        """The deltas of each open call."""
        self.invalid_arguments: list[str] = []
        """Calls that have ended with arguments that are not JSON."""

    def open_of(self, kind: _EntityKind) -> dict[str, _Owner]:
        return self.open.setdefault(kind, {})


class SequenceVerifier:
    """Verifies the order of events of one thread.

    Args:
        allows_run_after_error: Whether a run may follow one that failed.
        empty_delta_severity: The severity of an empty delta.
    """

    def __init__(self, allows_run_after_error: bool, empty_delta_severity: Severity) -> None:
        self._allows_run_after_error, self._empty_delta_severity = allows_run_after_error, empty_delta_severity
        self._run: _RunState | None = None
        self._state: Literal["new", "running", "finished", "failed"] = "new"
        self._thread_id: str | None = None
        self._roles: dict[str, str] = {}
        """The role of each message by its id; `""` for a message that a call made."""
        self._call_ids: set[str] = set()
        """The calls that the client has."""
        self._started_calls: set[str] = set()
        """All calls of the thread, also those that a snapshot removed."""
        self._answered_calls: set[str] = set()
        self._valued_entities: set[tuple[str, str]] = set()
        self._span_of_message: dict[str, str] = {}
        """For each reasoning message, the span of its owner that was open when it began."""

    def end(self) -> Iterator[Breach]:
        if self._state in ("new", "running"):
            yield "truncated", "silent", "the stream stops before the run has ended"

    def feed(self, event: Mapping[str, Any]) -> Iterator[Breach]:
        event_type: str = event["type"]
        if self._state == "failed" and not (event_type == "RUN_STARTED" and self._allows_run_after_error):
            yield "terminal", "fatal", f"{event_type} after RUN_ERROR"
        elif self._state == "finished" and event_type not in ("RUN_STARTED", "RUN_ERROR"):
            yield "terminal", "fatal", f"{event_type} after RUN_FINISHED"
        elif self._state == "new" and event_type not in ("RUN_STARTED", "RUN_ERROR"):
            yield "start", "fatal", f"the stream begins with {event_type}"
        elif event_type == "RUN_STARTED":
            yield from self._run_started(event)
        elif event_type == "RUN_ERROR":
            self._state = "failed"
        elif self._run is not None:
            yield from self._within_run(self._run, event_type, event)

    def _run_started(self, event: Mapping[str, Any]) -> Iterator[Breach]:
        if self._state == "running":
            yield "start", "fatal", "RUN_STARTED while a run is active"
            return
        self._state, self._run = "running", _RunState(event)
        if event.get("protocolVersion", PROTOCOL_VERSION) != PROTOCOL_VERSION:
            yield "version", "silent", f"RUN_STARTED: protocolVersion is not {PROTOCOL_VERSION}"
        if self._thread_id not in (None, event["threadId"]):
            yield "run", "silent", "a run of another thread in the same stream"
        self._thread_id = event["threadId"]
        for message in _known_messages((event.get("input") or {}).get("messages") or []):
            self._add_message(self._run, message, replaces=False)

    def _run_finished(self, run: _RunState, event: Mapping[str, Any]) -> Iterator[Breach]:
        for kind, ids in run.open.items():
            if ids and kind not in (_THINKING, _STEP):
                yield "unclosed", "fatal", f"RUN_FINISHED while a {kind.name} is open"
            elif ids:
                yield "unclosed", "silent", f"RUN_FINISHED while {kind.name} is open"
        if run.steps:
            yield "unclosed", "fatal", "RUN_FINISHED while a step is open"
        if any(run.subagent_is_active.values()):
            yield "unclosed", "fatal", "RUN_FINISHED while a subagent is active"
        if (event["threadId"], event["runId"]) != run.ids:
            yield "run", "silent", "RUN_FINISHED names another run or thread than RUN_STARTED"
        interrupt_ids = [one.get("id") for one in (event.get("outcome") or {}).get("interrupts") or []]
        if len(set(interrupt_ids)) < len(interrupt_ids):
            yield "interrupt", "silent", "two interrupts have the same id"
        if run.invalid_arguments and not _was_cut(event):
            yield "arguments", "silent", "RUN_FINISHED: the arguments of a call are not JSON"
        self._state = "finished"

    # --- within a run ------------------------------------------------------------------------------------------

    def _within_run(self, run: _RunState, event_type: str, event: Mapping[str, Any]) -> Iterator[Breach]:
        if event_type in _STARTS:
            yield from self._entity_start(run, event_type, event)
        elif event_type in _DELTAS or event_type in _ENDS:
            yield from self._entity_progress(run, event_type, event)
        elif event_type == "RUN_FINISHED":
            yield from self._run_finished(run, event)
        elif event_type in ("STEP_STARTED", "STEP_FINISHED"):
            step = (event.get("subagentRunId"), event["stepName"])
            if (step in run.steps) == (event_type == "STEP_STARTED"):
                rule = "reopened" if event_type == "STEP_STARTED" else "unopened"
                yield (
                    rule,
                    "fatal",
                    f"{event_type}: the step is {'' if step in run.steps else 'not '}open for this agent",
                )
            run.steps ^= {step}
        elif event_type.startswith("SUBAGENT_"):
            yield from self._subagent(run, event_type, event)
        elif event_type == "REASONING_ENCRYPTED_VALUE":
            yield from self._encrypted_value(run, event)
        elif event_type == "MESSAGES_SNAPSHOT":
            yield from self._messages_snapshot(run, _known_messages(event["messages"]))
        elif event_type == "TOOL_CALL_RESULT":
            yield from self._add_id(event["messageId"], "tool", event_type)
            yield from self._tool_result(run, event["toolCallId"])
        elif event_type == "ACTIVITY_SNAPSHOT":
            if self._roles.get(event["messageId"]) != "activity":
                yield from self._add_id(event["messageId"], "activity", event_type)
            run.owners["activity", event["messageId"]] = event.get("subagentRunId")
        elif event_type == "ACTIVITY_DELTA":
            if self._roles.get(event["messageId"]) != "activity":
                yield "activity", "silent", "ACTIVITY_DELTA without an activity of this id"
            yield from self._check_owner(run, "activity", event["messageId"], event_type, event)

    def _entity_start(self, run: _RunState, event_type: str, event: Mapping[str, Any]) -> Iterator[Breach]:
        kind, owner = _STARTS[event_type], event.get("subagentRunId")
        id = event.get(kind.id_field, "")
        open_entities = run.open_of(kind)
        if id in open_entities:
            yield "reopened", "fatal", f"{event_type}: there is an open {kind.name} with this id"
        if kind is _THINKING and not run.open_of(_STEP):
            yield "unopened", "fatal", f"{event_type} without THINKING_START"
        if kind in (_THINKING, _STEP):
            open_entities[id] = None
            return
        if kind is _CALL:
            owner = yield from self._call_start(run, event)
        yield from self._check_owner(run, kind.id_space, id, event_type, event)
        run.owners.setdefault((kind.id_space, id), owner)
        open_entities[id] = owner
        run.has_content = True
        if kind is _THOUGHT:
            yield from self._add_id(id, "reasoning", event_type)
            self._span_of_message[id] = next(
                (span for span, span_owner in run.open_of(_SPAN).items() if span_owner == owner), ""
            )
        elif kind is _TEXT and self._roles.get(id) == "" and event.get("role", "assistant") == "assistant":
            self._roles[id] = "assistant"
        elif kind is _TEXT:
            yield from self._add_id(id, event.get("role", "assistant"), event_type)
        if kind in (_TEXT, _CALL) and self._is_reasoning(run, owner):
            yield "order", "style", f"{event_type} while reasoning is open"

    def _call_start(self, run: _RunState, event: Mapping[str, Any]) -> Generator[Breach, None, _Owner]:
        """Verify the start of a call; return its owner, which is that of its message."""
        id, parent, subagent_run_id = event["toolCallId"], event.get("parentMessageId"), event.get("subagentRunId")
        parent_owner = run.owners.get(("message", parent)) if parent is not None else None
        inherits = parent is not None and ("message", parent) in run.owners
        if inherits and subagent_run_id not in (None, parent_owner):
            yield "owner", "fatal", "TOOL_CALL_START: its message is of another subagent"
        entity = ("call", id)
        if inherits and subagent_run_id is None and entity in run.owners and run.owners[entity] != parent_owner:
            yield "owner", "fatal", "TOOL_CALL_START: the call was of another subagent"
        run.arguments[id] = []
        self._started_calls.add(id)
        if id in self._call_ids:
            yield "ids", "silent", "TOOL_CALL_START: there is a call with this id already"
        else:
            self._call_ids.add(id)
            parent_role = self._roles.get(parent) if parent else None
            if parent_role not in (None, "", "assistant"):
                yield "ids", "silent", "TOOL_CALL_START: parentMessageId names a message that is not the assistant's"
            if not parent or parent_role not in (None, "", "assistant"):
                yield from self._add_id(id, "", "TOOL_CALL_START")
            elif parent_role is None:
                self._roles[parent] = ""
        return subagent_run_id if subagent_run_id is not None or not inherits else parent_owner

    def _entity_progress(self, run: _RunState, event_type: str, event: Mapping[str, Any]) -> Iterator[Breach]:
        kind = _DELTAS.get(event_type) or _ENDS[event_type]
        id = event.get(kind.id_field, "")
        open_entities = run.open_of(kind)
        if id not in open_entities:
            yield (
                "unopened",
                "fatal",
                f"{event_type}: there is no open {kind.name}{' with this id' if kind.id_field else ''}",
            )
            return
        if kind.id_field:
            yield from self._check_owner(run, kind.id_space, id, event_type, event)
        if event.get("delta") == "":
            yield "empty", "style" if kind is _CALL else self._empty_delta_severity, f"{event_type}: the delta is empty"
        if kind is _CALL:
            self._call_progress(run, id, event.get("delta"))
        if event_type in _ENDS:
            if kind is _SPAN and any(self._span_of_message.get(one) == id for one in run.open_of(_THOUGHT)):
                yield "order", "style", "REASONING_END while a message of it is open"
            del open_entities[id]

    def _call_progress(self, run: _RunState, id: str, delta: str | None) -> None:
        """Record a delta of a call's arguments, or its end."""
        if delta is not None:
            run.arguments[id].append(delta)
        elif not is_complete_json("".join(run.arguments.pop(id)) or "{}"):
            run.invalid_arguments.append(id)

    def _tool_result(self, run: _RunState, id: str) -> Iterator[Breach]:
        if id in run.open_of(_CALL):
            yield "result", "silent", "TOOL_CALL_RESULT before the end of its call"
        elif id not in self._started_calls and run.has_content:
            yield "result", "silent", "TOOL_CALL_RESULT: there is no call with this id"
        if id in self._answered_calls:
            yield "result", "silent", "TOOL_CALL_RESULT: this call has a result already"
        self._answered_calls.add(id)

    def _encrypted_value(self, run: _RunState, event: Mapping[str, Any]) -> Iterator[Breach]:
        is_call, id = event["subtype"] == "tool-call", event["entityId"]
        id_spaces = ("call",) if is_call else ("message", "reasoning")
        id_space = next((one for one in id_spaces if (one, id) in run.owners), id_spaces[0])
        yield from self._check_owner(run, id_space, id, "REASONING_ENCRYPTED_VALUE", event)
        if not (id in self._call_ids if is_call else self._roles.get(id, "activity") != "activity"):
            entity_name = "call" if is_call else "message"
            yield "anchor", "silent", f"REASONING_ENCRYPTED_VALUE: no {entity_name} with the id entityId was started"
            return
        if (event["subtype"], id) in self._valued_entities:
            yield "value", "silent", "REASONING_ENCRYPTED_VALUE: this entity has a value already"
        self._valued_entities.add((event["subtype"], id))
        if not is_call and id in run.open_of(_THOUGHT):
            yield "order", "style", "REASONING_ENCRYPTED_VALUE before the end of its message"
        elif not is_call and (span := self._span_of_message.get(id)) and span not in run.open_of(_SPAN):
            yield "order", "style", "REASONING_ENCRYPTED_VALUE after the end of its span"

    def _messages_snapshot(self, run: _RunState, messages: list[Mapping[str, Any]]) -> Iterator[Breach]:
        by_id = {message["id"]: message for message in messages}
        if len(by_id) < len(messages):
            yield "ids", "silent", "MESSAGES_SNAPSHOT: two messages have the same id"
        calls = {call["id"]: call for one in messages for call in one.get("toolCalls") or []}
        kept_roles = {
            role for role in ("reasoning", "activity") if not any(message.get("role") == role for message in messages)
        }
        removed_ids = [id for id, kind in self._roles.items() if id not in by_id and kind not in kept_roles]
        if any(self._roles[id] == "reasoning" for id in removed_ids):
            yield "snapshot", "silent", "MESSAGES_SNAPSHOT: it has reasoning, but not all of it"
        for subtype, id in sorted(self._valued_entities):
            entity = (calls if subtype == "tool-call" else by_id).get(id)
            if entity is not None and not (entity.get("encryptedValue") or entity.get("encryptedContent")):
                yield "snapshot", "silent", "MESSAGES_SNAPSHOT: an encrypted value is not repeated"
        for kind in (_TEXT, _THOUGHT, _CALL):
            if any(id not in calls if kind is _CALL else id in removed_ids for id in run.open_of(kind)):
                yield "snapshot", "silent", f"MESSAGES_SNAPSHOT: it drops an open {kind.name}"
        for id in removed_ids:
            del self._roles[id]
        self._call_ids = set(calls)
        for message in messages:
            self._add_message(run, message, replaces=True)

    def _add_message(self, run: _RunState, message: Mapping[str, Any], replaces: bool) -> None:
        """Add a message that was not streamed."""
        id, role, owner = message["id"], message["role"], message.get("subagentRunId")
        self._roles[id] = role if replaces else self._roles.get(id, role)
        id_space = role if role in ("reasoning", "activity") else "message"
        entities = [(id_space, id), *(("call", call["id"]) for call in message.get("toolCalls") or [])]
        for entity in entities:
            if replaces or entity not in run.owners:
                run.owners[entity] = owner
        calls = {id for id_space, id in entities if id_space == "call"}
        self._call_ids |= calls
        self._started_calls |= calls

    def _add_id(self, id: str, role: str, event_type: str) -> Iterator[Breach]:
        if id in self._roles:
            yield "ids", "silent", f"{event_type}: a message of this thread has this id already"
        else:
            self._roles[id] = role

    def _check_owner(
        self, run: _RunState, id_space: str, id: str, event_type: str, event: Mapping[str, Any]
    ) -> Iterator[Breach]:
        subagent_run_id = event.get("subagentRunId")
        if subagent_run_id is not None and (id_space, id) in run.owners and run.owners[id_space, id] != subagent_run_id:
            yield "owner", "fatal", f"{event_type}: it is of another subagent"

    def _is_reasoning(self, run: _RunState, owner: _Owner) -> bool:
        return any(owner in run.open_of(kind).values() for kind in (_THOUGHT, _SPAN, _THINKING, _STEP))

    def _subagent(self, run: _RunState, event_type: str, event: Mapping[str, Any]) -> Iterator[Breach]:
        id, parent = event["subagentRunId"], event.get("parentSubagentRunId")
        if event_type == "SUBAGENT_STARTED":
            if id in run.subagent_is_active:
                yield "subagent", "fatal", "SUBAGENT_STARTED: it has started already"
            if parent is not None and parent not in run.subagent_is_active:
                yield "subagent", "fatal", "SUBAGENT_STARTED: its parent has not started"
        elif not run.subagent_is_active.get(id):
            yield "subagent", "fatal", f"{event_type}: it is not active"
        run.subagent_is_active[id] = event_type == "SUBAGENT_STARTED"


def _was_cut(event: Mapping[str, Any]) -> bool:
    """Return whether RUN_FINISHED says that the run did not come to its end."""
    metadata = (event.get("metadata") or {}).get(METADATA_KEY)
    return (event.get("outcome") or {}).get("type") == "cancelled" or (
        isinstance(metadata, Mapping) and metadata.get("status") in ("cancelled", "incomplete")
    )


def _known_messages(messages: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the messages with a known role; clients remove the others."""
    return [message for message in messages if message.get("role") in ROLES]
