"""What the supervisor of workers and its workers say to each other: a line of JSON each, over a pair of sockets.

Whoever reads an end knows that the other process is gone.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Generic, TypeAlias, TypeVar

import msgspec

from ..local.lending import Engaged, Enter, Go, Leave, Line, Message, Place

LONGEST = 1 << 26
"""Bytes of a message: a configuration is one."""


class Begin(Message, frozen=True):
    """To a worker, first: what to serve."""

    config: bytes
    """As it was checked (MessagePack: it may hold an infinity)."""
    sockets: list[int]
    """To listen on, by number."""
    engine_key: str | None
    """Of the embedded engine, if there is one."""


class Up(Message, frozen=True):
    """From a worker: it listens."""


ToSupervisor: TypeAlias = Up | Enter | Leave
ForWorker: TypeAlias = Begin | Engaged | Line | Place | Go

TO_SUPERVISOR: msgspec.json.Decoder[ToSupervisor] = msgspec.json.Decoder(ToSupervisor)
FOR_WORKER: msgspec.json.Decoder[ForWorker] = msgspec.json.Decoder(ForWorker)

M = TypeVar("M")


class Channel(Generic[M]):
    """One end. `heard` reads what the other says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: msgspec.json.Decoder[M]):
        self._reader = reader
        self._writer = writer
        self._heard = heard

    @classmethod
    async def on(cls, end: socket.socket, heard: msgspec.json.Decoder[M]) -> Channel[M]:
        return cls(*await asyncio.open_unix_connection(sock=end, limit=LONGEST), heard)

    def say(self, message: Message) -> None:
        """Nobody hears it if the other is gone; whoever reads finds that out."""
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")

    async def hear(self) -> M | None:
        """What it says next; None when it is gone."""
        try:
            line = await self._reader.readline()
        except OSError:
            return None
        return self._heard.decode(line) if line.endswith(b"\n") else None

    def close(self) -> None:
        self._writer.close()
