"""Attempts to sign in: so many a minute from one address, over all replicas, and those that succeed are not counted.

Nobody guesses a key. This is so that nobody makes the store, or the provider, busy by trying.
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
"""A minute. People behind one address (a proxy's, say) count as one."""

_LIMITS = {"attempts": float(MAX_ATTEMPTS_PER_MINUTE)}


class LoginThrottle:
    """`take` one before it is made, `give_back` if it was good."""

    def __init__(self, relay: RateCounter) -> None:
        self._relay = relay

    async def take(self, scope: Mapping[str, Any]) -> None:
        """Before the attempt. Raises `AccessError` (too_many_requests, unavailable)."""
        try:
            verdict = await call_backend(self._relay.spend(_bucket(scope), {"attempts": 1}, _LIMITS, WINDOW_SECONDS))
        except BackendUnavailable as error:
            raise unavailable("nobody can sign in now, as the relay does not answer; try again in a moment") from error
        if not verdict.allowed:
            wait = math.ceil(verdict.retry_after)
            raise AccessError(
                f"too many attempts to sign in; try again in {wait} s",
                kind="too_many_requests",
                code="too_many_attempts",
                retry_after=wait,
            )

    async def refund(self, scope: Mapping[str, Any]) -> None:
        """After one that succeeded."""
        with suppress(BackendUnavailable):  # it comes back by itself
            await call_backend(self._relay.charge(_bucket(scope), {"attempts": -1}, _LIMITS, WINDOW_SECONDS))


def _bucket(scope: Mapping[str, Any]) -> str:
    client = scope.get("client")
    host = client[0] if client is not None else "local"
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return f"sign-in:{host}"
    # Whoever has one IPv6 address has a whole network of them.
    return f"sign-in:{address if address.version == 4 else ipaddress.ip_network((int(address), 64), strict=False)}"
