"""What access control leans on (the store, the relay, an issuer) may be down, or slow: one way to ask it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from ...errors import PellucidError

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds. Whoever takes longer to say who somebody is counts as down."""


class Down(Exception):
    """It did not answer."""


async def answer(asked: Awaitable[T], patience: float = PATIENCE) -> T:
    """What was asked for, or `Down`. A fault that is not an outage stays what it is."""
    try:
        async with asyncio.timeout(patience):
            return await asked
    except TimeoutError as error:
        raise Down from error
    except PellucidError as error:
        if error.info.kind in ("unavailable", "timeout"):
            raise Down from error
        raise
