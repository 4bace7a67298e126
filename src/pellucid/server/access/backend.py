"""Calls to the back ends of access control (store, relay, token issuer), which may be unavailable or slow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from ...errors import PellucidError

T = TypeVar("T")

TIMEOUT_SECONDS = 5.0
"""Seconds to wait for a back end before it counts as unavailable."""


class BackendUnavailable(Exception):
    """A back end did not answer."""


async def call_backend(request: Awaitable[T], timeout_seconds: float = TIMEOUT_SECONDS) -> T:
    """Await a call to a back end, with a time limit.

    Args:
        request: the call.
        timeout_seconds: how long to wait for it.

    Returns:
        What the call returns.

    Raises:
        BackendUnavailable: the back end did not answer in time, or reported an outage. Other errors are raised
            unchanged.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            return await request
    except TimeoutError as error:
        raise BackendUnavailable from error
    except PellucidError as error:
        if error.info.kind in ("unavailable", "timeout"):
            raise BackendUnavailable from error
        raise
