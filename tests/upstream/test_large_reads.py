"""However fast a server sends, one iteration of the event loop processes 32 KiB of each connection."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest
import uvloop

from pellucid.errors import ErrorInfo
from pellucid.upstream import UpstreamClient, UpstreamResponse
from pellucid.upstream.connection import MAX_READ_BYTES
from tests.upstream.raw_server import CHUNKED, chunk

TOTAL_BYTES = 32_000_000


def serve_once(listener: socket.socket) -> None:
    """Answer one request, as fast as it is read."""
    peer, _ = listener.accept()
    with peer:
        peer.recv(65_536)
        peer.sendall(CHUNKED)
        piece = chunk(bytes(1_000_000))
        for _ in range(TOTAL_BYTES // 1_000_000):
            peer.sendall(piece)
        peer.sendall(b"0\r\n\r\n")


class Counter:
    """Counts the bytes of each iteration of the loop."""

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self.total = self.most = self._now = 0
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        if not self._now:
            self._loop.call_soon(self._end_iteration)
        self._now += len(data)

    def _end_iteration(self) -> None:
        self.total, self.most, self._now = self.total + self._now, max(self.most, self._now), 0

    def body_ended(self, error: ErrorInfo | None) -> None:
        assert error is None
        self._loop.call_soon(self.done.set)


def test_one_iteration_processes_one_part() -> None:
    async def main(port: int) -> Counter:
        client, counter = UpstreamClient(), Counter()
        response = await client.open(f"http://127.0.0.1:{port}/", {}, b"{}")
        response.start(counter)
        await counter.done.wait()
        await client.aclose()
        return counter

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve_once, args=(listener,))
        thread.start()
        counter = uvloop.run(main(listener.getsockname()[1]))
        thread.join()
    assert counter.total == TOTAL_BYTES
    assert counter.most <= 3 * MAX_READ_BYTES  # two parts that came with the head, and the next one


class Collector:
    """Collects a body. It pauses after each delivery, and resumes in the next iteration of the loop."""

    def __init__(self, response: UpstreamResponse) -> None:
        self.body = b""
        self.error: ErrorInfo | None = None
        self.done = asyncio.Event()
        self.is_paused = False
        self._response = response

    def data_received(self, data: bytes) -> None:
        assert not self.is_paused
        self.body += data
        self.is_paused = True
        self._response.pause_reading()
        asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        self.is_paused = False
        self._response.resume_reading()

    def body_ended(self, error: ErrorInfo | None) -> None:
        self.error = error
        self.done.set()


def serve_and_close(listener: socket.socket, body: bytes, length: int) -> None:
    """Answer one request with this body, and close the connection."""
    peer, _ = listener.accept()
    with peer:
        peer.recv(65_536)
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length)
        peer.sendall(body)


BODY = bytes(range(256)) * 4000


@pytest.mark.parametrize("missing", [0, 1], ids=["complete", "cut off"])
def test_a_receiver_that_pauses_gets_everything_in_order(missing: int) -> None:
    async def main(port: int) -> Collector:
        client = UpstreamClient()
        response = await client.open(f"http://127.0.0.1:{port}/", {}, b"{}")
        collector = Collector(response)
        response.start(collector)
        await collector.done.wait()
        await client.aclose()
        return collector

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve_and_close, args=(listener, BODY, len(BODY) + missing))
        thread.start()
        collector = uvloop.run(main(listener.getsockname()[1]))
        thread.join()
    assert collector.body == BODY
    assert (collector.error is not None) == bool(missing)


def test_nothing_is_delivered_after_close() -> None:
    async def main(port: int) -> int:
        client = UpstreamClient()
        response = await client.open(f"http://127.0.0.1:{port}/", {}, b"{}")
        deliveries = 0

        class Closing(Counter):
            def data_received(self, data: bytes) -> None:
                nonlocal deliveries
                deliveries += 1
                response.close()

        response.start(Closing())
        await asyncio.sleep(0.05)
        await client.aclose()
        return deliveries

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve_and_close, args=(listener, BODY, len(BODY)), daemon=True)
        thread.start()
        assert uvloop.run(main(listener.getsockname()[1])) == 1
