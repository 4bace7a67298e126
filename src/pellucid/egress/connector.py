"""Connections that keep to a policy: each request's URL is judged, and only addresses that were judged are reached.

The names of hosts are resolved once for each connection, and the addresses that are judged are the ones handed on to
the socket: there is no second look-up for a name to answer differently in. No proxies, no cache of names.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from .policy import EgressPolicy

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace


class _Resolver(AbstractResolver):
    def __init__(self, policy: EgressPolicy) -> None:
        self._policy = policy

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in await self._policy.addresses(host)
        ]

    async def close(self) -> None:
        return None


class EgressConnector(aiohttp.TCPConnector):
    """Raises `EgressError` for what the policy refuses."""

    def __init__(self, policy: EgressPolicy, **options: Any) -> None:
        super().__init__(**{**options, "resolver": _Resolver(policy), "use_dns_cache": False})
        self._policy = policy

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> Connection:
        # Here, because addresses that are written out are never resolved, and redirects come by here too.
        self._policy.check(req.url)
        return await super().connect(req, traces, timeout)
