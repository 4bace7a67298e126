"""HTTP on ASGI for streaming endpoints: headers, bodies, and disconnects.

Streams do not use a framework's response object: one read of the upstream is one `send`, and a disconnect of the client
is the only other event.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Literal, Protocol
from urllib.parse import quote

import msgspec

from ..errors import BUDGET_EXCEEDED, ErrorInfo, PellucidError, RequestError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

EVENT_STREAM = "text/event-stream; charset=utf-8"
PLAIN_TEXT = "text/plain; charset=utf-8"

_STREAM_HEADERS = [
    (b"cache-control", b"no-cache"),
    # Reverse proxies such as nginx would buffer the stream.
    (b"x-accel-buffering", b"no"),
]


def content_disposition(kind: Literal["inline", "attachment"], file_name: str) -> tuple[bytes, bytes]:
    """Return the header that says whether a browser shows a body, and under which name it is saved (RFC 6266)."""
    plain = re.sub(r"[^A-Za-z0-9 ._()-]", "_", file_name)
    encoded = quote(file_name, safe="", errors="replace")
    return b"content-disposition", f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{encoded}".encode()


class ClientGone(Exception):
    """The client disconnected before its request or its response was complete."""


def path(scope: Scope) -> str:
    """Return the path within this application, without the path at which it is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def header(scope: Scope, name: str) -> str | None:
    """Return the value of a request header; the last one if there are several, None if there is none.

    Args:
        scope: The ASGI scope.
        name: The name of the header, in lower case.
    """
    lower_name = name.encode()
    values = [value for key, value in scope["headers"] if key == lower_name]
    return values[-1].decode("latin-1").strip() if values else None


MIN_BODY_RATE = 500
"""Bytes a second that a body must have on average after the first `timeout_seconds` of `read_body`. Apache's
mod_reqtimeout has the same default; it is less than any mobile connection has."""


async def read_body(scope: Scope, receive: Receive, max_bytes: int, timeout_seconds: float) -> bytes:
    """Read the body of a request.

    Args:
        scope: The ASGI scope.
        receive: ASGI's `receive`.
        max_bytes: The largest size of the body.
        timeout_seconds: The longest wait for each piece of the body, and for all of it. Every `MIN_BODY_RATE` bytes
            that arrive extend the latter by a second.

    Raises:
        RequestError: The body is too large, or is sent too slowly.
        ClientGone: The client disconnected before the end of the body.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > max_bytes:
            raise _too_large(max_bytes)  # Before the body is sent, if the client waits for `100 Continue`.
    body = b""
    pieces = bytearray()
    loop = asyncio.get_running_loop()
    end_at = loop.time() + timeout_seconds
    size = 0
    while True:
        piece_by = loop.time() + timeout_seconds
        body_by = end_at + size / MIN_BODY_RATE
        try:
            async with asyncio.timeout_at(min(piece_by, body_by)):
                message = await receive()
        except TimeoutError:
            raise _too_slow(timeout_seconds, is_rate=body_by < piece_by) from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        size += len(piece)
        if size > max_bytes:
            raise _too_large(max_bytes)
        if size == len(piece):
            body = piece  # nearly always the whole body
        elif piece:
            pieces += piece if pieces else body + piece
        if not message.get("more_body", False):
            return bytes(pieces) or body


def parse_qualities(header: str | None) -> dict[str, float]:
    """Return the weights of the entries of an `Accept` or `Accept-Encoding` header (RFC 9110, 12.4.2), 0 to 1."""
    qualities: dict[str, float] = {}
    for entry in (header or "").lower().split(","):
        name, *parameters = (piece.strip() for piece in entry.split(";"))
        quality = next((value[2:] for value in parameters if value.startswith("q=")), "1")
        try:
            weight = float(quality)
        except ValueError:
            weight = 0.0
        qualities[name] = weight if 0 <= weight <= 1 else 0.0
    return qualities


def media_quality(accept: str | None, media: str) -> float:
    """Return the weight of a media type, by itself or by a range (`text/*`, `*/*`); 0 if it is not accepted."""
    qualities = parse_qualities(accept)
    ranges = (media, f"{media.partition('/')[0]}/*", "*/*")
    return next((qualities[one] for one in ranges if one in qualities), 0.0)


def _too_slow(timeout_seconds: float, *, is_rate: bool) -> RequestError:
    slow = f"the body came at less than {MIN_BODY_RATE} bytes/s" if is_rate else "no data of the body came"
    return RequestError(f"{slow} for {timeout_seconds:g} s", kind="slow_request", code="body_too_slow")


def _too_large(max_bytes: int) -> RequestError:
    return RequestError(
        f"the body is larger than {max_bytes} bytes, the most this server takes",
        kind="too_large",
        code="body_too_large",
    )


async def send_json(send: Send, status: int, value: Any, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    body = value if isinstance(value, bytes) else msgspec.json.encode(value)
    await send_body(send, status, body, "application/json", headers)


async def send_body(
    send: Send, status: int, body: bytes, content_type: str, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", content_type.encode()),
                (b"content-length", str(len(body)).encode()),
                *(headers or []),
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})


WARNING_HEADER = b"pellucid-warning"
"""The response header for what was requested but is not supported, and is no reason for an error."""

CLOSE_HEADER = (b"connection", b"close")
"""The header of a response to a request whose body will not be read."""


def retry_headers(error: ErrorInfo) -> list[tuple[bytes, bytes]]:
    """Return the headers that tell a client whether and when to try again.

    `Retry-After` is the time that the provider gave, if any. `x-should-retry` is read by the SDKs of OpenAI and
    Anthropic; without it, some agents repeat a request for minutes whose credential is wrong, or whose budget is used.
    """
    if error.kind in ("unauthorized", "forbidden"):
        return [(b"x-should-retry", b"false")]
    final = [(b"x-should-retry", b"false")] if error.code == BUDGET_EXCEEDED else []
    seconds = error.retry_after
    # The header has whole seconds.
    return final if seconds is None else [*final, (b"retry-after", str(math.ceil(min(seconds, 1e9))).encode())]


async def start_stream(
    send: Send, headers: list[tuple[bytes, bytes]] | None = None, content_type: str = EVENT_STREAM
) -> None:
    head = [(b"content-type", content_type.encode()), *_STREAM_HEADERS, *(headers or [])]
    await send({"type": "http.response.start", "status": 200, "headers": head})


def warning_headers(warnings: Iterable[str]) -> list[tuple[bytes, bytes]]:
    """Return the warnings as response headers.

    A warning may quote the request (a model's name): characters that a header cannot hold are escaped.
    """
    texts = list(dict.fromkeys(warnings))
    if len(texts) > MAX_WARNINGS:
        texts[MAX_WARNINGS - 1 :] = [f"{len(texts) - MAX_WARNINGS + 1} more warnings"]
    return [(WARNING_HEADER, header_text(text)) for text in texts]


def header_text(text: str) -> bytes:
    """Return a text as the value of a header, with what a header cannot hold escaped, and not longer than allowed."""
    line = " ".join(text.split()).encode("ascii", "backslashreplace")
    line = _CONTROL.sub(lambda match: b"\\x%02x" % match[0][0], line)
    return line if len(line) <= MAX_WARNING_BYTES else line[: MAX_WARNING_BYTES - 3] + b"..."


MAX_WARNINGS, MAX_WARNING_BYTES = 16, 512
"""Limits of these headers: clients refuse responses with many or long headers (Node: 16 KiB in all)."""

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


def body_message(data: bytes, *, last: bool = False) -> Message:
    """Return the ASGI message for a piece of the body.

    Args:
        data: The bytes.
        last: Whether the body ends with them.
    """
    return {"type": "http.response.body", "body": data, "more_body": not last}


class DisconnectSource(Protocol):
    """A request whose client may disconnect."""

    receive: Receive

    def on_disconnect(self, callback: Callable[[], None] | None) -> bool:
        """Set the callback for a disconnect of the client.

        Args:
            callback: The callback; None removes it.

        Returns:
            False if this server reports a disconnect through `receive` only.
        """
        ...

    def on_interrupt(self, callback: Callable[[PellucidError], None] | None) -> None:
        """Set the callback for an interruption of this request by the server; None removes it."""
        ...


class Client:
    """Cancels the task that serves a request when the client disconnects, or the server interrupts the request.

        async with Client(exchange) as client:
            ...                          # cancelled here, wherever the task waits
        client.has_left                  # whether the client disconnected

    An interruption has an error, with which the response ends. If the block does not catch the cancellation, the error
    is raised instead of it.

    The connection disconnects a client that reads nothing. Where only `receive` reports a disconnect, a task waits for
    it. `receive` reports one also after a complete response, but that task has ended by then: nothing is awaited
    between the last `send` and the end of the block.
    """

    __slots__ = ("_cancel_count", "_exchange", "_task", "_watch_task", "has_left", "interruption")

    def __init__(self, exchange: DisconnectSource) -> None:
        self._exchange = exchange
        self._watch_task: asyncio.Task[None] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancel_count = 0
        """How often this object has cancelled the task."""
        self.has_left = False
        self.interruption: PellucidError | None = None
        """The error with which the server interrupted the request."""

    async def __aenter__(self) -> Client:
        self._task = asyncio.current_task()
        if not self._exchange.on_disconnect(self._on_disconnect):
            self._watch_task = asyncio.create_task(self._await_disconnect())
        self._exchange.on_interrupt(self._on_interrupt)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        task, self._task = self._task, None
        assert task is not None
        if self._watch_task is not None:
            self._watch_task.cancel()
        else:
            self._exchange.on_disconnect(None)
        self._exchange.on_interrupt(None)
        if not self._cancel_count:
            return False
        # The cancellations of this object end here. One from outside (a shutdown) continues.
        others = [task.uncancel() for _ in range(self._cancel_count)][-1]
        is_own = others == 0 and kind is asyncio.CancelledError
        if is_own and self.interruption is not None and not self.has_left:
            raise self.interruption from None
        return is_own

    def _on_disconnect(self) -> None:
        if self._task is not None and not self.has_left:
            self.has_left = True
            self._cancel(self._task)

    def _on_interrupt(self, error: PellucidError) -> None:
        if self._task is not None and not self.has_left and self.interruption is None:
            self.interruption = error
            self._cancel(self._task)

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        self._cancel_count += 1
        task.cancel()

    async def _await_disconnect(self) -> None:
        while (await self._exchange.receive())["type"] != "http.disconnect":
            pass
        self._on_disconnect()
