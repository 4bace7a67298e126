"""The table of client protocols: what `pellucid translate`, the server and the tests need to know of each.

A protocol whose answer depends on nothing but its request is served by one endpoint, which is made from its row
(`StatelessProtocol`). A protocol that stores something (a response, a thread, a chat) has an endpoint of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, get_args

from ..events import Mint
from ..parts import ModelMessage, SealedPart
from ..settings import ModelCall, ToolDefinition
from ..view import View
from . import CAPTURED_PROMPT, CAPTURED_TIME, Encoder, agui, ai_sdk, chat, chat_completions, messages, openresponses
from .agui.messages import PROTOCOL_VERSION
from .agui.verify import verify_stream as verify_agui
from .ai_sdk.verify import verify as verify_ai_sdk
from .chat.verify import verify as verify_chat
from .chat_completions import types as chat_completions_types
from .chat_completions.verify import verify as verify_chat_completions
from .errors import ErrorFormat
from .messages import types as messages_types
from .messages.verify import verify as verify_messages
from .openresponses.verify import verify as verify_openresponses


class ClientRequest(Protocol):
    """A parsed request (see `Request` in each package of `protocols`)."""

    @property
    def client_tools(self) -> Collection[str]:
        """The names of the client's own functions."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """What of the request is left out."""
        ...

    @property
    def wants_summaries(self) -> bool:
        """Whether the client wants summaries in addition to the raw text."""
        ...

    @property
    def max_tool_calls(self) -> int | None:
        """The maximum number of calls of tools in the run; None for no limit by the client."""
        ...

    def call(self, messages: Sequence[ModelMessage], server_tools: Sequence[ToolDefinition] = ()) -> ModelCall:
        """Return the call of the model, with the model's public name.

        Args:
            messages: The conversation.
            server_tools: Functions that the server offers. A function of the client replaces one with the same name.

        Raises:
            RequestError: The request cannot be turned into a call.
        """
        ...

    def token_path(self, part: SealedPart) -> str:
        """Return the path of this sealed token in the request."""
        ...


class StatelessRequest(ClientRequest, Protocol):
    """A request that holds the whole conversation."""

    @property
    def messages(self) -> list[ModelMessage]:
        """The conversation."""
        ...

    @property
    def model(self) -> str | None:
        """The model's public name; None for the server's default."""
        ...

    @property
    def view(self) -> View | None:
        """The view that the client wants; None for the most that its API key allows."""
        ...

    @property
    def stream(self) -> bool:
        """Whether the client wants a stream."""
        ...

    def encoder(self, id: str, model: str, created: int, server_tools: Container[str]) -> Encoder:
        """Return the encoder of the answer.

        Args:
            id: The id of the answer.
            model: The model's public name.
            created: The time of the request, in seconds since 1970.
            server_tools: The names of the functions that the server calls.
        """
        ...


class EndpointSpec(NamedTuple):
    """The endpoint of a protocol that stores nothing, as the OpenAPI document describes it."""

    operation_id: str
    summary: str
    description: str
    """Description of the answer."""
    request_type: type
    response_type: Any
    """The type of an answer that is no stream; None where every answer is a stream."""
    event_type: Any
    """The type of a stream's events."""
    error_type: Any = None
    """The type of an error; None for OpenAI's form."""
    component_prefix: str = ""
    """The prefix of the names that these types get in the OpenAPI document."""


class StatelessProtocol(NamedTuple):
    """The parts of an endpoint whose answer depends on nothing but its request."""

    endpoint: EndpointSpec | None
    """The endpoint at the protocol's path, for requests with POST; None if it has no path of its own."""
    parse: Callable[..., StatelessRequest]
    """Parses a body, or the JSON object that was already decoded from it; its second argument are the headers that
    `headers` names, if it names any. Raises `RequestError`."""
    id_prefix: str
    """The prefix of an answer's id."""
    stream_headers: tuple[tuple[bytes, bytes], ...] = ()
    """Headers of a streamed answer."""
    headers: tuple[str, ...] = ()
    """Names of the headers that are part of a request."""


class RequestHead(Protocol):
    """A request before its body was read."""

    @property
    def query(self) -> Sequence[tuple[str, str]]:
        """The parameters of the query."""
        ...

    def request_header(self, name: str, /) -> str | None:
        """Return the value of a header, whose name is in lower case; None if there is none."""
        ...


class SharedPath(NamedTuple):
    """A path below which a protocol recognises its requests among those of another protocol."""

    path: str
    recognises: Callable[[RequestHead, Mapping[str, Any]], bool]
    """Returns whether a request is of this protocol, by its head and its body, which is empty before it was read."""


class ClientProtocol(NamedTuple):
    """One client protocol."""

    paths: tuple[str, ...]
    """The paths of the protocol; all its others are below these. The first is the one to which a run is requested."""
    error_format: ErrorFormat
    """The form of its errors."""
    make_encoder: Callable[[Mint, str, Any, bool], Encoder]
    """Makes the encoder of a captured answer, for `translate`.

    The arguments are a function that makes ids, the model's name, the dialect, and whether messages are sent as chunks.
    """
    verify: Callable[[bytes, Any], list[str]]
    """Returns the rules that a stream in this dialect violates, each as `rule: problem`."""
    sample_request: Callable[[str | None, str, str], dict[str, Any]] | None = None
    """Returns the body of a request for a stream, from the model's name, the user's message and the dialect."""
    sample_headers: Mapping[str, str] = MappingProxyType({})
    """The headers that such a request needs."""
    dialects: tuple[str, ...] = ()
    """The protocol's dialects; the first is the default."""
    supports_chunks: bool = False
    """Whether messages can be sent as chunks."""
    response_of: Callable[[Any], Any] | None = None
    """Returns the complete answer of an encoder that was fed the whole run, or its error.

    None where every answer is a stream.
    """
    stateless: StatelessProtocol | None = None
    shared_path: SharedPath | None = None


_CHAT_COMPLETIONS = EndpointSpec(
    "createChatCompletion",
    "Ask a model with OpenAI's older protocol; reasoning is in the fields of related providers",
    "The completion, whole or as a stream of chunks that ends with `[DONE]`; a stream that fails has an error in "
    "place of its last chunk",
    chat_completions_types.CreateChatCompletion,
    chat_completions_types.ChatCompletion,
    chat_completions_types.ChatCompletionChunk,
)

_MESSAGES = EndpointSpec(
    "createMessage",
    "Ask a model with Anthropic's protocol",
    "The message, whole or as a stream of events; a stream that fails ends with an event `error`",
    messages_types.CreateMessage,
    messages_types.Message,
    messages_types.MessageStreamEvent,
    messages_types.ErrorBody,
    "Messages",
)


def _model(name: str | None) -> dict[str, str]:
    return {} if name is None else {"model": name}


def _user_message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _ai_sdk_request(model: str | None, text: str, dialect: str) -> dict[str, Any]:
    message = {"id": "message", "role": "user", "parts": [{"type": "text", "text": text}]}
    return {**_model(model), "id": "check", "trigger": "submit-message", "messages": [message]}


def _agui_request(model: str | None, text: str, dialect: str) -> dict[str, Any]:
    """Return the input of a run. Only this gateway's options have a model."""
    return {
        "threadId": "check",
        "runId": "check",
        **({"protocolVersion": PROTOCOL_VERSION} if dialect == "1.0" else {}),
        "messages": [{"id": "message", **_user_message(text)}],
        "tools": [],
        "context": [],
        "state": {},
        "forwardedProps": {} if model is None else {"pellucid": _model(model)},
    }


CLIENT_PROTOCOLS: dict[str, ClientProtocol] = {
    agui.PROTOCOL: ClientProtocol(
        ("/ag-ui",),
        ErrorFormat(agui.error_body),
        lambda mint, model, dialect, chunks: agui.Encoder(
            mint("thread"),
            mint("run"),
            dialect,
            chunks=chunks,
            model=model,
            history=[agui.UserMessage(id="captured", content=CAPTURED_PROMPT)],
        ),
        verify_agui,
        _agui_request,
        dialects=get_args(agui.DialectName),
        supports_chunks=True,
    ),
    ai_sdk.PROTOCOL: ClientProtocol(
        (),
        ErrorFormat(ai_sdk.error_body),
        lambda mint, model, *_: ai_sdk.Encoder(mint("msg"), model),
        lambda stream, _: verify_ai_sdk(stream),
        _ai_sdk_request,
        stateless=StatelessProtocol(None, ai_sdk.parse_request, "msg", (ai_sdk.HEADER,)),
        shared_path=SharedPath("/api/chat", lambda head, body: ai_sdk.recognises(body, head.query)),
    ),
    chat.PROTOCOL: ClientProtocol(
        chat.PATHS,
        ErrorFormat(chat.error_body),
        lambda mint, model, *_: chat.Encoder(
            chat.message_started(mint(chat.ANSWER_PREFIX), mint(chat.CONVERSATION_PREFIX), model, CAPTURED_TIME)
        ),
        lambda stream, _: verify_chat(stream),
        lambda model, text, _: {**_model(model), "text": text},
        response_of=lambda encoder: encoder.event,
    ),
    "chat_completions": ClientProtocol(
        ("/v1/chat/completions",),
        ErrorFormat(chat_completions.error_body),
        lambda mint, model, *_: chat_completions.Encoder(mint("chatcmpl"), model, CAPTURED_TIME, include_usage=True),
        lambda stream, _: verify_chat_completions(stream),
        lambda model, text, _: {**_model(model), "messages": [_user_message(text)], "stream": True},
        response_of=lambda encoder: encoder.completion if encoder.error is None else encoder.error,
        stateless=StatelessProtocol(_CHAT_COMPLETIONS, chat_completions.parse_request, "chatcmpl"),
    ),
    "messages": ClientProtocol(
        ("/v1/messages",),
        # Clients of Anthropic's API repeat a request to a server that is overloaded or stopping if the status is 529.
        ErrorFormat(
            messages.error_body, {"unavailable": 529}, request_id_header=b"request-id", request_id_field="request_id"
        ),
        lambda mint, model, *_: messages.Encoder(mint("msg"), model),
        lambda stream, _: verify_messages(stream),
        lambda model, text, _: {
            **_model(model),
            "max_tokens": 4096,
            "messages": [_user_message(text)],
            "stream": True,
        },
        {messages.VERSION_HEADER: "2023-06-01"},
        response_of=lambda encoder: encoder.message if encoder.error is None else encoder.error,
        stateless=StatelessProtocol(_MESSAGES, messages.parse_request, "msg", headers=messages.FORWARDED_HEADERS),
        # The list of models is OpenAI's, and has Anthropic's form for clients of Anthropic's API.
        shared_path=SharedPath("/v1/models", lambda head, _: head.request_header(messages.VERSION_HEADER) is not None),
    ),
    openresponses.PROTOCOL: ClientProtocol(
        ("/v1/responses", "/v1/conversations"),
        ErrorFormat(openresponses.error_body),
        lambda mint, model, dialect, _: openresponses.Encoder(
            openresponses.request_from({"input": CAPTURED_PROMPT}).response(mint("resp"), model, CAPTURED_TIME), dialect
        ),
        verify_openresponses,
        lambda model, text, _: {**_model(model), "input": text, "stream": True},
        dialects=get_args(openresponses.Dialect),
        response_of=lambda encoder: encoder.response,
    ),
}
"""The client protocols by the name that the option `--to` takes."""


def protocol_at(path: str) -> ClientProtocol:
    """Return the protocol of a path, which decides about the form of errors; OpenResponses if it is of no protocol."""
    rows = CLIENT_PROTOCOLS.values()
    matching = (row for row in rows if any(_is_below(path, parent) for parent in row.paths))
    return next(matching, CLIENT_PROTOCOLS[openresponses.PROTOCOL])


def recognised_protocol(path: str, head: RequestHead, body: Mapping[str, Any]) -> str | None:
    """Return the name of the protocol that recognises a request at a path of another one; None if none does.

    Args:
        path: The path.
        head: The head of the request.
        body: The body of the request; empty before it was read.
    """
    return next(
        (
            name
            for name, row in CLIENT_PROTOCOLS.items()
            if row.shared_path is not None
            if _is_below(path, row.shared_path.path) and row.shared_path.recognises(head, body)
        ),
        None,
    )


def _is_below(path: str, parent: str) -> bool:
    return path == parent or path.startswith(f"{parent}/")
