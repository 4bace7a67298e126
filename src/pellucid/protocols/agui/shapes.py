"""What fields each event has, in each dialect: tables, and how a value is held against them.

A table says `name`, `name?` where it may be left out, and `name?~` where it may also be null, which older clients sent
and newer ones translate with a warning. After a colon comes what it is, where it is not text: another row, `[row]` for
a list of them (`[row]+`: at least one), words divided by `|`, or one of

    int     a whole number that JavaScript can hold          count   one that is not negative
    any     any JSON value, null included                    some    any but null
    object  a JSON object                                    pointer a JSON Pointer

The rows of 1.0 are its schema (https://ag-ui.com/spec/1.0/schema.json). As its client does, what is malformed is told
apart from what is merely not described there: the first ends the run, the second is removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

Flaw = tuple[Literal["fields", "unknown", "retired"], str]
"""The rule, and what is wrong where. `retired`: translated by today's client, with a warning."""

_BASE = "type timestamp?:int rawEvent?~:some metadata?:object"
_OWNED = f"{_BASE} subagentRunId?"
_ROLES = "developer|system|assistant|user"

EVENTS: dict[str, str] = {
    "RUN_STARTED": f"{_BASE} threadId runId protocolVersion? parentRunId? input?:RunAgentInput",
    "RUN_FINISHED": f"{_BASE} threadId runId result?~:some outcome?~:Outcome usage?:[TokenUsage]",
    "RUN_ERROR": f"{_BASE} message code? usage?:[TokenUsage]",
    "STEP_STARTED": f"{_OWNED} stepName",
    "STEP_FINISHED": f"{_OWNED} stepName",
    "TEXT_MESSAGE_START": f"{_OWNED} messageId role?:{_ROLES} name?",
    "TEXT_MESSAGE_CONTENT": f"{_OWNED} messageId delta",
    "TEXT_MESSAGE_END": f"{_OWNED} messageId",
    "TEXT_MESSAGE_CHUNK": f"{_OWNED} messageId? role?:{_ROLES} delta? name?",
    "TOOL_CALL_START": f"{_OWNED} toolCallId toolCallName parentMessageId?~",
    "TOOL_CALL_ARGS": f"{_OWNED} toolCallId delta",
    "TOOL_CALL_END": f"{_OWNED} toolCallId",
    "TOOL_CALL_CHUNK": f"{_OWNED} toolCallId? toolCallName? parentMessageId?~ delta?",
    "TOOL_CALL_RESULT": f"{_OWNED} messageId toolCallId content:text-or-parts role?:tool",
    "STATE_SNAPSHOT": f"{_OWNED} snapshot:any",
    "STATE_DELTA": f"{_OWNED} delta:[Operation]",
    "MESSAGES_SNAPSHOT": f"{_BASE} messages:[Message]",
    "ACTIVITY_SNAPSHOT": f"{_OWNED} messageId activityType content:object replace?:bool",
    "ACTIVITY_DELTA": f"{_OWNED} messageId activityType patch:[Operation]",
    "RAW": f"{_OWNED} event:any source?",
    "CUSTOM": f"{_OWNED} name value:any",
    "REASONING_START": f"{_OWNED} messageId",
    "REASONING_MESSAGE_START": f"{_OWNED} messageId role:reasoning",
    "REASONING_MESSAGE_CONTENT": f"{_OWNED} messageId delta",
    "REASONING_MESSAGE_END": f"{_OWNED} messageId",
    "REASONING_MESSAGE_CHUNK": f"{_OWNED} messageId? delta?",
    "REASONING_END": f"{_OWNED} messageId",
    "REASONING_ENCRYPTED_VALUE": f"{_OWNED} subtype:tool-call|message entityId encryptedValue",
    "SUBAGENT_STARTED": f"{_BASE} subagentRunId name description? parentSubagentRunId? parentToolCallId? "
    "parentMessageId?",
    "SUBAGENT_FINISHED": f"{_BASE} subagentRunId result?~:some outcome?:SubagentOutcome",
    "SUBAGENT_ERROR": f"{_BASE} subagentRunId message code?",
}
THINKING_EVENTS: dict[str, str] = {
    "THINKING_START": f"{_BASE} title?",
    "THINKING_TEXT_MESSAGE_START": _BASE,
    "THINKING_TEXT_MESSAGE_CONTENT": f"{_BASE} delta",
    "THINKING_TEXT_MESSAGE_END": _BASE,
    "THINKING_END": _BASE,
}

_MESSAGE = "role id name? encryptedValue? metadata?:object subagentRunId?"
_MEDIA = "type id? source:Source metadata?~:some"

ROWS: dict[str, str] = {
    "RunAgentInput": "threadId runId protocolVersion? parentRunId? state?:any messages:[Message] tools?:[Tool] "
    "context?:[Context] forwardedProps?~:some resume?:[ResumeEntry]",
    "Tool": "name description parameters?~:some metadata?:object",
    "Context": "description value",
    "ResumeEntry": "interruptId status:resolved|cancelled payload?~:some metadata?:object",
    "TokenUsage": "provider? model? inputTokens?:count outputTokens?:count totalTokens?:count reasoningTokens?:count "
    "cachedInputTokens?:count cacheWriteInputTokens?:count",
    "Interrupt": "id reason message? toolCallId? responseSchema?:object expiresAt? metadata?:object subagentRunId?",
    "ToolCall": "id type:function function:FunctionCall encryptedValue? metadata?:object",
    "FunctionCall": "name arguments",
}

UNIONS: dict[str, tuple[str, dict[str, str]]] = {
    "Outcome": (
        "type",
        {
            "success": "type pendingToolCallIds?:[str]",
            "interrupt": "type interrupts:[Interrupt]+",
            "cancelled": "type",
        },
    ),
    "SubagentOutcome": ("type", {"success": "type", "suspended": "type interruptIds?:[str]"}),
    "Part": (
        "type",
        {"text": "type id? text metadata?:some", "image": _MEDIA, "audio": _MEDIA, "video": _MEDIA, "document": _MEDIA},
    ),
    "Source": (
        "type",
        {"data": "type value mimeType", "url": "type value mimeType?", "file": "type value provider? mimeType?"},
    ),
    "Operation": (
        "op",
        {
            "add": "op path:pointer value:any *",
            "remove": "op path:pointer *",
            "replace": "op path:pointer value:any *",
            "move": "op from:pointer path:pointer *",
            "copy": "op from:pointer path:pointer *",
            "test": "op path:pointer value:any *",
        },
    ),
    "Message": (
        "role",
        {
            "developer": f"{_MESSAGE} content",
            "system": f"{_MESSAGE} content",
            "assistant": f"{_MESSAGE} content? toolCalls?:[ToolCall]",
            "user": f"{_MESSAGE} content:text-or-said",
            "tool": "role id toolCallId content:text-or-said error? encryptedValue? metadata?:object subagentRunId?",
            "activity": "role id activityType content:object metadata?:object subagentRunId?",
            "reasoning": "role id content encryptedValue? metadata?:object subagentRunId?",
        },
    ),
}

ROLES = frozenset(UNIONS["Message"][1])

# --- what differs ------------------------------------------------------------------------------------------------

# What every client from 0.0.45 to 1.0.0 takes. Where older ones remove what newer ones describe (metadata of messages,
# `cacheWriteInputTokens`), nothing has to change.
OLD_EVENTS = {
    **{name: row for name, row in EVENTS.items() if not name.startswith("SUBAGENT_")},
    "TOOL_CALL_RESULT": f"{_OWNED} messageId toolCallId content role?:tool",
}
OLD_ROWS = {
    **ROWS,
    "RunAgentInput": ROWS["RunAgentInput"].replace("tools?:", "tools:").replace("context?:", "context:"),
}
OLD_UNIONS = {
    **UNIONS,
    "Outcome": ("type", {"success": "type !", "interrupt": "type interrupts:[Interrupt]+ !"}),
    "Part": ("type", {"text": "type id? text metadata?:some"}),
    "Message": (
        "role",
        {**UNIONS["Message"][1], "tool": UNIONS["Message"][1]["tool"].replace("text-or-said", "str")},
    ),
}
# 0.0.39, which has neither reasoning nor activities.
OLDEST_EVENTS = {
    **{name: row for name, row in OLD_EVENTS.items() if not name.startswith(("REASONING_", "ACTIVITY_"))},
    **THINKING_EVENTS,
}
OLDEST_UNIONS = {
    **OLD_UNIONS,
    "Message": (
        "role",
        {
            "developer": f"{_MESSAGE} content",
            "system": f"{_MESSAGE} content",
            "assistant": f"{_MESSAGE} content? toolCalls?:[ToolCall]",
            "user": f"{_MESSAGE} content",
            "tool": OLD_UNIONS["Message"][1]["tool"],
        },
    ),
}
PROPOSED_EVENTS = {
    **{name: row for name, row in OLD_EVENTS.items() if name != "REASONING_ENCRYPTED_VALUE"},
    "REASONING_START": f"{_OWNED} messageId encryptedContent?",
    "REASONING_MESSAGE_START": f"{_OWNED} messageId role:assistant",
}
PROPOSED_UNIONS = {
    **OLD_UNIONS,
    "Message": (
        "role",
        {
            **OLD_UNIONS["Message"][1],
            "reasoning": "role id content:[str] encryptedContent? metadata?:object subagentRunId?",
        },
    ),
}


# --- holding a value against them --------------------------------------------------------------------------------

_POINTER = re.compile(r"(/([^/~]|~[01])*)*")
_MOST = 2**53 - 1
_FIELD = re.compile(r"(\w+)(\??)(~?)(?::(.+))?")

_PLAIN: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("text", lambda value: isinstance(value, str)),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "int": ("a whole number", lambda value: _whole(value)),
    "count": ("a whole number from 0", lambda value: _whole(value) and value >= 0),
    "any": ("a value", lambda value: True),
    "some": ("a value that is not null", lambda value: value is not None),
    "object": ("an object", lambda value: isinstance(value, dict)),
    "pointer": ("a JSON Pointer", lambda value: isinstance(value, str) and _POINTER.fullmatch(value) is not None),
}


def _whole(value: Any) -> bool:
    # To JavaScript 1.0 is a whole number.
    whole = value.is_integer() if isinstance(value, float) else isinstance(value, int) and not isinstance(value, bool)
    return whole and abs(value) <= _MOST


class _Field(NamedTuple):
    required: bool
    nullable: bool
    shape: str


class _Row(NamedTuple):
    fields: dict[str, _Field]
    more: Literal["removed", "kept", "refused"]
    """What happens to fields that the row does not describe."""


class _Dropped(Exception):
    """What is in this place is of a kind that is not described, and goes."""


class Shapes:
    """The tables of a dialect. `members`: whether a union's unknown member is removed, or refused."""

    def __init__(
        self,
        events: Mapping[str, str],
        rows: Mapping[str, str],
        unions: Mapping[str, tuple[str, dict[str, str]]],
        members: Literal["removed", "refused"],
    ) -> None:
        self.types = frozenset(events)
        self._rows = {name: _row(text) for name, text in {**rows, **events}.items()}
        self._unions = {
            name: (tag, {word: _row(text) for word, text in members.items()}) for name, (tag, members) in unions.items()
        }
        self._members = members

    def flaws(self, event: Mapping[str, Any]) -> list[Flaw]:
        """What is wrong with the fields of an event whose type is one of `types`."""
        found: list[Flaw] = []
        self._object(event, self._rows[event["type"]], "", found)
        return found

    def _value(self, value: Any, shape: str, at: str, found: list[Flaw]) -> None:
        if shape in _PLAIN:
            what, holds = _PLAIN[shape]
            if not holds(value):
                found.append(("fields", f"{at} must be {what}, not {_told(value)}"))
        elif shape.startswith("["):
            self._list(value, shape, at, found)
        elif shape.startswith("text-or-"):
            if not isinstance(value, str):
                self._list(value, f"[{'Said' if shape.endswith('said') else 'Part'}]", at, found)
        elif shape in self._rows or shape in self._unions or shape == "Said":
            if not isinstance(value, Mapping):
                found.append(("fields", f"{at} must be an object, not {_told(value)}"))
            elif shape in self._rows:
                self._object(value, self._rows[shape], at, found)
            else:
                self._union(value, shape, at, found)
        elif value not in (words := shape.split("|")):
            found.append(("fields", f"{at} must be {' or '.join(map(repr, words))}, not {_told(value)}"))

    def _list(self, value: Any, shape: str, at: str, found: list[Flaw]) -> None:
        if not isinstance(value, list):
            found.append(("fields", f"{at} must be a list, not {_told(value)}"))
            return
        if shape.endswith("+") and not value:
            found.append(("fields", f"{at} must not be empty"))
        for index, entry in enumerate(value):
            mark = len(found)
            try:
                self._value(entry, shape.strip("[]+"), f"{at}[{index}]", found)
            except _Dropped as dropped:
                found[mark:] = [("unknown", f"{at}[{index}]: {dropped}")]

    def _union(self, value: Mapping[str, Any], shape: str, at: str, found: list[Flaw]) -> None:
        if shape == "Said":
            if value.get("type") == "binary":
                found.append(("retired", f"{at}: binary content is translated into its medium"))
                return
            shape = "Part"
        tag, members = self._unions[shape]
        word = value.get(tag)
        row = members.get(word) if isinstance(word, str) else None
        if row is not None:
            self._object(value, row, at, found)
        elif self._members == "refused" and shape != "Operation":
            found.append(("fields", f"{at}.{tag} must be {' or '.join(map(repr, members))}, not {_told(word)}"))
        else:
            raise _Dropped(f"no {tag} {_told(word)} is described")

    def _object(self, value: Mapping[str, Any], row: _Row, at: str, found: list[Flaw]) -> None:
        for name in value:
            if name not in row.fields and row.more != "kept":
                rule: Literal["fields", "unknown"] = "fields" if row.more == "refused" else "unknown"
                found.append((rule, f"{_join(at, name)} is not described"))
        for name, field in row.fields.items():
            path = _join(at, name)
            if name not in value:
                if field.required:
                    found.append(("fields", f"{path} is missing"))
            elif value[name] is None and field.nullable:
                found.append(("retired", f"{path} is null; leave it out"))
            else:
                mark = len(found)
                try:
                    self._value(value[name], field.shape, path, found)
                except _Dropped as dropped:
                    if field.required:
                        raise
                    found[mark:] = [("unknown", f"{path}: {dropped}")]


def _row(text: str) -> _Row:
    words = text.split()
    more = {"*": "kept", "!": "refused"}.get(words[-1], "removed")
    return _Row(dict(_fields(words)), more)  # type: ignore[arg-type]


def _fields(words: list[str]) -> Iterator[tuple[str, _Field]]:
    for word in words:
        found = _FIELD.fullmatch(word)
        if found is not None:
            name, optional, nullable, shape = found.groups()
            yield name, _Field(not optional, bool(nullable), shape or "str")


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _told(value: Any) -> str:
    """The value's kind, and never what it says."""
    if isinstance(value, str):
        return repr(value) if len(value) < 30 and value.replace("_", "").replace("-", "").isalnum() else "this text"
    kinds: tuple[tuple[type, str], ...] = ((bool, "a truth value"), (dict, "an object"), (list, "a list"))
    return "null" if value is None else next((told for kind, told in kinds if isinstance(value, kind)), f"{value}")
