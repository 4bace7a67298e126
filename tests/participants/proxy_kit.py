"""TCP proxy between a participant and a gateway; its connections can be cut anywhere in a frame and its target
replaced."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator


class Proxy:
    def __init__(self, target: int) -> None:
        self.target = target
        """Port of the gateway; 0: connections are refused."""
        self.port = 0
        self.cuts = 0
        self.random_source: random.Random | None = None
        self.bytes_between_cuts = 0
        """Average number of bytes in each direction after which a connection is cut, in the middle of a read; 0:
        never."""
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/spaces/review/ws"

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        writers = {writer, upstream[1]}
        self._open |= writers
        directions = [
            asyncio.create_task(self._carry(reader, upstream[1])),
            asyncio.create_task(self._carry(upstream[0], writer)),
        ]
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        for task in directions:
            task.cancel()
        await asyncio.gather(*directions, return_exceptions=True)
        self._open -= writers
        for end in writers:
            end.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            remaining_bytes = None
            while piece := await reader.read(4096):
                if self.random_source is not None and self.bytes_between_cuts:
                    remaining_bytes = (
                        self.random_source.randrange(2 * self.bytes_between_cuts)
                        if remaining_bytes is None
                        else remaining_bytes
                    )
                    if remaining_bytes < len(piece):
                        self.cuts += 1
                        writer.write(piece[:remaining_bytes])
                        await writer.drain()
                        return
                    remaining_bytes -= len(piece)
                writer.write(piece)
                await writer.drain()


@contextlib.asynccontextmanager
async def running_proxy(target: int) -> AsyncIterator[Proxy]:
    proxy = Proxy(target)
    server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        await asyncio.sleep(0)
