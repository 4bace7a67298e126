"""Opens connections (resolves the host name, tries its addresses, negotiates TLS), and keeps idle ones in a pool.

* The addresses of a name are tried in turn, with the address families interleaved. If an address does not answer within
  a quarter of a second, the next one is tried in parallel (RFC 8305). An address where TLS fails is skipped like one
  that refuses the connection.
* Concurrent requests share one DNS lookup, and its result is cached for ten seconds. The address that is tried first
  changes each time, so requests are spread over the addresses of a name.
* TLS certificates are verified against the system's roots or the operator's (`SSL_CERT_FILE`, `SSL_CERT_DIR`), and
  against the host name. The only protocol offered is `http/1.1` (ALPN, RFC 7301).

The pool of a client: an idle connection can be reused for up to 60 seconds, or for the time that the server states
(`Keep-Alive: timeout`). A connection that the server closes is removed at once. The connection that was released last
is reused first, so surplus connections expire. A timer closes expired connections every ten seconds.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

import aiohappyeyeballs
from aiohappyeyeballs import AddrInfoType

from .connection import Connection
from .request import Endpoint

_ATTEMPT_DELAY_SECONDS = 0.25
_LOOKUP_TTL_SECONDS = 10.0
_MAX_CACHED_LOOKUPS = 1024
_SWEEP_SECONDS = 10.0

Lookup = Callable[[str, int], Coroutine[Any, Any, list[AddrInfoType]]]


class Resolver:
    """Resolves host names. Concurrent lookups of a name are shared, and results are cached for ten seconds."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._pending: dict[tuple[str, int], asyncio.Task[list[AddrInfoType]]] = {}
        self._cache: dict[tuple[str, int], tuple[float, deque[AddrInfoType]]] = {}

    async def resolve(self, host: str, port: int) -> list[AddrInfoType]:
        """Return the addresses of a host, in the order in which to try them.

        Raises:
            OSError: The name cannot be resolved (`socket.gaierror`).
        """
        if ":" in host or host.replace(".", "").isdigit():
            # It is an IP address: no lookup is needed.
            return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
        key, now = (host, port), asyncio.get_running_loop().time()
        expires, addresses = self._cache.get(key, (0.0, deque()))
        if now >= expires:
            addresses = deque(await self._shared_lookup(key))
            if len(self._cache) >= _MAX_CACHED_LOOKUPS:
                self._cache.clear()
            self._cache[key] = (now + _LOOKUP_TTL_SECONDS, addresses)
        attempt_order = list(addresses)
        addresses.rotate(-1)
        return attempt_order

    async def _shared_lookup(self, key: tuple[str, int]) -> list[AddrInfoType]:
        """Wait for the current lookup of a name, or start one. Cancelling a caller does not cancel the lookup."""
        task = self._pending.get(key)
        if task is None:
            task = self._pending[key] = asyncio.create_task(self._lookup(*key), name="lookup")
            task.add_done_callback(lambda done: self._on_lookup_done(key, done))
        return await asyncio.shield(task)

    def _on_lookup_done(self, key: tuple[str, int], done: asyncio.Task[list[AddrInfoType]]) -> None:
        del self._pending[key]
        if not done.cancelled():
            done.exception()  # retrieved, so that asyncio does not log it; callers that wait receive it


async def look_up(host: str, port: int) -> list[AddrInfoType]:
    """Resolve a host name with the system's resolver, in a thread.

    Raises:
        OSError: The name cannot be resolved.
    """
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(addresses)


def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class Pool:
    """All connections of one client: idle ones, and those that carry a request. Create one for each event loop."""

    def __init__(self, lookup: Lookup | None = None) -> None:
        """Create a pool without connections.

        Args:
            lookup: Resolves a host name to addresses. By default, the system's resolver.
        """
        self._resolver = Resolver(lookup or look_up)
        self._tls: ssl.SSLContext | None = None
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
            OSError: No address accepted the connection. It is the error of the system or of TLS for the last one.
            UnicodeError: The host cannot be encoded.
            RuntimeError: The pool was closed meanwhile.
        """
        connection = await self._open(endpoint)
        if self._is_closed:
            connection.close()
            raise RuntimeError("the client was closed meanwhile")
        if not connection.is_closed:
            self._connections.add(connection)
        return connection

    async def _open(self, endpoint: Endpoint) -> Connection:
        loop = asyncio.get_running_loop()
        # A certificate names a host without the final dot of a fully qualified name.
        tls = await self._ssl_context() if endpoint.is_tls else None
        server_hostname = endpoint.host.rstrip(".") if endpoint.is_tls else None
        addresses = await self._resolver.resolve(endpoint.host, endpoint.port)
        while True:
            try:
                sock = await aiohappyeyeballs.start_connection(
                    addresses, happy_eyeballs_delay=_ATTEMPT_DELAY_SECONDS, interleave=1, loop=loop
                )
                _, connection = await loop.create_connection(
                    lambda: Connection(endpoint, self._on_closed), sock=sock, ssl=tls, server_hostname=server_hostname
                )
                return connection
            except OSError:
                aiohappyeyeballs.pop_addr_infos_interleave(addresses, 1)
                if not addresses:
                    raise

    async def _ssl_context(self) -> ssl.SSLContext:
        if self._tls is None:
            # In a thread, because it reads hundreds of certificates.
            self._tls = await asyncio.to_thread(_tls_context)
        return self._tls

    def release(self, connection: Connection) -> None:
        """Return an idle connection to the pool."""
        if connection not in self._connections:
            connection.close()
            return
        self._idle.setdefault(connection.endpoint, []).append(connection)
        if self._sweep_timer is None:
            self._schedule_sweep()

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

    def _schedule_sweep(self) -> None:
        self._sweep_timer = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._close_expired)

    def _close_expired(self) -> None:
        self._sweep_timer = None
        now = monotonic()
        for connection in [one for idle in self._idle.values() for one in idle if now >= one.usable_until]:
            connection.close()
        self._idle = {endpoint: idle for endpoint, idle in self._idle.items() if idle}
        if self._idle:
            self._schedule_sweep()
