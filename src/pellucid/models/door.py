"""The pool of connections that a model uses when it is given none: one for each running loop, shared by all models."""

from __future__ import annotations

import asyncio

from ..upstream import UpstreamClient
from .held import Held


async def _open() -> UpstreamClient:
    return UpstreamClient()


async def _close(transport: UpstreamClient) -> None:
    await transport.aclose()
    # Sockets are closed by the loop's next step, for which there may be no other reason.
    await asyncio.sleep(0)


_door = Held(_open, _close)


async def door() -> UpstreamClient:
    """The running loop's pool. It is closed when the loop ends, or by `close_door`."""
    return await _door.get()


async def close_door() -> None:
    """Close the running loop's pool now. Whoever needs one after that gets a new one."""
    await _door.aclose()
