"""The connection pool of a client.

An idle connection can be reused for up to 60 seconds, or for the time that the server states (`Keep-Alive: timeout`).
A connection that the server closes is removed at once. The connection that was released last is reused first, so
surplus connections expire. A timer closes expired connections every ten seconds.
"""

from __future__ import annotations

import asyncio
from time import monotonic

from .connection import Connection
from .connector import Connector, Lookup
from .request import Endpoint

_SWEEP_SECONDS = 10.0


class Pool:
    """All connections of one client: idle ones, and those that carry a request."""

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
        """Return an idle connection to `endpoint`, or None if there is none that is likely to be open."""
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
        """Open a new connection.

        Raises:
            ConnectError: No address accepted the connection.
            RuntimeError: The pool was closed meanwhile.
        """
        connection = await self._connector.connect(endpoint, self._on_closed)
        if self._is_closed:
            connection.close()
            raise RuntimeError("the client was closed meanwhile")
        if not connection.is_closed:
            self._connections.add(connection)
        return connection

    def release(self, connection: Connection) -> None:
        """Return an idle connection to the pool."""
        if connection not in self._connections:
            connection.close()
            return
        self._idle.setdefault(connection.endpoint, []).append(connection)
        if self._sweep_timer is None:
            self._schedule_sweep(_SWEEP_SECONDS)

    def close(self) -> None:
        """Close every connection at once. Responses that are being read fail. Idempotent."""
        self._is_closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        self._idle.clear()
        for connection in list(self._connections):
            connection.fail()

    def _on_closed(self, connection: Connection) -> None:
        """Remove a connection that has been closed."""
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
