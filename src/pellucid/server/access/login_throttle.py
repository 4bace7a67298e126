"""Limit of sign-in attempts per client address, counted over all replicas. Successful attempts are not counted.

A key cannot be guessed. The limit protects the store and the OpenID Connect provider from the load of many attempts.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from .backend import BackendUnavailable, call_backend
from .errors import AccessError, unavailable
from .limits import WINDOW_SECONDS, RateCounter

MAX_ATTEMPTS_PER_MINUTE = 20
"""Attempts per minute. All people behind one address (of a proxy, for example) count as one."""

_LIMITS = {"attempts": float(MAX_ATTEMPTS_PER_MINUTE)}


class LoginThrottle:
    """Counter of attempts: `take` one before it is made, `refund` it if it succeeded."""

    def __init__(self, relay: RateCounter) -> None:
        self._relay = relay

    async def take(self, scope: Mapping[str, Any]) -> None:
        """Count an attempt, before it is made.

        Args:
            scope: the ASGI scope of the request.

        Raises:
            AccessError: too_many_requests when the limit is reached; unavailable when the relay does not answer.
        """
        try:
            verdict = await call_backend(self._relay.spend(_bucket(scope), {"attempts": 1}, _LIMITS, WINDOW_SECONDS))
        except BackendUnavailable as error:
            raise unavailable(
                "signing in is not possible now, as the relay does not answer; try again in a moment"
            ) from error
        if not verdict.allowed:
            wait = math.ceil(verdict.retry_after)
            raise AccessError(
                f"too many attempts to sign in; try again in {wait} s",
                kind="too_many_requests",
                code="too_many_attempts",
                retry_after=wait,
            )

    async def refund(self, scope: Mapping[str, Any]) -> None:
        """Take back an attempt that succeeded."""
        with suppress(BackendUnavailable):  # the counter refills with time
            await call_backend(self._relay.charge(_bucket(scope), {"attempts": -1}, _LIMITS, WINDOW_SECONDS))


def _bucket(scope: Mapping[str, Any]) -> str:
    """Return the name of the counter for the address of the client."""
    client = scope.get("client")
    host = client[0] if client is not None else "local"
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return f"sign-in:{host}"
    # Who has one IPv6 address usually has a whole /64 network.
    return f"sign-in:{address if address.version == 4 else ipaddress.ip_network((int(address), 64), strict=False)}"
