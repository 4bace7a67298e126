"""The few pieces of HTTP that a streaming endpoint needs, straight on ASGI.

Streams do not go through a framework's response object: one read of the upstream is one `send`, and the only other
thing that can happen is that the client leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from ..errors import ErrorInfo, RequestError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # nginx and its like would collect the stream into lumps.
    (b"x-accel-buffering", b"no"),
]


class ClientGone(Exception):
    """The client left before its request was whole."""


async def read_body(receive: Receive, limit: int) -> bytes:
    """The request's body. Raises `RequestError` when it is larger than `limit`, `ClientGone` when it breaks off."""
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise RequestError(
                f"the body is larger than {limit} bytes, the most this server takes",
                kind="too_large",
                code="body_too_large",
            )
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def send_json(send: Send, status: int, value: Any, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    body = value if isinstance(value, bytes) else msgspec.json.encode(value)
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                *(headers or []),
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})


def retry_after(error: ErrorInfo) -> list[tuple[bytes, bytes]]:
    """The header that repeats what the provider said about trying again."""
    return [] if error.retry_after is None else [(b"retry-after", f"{error.retry_after:g}".encode())]


async def start_stream(send: Send, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS + (headers or [])})


async def send_piece(send: Send, piece: bytes) -> None:
    await send({"type": "http.response.body", "body": piece, "more_body": True})


async def end_stream(send: Send) -> None:
    await send({"type": "http.response.body", "body": b"", "more_body": False})


class Disconnect:
    """Cancels the task that serves a request when its client leaves; `gone` says that it did.

    async with Disconnect(receive):
        ...                          # cancelled here
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.gone = False
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Disconnect:
        task = asyncio.current_task()
        assert task is not None
        self._watch = asyncio.create_task(self._look(task))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        assert self._watch is not None
        self._watch.cancel()
        if self.gone and kind is asyncio.CancelledError:
            task = asyncio.current_task()
            # The cancellation was ours; one from outside (a shutdown) goes on.
            return task is None or task.uncancel() == 0
        return False

    async def _look(self, task: asyncio.Task[Any]) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.gone = True
                task.cancel()
                return
