"""A client protocol from outside the package, served by the gateway in addition to its own:

    python plain_protocol.py http://127.0.0.1:8080/v1        # the address of a server that speaks Chat Completions
    curl -N http://127.0.0.1:8000/v1/plain -d '{"prompt": "Why is the sky blue?"}'

The response is a stream of server-sent events: `think` and `text` with a piece of text, then `done`, or `error`.

A client protocol is a row of `CLIENT_PROTOCOLS`: how a request is parsed, and how events are encoded. Nothing here
knows a provider. The gateway adds views, limits, keys, warnings, the OpenAPI document and back-pressure. The row must
be there before `pellucid.server` is imported, which makes an endpoint from it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Container, Sequence
from typing import Any, NamedTuple

import msgspec

from pellucid.errors import ErrorInfo, RequestError
from pellucid.events import Event, PartDeltaEvent, RunEndEvent
from pellucid.parts import (
    ModelMessage,
    ModelRequest,
    SealedPart,
    TextPartDelta,
    ThinkingPartDelta,
    UserPromptPart,
)
from pellucid.protocols.client_protocols import CLIENT_PROTOCOLS, ClientProtocol, EndpointSpec, StatelessProtocol
from pellucid.protocols.errors import ErrorFormat
from pellucid.settings import ModelCall, ToolDefinition
from pellucid.view import View


class PlainRequest(msgspec.Struct):
    """The body of a request."""

    prompt: str
    model: str | None = None


class PlainEvent(msgspec.Struct):
    """The data of an event."""

    text: str


class PlainError(msgspec.Struct):
    """The body of an error before the stream begins, and the data of an `error` event."""

    error: str


def error_body(error: ErrorInfo, /) -> dict[str, Any]:
    """Return the body of an error."""
    return {"error": error.message}


class PlainEncoder:
    """Encodes the events of one run."""

    ping = b": ping\n\n"

    def start(self, *, queued: bool = False) -> bytes:
        """Return the bytes that open the stream."""
        return b": waiting for the model\n\n" if queued else b""

    def feed(self, events: list[Event], now: int) -> bytes:
        """Encode the events of one batch; kinds that this protocol does not show are left out."""
        return b"".join(self._encode(event) for event in events)

    def text_encoder(self) -> Callable[[str, int], bytes] | None:
        """Return None: each delta needs an event."""
        return None

    def _encode(self, event: Event) -> bytes:
        match event:
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)) if text:
                return _sse("think", {"text": text})
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
                return _sse("text", {"text": text})
            case RunEndEvent(error=ErrorInfo() as error):
                return _sse("error", error_body(error))
            case RunEndEvent():
                return _sse("done", {})
            case _:
                return b""


def _sse(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


class ParsedRequest(NamedTuple):
    """A parsed request, as the gateway needs it (`StatelessRequest`)."""

    body: PlainRequest
    client_tools: Collection[str] = ()
    wants_summaries: bool = False
    max_tool_calls: int | None = None
    warnings: Sequence[str] = ()
    view: View | None = None
    stream: bool = True

    @property
    def model(self) -> str | None:
        """The model's public name; None for the server's default."""
        return self.body.model

    @property
    def messages(self) -> list[ModelMessage]:
        """The conversation."""
        return [ModelRequest([UserPromptPart(self.body.prompt)])]

    def call(self, messages: Sequence[ModelMessage], server_tools: Sequence[ToolDefinition] = ()) -> ModelCall:
        """Return the call of the model."""
        return ModelCall(self.body.model or "", list(messages), tools=tuple(server_tools))

    def token_path(self, part: SealedPart) -> str:
        """Return the path of a sealed token; this protocol carries none."""
        return "prompt"

    def encoder(self, id: str, model: str, created: int, server_tools: Container[str]) -> PlainEncoder:
        """Return the encoder of the answer."""
        return PlainEncoder()


def parse_request(data: bytes | dict[str, Any]) -> ParsedRequest:
    """Parse a body. Raises `RequestError`."""
    try:
        body = data if isinstance(data, dict) else msgspec.json.decode(data)
        return ParsedRequest(msgspec.convert(body, PlainRequest))
    except msgspec.MsgspecError as error:
        raise RequestError(f"the body cannot be read: {error}") from error


ENDPOINT = EndpointSpec("plain", "Ask a model", "A stream of events", PlainRequest, None, PlainEvent, PlainError)
CLIENT_PROTOCOLS["plain"] = ClientProtocol(
    paths=("/v1/plain",),
    error_format=ErrorFormat(error_body),
    make_encoder=lambda mint, model, dialect, chunks: PlainEncoder(),
    verify=lambda stream, dialect: [],
    stateless=StatelessProtocol(ENDPOINT, parse_request, "plain"),
)


def make_app(base_url: str) -> Any:
    """Return a gateway in front of a server that speaks Chat Completions."""
    from pellucid.server import create_app
    from pellucid.server.config import check_config

    return create_app(check_config({"providers": {"openai-compat": {"base_url": base_url}}}, {}))


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(make_app(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]) if len(sys.argv) > 2 else 8000)
