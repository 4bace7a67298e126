"""What is still to be done for runs that are over, and that nobody waits for: tokens to charge, servers to leave.

A process that stops waits for all of it (`settled`) before it takes away what it needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ..errors import PellucidError
from ..telemetry import log, place_of

_under_way: set[asyncio.Task[None]] = set()


def later(work: Coroutine[Any, Any, None], what: str) -> None:
    """Do it after whoever asks has gone on. `what` names it to the operator, should it fail."""
    task = asyncio.get_running_loop().create_task(_done(work, what))
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)


async def settled(seconds: float) -> None:
    """Wait until all of it is done, but no longer than so many seconds."""
    loop = asyncio.get_running_loop()
    if mine := [task for task in _under_way if task.get_loop() is loop]:
        await asyncio.wait(mine, timeout=seconds)


async def _done(work: Coroutine[Any, Any, None], what: str) -> None:
    try:
        await work
    except PellucidError as error:
        log.warning("%s: %s", what, error.info.message)
    except Exception as error:
        log.error("%s: a fault: %s", what, place_of(error))
