"""The OpenAPI description of spaces. Every component's name begins with `Space`, but for MEW's own.

An operation is a row: what it is called, what it is for, what it answers, what can be asked of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...envelopes import DIALECTS
from ...envelopes.shown import SPACE_VIEWS
from ...protocols.openapi import STRING, Schema, parameter
from ...spaces.past.exporting import EXPORT_FORMATS
from ...spaces.past.training import REASONING_FORMS
from .asked import MAX_PAUSE, MAX_SEQ, MAX_SPEED
from .reading import MOST, NDJSON, USUALLY

SECURITY = {
    "space-token": {
        "type": "http",
        "scheme": "bearer",
        "description": "The token of a participant of the space: `pellucid space create` prints it.",
    }
}
_TOKEN: list[Schema] = [{"space-token": []}]
_REFUSED = (400, 401, 403, 404, 429, 500, 503)

_INTEGER: Schema = {"type": "integer"}
_BOOLEAN: Schema = {"type": "boolean"}
_COUNTS: Schema = {"type": "object", "additionalProperties": _INTEGER}
_STRINGS: Schema = {"type": "array", "items": STRING}
_NUMBER_OR_NULL: Schema = {"type": ["integer", "null"]}
_ERROR: Schema = {"$ref": "#/components/schemas/ErrorBody"}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(optional: Sequence[str] = (), /, **properties: Schema) -> Schema:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


_ID: Schema = {"type": "string", "minLength": 1, "maxLength": 255}
_FLAGS = _list(_object(code=STRING, message=STRING))
_CAPABILITIES = _list({"anyOf": [STRING, {"type": "object"}]})


def _envelope() -> Schema:
    """As MEW has it. Other dialects write it otherwise, and everything can be left out that has a default."""
    made = _object(
        ("protocol", "id", "ts", "from", "to", "correlation_id", "context", "payload", "seq", "replayed", "flags"),
        protocol={"enum": [row.protocol for row in DIALECTS.values()], "description": "The dialect."},
        id=_ID,
        ts={"type": "string", "format": "date-time"},
        to=_list(_ID),
        kind={
            "type": "string",
            "pattern": "^[A-Za-z0-9_-][A-Za-z0-9_:-]*([/.][A-Za-z0-9_-][A-Za-z0-9_:-]*)*$",
            "maxLength": 255,
            "description": "`chat`, `reasoning/start`, `mcp/request` …; dots are slashes.",
        },
        correlation_id=_list(_ID),
        context={"description": "The path of the reasoning in which it stands: `msg-1/msg-2`."},
        payload={"type": "object"},
        seq={**_INTEGER, "description": "The gateway's number in its space: the order."},
        replayed=_BOOLEAN,
        flags={**_FLAGS, "description": "What the gateway found to be seen about it. The gateway's word."},
    )
    made["properties"]["from"] = {**STRING, "description": "Who said it. The gateway's word."}
    made["description"] = "One message of a space. The fields of other dialects, and unknown ones, stand beside these."
    return made


def schemas() -> dict[str, Schema]:
    """The components."""
    member = _object(id=STRING, capabilities=_CAPABILITIES, present=_BOOLEAN)
    line = _object(
        path=STRING,
        seq=_INTEGER,
        owner=STRING,
        status=STRING,
        started={**_INTEGER, "description": "Milliseconds since 1970."},
        ended=_NUMBER_OR_NULL,
        start=STRING,
        conclusion=STRING,
        confidence={"type": ["number", "null"]},
        triggers=_STRINGS,
        participants=_STRINGS,
        kinds=_COUNTS,
        contexts=_INTEGER,
        has_more=_BOOLEAN,
    )
    pattern = _object(shape=_STRINGS, count=_INTEGER, statuses=_COUNTS, participants=_COUNTS, examples=_STRINGS)
    reference = _object(
        name=STRING,
        how=STRING,
        space={"type": ["string", "null"]},
        envelope={"anyOf": [_ref("SpaceEnvelope"), {"type": "null"}]},
    )
    posted = _object(
        ("flags", "answers"),
        id=_ID,
        seq=_INTEGER,
        status={"const": "accepted"},
        timestamp=STRING,
        flags=_FLAGS,
        answers=_list(_ref("SpaceEnvelope")),
    )
    return {
        "SpaceEnvelope": _envelope(),
        "SpaceList": _object(
            spaces=_list(_object(("participant",), name=STRING, head=_INTEGER, created_at=STRING, participant=STRING))
        ),
        "Space": _object(
            name=STRING,
            head={**_INTEGER, "description": "The number of the newest envelope."},
            settings={"type": "object"},
            you=_object(("capabilities",), id=STRING, capabilities=_CAPABILITIES),
            participants=_list(member),
        ),
        "SpacePosted": posted,
        "SpacePage": _object(
            envelopes=_list(_ref("SpaceEnvelope")),
            at={**_list(_INTEGER), "description": "When the gateway took each, in milliseconds since 1970."},
            has_more=_BOOLEAN,
            first={**_INTEGER, "description": "Older ones: `before_seq` of this."},
            last={**_INTEGER, "description": "Newer ones: `after_seq` of this."},
            head=_INTEGER,
        ),
        "SpaceHits": _object(
            hits=_list(_object(envelope=_ref("SpaceEnvelope"), at=_INTEGER, snippet=STRING)),
            has_more=_BOOLEAN,
            before=_INTEGER,
        ),
        "SpaceContexts": _object(contexts=_list(line), has_more=_BOOLEAN, before=_INTEGER),
        "SpaceTree": _object(
            path=STRING,
            trees=_list({"type": "object"}),
            triggers=_list(_ref("SpaceEnvelope")),
            linked=_list(_ref("SpaceEnvelope")),
            has_more=_BOOLEAN,
            last=_INTEGER,
        ),
        "SpacePatterns": _object(
            patterns=_list(pattern),
            contexts=_INTEGER,
            kinds=_COUNTS,
            tools=_COUNTS,
            participants={"type": "object", "additionalProperties": _COUNTS},
            has_more=_BOOLEAN,
            before=_INTEGER,
        ),
        "SpaceReferences": _object(seq=_INTEGER, references=_list(reference), referred_by=_list(_ref("SpaceEnvelope"))),
        "MewParticipants": _object(space=STRING, participants=_list(member)),
        "MewError": _object(error=STRING, message=STRING),
    }


# --- paths -----------------------------------------------------------------------------------------------------------


def _seq(name: str, what: str) -> Schema:
    return parameter(name, "query", what, {"type": "integer", "minimum": 0, "maximum": MAX_SEQ})


_NAME = parameter("name", "path", "The space's name.")
_SEQ = parameter("seq", "path", "The number of an envelope.", {"type": "integer", "minimum": 1, "maximum": MAX_SEQ})
_AFTER, _BEFORE = _seq("after_seq", "Those after this number."), _seq("before_seq", "Those before this number.")
_DIALECT = parameter(
    "dialect", "query", "In which dialect envelopes are read and written.", {"enum": [*DIALECTS], "type": "string"}
)
_VIEW = parameter("view", "query", "How much of the reasoning.", {"enum": [*SPACE_VIEWS], "type": "string"})
_FILTERS = (
    parameter("kind", "query", "Of these kinds: `chat`, `reasoning/*`; several with commas, or several times."),
    parameter("from", "query", "Of this participant."),
    parameter("context", "query", "In this context, and those inside it."),
)
_SPEED = parameter(
    *("speed", "query", "How many times as fast as it was said."),
    {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_SPEED},
)


_PAUSE = parameter(
    *("longest_pause", "query", "The most seconds between two, at the original pace or times that."),
    {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_PAUSE},
)


def _limit(usually: int = USUALLY) -> Schema:
    schema = {"type": "integer", "minimum": 1, "maximum": MOST, "default": usually}
    return parameter("limit", "query", "How many at most.", schema)


def _read(id: str, summary: str, answers: str, *parameters: Schema, media: str = "application/json") -> Schema:
    """An operation that reads."""
    content = {media: {"schema": _ref(answers) if answers else STRING}}
    return _operation(id, summary, content, parameters)


def _operation(
    id: str, summary: str, content: Schema, parameters: Sequence[Schema] = (), error: Schema = _ERROR
) -> Schema:
    failure = {"description": "An error", "content": {"application/json": {"schema": error}}}
    made: Schema = {"operationId": id, "summary": summary, "security": _TOKEN}
    if parameters:
        made["parameters"] = list(parameters)
    made["responses"] = {
        "200": {"description": "OK", "content": content},
        **{str(status): failure for status in _REFUSED},
    }
    return made


def _post(id: str, summary: str, *parameters: Schema, error: Schema = _ERROR) -> Schema:
    content = {"application/json": {"schema": _ref("SpacePosted")}}
    made = _operation(id, summary, content, parameters, error)
    made["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref("SpaceEnvelope")}}}
    failure = made["responses"]["400"]
    made["responses"] |= {"408": failure, "413": failure}
    return made


def _for_browsers(made: Schema) -> Schema:
    made["responses"]["200"]["content"]["text/html"] = {"schema": STRING}
    made["responses"]["503"]["content"]["text/html"] = {"schema": STRING}
    return made


def _socket(what: str, parameters: Sequence[Schema]) -> Schema:
    return {
        "x-pellucid-websocket": {
            "description": what,
            "parameters": list(parameters),
            "clientMessage": _ref("SpaceEnvelope"),
            "serverMessage": _ref("SpaceEnvelope"),
        }
    }


_SOCKET = (
    _DIALECT,
    _VIEW,
    _seq("after_seq", "First what was said after this number."),
    _seq("history", "First so many of the newest, flagged `replayed`."),
    parameter("replay", "query", "Only what was said, told again.", {"enum": ["instant", "original"]}),
)
_TOLD = "GET as a WebSocket, with the token of a participant in the upgrade or in the first frame: "


SOCKET_ANYWHERE = _socket(_TOLD + "for MEW's clients, which know a host and name the space in their join", _SOCKET)
"""At `/`."""


def paths() -> dict[str, Schema]:
    """Every path."""
    one = {"parameters": [_NAME]}
    pages = (_AFTER, _BEFORE, _limit(), *_FILTERS, _VIEW, _DIALECT)
    newest = parameter("newest", "query", "The last ones, instead of the first.", _BOOLEAN)
    times = tuple(parameter(name, "query", "A time (RFC 3339).") for name in ("since", "until"))
    pace = parameter("replay", "query", "How fast.", {"enum": ["instant", "original"], "type": "string"})
    space = {**parameter("space", "query", "The space's name."), "required": True}
    listed = _read("listSpaces", "The spaces of a token, or of a key's owner", "SpaceList")
    listed["security"] = [*_TOKEN, {"bearer": []}, {"x-api-key": []}, {"api-key": []}, {}]
    replay = _read(
        *("replaySpace", "What was said, told again and flagged as that", ""),
        *(_AFTER, _BEFORE, *times, pace, _SPEED, _PAUSE, _VIEW, _DIALECT),
        media=NDJSON,
    )
    replay["responses"]["200"]["content"]["text/event-stream"] = {"schema": STRING}
    message = _post("postMewMessage", "Say something, as MEW's clients do", space, error=_ref("MewError"))
    members = _operation(
        *("listMewParticipants", "Who is in a space, as MEW's clients ask"),
        {"application/json": {"schema": _ref("MewParticipants")}},
        [space],
        _ref("MewError"),
    )
    return {
        "/spaces": {"get": _for_browsers(listed)},
        "/spaces/{name}": {
            **one,
            "get": _for_browsers(_read("getSpace", "A space, and who is in it; to a browser, its page", "Space")),
        },
        "/spaces/{name}/ws": {**one, **_socket(_TOLD + "say and hear envelopes", _SOCKET)},
        "/ws": _socket(_TOLD + "the same, for MEW's clients", (space, *_SOCKET)),
        "/spaces/{name}/envelopes": {
            **one,
            "get": _read("listEnvelopes", "What was said", "SpacePage", newest, *pages),
            "post": _post("postEnvelope", "Say something; answered when it is stored", _DIALECT),
        },
        "/spaces/{name}/history": {
            **one,
            "get": _read("readHistory", "The same as `envelopes`", "SpacePage", newest, *pages),
        },
        "/spaces/{name}/envelopes/{seq}": {
            "parameters": [_NAME, _SEQ],
            "get": _read("getEnvelope", "One envelope", "SpaceEnvelope", _VIEW, _DIALECT),
        },
        "/spaces/{name}/envelopes/{seq}/references": {
            "parameters": [_NAME, _SEQ],
            "get": _read("getReferences", "What it refers to, and what refers to it", "SpaceReferences", _DIALECT),
        },
        "/spaces/{name}/search": {
            **one,
            "get": _read(
                *("searchSpace", "What holds some text, newest first", "SpaceHits"),
                {**parameter("q", "query", "The text, in any script.", {**STRING, "minLength": 1}), "required": True},
                *(_BEFORE, _limit(50), *_FILTERS, _VIEW, _DIALECT),
            ),
        },
        "/spaces/{name}/contexts": {
            **one,
            "get": _read("listContexts", "The reasonings, newest first", "SpaceContexts", _BEFORE, _limit(20), _VIEW),
        },
        "/spaces/{name}/contexts/{path}": {
            "parameters": [_NAME, parameter("path", "path", "The context's path, with its slashes.")],
            "get": _read("getContext", "A reasoning, as a tree", "SpaceTree", _VIEW, _DIALECT),
        },
        "/spaces/{name}/patterns": {
            **one,
            "get": _read("listPatterns", "How is reasoned here: shapes", "SpacePatterns", _BEFORE, _limit(200), _VIEW),
        },
        "/spaces/{name}/export": {
            **one,
            "get": _read(
                *("exportSpace", "All that may be read, as lines of JSON", ""),
                parameter("format", "query", "What for.", {"enum": [*EXPORT_FORMATS], "type": "string"}),
                parameter("reasoning", "query", "Where reasoning stands.", {"enum": [*REASONING_FORMS]}),
                parameter("complete", "query", "chat-jsonl: only those with a question and an answer.", _BOOLEAN),
                parameter("metadata", "query", "chat-jsonl: whether our own field is in it.", _BOOLEAN),
                *(_AFTER, _BEFORE, _VIEW, _DIALECT),
                media=NDJSON,
            ),
        },
        "/spaces/{name}/replay": {**one, "get": replay},
        "/participants/{id}/messages": {"parameters": [parameter("id", "path", "The sender.")], "post": message},
        "/participants": {"get": members},
    }
