"""A server whose every byte a test decides, in the loop of the test; and what is used around it.

async with RawServer() as server:
    opening = asyncio.create_task(client.open(server.url, {}, b"{}"))
    peer = await server.accept()          # the next connection
    request = await peer.request()        # its next request
    peer.send(b"HTTP/1.1 200 OK\\r\\n…")
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from types import TracebackType

from pellucid.errors import ErrorInfo
from pellucid.upstream import UpstreamResponse
from tests.waiting import LIMIT_SECONDS

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> tuple[bytes, bytes]:
        """Read one request: its head and body."""
        async with asyncio.timeout(LIMIT_SECONDS):
            head = await self.head()
            length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:"))
            return head, await self.reader.readexactly(length)

    async def head(self) -> bytes:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await self.reader.readuntil(b"\r\n\r\n")

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """End the connection with RST."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def left(self) -> None:
        """Wait until the client has closed the connection."""
        async with asyncio.timeout(LIMIT_SECONDS):
            try:
                while await self.reader.read(1 << 20):
                    pass
            except OSError:
                pass


class RawServer:
    """Accepts connections for a test to play."""

    def __init__(self, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self._host = host
        self._tls = tls
        self.port = port
        self.peers: list[Peer] = []
        self._new: asyncio.Queue[Peer] = asyncio.Queue()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}/v1"

    async def accept(self) -> Peer:
        """Wait for the next connection."""
        async with asyncio.timeout(LIMIT_SECONDS):
            return await self._new.get()

    async def __aenter__(self) -> RawServer:
        self._server = await asyncio.start_server(self._serve, self._host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for peer in self.peers:
            peer.writer.transport.abort()

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self.peers.append(peer)
        self._new.put_nowait(peer)


class Received:
    """A receiver that notes every call."""

    def __init__(self, response: UpstreamResponse | None = None) -> None:
        self.reads: list[bytes] = []
        self.ends: list[ErrorInfo | None] = []
        self.is_over = asyncio.Event()
        self._came = asyncio.Event()
        if response is not None:
            response.start(self)

    @property
    def body(self) -> bytes:
        return b"".join(self.reads)

    @property
    def code(self) -> str | None:
        """The code of the error that ended the body."""
        assert len(self.ends) == 1
        return None if self.ends[0] is None else self.ends[0].code

    def data_received(self, data: bytes) -> None:
        assert data
        assert not self.ends
        self.reads.append(data)
        self._came.set()

    def body_ended(self, error: ErrorInfo | None) -> None:
        assert not self.ends
        self.ends.append(error)
        self.is_over.set()

    async def next(self) -> bytes:
        """Wait for a call of `data_received` after the last one that was waited for."""
        async with asyncio.timeout(LIMIT_SECONDS):
            await self._came.wait()
        self._came.clear()
        return self.reads[-1]

    async def end(self) -> ErrorInfo | None:
        async with asyncio.timeout(LIMIT_SECONDS):
            await self.is_over.wait()
        [error] = self.ends
        return error
