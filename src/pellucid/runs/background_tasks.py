"""What is still to be done for runs that are over, and that nobody waits for: tokens to charge, servers to leave.

A process that stops waits for all of it (`settled`) before it takes away what it needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ..errors import PellucidError
from ..telemetry import error_location, log

_tasks: set[asyncio.Task[None]] = set()


def run_in_background(coroutine: Coroutine[Any, Any, None], failure_message: str) -> None:
    """Do it after whoever asks has gone on. `what` names it to the operator, should it fail."""
    task = asyncio.get_running_loop().create_task(_run_logged(coroutine, failure_message))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


async def wait_for_background_tasks(timeout_seconds: float) -> None:
    """Wait until all of it is done, but no longer than so many seconds."""
    loop = asyncio.get_running_loop()
    if tasks := [task for task in _tasks if task.get_loop() is loop]:
        await asyncio.wait(tasks, timeout=timeout_seconds)


async def _run_logged(coroutine: Coroutine[Any, Any, None], failure_message: str) -> None:
    try:
        await coroutine
    except PellucidError as error:
        log.warning("%s: %s", failure_message, error.info.message)
    except Exception as error:
        log.error("%s: a fault: %s", failure_message, error_location(error))
