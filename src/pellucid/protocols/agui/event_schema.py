"""The fields of each event in each dialect, as tables, and the check of an event against them.

A table has `name` for a required field, `name?` for an optional one, and `name?~` for an optional one that may be null
(older clients sent null; newer clients translate it with a warning). A field is text, unless a type follows after a
colon: another row, `[row]` for a list of rows (`[row]+`: at least one), literals separated by `|`, or one of

    int     an integer in JavaScript's safe range            count   such an integer, not negative
    any     any JSON value, also null                        some    any JSON value but null
    object  a JSON object                                    pointer a JSON Pointer

The rows of 1.0 are its schema (https://ag-ui.com/spec/1.0/schema.json). As in its client, an invalid field ends the run
("fields"), and a field or a value that the schema does not describe is removed ("unknown").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from ..encoding import MAX_SAFE_INTEGER

Flaw = tuple[Literal["fields", "unknown", "retired"], str]
"""The rule, and what is wrong where. `retired`: client 1.0.0 translates it with a warning."""

_BASE = "type timestamp?:int rawEvent?~:some metadata?:object"
_ATTRIBUTED = f"{_BASE} subagentRunId?"
_ROLES = "developer|system|assistant|user"

EVENTS: dict[str, str] = {
    "RUN_STARTED": f"{_BASE} threadId runId protocolVersion? parentRunId? input?:RunAgentInput",
    "RUN_FINISHED": f"{_BASE} threadId runId result?~:some outcome?~:Outcome usage?:[TokenUsage]",
    "RUN_ERROR": f"{_BASE} message code? usage?:[TokenUsage]",
    "STEP_STARTED": f"{_ATTRIBUTED} stepName",
    "STEP_FINISHED": f"{_ATTRIBUTED} stepName",
    "TEXT_MESSAGE_START": f"{_ATTRIBUTED} messageId role?:{_ROLES} name?",
    "TEXT_MESSAGE_CONTENT": f"{_ATTRIBUTED} messageId delta",
    "TEXT_MESSAGE_END": f"{_ATTRIBUTED} messageId",
    "TEXT_MESSAGE_CHUNK": f"{_ATTRIBUTED} messageId? role?:{_ROLES} delta? name?",
    "TOOL_CALL_START": f"{_ATTRIBUTED} toolCallId toolCallName parentMessageId?~",
    "TOOL_CALL_ARGS": f"{_ATTRIBUTED} toolCallId delta",
    "TOOL_CALL_END": f"{_ATTRIBUTED} toolCallId",
    "TOOL_CALL_CHUNK": f"{_ATTRIBUTED} toolCallId? toolCallName? parentMessageId?~ delta?",
    "TOOL_CALL_RESULT": f"{_ATTRIBUTED} messageId toolCallId content:text-or-parts role?:tool",
    "STATE_SNAPSHOT": f"{_ATTRIBUTED} snapshot:any",
    "STATE_DELTA": f"{_ATTRIBUTED} delta:[Operation]",
    "MESSAGES_SNAPSHOT": f"{_BASE} messages:[Message]",
    "ACTIVITY_SNAPSHOT": f"{_ATTRIBUTED} messageId activityType content:object replace?:bool",
    "ACTIVITY_DELTA": f"{_ATTRIBUTED} messageId activityType patch:[Operation]",
    "RAW": f"{_ATTRIBUTED} event:any source?",
    "CUSTOM": f"{_ATTRIBUTED} name value:any",
    "REASONING_START": f"{_ATTRIBUTED} messageId",
    "REASONING_MESSAGE_START": f"{_ATTRIBUTED} messageId role:reasoning",
    "REASONING_MESSAGE_CONTENT": f"{_ATTRIBUTED} messageId delta",
    "REASONING_MESSAGE_END": f"{_ATTRIBUTED} messageId",
    "REASONING_MESSAGE_CHUNK": f"{_ATTRIBUTED} messageId? delta?",
    "REASONING_END": f"{_ATTRIBUTED} messageId",
    "REASONING_ENCRYPTED_VALUE": f"{_ATTRIBUTED} subtype:tool-call|message entityId encryptedValue",
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

OBJECTS: dict[str, str] = {
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

# --- the other dialects ------------------------------------------------------------------------------------------

# Accepted by every client from 0.0.45 to 1.0.0. Fields that older clients remove (metadata of messages,
# `cacheWriteInputTokens`) are the same here.
OLD_EVENTS = {
    **{name: row for name, row in EVENTS.items() if not name.startswith("SUBAGENT_")},
    "TOOL_CALL_RESULT": f"{_ATTRIBUTED} messageId toolCallId content role?:tool",
}
OLD_OBJECTS = {
    **OBJECTS,
    "RunAgentInput": OBJECTS["RunAgentInput"].replace("tools?:", "tools:").replace("context?:", "context:"),
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
# Client 0.0.39, which has neither reasoning nor activities.
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
    "REASONING_START": f"{_ATTRIBUTED} messageId encryptedContent?",
    "REASONING_MESSAGE_START": f"{_ATTRIBUTED} messageId role:assistant",
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


# --- checking a value --------------------------------------------------------------------------------------------

_POINTER = re.compile(r"(/([^/~]|~[01])*)*")
_FIELD_PATTERN = re.compile(r"(\w+)(\??)(~?)(?::(.+))?")

_PLAIN_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("text", lambda value: isinstance(value, str)),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "int": ("a whole number", lambda value: _is_whole_number(value)),
    "count": ("a whole number from 0", lambda value: _is_whole_number(value) and value >= 0),
    "any": ("a value", lambda value: True),
    "some": ("a value that is not null", lambda value: value is not None),
    "object": ("an object", lambda value: isinstance(value, dict)),
    "pointer": ("a JSON Pointer", lambda value: isinstance(value, str) and _POINTER.fullmatch(value) is not None),
}


def _is_whole_number(value: Any) -> bool:
    # In JavaScript 1.0 is an integer.
    is_integral = (
        value.is_integer() if isinstance(value, float) else isinstance(value, int) and not isinstance(value, bool)
    )
    return is_integral and abs(value) <= MAX_SAFE_INTEGER


class _Field(NamedTuple):
    required: bool
    nullable: bool
    type_name: str


class _ObjectSchema(NamedTuple):
    fields: dict[str, _Field]
    unknown_fields: Literal["removed", "kept", "refused"]
    """What clients do with fields that the row does not describe."""


class _UnknownMember(Exception):
    """A value whose kind the schema does not describe; clients remove it."""


class EventSchema:
    """The tables of a dialect.

    Args:
        events: The row of each type of event.
        objects: The rows of other objects, by name.
        unions: The field that selects the member, and the rows of the members, by the name of the union.
        members: Whether clients remove or refuse an unknown member of a union.
    """

    def __init__(
        self,
        events: Mapping[str, str],
        objects: Mapping[str, str],
        unions: Mapping[str, tuple[str, dict[str, str]]],
        members: Literal["removed", "refused"],
    ) -> None:
        self.event_types = frozenset(events)
        self._objects = {name: _parse_schema(text) for name, text in {**objects, **events}.items()}
        self._unions = {
            name: (tag, {word: _parse_schema(text) for word, text in members.items()})
            for name, (tag, members) in unions.items()
        }
        self._unknown_members = members

    def flaws(self, event: Mapping[str, Any]) -> list[Flaw]:
        """Return what is wrong with the fields of an event. Its type must be one of `event_types`."""
        flaws: list[Flaw] = []
        self._check_object(event, self._objects[event["type"]], "", flaws)
        return flaws

    def _check_value(self, value: Any, type_name: str, path: str, flaws: list[Flaw]) -> None:
        if type_name in _PLAIN_TYPES:
            description, is_valid = _PLAIN_TYPES[type_name]
            if not is_valid(value):
                flaws.append(("fields", f"{path} must be {description}, not {_describe(value)}"))
        elif type_name.startswith("["):
            self._check_list(value, type_name, path, flaws)
        elif type_name.startswith("text-or-"):
            if not isinstance(value, str):
                self._check_list(value, f"[{'Said' if type_name.endswith('said') else 'Part'}]", path, flaws)
        elif type_name in self._objects or type_name in self._unions or type_name == "Said":
            if not isinstance(value, Mapping):
                flaws.append(("fields", f"{path} must be an object, not {_describe(value)}"))
            elif type_name in self._objects:
                self._check_object(value, self._objects[type_name], path, flaws)
            else:
                self._check_union(value, type_name, path, flaws)
        elif value not in (words := type_name.split("|")):
            flaws.append(("fields", f"{path} must be {' or '.join(map(repr, words))}, not {_describe(value)}"))

    def _check_list(self, value: Any, type_name: str, path: str, flaws: list[Flaw]) -> None:
        if not isinstance(value, list):
            flaws.append(("fields", f"{path} must be a list, not {_describe(value)}"))
            return
        if type_name.endswith("+") and not value:
            flaws.append(("fields", f"{path} must not be empty"))
        for index, entry in enumerate(value):
            flaw_count = len(flaws)
            try:
                self._check_value(entry, type_name.strip("[]+"), f"{path}[{index}]", flaws)
            except _UnknownMember as dropped:
                flaws[flaw_count:] = [("unknown", f"{path}[{index}]: {dropped}")]

    def _check_union(self, value: Mapping[str, Any], type_name: str, path: str, flaws: list[Flaw]) -> None:
        if type_name == "Said":
            if value.get("type") == "binary":
                flaws.append(("retired", f"{path}: binary content is translated into its medium"))
                return
            type_name = "Part"
        tag, members = self._unions[type_name]
        member = value.get(tag)
        row = members.get(member) if isinstance(member, str) else None
        if row is not None:
            self._check_object(value, row, path, flaws)
        elif self._unknown_members == "refused" and type_name != "Operation":
            flaws.append(("fields", f"{path}.{tag} must be {' or '.join(map(repr, members))}, not {_describe(member)}"))
        else:
            raise _UnknownMember(f"no {tag} {_describe(member)} is described")

    def _check_object(self, value: Mapping[str, Any], schema: _ObjectSchema, base_path: str, flaws: list[Flaw]) -> None:
        for name in value:
            if name not in schema.fields and schema.unknown_fields != "kept":
                rule: Literal["fields", "unknown"] = "fields" if schema.unknown_fields == "refused" else "unknown"
                flaws.append((rule, f"{_join_path(base_path, name)} is not described"))
        for name, field in schema.fields.items():
            path = _join_path(base_path, name)
            if name not in value:
                if field.required:
                    flaws.append(("fields", f"{path} is missing"))
            elif value[name] is None and field.nullable:
                flaws.append(("retired", f"{path} is null; leave it out"))
            else:
                flaw_count = len(flaws)
                try:
                    self._check_value(value[name], field.type_name, path, flaws)
                except _UnknownMember as dropped:
                    if field.required:
                        raise
                    flaws[flaw_count:] = [("unknown", f"{path}: {dropped}")]


def _parse_schema(text: str) -> _ObjectSchema:
    words = text.split()
    unknown_fields = {"*": "kept", "!": "refused"}.get(words[-1], "removed")
    return _ObjectSchema(dict(_parse_fields(words)), unknown_fields)  # type: ignore[arg-type]


def _parse_fields(words: list[str]) -> Iterator[tuple[str, _Field]]:
    for word in words:
        match = _FIELD_PATTERN.fullmatch(word)
        if match is not None:
            name, optional, nullable, type_name = match.groups()
            yield name, _Field(not optional, bool(nullable), type_name or "str")


def _join_path(base_path: str, name: str) -> str:
    return f"{base_path}.{name}" if base_path else name


def _describe(value: Any) -> str:
    """Describe a value by its kind. Only short texts of letters, digits, `_` and `-` are quoted."""
    if isinstance(value, str):
        return repr(value) if len(value) < 30 and value.replace("_", "").replace("-", "").isalnum() else "this text"
    kinds: tuple[tuple[type, str], ...] = ((bool, "a truth value"), (dict, "an object"), (list, "a list"))
    return (
        "null"
        if value is None
        else next((description for kind, description in kinds if isinstance(value, kind)), f"{value}")
    )
