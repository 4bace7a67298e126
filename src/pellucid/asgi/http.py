"""HTTP on ASGI for streaming endpoints: headers, bodies, and disconnects.

Streams do not use a framework's response object: one read of the upstream is one `send`, and a disconnect of the client
is the only other event.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Protocol

import msgspec

from ..errors import ErrorInfo, RequestError

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


async def read_body(scope: Scope, receive: Receive, max_bytes: int, timeout_seconds: float) -> bytes:
    """Read the body of a request.

    Args:
        scope: The ASGI scope.
        receive: ASGI's `receive`.
        max_bytes: The largest size of the body.
        timeout_seconds: The longest wait for each piece of the body.

    Raises:
        RequestError: The body is too large, or its next piece did not come in time.
        ClientGone: The client disconnected before the end of the body.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > max_bytes:
            raise _too_large(max_bytes)  # Before the body is sent, if the client waits for `100 Continue`.
    pieces: list[bytes] = []
    size = 0
    while True:
        try:
            async with asyncio.timeout(timeout_seconds):
                message = await receive()
        except TimeoutError:
            raise RequestError(
                f"no data of the body came for {timeout_seconds:g} s", kind="slow_request", code="body_too_slow"
            ) from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        size += len(piece)
        if size > max_bytes:
            raise _too_large(max_bytes)
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


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
    Anthropic; without it, some agents repeat a request for minutes whose credential is wrong.
    """
    if error.kind in ("unauthorized", "forbidden"):
        return [(b"x-should-retry", b"false")]
    seconds = error.retry_after
    # The header has whole seconds.
    return [] if seconds is None else [(b"retry-after", str(math.ceil(min(seconds, 1e9))).encode())]


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


class Client:
    """Cancels the task that serves a request when the client disconnects.

        async with Client(exchange) as client:
            ...                          # cancelled here, wherever the task waits
        client.has_left                  # whether the client disconnected

    The connection disconnects a client that reads nothing. Where only `receive` reports a disconnect, a task waits for
    it. `receive` reports one also after a complete response, but that task has ended by then: nothing is awaited
    between the last `send` and the end of the block.
    """

    __slots__ = ("_exchange", "_task", "_watch_task", "has_left")

    def __init__(self, exchange: DisconnectSource) -> None:
        self._exchange = exchange
        self._watch_task: asyncio.Task[None] | None = None
        self._task: asyncio.Task[Any] | None = None
        self.has_left = False

    async def __aenter__(self) -> Client:
        self._task = asyncio.current_task()
        if not self._exchange.on_disconnect(self._on_disconnect):
            self._watch_task = asyncio.create_task(self._await_disconnect())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        task, self._task = self._task, None
        assert task is not None
        if self._watch_task is not None:
            self._watch_task.cancel()
        else:
            self._exchange.on_disconnect(None)
        if not self.has_left:
            return False
        # The cancellation of this object ends here. One from outside (a shutdown) continues.
        return task.uncancel() == 0 and kind is asyncio.CancelledError

    def _on_disconnect(self) -> None:
        if self._task is not None and not self.has_left:
            self.has_left = True
            self._task.cancel()

    async def _await_disconnect(self) -> None:
        while (await self._exchange.receive())["type"] != "http.disconnect":
            pass
        self._on_disconnect()
