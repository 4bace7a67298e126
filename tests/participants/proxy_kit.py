"""What stands between a participant and a gateway: a way that can be cut, anywhere in a frame, and that leads to
another gateway afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator


class Way:
    def __init__(self, target: int) -> None:
        self.target = target
        """The gateway's port; 0: nobody is there."""
        self.port = 0
        self.cuts = 0
        self.dice: random.Random | None = None
        self.bytes_between_cuts = 0
        """How much a connection carries either way, on average, until it is cut in mid-piece; 0: for ever."""
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/spaces/review/ws"

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, there[1]}
        self._open |= ends
        ways = [asyncio.create_task(self._carry(reader, there[1])), asyncio.create_task(self._carry(there[0], writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for task in ways:
            task.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        self._open -= ends
        for end in ends:
            end.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            left = None
            while piece := await reader.read(4096):
                if self.dice is not None and self.bytes_between_cuts:
                    left = self.dice.randrange(2 * self.bytes_between_cuts) if left is None else left
                    if left < len(piece):
                        self.cuts += 1
                        writer.write(piece[:left])
                        await writer.drain()
                        return
                    left -= len(piece)
                writer.write(piece)
                await writer.drain()


@contextlib.asynccontextmanager
async def a_way(target: int) -> AsyncIterator[Way]:
    way = Way(target)
    server = await asyncio.start_server(way._serve, "127.0.0.1", 0)
    way.port = server.sockets[0].getsockname()[1]
    try:
        yield way
    finally:
        server.close()
        way.cut()
        await asyncio.sleep(0)
