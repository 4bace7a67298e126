"""What access control leans on (the store, the relay, an issuer) may be down, or slow: one way to ask it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from ...errors import PellucidError

T = TypeVar("T")

TIMEOUT_SECONDS = 5.0
"""Seconds. Whoever takes longer to say who somebody is counts as down."""


class BackendUnavailable(Exception):
    """It did not answer."""


async def call_backend(request: Awaitable[T], timeout_seconds: float = TIMEOUT_SECONDS) -> T:
    """What was asked for, or `BackendUnavailable`. A fault that is not an outage stays what it is."""
    try:
        async with asyncio.timeout(timeout_seconds):
            return await request
    except TimeoutError as error:
        raise BackendUnavailable from error
    except PellucidError as error:
        if error.info.kind in ("unavailable", "timeout"):
            raise BackendUnavailable from error
        raise
