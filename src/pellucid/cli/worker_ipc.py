"""What the supervisor of workers and its workers say to each other: a line of JSON each, over a pair of sockets.

Whoever reads an end knows that the other process is gone.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Generic, TypeAlias, TypeVar

import msgspec

from ..local.engine_sharing import (
    AcquireSlot,
    EngineStatus,
    QueueLength,
    QueuePosition,
    ReleaseSlot,
    SlotGranted,
    WorkerMessage,
)

MAX_MESSAGE_BYTES = 1 << 26
"""Bytes of a message: a configuration is one."""


class WorkerSetup(WorkerMessage, frozen=True):
    """To a worker, first: what to serve."""

    config: bytes
    """As it was checked (MessagePack: it may hold an infinity)."""
    sockets: list[int]
    """To listen on, by number."""
    engine_key: str | None
    """Of the embedded engine, if there is one."""


class WorkerListening(WorkerMessage, frozen=True):
    """From a worker: it listens."""


ToSupervisor: TypeAlias = WorkerListening | AcquireSlot | ReleaseSlot
FromSupervisor: TypeAlias = WorkerSetup | EngineStatus | QueueLength | QueuePosition | SlotGranted

TO_SUPERVISOR_DECODER: msgspec.json.Decoder[ToSupervisor] = msgspec.json.Decoder(ToSupervisor)
FROM_SUPERVISOR_DECODER: msgspec.json.Decoder[FromSupervisor] = msgspec.json.Decoder(FromSupervisor)

M = TypeVar("M")


class Channel(Generic[M]):
    """One end. `heard` reads what the other says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, decoder: msgspec.json.Decoder[M]):
        self._reader = reader
        self._writer = writer
        self._decoder = decoder

    @classmethod
    async def open(cls, sock: socket.socket, decoder: msgspec.json.Decoder[M]) -> Channel[M]:
        return cls(*await asyncio.open_unix_connection(sock=sock, limit=MAX_MESSAGE_BYTES), decoder)

    def send(self, message: WorkerMessage) -> None:
        """Nobody hears it if the other is gone; whoever reads finds that out."""
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")

    async def receive(self) -> M | None:
        """What it says next; None when it is gone."""
        try:
            line = await self._reader.readline()
        except OSError:
            return None
        return self._decoder.decode(line) if line.endswith(b"\n") else None

    def close(self) -> None:
        self._writer.close()
