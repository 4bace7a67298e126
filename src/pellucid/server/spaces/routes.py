"""Routes of spaces, and MEW's own paths. Every component's name begins with `Space` or `Mew`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.types import ASGIApp

from ...envelopes import DIALECTS, DialectName
from ...envelopes.visibility import SpaceView
from ...spaces.history.context_tree import ContextTree
from ...spaces.history.export import ExportFormat
from ...spaces.history.history import Hits, References
from ...spaces.history.summaries import Contexts, Patterns
from ...spaces.history.training import ReasoningForm
from ..page import Page, built_files
from ..routing import STRING, Operation, Schema, Socket, Table, parameter
from ..services import Services
from .auth import EndpointFactory, ParticipantHandler
from .history_handlers import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, NDJSON, HistoryHandlers, SpacePage
from .links import Invitation, Joined, Link, LinkHandlers, LinkRequest, NewLink
from .mcp import SESSION_HEADER, MCPHandlers
from .socket import SpaceSocket
from .space_handlers import (
    MEW_ERROR_FORMAT,
    MewError,
    MEWHandlers,
    MewParticipants,
    Space,
    SpaceHandlers,
    SpaceList,
    SpacePosted,
)
from .space_query import MAX_PAUSE_SECONDS, MAX_SEQ, MAX_SPEED, Pace

SECURITY = {
    "space-token": {
        "type": "http",
        "scheme": "bearer",
        "description": "The token of a participant of the space: `pellucid space create` prints it.",
    }
}
_TOKEN: list[Schema] = [{"space-token": []}]
_ERROR_STATUSES = (400, 401, 403, 404, 429, 500, 503)
_POST_ERROR_STATUSES = (*_ERROR_STATUSES, 408, 413)
_LINK_ERROR_STATUSES = (400, 403, 408, 409, 413, 429, 500, 503)

# --- parameters ------------------------------------------------------------------------------------------------------

_Seq = Annotated[int, Meta(ge=0, le=MAX_SEQ)]
_NAME = parameter("name", "path", "The space's name.")
_SEQ = parameter("seq", "path", "The number of an envelope.", Annotated[int, Meta(ge=1, le=MAX_SEQ)])
_PATH = parameter("path", "path", "The context's path, with its slashes.")
_AFTER = parameter("after_seq", "query", "Envelopes after this number.", _Seq)
_BEFORE = parameter("before_seq", "query", "Envelopes before this number.", _Seq)
_DIALECT = parameter("dialect", "query", "The dialect of envelopes.", DialectName)
_VIEW = parameter("view", "query", "How much of the reasoning.", SpaceView)
_FILTERS = (
    parameter("kind", "query", "Only these kinds: `chat`, `reasoning/*`; several with commas, or repeated."),
    parameter("from", "query", "Only from this participant."),
    parameter("context", "query", "Only in this context, and those inside it."),
)
_SPACE = {**parameter("space", "query", "The space's name."), "required": True}
_SPACE_IF_SEVERAL = parameter("space", "query", "The space's name, if the token opens several.")
_TEXT = parameter("q", "query", "The text, in any script.", Annotated[str, Meta(min_length=1)])


def _limit(default: int) -> Schema:
    return parameter("limit", "query", "How many at most.", Annotated[int, Meta(ge=1, le=MAX_PAGE_SIZE)], default)


_PAGES = (
    parameter("newest", "query", "The newest envelopes, instead of the oldest.", bool),
    _AFTER,
    _BEFORE,
    _limit(DEFAULT_PAGE_SIZE),
    *_FILTERS,
    _VIEW,
    _DIALECT,
)
_EXPORT = (
    parameter("format", "query", "The format.", ExportFormat),
    parameter("reasoning", "query", "Where reasoning is put.", ReasoningForm),
    parameter("complete", "query", "chat-jsonl: only conversations with a question and an answer.", bool),
    parameter("metadata", "query", "chat-jsonl: whether to include Pellucid's own field.", bool),
    _AFTER,
    _BEFORE,
    _VIEW,
    _DIALECT,
)
_REPLAY = (
    _AFTER,
    _BEFORE,
    *(parameter(name, "query", "A time (RFC 3339).") for name in ("since", "until")),
    parameter("replay", "query", "The pace.", Pace),
    parameter(
        "speed", "query", "The speed as a multiple of the original one.", Annotated[float, Meta(gt=0, le=MAX_SPEED)]
    ),
    parameter(
        "longest_pause",
        "query",
        "The maximum of seconds between two envelopes.",
        Annotated[float, Meta(gt=0, le=MAX_PAUSE_SECONDS)],
    ),
    _VIEW,
    _DIALECT,
)

# --- sockets ---------------------------------------------------------------------------------------------------------

_SOCKET_PARAMETERS = (
    _DIALECT,
    _VIEW,
    parameter("after_seq", "query", "Send first the envelopes after this number.", _Seq),
    parameter("history", "query", "Send first this many of the newest envelopes, flagged `replayed`.", _Seq),
    parameter("replay", "query", "Only replay the history, at this pace.", Pace),
)
_ENVELOPE: Schema = {"$ref": "#/components/schemas/SpaceEnvelope"}


def _socket(path: str, summary: str, *parameters: Schema) -> Socket:
    summary = f"GET as a WebSocket, with the token of a participant in the upgrade or in the first frame: {summary}"
    description = {"description": summary, "parameters": [*parameters, *_SOCKET_PARAMETERS]}
    return Socket(path, "x-pellucid-websocket", {**description, "clientMessage": _ENVELOPE, "serverMessage": _ENVELOPE})


_SOCKETS = (
    _socket("/spaces/{name}/ws", "send and receive envelopes"),
    _socket("/ws", "the same, for MEW's clients", _SPACE),
    _socket("/", "for MEW's clients, which know a host and name the space in their join"),
)

# --- operations ------------------------------------------------------------------------------------------------------


def _envelope_schema() -> Schema:
    """Return the schema of an envelope in MEW's dialect.

    Other dialects differ; fields that have a default are optional.
    """
    ids: Schema = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 255}}
    flag = {"type": "object", "properties": {"code": STRING, "message": STRING}, "required": ["code", "message"]}
    flags = {"type": "array", "items": flag, "description": "Flags that the gateway set."}
    kind = "^[A-Za-z0-9_-][A-Za-z0-9_:-]*([/.][A-Za-z0-9_-][A-Za-z0-9_:-]*)*$"
    return {
        "type": "object",
        "description": "One message of a space. It may also have fields of other dialects, and unknown ones.",
        "properties": {
            "protocol": {"enum": [row.protocol for row in DIALECTS.values()], "description": "The dialect."},
            "id": ids["items"],
            "ts": {"type": "string", "format": "date-time"},
            "from": {**STRING, "description": "The sender, set by the gateway."},
            "to": ids,
            "kind": {
                **STRING,
                "pattern": kind,
                "maxLength": 255,
                "description": "`chat`, `reasoning/start`, `mcp/request` …; dots are slashes.",
            },
            "correlation_id": ids,
            "context": {"description": "The path of the reasoning context: `msg-1/msg-2`."},
            "payload": {"type": "object"},
            "seq": {"type": "integer", "description": "The number that the gateway gave it: its order in the space."},
            "replayed": {"type": "boolean"},
            "flags": flags,
        },
        "required": ["kind"],
    }


def _amend(components: dict[str, Schema]) -> None:
    components["SpacePresent"]["required"].remove("capabilities")
    for component, name, what in (
        ("SpacePage", "at", "When the gateway accepted each, in milliseconds since 1970."),
        ("SpacePage", "first", "For older envelopes: use it as `before_seq`."),
        ("SpacePage", "last", "For newer envelopes: use it as `after_seq`."),
        ("SpaceContextLine", "started", "Milliseconds since 1970."),
    ):
        components[component]["properties"][name]["description"] = what


_MCP_SESSION = parameter("Mcp-Session-Id", "header", f"The `{SESSION_HEADER}` of the response to `initialize`.")
_JSON_RPC: Schema = {"$ref": "#/components/schemas/SpaceMcpMessage"}
_MCP_ERROR: Schema = {
    "description": "An error, of the gateway or of the MCP server",
    "content": {"application/json": {"schema": {"anyOf": [{"$ref": "#/components/schemas/ErrorBody"}, _JSON_RPC]}}},
}
_MCP_MESSAGE: Schema = {
    "description": "A message of JSON-RPC 2.0, as of the Model Context Protocol.",
    "type": "object",
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["string", "integer", "null"]},
        "method": STRING,
        "params": {"type": "object"},
    },
    "required": ["jsonrpc"],
}
_INVITATION_PATH, _JOIN_PATH = "/spaces/{name}/invitation", "/spaces/{name}/join"
_SPACES_PATH, _SPACE_PATH, _ENVELOPES_PATH = "/spaces", "/spaces/{name}", "/spaces/{name}/envelopes"
_MCP_PATH = "/spaces/{name}/mcp"
TABLE = Table(
    [
        Operation(
            "GET",
            _SPACES_PATH,
            SpaceHandlers.spaces,
            "listSpaces",
            "The spaces of a token, or of a key's owner",
            SpaceList,
            page_statuses=(200, 503),
            security=[*_TOKEN, {"bearer": []}, {"x-api-key": []}, {"api-key": []}, {}],
        ),
        Operation(
            "GET",
            _SPACE_PATH,
            SpaceHandlers.space,
            "getSpace",
            "A space and its members; to a browser, its page",
            Space,
            page_statuses=(200, 503),
        ),
        Operation(
            "GET", _ENVELOPES_PATH, HistoryHandlers.page, "listEnvelopes", "The envelopes of a space", SpacePage, _PAGES
        ),
        Operation(
            "POST",
            _ENVELOPES_PATH,
            SpaceHandlers.post,
            "postEnvelope",
            "Post an envelope; the response is sent when it is stored",
            SpacePosted,
            [_DIALECT],
            "SpaceEnvelope",
            error_statuses=_POST_ERROR_STATUSES,
        ),
        Operation(
            "POST",
            f"{_SPACE_PATH}/links",
            LinkHandlers.make,
            "inviteByLink",
            "Make a link that invites one participant",
            Link,
            request_body=NewLink,
            error_statuses=(*_POST_ERROR_STATUSES, 409),
        ),
        Operation(
            "POST",
            _INVITATION_PATH,
            LinkHandlers.read_invitation,
            "readInvitation",
            "What a link gives; it is not used",
            Invitation,
            request_body=LinkRequest,
            error_statuses=_LINK_ERROR_STATUSES,
            security=(),
        ),
        Operation(
            "POST",
            _JOIN_PATH,
            LinkHandlers.join,
            "joinByLink",
            "Join with a link: get the token of its participant, once",
            Joined,
            request_body=LinkRequest,
            error_statuses=_LINK_ERROR_STATUSES,
            security=(),
        ),
        Operation(
            "GET",
            f"{_SPACE_PATH}/history",
            HistoryHandlers.page,
            "readHistory",
            "The same as `envelopes`",
            SpacePage,
            _PAGES,
        ),
        Operation(
            "GET",
            f"{_ENVELOPES_PATH}/{{seq}}",
            HistoryHandlers.envelope,
            "getEnvelope",
            "One envelope",
            "SpaceEnvelope",
            [_VIEW, _DIALECT],
        ),
        Operation(
            "GET",
            f"{_ENVELOPES_PATH}/{{seq}}/references",
            HistoryHandlers.references,
            "getReferences",
            "The envelopes that it refers to, and those that refer to it",
            References,
            [_DIALECT],
        ),
        Operation(
            "GET",
            f"{_SPACE_PATH}/search",
            HistoryHandlers.search,
            "searchSpace",
            "Search for a text, newest first",
            Hits,
            [{**_TEXT, "required": True}, _BEFORE, _limit(50), *_FILTERS, _VIEW, _DIALECT],
        ),
        Operation(
            "GET",
            f"{_SPACE_PATH}/contexts",
            HistoryHandlers.contexts,
            "listContexts",
            "The reasoning contexts, newest first",
            Contexts,
            [_BEFORE, _limit(20), _VIEW],
        ),
        Operation(
            "GET",
            f"{_SPACE_PATH}/contexts/{{path:path}}",
            HistoryHandlers.tree,
            "getContext",
            "A reasoning context, as a tree",
            ContextTree,
            [_VIEW, _DIALECT],
        ),
        Operation(
            "GET",
            f"{_SPACE_PATH}/patterns",
            HistoryHandlers.patterns,
            "listPatterns",
            "Patterns of reasoning in the space",
            Patterns,
            [_BEFORE, _limit(200), _VIEW],
        ),
        Operation(
            "GET",
            f"{_SPACE_PATH}/export",
            HistoryHandlers.export,
            "exportSpace",
            "Export all that may be read, as JSON lines",
            {NDJSON: str},
            _EXPORT,
        ),
        Operation(
            "GET",
            f"{_SPACE_PATH}/replay",
            HistoryHandlers.replay,
            "replaySpace",
            "Replay the history; envelopes are flagged `replayed`",
            {NDJSON: str, "text/event-stream": str},
            _REPLAY,
        ),
        Operation(
            "POST",
            _MCP_PATH,
            MCPHandlers.post,
            "postToSpaceMcpServer",
            "The space as an MCP server (streamable HTTP): send a JSON-RPC message",
            {"application/json": {"schema": _JSON_RPC}, "text/event-stream": {"schema": STRING}},
            [_VIEW, _MCP_SESSION],
            {"application/json": {"schema": _JSON_RPC}},
            error_statuses=_POST_ERROR_STATUSES,
            extra_responses={
                202: {"description": "A notification or a response was accepted"},
                **dict.fromkeys((400, 404, 406, 413, 415, 500), _MCP_ERROR),
            },
        ),
        Operation(
            "GET",
            _MCP_PATH,
            MCPHandlers.get,
            "openSpaceMcpStream",
            "The event stream of an MCP session, which holds the session open",
            {"text/event-stream": {"schema": STRING}},
            [_VIEW, _MCP_SESSION],
        ),
        Operation(
            "DELETE",
            _MCP_PATH,
            MCPHandlers.delete,
            "endSpaceMcpSession",
            "End an MCP session: its participant leaves",
            parameters=[_VIEW, _MCP_SESSION],
            status=204,
            description="The session was ended",
        ),
    ],
    error_body="ErrorBody",
    error_statuses=_ERROR_STATUSES,
    path_parameters={"name": _NAME, "seq": _SEQ, "path": _PATH},
    sockets=_SOCKETS,
    component_prefix="Space",
    component_names={"ContextTree": "SpaceTree", "Tree": "SpaceContext", "TreeStep": "SpaceStep"},
    components={"Envelope": _envelope_schema(), "McpMessage": _MCP_MESSAGE},
    amend_components=_amend,
    security=_TOKEN,
    advertised_routes=["GET /spaces/{name}/ws (WebSocket)", "POST /spaces/{name}/mcp", "GET /spaces"],
)
MEW = Table(
    [
        Operation(
            "POST",
            "/participants/{id}/messages",
            MEWHandlers.message,
            "postMewMessage",
            "Post an envelope, as MEW's clients do",
            "SpacePosted",
            [_SPACE_IF_SEVERAL],
            "SpaceEnvelope",
            error_statuses=_POST_ERROR_STATUSES,
        ),
        Operation(
            "GET",
            "/participants",
            MEWHandlers.participants,
            "listMewParticipants",
            "The members of a space, for MEW's clients",
            MewParticipants,
            [_SPACE_IF_SEVERAL],
        ),
    ],
    error_body=MewError,
    error_statuses=_ERROR_STATUSES,
    path_parameters={"id": parameter("id", "path", "The sender.")},
    component_prefix="Mew",
    component_names={"Member": "SpaceMember"},
    security=_TOKEN,
)


def routes(services: Services) -> list[BaseRoute]:
    endpoint_factory, space_handlers = EndpointFactory(services), SpaceHandlers(services)
    link_handlers, mcp_handlers = LinkHandlers(services), MCPHandlers(services)
    page = Page(built_files()) if services.config.server.page else None

    def make_endpoint(row: Operation, handler: ParticipantHandler) -> ASGIApp:
        # The list of spaces also accepts other credentials, and a link is one: their handlers authenticate the caller.
        without_token = {
            _SPACES_PATH: space_handlers.spaces,
            _INVITATION_PATH: link_handlers.read_invitation,
            _JOIN_PATH: link_handlers.join,
        }
        endpoint = (
            endpoint_factory.without_token(without_token[row.path])
            if row.path in without_token
            else endpoint_factory.for_participants(handler)
        )
        return page.negotiate(endpoint) if row.page_statuses and page is not None else endpoint

    return [
        *(WebSocketRoute(socket.path, SpaceSocket(services, socket.path)) for socket in _SOCKETS),
        *TABLE.routes([space_handlers, HistoryHandlers(services), link_handlers, mcp_handlers], make_endpoint),
        *MEW.routes(
            [MEWHandlers(services)], lambda _, answer: endpoint_factory.for_participants(answer, MEW_ERROR_FORMAT)
        ),
    ]
