"""Outgoing frames: written to the transport or through ASGI's `send`; and the socket that both use."""

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
from pellucid.server.spaces.auth import ERROR_FORMAT
from pellucid.server.spaces.outlets import QueuedOutlet, create_outlet
from pellucid.server.websocket import WebSocket
from pellucid.spaces.runtime.session import Frame


class FakeServer:
    """A server with nothing but ASGI's `send` and `receive`."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.may_send = asyncio.Event()
        self.may_send.set()
        self.is_gone = False
        scope: dict[str, Any] = {"type": "websocket", "path": "/ws", "headers": [], "query_string": b"", "state": {}}
        scope["telemetry"] = Telemetry(TelemetryConfig(), lambda name: False).begin_request(scope)
        self.socket = WebSocket(Exchange(scope, self.incoming.get, self.send, ERROR_FORMAT))

    async def send(self, message: Any) -> None:
        await self.may_send.wait()
        if self.is_gone:
            raise OSError
        self.sent.append(message)

    @property
    def texts(self) -> list[str]:
        return [message["text"] for message in self.sent if message["type"] == "websocket.send"]


def frames(*texts: str) -> list[Frame]:
    return [Frame(text.encode()) for text in texts]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 200_000])
def test_the_wire_form_of_a_frame_matches_websockets(size: int) -> None:
    text = b"x" * size
    assert Frame(text).wire == Written(Opcode.TEXT, text).serialize(mask=False)


def test_with_another_server_frames_go_through_asgi_send_in_order() -> None:
    async def play() -> None:
        server = FakeServer()
        outlet = create_outlet(server.socket)
        assert isinstance(outlet, QueuedOutlet)
        server.may_send.clear()
        outlet.write(frames("a", "b"))
        outlet.write(frames("c" * 40_000))
        assert outlet.buffered_bytes == 40_002
        drained = asyncio.create_task(outlet.wait_drained())
        await asyncio.sleep(0)
        assert not drained.done()
        server.may_send.set()
        await drained
        outlet.write(frames("d"))
        await outlet.aclose()
        assert server.texts == ["a", "b", "c" * 40_000, "d"]
        assert outlet.buffered_bytes == 0

    asyncio.run(play())


def test_writing_to_a_gone_client_does_not_raise() -> None:
    async def play() -> None:
        server = FakeServer()
        outlet = create_outlet(server.socket)
        server.is_gone = True
        outlet.write(frames("a" * 50_000))
        await outlet.wait_drained()
        outlet.write(frames("b"))
        await outlet.aclose()
        assert outlet.buffered_bytes == 0
        with pytest.raises(http.ClientGone):
            await server.socket.send_text("c")

    asyncio.run(play())


@pytest.mark.parametrize("before", [True, False])
def test_nothing_is_sent_after_close(before: bool) -> None:
    async def play() -> None:
        server = FakeServer()
        outlet = create_outlet(server.socket)
        received: list[str | bytes] = []

        async def receiveiveive(data: str | bytes) -> None:
            received.append(data)

        listening = None if before else asyncio.create_task(server.socket.listen(receiveiveive))
        if listening is not None:
            await server.incoming.put({"type": "websocket.receive", "text": "one"})
            while not received:  # noqa: ASYNC110 (another task hears)
                await asyncio.sleep(0)
        outlet.close(4403, "out")
        outlet.close(1000, "not this")
        end = await (listening or server.socket.listen(receiveiveive))
        assert (end, outlet.close_reason) == ("over", (4403, "out"))
        outlet.write(frames("late"))
        await outlet.aclose()
        assert server.texts == []

    asyncio.run(play())


def test_an_exception_of_the_receiver_propagates() -> None:
    async def play() -> None:
        server = FakeServer()

        async def receiveiveive(data: str | bytes) -> None:
            raise TimeoutError

        await server.incoming.put({"type": "websocket.receive", "text": "one"})
        with pytest.raises(TimeoutError):
            await server.socket.listen(receiveiveive, 60)

    asyncio.run(play())


@pytest.mark.parametrize(("stopping", "end"), [(True, "stopping"), (False, "gone")])
def test_a_stopping_server_and_a_leaving_client_are_distinguished(stopping: bool, end: str) -> None:
    async def play() -> None:
        server = FakeServer()
        if stopping:
            server.socket.exchange.scope["state"]["stopping"] = True
        await server.incoming.put({"type": "websocket.disconnect", "code": 1005})

        async def receiveiveive(data: str | bytes) -> None: ...

        assert await server.socket.listen(receiveiveive) == end

    asyncio.run(play())
