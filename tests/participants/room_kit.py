"""A space that does what a test says: the frames of a gateway over real sockets, with every fault to order."""

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
    """One space. What was said is in `log`; `hooks` may answer a frame instead of it."""

    def __init__(self) -> None:
        self.log: list[Frame] = []
        self.here: dict[ServerConnection, str] = {}
        self.joins: list[dict[str, str]] = []
        """The query of each connection that was let in."""
        self.received: list[Frame] = []
        """Every frame that came, again and again."""
        self.hook: Callable[[ServerConnection, str, Frame], bool] = lambda socket, who, frame: False
        self.pages: list[dict[str, str]] = []
        self.refuse: HTTPStatus | None = None
        self.kicked: set[str] = set()
        self.welcomes = 0
        self._server: Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._reserved = sockets.socket()
        """Bound and not listening: the port stays this room's between `stop` and `open`, where connections are
        refused."""
        self._reserved.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEPORT, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self.port: int = self._reserved.getsockname()[1]
        self.late: asyncio.Event | None = None
        """Until then those who come back are not told what they missed, but heard."""
        self.capabilities: list[Any] = ["*"]
        self.others: dict[str, list[Any]] = {}
        """What somebody may, as the others are told."""

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/spaces/review/ws"

    @property
    def head(self) -> int:
        return len(self.log)

    async def open(self) -> None:
        self._server = await serve(
            self._sit, "127.0.0.1", self.port, process_request=self._process_request, compression=None, reuse_port=True
        )

    async def stop(self, code: int = 1012) -> None:
        assert self._server is not None
        self._server.close(code=code)
        await self._server.wait_closed()

    def close(self) -> None:
        """Give the port back."""
        self._reserved.close()

    async def restart(self) -> None:
        await self.stop()
        await self.open()

    def cut(self, who: str, half: bytes = b"") -> None:
        """Break the connection, after these bytes of something that never ends."""
        for socket, name in [*self.here.items()]:
            if name == who:
                transport = socket.transport
                if half:
                    transport.write(b"\x81\x7e\x40\x00" + half)
                transport.abort() if not half else transport.close()

    def say(self, who: str, kind: str, payload: Frame | None = None, *, silently: bool = False, **more: Any) -> Frame:
        """Put it into the log, and tell everybody (unless the connections are to miss it)."""
        frame = {
            "protocol": "mew/v0.4",
            "id": f"{who}-{self.head + 1}",
            "ts": "2026-01-01T00:00:00.000Z",
            "from": who,
            "kind": kind,
            "payload": payload or {},
            **more,
            "seq": self.head + 1,
        }
        self.log.append(frame)
        if not silently:
            self.send(frame)
        return frame

    def send(self, frame: Frame, *only: str) -> None:
        text = json.dumps(frame)
        for socket, name in self.here.items():
            if not only or name in only:
                task = asyncio.create_task(_sent(socket, text))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def send_direct(self, kind: str, to: str, payload: Frame, **more: Any) -> None:
        """What is not in the log."""
        self.send(own(kind, to, payload, **more), to)

    def _process_request(self, socket: ServerConnection, request: Request) -> Response | None:
        if self.refuse is not None:
            return answer(self.refuse, {"error": {"message": "not now", "type": "unavailable"}})
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        where = urlsplit(request.path)
        who = TOKENS.get(token)
        if who is None or who in self.kicked:
            kind = "unauthorized" if who is None else "forbidden"
            error = {"message": "no such token in this space", "type": kind, "code": "unknown_token"}
            return answer(HTTPStatus.UNAUTHORIZED if who is None else HTTPStatus.FORBIDDEN, {"error": error})
        query = {name: values[0] for name, values in parse_qs(where.query).items()}
        if where.path.endswith("/envelopes"):
            self.pages.append(query)
            after, before = int(query.get("after_seq", 0)), int(query.get("before_seq", self.head + 1))
            found = [one for one in self.log if after < one["seq"] < before]
            limit = min(int(query["limit"]), 3)
            last = found[:limit][-1]["seq"] if found else before - 1
            more = len(found) > limit
            return answer(HTTPStatus.OK, {"envelopes": found[:limit], "has_more": more, "first": after, "last": last})
        socket.who, socket.query = who, query  # type: ignore[attr-defined]
        return None

    async def _sit(self, socket: ServerConnection) -> None:
        who, query = socket.who, socket.query  # type: ignore[attr-defined]
        self.joins.append(query)
        others = [
            {"id": name, "capabilities": self.others.get(name, ["chat", "mcp/response"])}
            for name in self.here.values()
            if name != who
        ]
        payload = {"you": {"id": who, "capabilities": self.capabilities}, "participants": others, "head": self.head}
        missed: list[Frame] = []
        if "after_seq" in query:
            missed = self.log[int(query["after_seq"]) :]
        elif "history" in query:
            missed = [one | {"replayed": True} for one in self.log[-int(query["history"]) :]]
        self.here[socket] = who
        await socket.send(json.dumps(own("system/welcome", who, payload)))
        self.welcomes += 1
        catching_up = asyncio.create_task(self._catch_up(socket, missed))
        if self.late is None:
            await catching_up
        try:
            async for data in socket:
                frame = json.loads(data)
                self.received.append(frame)
                if not self.hook(socket, who, frame):
                    self.take(who, frame)
        finally:
            del self.here[socket]

    async def _catch_up(self, socket: ServerConnection, missed: list[Frame]) -> None:
        if self.late is not None:
            await self.late.wait()
        for frame in missed:
            await _sent(socket, json.dumps(frame))

    def take(self, who: str, frame: Frame) -> None:
        """What a gateway does with an envelope: the same twice is the same once."""
        old = next((one for one in self.log if one["id"] == frame["id"] and one["from"] == who), None)
        if old is not None:
            self.send(old, who)
        else:
            self.say(who, **{name: frame[name] for name in frame if name not in ("protocol", "from", "ts")})


def own(kind: str, to: str, payload: Frame, **more: Any) -> Frame:
    return {
        "protocol": "mew/v0.4",
        "id": f"gateway-{kind}",
        "ts": "2026-01-01T00:00:00.000Z",
        "from": "system:gateway",
        "to": [to],
        "kind": kind,
        "payload": payload,
        **more,
    }


def answer(status: HTTPStatus, value: Any) -> Response:
    body = json.dumps(value).encode()
    head = Headers({"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"})
    return Response(status.value, status.phrase, head, body)


async def _sent(socket: ServerConnection, text: str) -> None:
    with contextlib.suppress(Exception):
        await socket.send(text)


@contextlib.asynccontextmanager
async def a_room() -> AsyncIterator[Room]:
    room = Room()
    await room.open()
    try:
        yield room
    finally:
        await room.stop()
        room.close()
