"""The few pieces of HTTP that a streaming endpoint needs, straight on ASGI.

Streams do not go through a framework's response object: one read of the upstream is one `send`, and the only other
thing that can happen is that the client leaves.
"""

from __future__ import annotations

import asyncio
import math
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
    # nginx and its like would collect the stream into lumps.
    (b"x-accel-buffering", b"no"),
]


class ClientGone(Exception):
    """The client left before its request was whole."""


def header(scope: Scope, name: str) -> str | None:
    """The request's header of this name, in lower case; the last one, where there are several."""
    lower_name = name.encode()
    values = [value for key, value in scope["headers"] if key == lower_name]
    return values[-1].decode("latin-1").strip() if values else None


async def read_body(scope: Scope, receive: Receive, max_bytes: int, timeout_seconds: float) -> bytes:
    """The request's body, for each piece of which the client has `patience` seconds.

    Raises `RequestError` when it is larger than `limit` or does not come, `ClientGone` when it breaks off.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > max_bytes:
            raise _too_large(max_bytes)  # before it is sent, if the client asks first
    pieces: list[bytes] = []
    size = 0
    while True:
        try:
            async with asyncio.timeout(timeout_seconds):
                message = await receive()
        except TimeoutError:
            raise RequestError(
                f"nothing more of the body came for {timeout_seconds:g} s", kind="slow_request", code="body_too_slow"
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
"""The header that says what was asked for and could not be done, where that is no reason to refuse."""

CLOSE_HEADER = (b"connection", b"close")
"""For an answer to a request whose body will not be read."""


def retry_after_headers(error: ErrorInfo) -> list[tuple[bytes, bytes]]:
    """The header that repeats what the provider said about trying again."""
    seconds = error.retry_after
    # The header holds whole seconds.
    return [] if seconds is None else [(b"retry-after", str(math.ceil(min(seconds, 1e9))).encode())]


async def start_stream(
    send: Send, headers: list[tuple[bytes, bytes]] | None = None, content_type: str = EVENT_STREAM
) -> None:
    head = [(b"content-type", content_type.encode()), *_STREAM_HEADERS, *(headers or [])]
    await send({"type": "http.response.start", "status": 200, "headers": head})


def warning_headers(warnings: Iterable[str]) -> list[tuple[bytes, bytes]]:
    """What could not be done and is no reason to refuse, as headers."""
    return [
        (WARNING_HEADER, " ".join(text.split()).encode("ascii", "backslashreplace")) for text in dict.fromkeys(warnings)
    ]


def body_message(data: bytes, *, last: bool = False) -> Message:
    """A piece of the body, as ASGI's `send` takes it."""
    return {"type": "http.response.body", "body": data, "more_body": not last}


class Connected(Protocol):
    """A request whose client is connected."""

    receive: Receive

    def on_disconnect(self, callback: Callable[[], None] | None) -> bool:
        """Call `callback` when the client disconnects; None: no longer. False if this server says so by `receive`
        alone."""
        ...


class Client:
    """The client of a request, while it is served: the task that serves it is cancelled when the client disconnects.

        async with Client(exchange) as client:
            ...                          # cancelled here, wherever the task waits
        client.gone                      # whether it was

    A client that reads nothing is disconnected by its connection. Where only `receive` tells of a disconnect, a task
    waits for it. It tells of one also when the response is complete; the watch is over by then, for nothing is awaited
    between the last `send` and the end of the block.
    """

    __slots__ = ("_exchange", "_task", "_watch_task", "has_left")

    def __init__(self, exchange: Connected) -> None:
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
        # The cancellation was ours and ends here; one from outside (a shutdown) goes on.
        return task.uncancel() == 0 and kind is asyncio.CancelledError

    def _on_disconnect(self) -> None:
        if self._task is not None and not self.has_left:
            self.has_left = True
            self._task.cancel()

    async def _await_disconnect(self) -> None:
        while (await self._exchange.receive())["type"] != "http.disconnect":
            pass
        self._on_disconnect()
