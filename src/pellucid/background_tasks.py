"""A group of tasks that no run and no request waits for: they charge tokens, and close connections to servers.

A process that stops waits for them (`wait_for_tasks`) before it closes the resources that they need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from .errors import PellucidError
from .telemetry import error_location, log

_tasks: set[asyncio.Task[None]] = set()


def start_task(coroutine: Coroutine[Any, Any, None], failure_message: str) -> asyncio.Task[None]:
    """Run a coroutine in a task of the group, and return it. It does not raise what the coroutine raises.

    Args:
        coroutine: The coroutine.
        failure_message: What is logged if it fails, followed by the error.
    """
    task = asyncio.get_running_loop().create_task(_run_logged(coroutine, failure_message))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


async def wait_for_tasks(timeout_seconds: float) -> None:
    """Wait until all tasks of this event loop are done, at most `timeout_seconds`."""
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
