"""Where frames go: straight to the transport, or through ASGI's `send`; and the life of a socket that both share."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from websockets.frames import Frame as Written
from websockets.frames import Opcode

from pellucid.asgi import http
from pellucid.server.config import TelemetryConfig
from pellucid.server.exchange import Exchange
from pellucid.server.observability import Telemetry
from pellucid.server.spaces.auth import ERROR_FORM
from pellucid.server.spaces.outlets import QueuedOutlet, create_outlet
from pellucid.server.websocket import WebSocket
from pellucid.spaces.runtime.session import Frame


class Server:
    """Another server than ours: `send` and `receive`, and nothing else."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.comes: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.open = asyncio.Event()
        self.open.set()
        self.gone = False
        scope: dict[str, Any] = {"type": "websocket", "path": "/ws", "headers": [], "query_string": b"", "state": {}}
        scope["watch"] = Telemetry(TelemetryConfig(), ()).begin_request(scope)
        self.socket = WebSocket(Exchange(scope, self.comes.get, self.send, ERROR_FORM))

    async def send(self, message: Any) -> None:
        await self.open.wait()
        if self.gone:
            raise OSError
        self.sent.append(message)

    @property
    def texts(self) -> list[str]:
        return [message["text"] for message in self.sent if message["type"] == "websocket.send"]


def frames(*texts: str) -> list[Frame]:
    return [Frame(text.encode()) for text in texts]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 200_000])
def test_a_frame_is_what_a_server_writes(size: int) -> None:
    text = b"x" * size
    assert Frame(text).wire == Written(Opcode.TEXT, text).serialize(mask=False)


def test_without_our_server_frames_go_through_send_in_order() -> None:
    async def play() -> None:
        server = Server()
        outlet = create_outlet(server.socket)
        assert isinstance(outlet, QueuedOutlet)
        server.open.clear()
        outlet.write(frames("a", "b"))
        outlet.write(frames("c" * 40_000))
        assert outlet.buffered_bytes == 40_002
        drained = asyncio.create_task(outlet.wait_drained())
        await asyncio.sleep(0)
        assert not drained.done()
        server.open.set()
        await drained
        outlet.write(frames("d"))
        await outlet.aclose()
        assert server.texts == ["a", "b", "c" * 40_000, "d"]
        assert outlet.buffered_bytes == 0

    asyncio.run(play())


def test_nobody_there_is_no_failure() -> None:
    async def play() -> None:
        server = Server()
        outlet = create_outlet(server.socket)
        server.gone = True
        outlet.write(frames("a" * 50_000))
        await outlet.wait_drained()
        outlet.write(frames("b"))
        await outlet.aclose()
        assert outlet.buffered_bytes == 0
        with pytest.raises(http.ClientGone):
            await server.socket.send_text("c")

    asyncio.run(play())


@pytest.mark.parametrize("before", [True, False])
def test_who_is_told_that_it_is_over_hears_nothing_more(before: bool) -> None:
    async def play() -> None:
        server = Server()
        outlet = create_outlet(server.socket)
        heard: list[str | bytes] = []

        async def hear(data: str | bytes) -> None:
            heard.append(data)

        listening = None if before else asyncio.create_task(server.socket.listen(hear))
        if listening is not None:
            await server.comes.put({"type": "websocket.receive", "text": "one"})
            while not heard:  # noqa: ASYNC110 (another task hears)
                await asyncio.sleep(0)
        outlet.close(4403, "out")
        outlet.close(1000, "not this")
        end = await (listening or server.socket.listen(hear))
        assert (end, outlet.close_reason) == ("over", (4403, "out"))
        outlet.write(frames("late"))
        await outlet.aclose()
        assert server.texts == []

    asyncio.run(play())


def test_a_fault_of_whoever_hears_is_not_taken_for_an_end() -> None:
    async def play() -> None:
        server = Server()

        async def hear(data: str | bytes) -> None:
            raise TimeoutError

        await server.comes.put({"type": "websocket.receive", "text": "one"})
        with pytest.raises(TimeoutError):
            await server.socket.listen(hear, 60)

    asyncio.run(play())


@pytest.mark.parametrize(("stopping", "end"), [(True, "stopping"), (False, "gone")])
def test_a_server_that_stops_is_told_from_a_client_that_leaves(stopping: bool, end: str) -> None:
    async def play() -> None:
        server = Server()
        if stopping:
            server.socket.exchange.scope["state"]["stopping"] = True
        await server.comes.put({"type": "websocket.disconnect", "code": 1005})

        async def hear(data: str | bytes) -> None: ...

        assert await server.socket.listen(hear) == end

    asyncio.run(play())
