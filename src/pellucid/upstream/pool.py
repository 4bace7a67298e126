"""The connections of a client: those that carry a request, and those that wait for one.

A connection is used again while it is idle, for up to 60 seconds or as long as the server says (`Keep-Alive: timeout`).
One that the server closes leaves the pool in the same moment; the last that came back is the first to be used, so that
those which are not needed grow old. A timer closes those every ten seconds.
"""

from __future__ import annotations

import asyncio
from time import monotonic

from .connection import Connection
from .connector import Connector, Lookup
from .request import Endpoint

_SWEEP_SECONDS = 10.0


class Pool:
    """All connections of one client. `close` it when the client is closed."""

    def __init__(self, lookup: Lookup | None = None) -> None:
        self._connector = Connector(lookup)
        self._connections: set[Connection] = set()
        self._idle: dict[Endpoint, list[Connection]] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def idle_count(self) -> int:
        return sum(len(idle) for idle in self._idle.values())

    def acquire(self, endpoint: Endpoint) -> Connection | None:
        """Return an idle connection, or None where there is none that can be expected to work."""
        idle = self._idle.get(endpoint)
        if not idle:
            return None
        now = monotonic()
        while idle:
            connection = idle.pop()
            if connection.is_idle and now < connection.usable_until:
                return connection
            connection.close()
        return None

    async def connect(self, endpoint: Endpoint) -> Connection:
        """Open a connection. Raises `ConnectError`."""
        connection = await self._connector.connect(endpoint, self._on_closed)
        if self._is_closed:
            connection.close()
            raise RuntimeError("the client was closed meanwhile")
        if not connection.is_closed:
            self._connections.add(connection)
        return connection

    def release(self, connection: Connection) -> None:
        """Take an idle connection back."""
        if connection not in self._connections:
            connection.close()
            return
        self._idle.setdefault(connection.endpoint, []).append(connection)
        if self._sweep_timer is None:
            self._schedule_sweep(_SWEEP_SECONDS)

    def close(self) -> None:
        """Close every connection now; what they carry breaks off. Idempotent."""
        self._is_closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        self._idle.clear()
        for connection in list(self._connections):
            connection.fail()

    def _on_closed(self, connection: Connection) -> None:
        """It is closed."""
        self._connections.discard(connection)
        idle = self._idle.get(connection.endpoint)
        if idle is not None and connection in idle:
            idle.remove(connection)

    def _schedule_sweep(self, seconds: float) -> None:
        self._sweep_timer = asyncio.get_running_loop().call_later(seconds, self._close_expired)

    def _close_expired(self) -> None:
        self._sweep_timer = None
        now = monotonic()
        for connection in [one for idle in self._idle.values() for one in idle if now >= one.usable_until]:
            connection.close()
        self._idle = {endpoint: idle for endpoint, idle in self._idle.items() if idle}
        if self._idle:
            self._schedule_sweep(_SWEEP_SECONDS)
