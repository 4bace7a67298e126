"""Opening connections: names are looked up, addresses are tried, TLS is negotiated.

* A name's addresses are tried in turn, the families interleaved; an address that does not answer within a quarter of a
  second does not hold up the next (RFC 8305). An address where TLS fails is passed over like one that refuses.
* A lookup is shared by all who wait for it and believed for ten seconds; the address that is tried first changes each
  time, so that requests spread over the addresses of a name.
* TLS certificates are checked against the system's roots or the operator's (`SSL_CERT_FILE`, `SSL_CERT_DIR`), and
  against the host's name. The one protocol that is offered is `http/1.1` (ALPN, RFC 7301).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable

import aiohappyeyeballs
from aiohappyeyeballs import AddrInfoType

from .connection import Connection
from .request import Endpoint

_ATTEMPT_DELAY_SECONDS = 0.25
_LOOKUP_TTL_SECONDS = 10.0
_MAX_CACHED_LOOKUPS = 1024

Lookup = Callable[[str, int], Awaitable[list[AddrInfoType]]]


class ConnectError(Exception):
    """No connection could be opened. `cause`: what the system or TLS reported for the last address."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Connector:
    """Opens connections. One for each loop."""

    def __init__(self, lookup: Lookup | None = None) -> None:
        """`lookup`: how a name becomes addresses. By default the system's resolver."""
        self._resolver = Resolver(lookup or look_up)
        self._tls: ssl.SSLContext | None = None

    async def connect(self, endpoint: Endpoint, on_closed: Callable[[Connection], None]) -> Connection:
        """Open a connection. Raises `ConnectError`."""
        try:
            return await self._connect(endpoint, on_closed)
        except (OSError, UnicodeError) as error:
            raise ConnectError(error if isinstance(error, OSError) else OSError(str(error))) from error

    async def _connect(self, endpoint: Endpoint, on_closed: Callable[[Connection], None]) -> Connection:
        loop = asyncio.get_running_loop()
        # Certificates name a host without the dot that ends a full name.
        tls = await self._ssl_context() if endpoint.is_tls else None
        server_hostname = endpoint.host.rstrip(".") if endpoint.is_tls else None
        addresses = await self._resolver.resolve(endpoint.host, endpoint.port)
        while True:
            try:
                sock = await aiohappyeyeballs.start_connection(
                    addresses, happy_eyeballs_delay=_ATTEMPT_DELAY_SECONDS, interleave=1, loop=loop
                )
                _, connection = await loop.create_connection(
                    lambda: Connection(endpoint, on_closed), sock=sock, ssl=tls, server_hostname=server_hostname
                )
                return connection
            except OSError:
                aiohappyeyeballs.pop_addr_infos_interleave(addresses, 1)
                if not addresses:
                    raise

    async def _ssl_context(self) -> ssl.SSLContext:
        if self._tls is None:
            # In a thread, as it reads hundreds of certificates.
            self._tls = await asyncio.to_thread(_tls_context)
        return self._tls


class Resolver:
    """Looks names up, each once at a time and once in ten seconds."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._pending: dict[tuple[str, int], asyncio.Task[list[AddrInfoType]]] = {}
        self._cache: dict[tuple[str, int], tuple[float, deque[AddrInfoType]]] = {}

    async def resolve(self, host: str, port: int) -> list[AddrInfoType]:
        """The addresses of a host, in the order in which to try them. Raises `OSError` (`socket.gaierror`)."""
        if ":" in host or host.replace(".", "").isdigit():
            # An address needs no lookup.
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
        """One lookup for all who want it now. It goes on when one of them leaves."""
        task = self._pending.get(key)
        if task is None:
            task = self._pending[key] = asyncio.create_task(_run_lookup(self._lookup, key), name="lookup")
            task.add_done_callback(lambda done: self._on_lookup_done(key, done))
        return await asyncio.shield(task)

    def _on_lookup_done(self, key: tuple[str, int], done: asyncio.Task[list[AddrInfoType]]) -> None:
        del self._pending[key]
        if not done.cancelled():
            done.exception()  # it is raised where it is awaited, if anywhere


async def _run_lookup(lookup: Lookup, key: tuple[str, int]) -> list[AddrInfoType]:
    return await lookup(*key)


async def look_up(host: str, port: int) -> list[AddrInfoType]:
    """The addresses of a name, by the system's resolver, in a thread. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(addresses)


def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
