"""The client protocols, a row each: what `pellucid translate`, the server and the tests need to know of all of them.

A protocol whose answer depends on nothing but its request is served by one endpoint, which is made from its row
(`Stateless`). One that keeps something (a response, a thread, a chat) has an endpoint of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, get_args

import msgspec

from ..framing import SSEDecoder
from ..parts import ModelMessage, SealedPart, View
from ..settings import ModelCall, ToolDefinition
from . import Encoder, agui, ai_sdk, chat, chat_completions, openresponses
from .agui.sequence import RULES
from .agui.verify import Verifier
from .ai_sdk.verify import verify as verify_ai_sdk
from .chat.verify import verify as verify_chat
from .chat_completions import types as chat_completions_types
from .chat_completions.verify import verify as verify_chat_completions
from .errors import ErrorForm
from .openresponses.verify import verify as verify_openresponses

Mint: TypeAlias = Callable[[str], str]
"""Gives a new id with this prefix (see `pellucid.run`)."""


class ClientRequest(Protocol):
    """What a request says (see `Request` in each of `protocols`)."""

    @property
    def own_tools(self) -> Collection[str]:
        """The names of the caller's own functions."""
        ...

    @property
    def wants_summaries(self) -> bool:
        """Whether summaries are asked for beside the raw text."""
        ...

    @property
    def max_tool_calls(self) -> int | None: ...

    def call(self, messages: Sequence[ModelMessage], server_tools: Sequence[ToolDefinition] = ()) -> ModelCall:
        """What to ask the model. Raises `RequestError`."""
        ...

    def place_of(self, part: SealedPart) -> str:
        """Where in the request this token stands."""
        ...


class StatelessRequest(ClientRequest, Protocol):
    """A request that holds the whole conversation."""

    @property
    def messages(self) -> list[ModelMessage]: ...

    @property
    def model(self) -> str | None:
        """The model's public name; None for the server's default."""
        ...

    @property
    def view(self) -> View | None:
        """In what form the caller wants reasoning; None for what the key allows."""
        ...

    @property
    def stream(self) -> bool: ...

    def encoder(self, id: str, model: str, created: int, server_tools: set[str]) -> Encoder:
        """The encoder of the answer. `created` is in seconds since 1970."""
        ...


class Served(NamedTuple):
    """A path of a protocol's own, and what the OpenAPI document says of it. Requests are sent with POST."""

    path: str
    operation_id: str
    summary: str
    description: str
    """Of the answer."""
    request: type
    whole: type
    event: type
    """What a stream is made of."""


class Stateless(NamedTuple):
    """An endpoint whose answer depends on nothing but its request."""

    served: Served | None
    """Where it is served; None where another protocol's endpoint recognises its requests."""
    parse: Callable[[bytes | dict[str, Any]], StatelessRequest]
    """A body, or the JSON that was read of it. Raises `RequestError`."""
    id_prefix: str
    """What the id of an answer begins with."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Those of a stream."""


class ClientProtocol(NamedTuple):
    form: ErrorForm
    """The package of the protocol, which has its form of errors."""
    captured: Callable[[Mint, str, str, bool], Encoder]
    """The encoder of the answer to one question, for `translate`: from a mint, the model, the dialect, and whether
    messages are told as chunks."""
    check: Callable[[bytes, str], list[str]]
    """The rules that a stream in this dialect breaks, as `rule: what is wrong`."""
    dialects: tuple[str, ...] = ()
    """The first is the default."""
    chunks: bool = False
    """Whether messages may be told as chunks."""
    whole: Callable[[Any], Any] | None = None
    """The whole answer of an encoder that was fed all of it, or the error that it is; None where all answers are
    streams."""
    stateless: Stateless | None = None


CAPTURED, EPOCH = "(captured)", 0
"""The question, and the time, of an answer that was captured."""


def _openresponses(mint: Mint, model: str, dialect: Any, chunks: bool) -> Encoder:
    request = openresponses.parse_request(msgspec.json.encode({"input": CAPTURED}))
    return openresponses.Encoder(request.response(mint("resp"), model, EPOCH), dialect)


def _chat_completions(mint: Mint, model: str, dialect: str, chunks: bool) -> Encoder:
    return chat_completions.Encoder(mint("chatcmpl"), model, EPOCH, include_usage=True)


def _chat(mint: Mint, model: str, dialect: str, chunks: bool) -> Encoder:
    return chat.Encoder(mint(chat.ANSWER), mint(chat.CONVERSATION), model, EPOCH)


def _ai_sdk(mint: Mint, model: str, dialect: str, chunks: bool) -> Encoder:
    return ai_sdk.Encoder(mint("msg"), model)


def _agui(mint: Mint, model: str, dialect: Any, chunks: bool) -> Encoder:
    history = [agui.UserMessage(id="captured", content=CAPTURED)]
    return agui.Encoder(mint("thread"), mint("run"), dialect, chunks=chunks, model=model, history=history)


def _check_agui(stream: bytes, dialect: Any) -> list[str]:
    verifier, broken = Verifier(dialect), []
    for name, data in SSEDecoder(limit=len(stream) + 1).feed(stream):
        if name:
            broken.append(f"framing: an event with the name {name}")
        try:
            event = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            event = None
        broken += [f"{one} ({RULES[one.rule].told})" for one in verifier.feed(event)]
    return broken + [f"{one} ({RULES[one.rule].told})" for one in verifier.end()]


def _check_openresponses(stream: bytes, dialect: Any) -> list[str]:
    return verify_openresponses(stream, dialect)


def _whole_or_error(encoder: chat_completions.Encoder) -> Any:
    return encoder.whole if encoder.error is None else encoder.error


_CHAT_COMPLETIONS = Served(
    "/v1/chat/completions",
    "createChatCompletion",
    "Ask a model in OpenAI's older protocol; reasoning is in its relatives' fields",
    "The completion, whole or as a stream of chunks that ends with `[DONE]`; a stream that fails has an error in the "
    "place of its last chunk",
    chat_completions_types.CreateChatCompletion,
    chat_completions_types.ChatCompletion,
    chat_completions_types.ChatCompletionChunk,
)

CLIENT_PROTOCOLS: dict[str, ClientProtocol] = {
    "agui": ClientProtocol(agui, _agui, _check_agui, get_args(agui.DialectName), chunks=True),
    ai_sdk.PROTOCOL: ClientProtocol(
        ai_sdk,
        _ai_sdk,
        lambda stream, _: verify_ai_sdk(stream),
        stateless=Stateless(None, ai_sdk.parse_request, "msg", (ai_sdk.HEADER,)),
    ),
    "chat": ClientProtocol(chat, _chat, lambda stream, _: verify_chat(stream), whole=lambda encoder: encoder.event),
    "chat_completions": ClientProtocol(
        chat_completions,
        _chat_completions,
        lambda stream, _: verify_chat_completions(stream),
        whole=_whole_or_error,
        stateless=Stateless(_CHAT_COMPLETIONS, chat_completions.parse_request, "chatcmpl"),
    ),
    "openresponses": ClientProtocol(
        openresponses,
        _openresponses,
        _check_openresponses,
        get_args(openresponses.Dialect),
        whole=lambda encoder: encoder.response,
    ),
}
"""By the name that `--to` takes."""
