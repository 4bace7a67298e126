"""Scripted space server: the frames of a gateway over real sockets, with faults that a test chooses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket as sockets
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

Frame = dict[str, Any]

TOKENS = {"token-of-ada": "ada", "token-of-bob": "bob", "token-of-cy": "cy"}


class Room:
    """One space. `log` has its envelopes; `hook` can handle a frame instead."""

    def __init__(self) -> None:
        self.log: list[Frame] = []
        self.connections: dict[ServerConnection, str] = {}
        self.joins: list[dict[str, str]] = []
        """Query of each accepted connection."""
        self.received: list[Frame] = []
        """Every received frame, including resends."""
        self.hook: Callable[[ServerConnection, str, Frame], bool] = lambda socket, who, frame: False
        self.pages: list[dict[str, str]] = []
        self.refuse: HTTPStatus | None = None
        self.kicked: set[str] = set()
        self.welcomes = 0
        self._server: Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._reserved = sockets.socket()
        """Bound and not listening: keeps the port for this room between `stop` and `open`, so that connections are
        refused."""
        self._reserved.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEPORT, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self.port: int = self._reserved.getsockname()[1]
        self.catch_up_gate: asyncio.Event | None = None
        """Delays missed envelopes of a reconnected participant until it is set; new frames are handled meanwhile."""
        self.capabilities: list[Any] = ["*"]
        self.others: dict[str, list[Any]] = {}
        """Capabilities by name, as the other participants see them."""

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/spaces/review/ws"

    @property
    def head(self) -> int:
        return len(self.log)

    async def open(self) -> None:
        self._server = await serve(
            self._handle_connection,
            "127.0.0.1",
            self.port,
            process_request=self._process_request,
            compression=None,
            reuse_port=True,
        )

    async def stop(self, code: int = 1012) -> None:
        assert self._server is not None
        self._server.close(code=code)
        await self._server.wait_closed()

    def close(self) -> None:
        """Release the port."""
        self._reserved.close()

    async def restart(self) -> None:
        await self.stop()
        await self.open()

    def cut(self, who: str, half: bytes = b"") -> None:
        """Break the connection, after these bytes of an incomplete frame."""
        for socket, name in [*self.connections.items()]:
            if name == who:
                transport = socket.transport
                if half:
                    transport.write(b"\x81\x7e\x40\x00" + half)
                transport.abort() if not half else transport.close()

    def say(
        self, who: str, kind: str, payload: Frame | None = None, *, silently: bool = False, **has_more: Any
    ) -> Frame:
        """Append an envelope to the log and send it to every participant (unless `silently`)."""
        frame = {
            "protocol": "mew/v0.4",
            "id": f"{who}-{self.head + 1}",
            "ts": "2026-01-01T00:00:00.000Z",
            "from": who,
            "kind": kind,
            "payload": payload or {},
            **has_more,
            "seq": self.head + 1,
        }
        self.log.append(frame)
        if not silently:
            self.send(frame)
        return frame

    def send(self, frame: Frame, *only: str) -> None:
        text = json.dumps(frame)
        for socket, name in self.connections.items():
            if not only or name in only:
                task = asyncio.create_task(_send_text(socket, text))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def send_direct(self, kind: str, to: str, payload: Frame, **has_more: Any) -> None:
        """Send an envelope that is not in the log."""
        self.send(gateway_envelope(kind, to, payload, **has_more), to)

    def _process_request(self, socket: ServerConnection, request: Request) -> Response | None:
        if self.refuse is not None:
            return http_response(self.refuse, {"error": {"message": "not now", "type": "unavailable"}})
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        address = urlsplit(request.path)
        who = TOKENS.get(token)
        if who is None or who in self.kicked:
            kind = "unauthorized" if who is None else "forbidden"
            error = {"message": "no such token in this space", "type": kind, "code": "unknown_token"}
            return http_response(HTTPStatus.UNAUTHORIZED if who is None else HTTPStatus.FORBIDDEN, {"error": error})
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        if address.path.endswith("/envelopes"):
            self.pages.append(query)
            after, before = int(query.get("after_seq", 0)), int(query.get("before_seq", self.head + 1))
            envelopes = [one for one in self.log if after < one["seq"] < before]
            limit = min(int(query["limit"]), 3)
            last = envelopes[:limit][-1]["seq"] if envelopes else before - 1
            has_more = len(envelopes) > limit
            return http_response(
                HTTPStatus.OK, {"envelopes": envelopes[:limit], "has_more": has_more, "first": after, "last": last}
            )
        socket.who, socket.query = who, query  # type: ignore[attr-defined]
        return None

    async def _handle_connection(self, socket: ServerConnection) -> None:
        who, query = socket.who, socket.query  # type: ignore[attr-defined]
        self.joins.append(query)
        others = [
            {"id": name, "capabilities": self.others.get(name, ["chat", "mcp/response"])}
            for name in self.connections.values()
            if name != who
        ]
        payload = {"you": {"id": who, "capabilities": self.capabilities}, "participants": others, "head": self.head}
        missed: list[Frame] = []
        if "after_seq" in query:
            missed = self.log[int(query["after_seq"]) :]
        elif "history" in query:
            missed = [one | {"replayed": True} for one in self.log[-int(query["history"]) :]]
        self.connections[socket] = who
        await socket.send(json.dumps(gateway_envelope("system/welcome", who, payload)))
        self.welcomes += 1
        catching_up = asyncio.create_task(self._catch_up(socket, missed))
        if self.catch_up_gate is None:
            await catching_up
        try:
            async for data in socket:
                frame = json.loads(data)
                self.received.append(frame)
                if not self.hook(socket, who, frame):
                    self.take(who, frame)
        finally:
            del self.connections[socket]

    async def _catch_up(self, socket: ServerConnection, missed: list[Frame]) -> None:
        if self.catch_up_gate is not None:
            await self.catch_up_gate.wait()
        for frame in missed:
            await _send_text(socket, json.dumps(frame))

    def take(self, who: str, frame: Frame) -> None:
        """Accept an envelope as a gateway does: a resend is answered with the stored envelope."""
        old = next((one for one in self.log if one["id"] == frame["id"] and one["from"] == who), None)
        if old is not None:
            self.send(old, who)
        else:
            self.say(who, **{name: frame[name] for name in frame if name not in ("protocol", "from", "ts")})


def gateway_envelope(kind: str, to: str, payload: Frame, **has_more: Any) -> Frame:
    return {
        "protocol": "mew/v0.4",
        "id": f"gateway-{kind}",
        "ts": "2026-01-01T00:00:00.000Z",
        "from": "system:gateway",
        "to": [to],
        "kind": kind,
        "payload": payload,
        **has_more,
    }


def http_response(status: HTTPStatus, value: Any) -> Response:
    body = json.dumps(value).encode()
    head = Headers({"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"})
    return Response(status.value, status.phrase, head, body)


async def _send_text(socket: ServerConnection, text: str) -> None:
    with contextlib.suppress(Exception):
        await socket.send(text)


@contextlib.asynccontextmanager
async def running_room() -> AsyncIterator[Room]:
    room = Room()
    await room.open()
    try:
        yield room
    finally:
        await room.stop()
        room.close()
