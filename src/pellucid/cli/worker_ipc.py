"""Messages between the supervisor and its workers: one line of JSON each, over a pair of sockets.

The end of the stream means that the other process has ended.
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
"""Limit for the size of a message. The largest one contains the configuration."""


class WorkerSetup(WorkerMessage, frozen=True):
    """To a worker, as the first message: what to serve."""

    config: bytes
    """The checked configuration, as MessagePack. (JSON cannot represent infinity, which it may contain.)"""
    sockets: list[int]
    """File descriptors of the sockets to listen on."""
    engine_key: str | None
    """The API key of the embedded engine; None if there is no engine."""


class WorkerListening(WorkerMessage, frozen=True):
    """From a worker: it accepts connections."""


ToSupervisor: TypeAlias = WorkerListening | AcquireSlot | ReleaseSlot
FromSupervisor: TypeAlias = WorkerSetup | EngineStatus | QueueLength | QueuePosition | SlotGranted

TO_SUPERVISOR_DECODER: msgspec.json.Decoder[ToSupervisor] = msgspec.json.Decoder(ToSupervisor)
FROM_SUPERVISOR_DECODER: msgspec.json.Decoder[FromSupervisor] = msgspec.json.Decoder(FromSupervisor)

M = TypeVar("M")


class Channel(Generic[M]):
    """One end of the connection between the supervisor and a worker.

    Args:
        decoder: Decodes the messages of the other end.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, decoder: msgspec.json.Decoder[M]):
        self._reader = reader
        self._writer = writer
        self._decoder = decoder

    @classmethod
    async def open(cls, sock: socket.socket, decoder: msgspec.json.Decoder[M]) -> Channel[M]:
        """Open one end of a socket pair as a channel."""
        return cls(*await asyncio.open_unix_connection(sock=sock, limit=MAX_MESSAGE_BYTES), decoder)

    def send(self, message: WorkerMessage) -> None:
        """Send a message. It is lost if the other process has ended; `receive` then returns None."""
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")

    async def receive(self) -> M | None:
        """Wait for the next message; None if the other process has ended."""
        try:
            line = await self._reader.readline()
        except OSError:
            return None
        return self._decoder.decode(line) if line.endswith(b"\n") else None

    def close(self) -> None:
        self._writer.close()
