"""One HTTP exchange (request and response) on any ASGI server: what the gateway and an agent's application share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, ParamSpec, TypeVar
from urllib.parse import parse_qsl

from ..errors import ErrorInfo, PellucidError
from ..offload import json_weight, offload
from ..protocols.decoding import check_size, read_json
from ..protocols.errors import ErrorFormat
from ..unicode import replace_surrogates
from ..view import Viewer, redact_error
from . import http
from .streaming import ASGIWriter, BodyWriter, error_for_client

P = ParamSpec("P")
T = TypeVar("T")


def _read_checked(data: bytes | str, max_items: int, max_tools: int) -> tuple[dict[str, Any], int]:
    raw = read_json(data)
    return raw, check_size(raw, max_items, max_tools)


class HTTPExchange:
    """One request and its response (see `streaming.StreamExchange`).

    `response_headers` are sent with every response.
    """

    def __init__(self, scope: http.Scope, receive: http.Receive, send: http.Send, error_format: ErrorFormat) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.error_format = error_format
        self.response_headers: list[tuple[bytes, bytes]] = []
        self.request_id: str | None = None
        self.viewer = Viewer("hidden")
        """The viewer of the response. A handler may lower it to what the request asks for."""
        self.response_started = False
        self.weight = 0
        """The size of the request, and of what it continues (see `offload`)."""

    def request_header(self, name: str) -> str | None:
        """Return the value of a request header, the last one if there are several; None if there is none."""
        lines = self.header_lines.get(name.encode())
        return lines[-1].decode("latin-1").strip() if lines is not None else None

    @cached_property
    def header_lines(self) -> dict[bytes, list[bytes]]:
        """The lines of the request's headers, by name. Many rules look for a header that is not there."""
        lines: dict[bytes, list[bytes]] = {}
        for name, value in self.scope["headers"]:
            lines.setdefault(name, []).append(value)
        return lines

    @cached_property
    def query(self) -> list[tuple[str, str]]:
        """The parameters of the query, in their order."""
        text = self.scope["query_string"].decode("latin-1")
        return parse_qsl(text, keep_blank_values=True) if text else []

    async def decode_json(self, data: bytes | str, max_items: int, max_tools: int) -> dict[str, Any]:
        """Decode a JSON object that the client sent.

        Args:
            data: The JSON.
            max_items: The maximum number of items or messages, with their parts.
            max_tools: The maximum number of tools.

        Raises:
            RequestError: It is no JSON object, or has too many of something.
        """
        self.weight = json_weight(data)
        raw, size = await self.compute(_read_checked, data, max_items, max_tools)
        self.weight += size
        return raw

    async def compute(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a pure function on what the request holds: in a thread, if it is large (see `offload`)."""
        return await offload(self.weight, function, *args, **kwargs)

    def on_disconnect(self, callback: Callable[[], None] | None) -> bool:
        """Return False: no server calls back here; a disconnect comes from `receive` (see `http.DisconnectSource`)."""
        return False

    def on_interrupt(self, callback: Callable[[PellucidError], None] | None) -> None:
        """Do nothing: nothing interrupts a request here (see `http.DisconnectSource`)."""

    def begin_response(self, status: int) -> None:
        """Record that the response begins now, so that no other is sent."""
        self.response_started = True

    async def stream(self, content_type: str = http.EVENT_STREAM) -> BodyWriter:
        """Begin a streamed response, and return the writer of its body."""
        self.begin_response(200)
        await http.start_stream(self.send, self.response_headers, content_type)
        return ASGIWriter(self.send)

    async def send_json(self, value: Any, status: int = 200) -> None:
        """Send the response as JSON."""
        self.begin_response(status)
        await http.send_json(self.send, status, value, self.response_headers)

    async def send_text(self, text: bytes, content_type: str, status: int = 200) -> None:
        """Send the response with another content type."""
        self.begin_response(status)
        await http.send_body(self.send, status, text, content_type, self.response_headers)

    async def send_error(self, error: ErrorInfo, extra_headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Send an error, in the protocol's form."""
        error = redact_error(error, self.viewer)
        headers = [*http.retry_headers(error), *extra_headers]
        self.response_headers += [header for header in headers if header not in self.response_headers]
        await self.send_error_body(error, self.error_format.status_of(error))

    async def send_error_body(self, error: ErrorInfo, status: int) -> None:
        """Send an error in the protocol's form, with this status and without headers of its own."""
        body = self.error_format.encode(error, self.request_id)
        if isinstance(body, str):
            await self.send_text(replace_surrogates(body).encode(), http.PLAIN_TEXT, status)
        else:
            await self.send_json(body, status)

    async def send_exception(
        self, error: Exception, fault: str, extra_headers: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        """Send the error with which an exception is answered, unless a response has begun.

        Args:
            error: The exception.
            fault: What failed (see `error_for_client`).
            extra_headers: Headers in addition to those of the response.
        """
        info = error_for_client(error, fault)
        if info.kind in ("slow_request", "too_large"):
            extra_headers = [*extra_headers, http.CLOSE_HEADER]  # the rest of the body will not be read
        if not self.response_started:
            await self.send_error(info, extra_headers)
