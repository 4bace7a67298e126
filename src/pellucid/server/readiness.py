"""Readiness: whether requests can be served now, as `/ready` reports it.

The gateway is not ready while the embedded model is loading or does not answer, the store cannot be read or written,
the relay does not answer, no deployment of the default model is available, or the memory is used up. It is checked when
`/ready` is requested, all at once and within a time limit. The result is shared for a second, so probes are cheap,
however many there are.

Anyone may request `/ready`: the reasons name no addresses. The log states when they change.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, NamedTuple

from ..errors import PellucidError
from ..telemetry import error_location, log

CHECK_SECONDS = 2.0
"""Time limit of each check."""

SHARED_SECONDS = 1.0
"""Seconds for which a result is shared."""


class NotReady(NamedTuple):
    """Why requests cannot be served."""

    status: Literal["loading", "unavailable"]
    reason: str


Check = Callable[[], Awaitable[NotReady | None]]
"""Returns the reason if requests cannot be served. It may raise `PellucidError`."""


class Readiness:
    """Checks whether requests can be served.

    Args:
        checks: By the reason that is reported if a check fails with an error or is late.
        clock: Monotonic time in seconds.
    """

    def __init__(self, checks: Mapping[str, Check], clock: Callable[[], float] = time.monotonic) -> None:
        self._checks = checks
        self._clock = clock
        self._task: asyncio.Task[list[NotReady]] | None = None
        self._started_at = 0.0
        self._last: list[NotReady] = []

    async def check(self) -> list[NotReady]:
        """Return all reasons why requests cannot be served, in the order of the checks; none if they can."""
        task = self._task
        if task is None or (task.done() and self._clock() - self._started_at >= SHARED_SECONDS):
            self._started_at = self._clock()
            self._task = task = asyncio.create_task(self._check_all())
        return await asyncio.shield(task)

    async def _check_all(self) -> list[NotReady]:
        results = await asyncio.gather(*(self._check_one(reason, check) for reason, check in self._checks.items()))
        missing = [result for result in results if result is not None]
        if missing != self._last:
            if not missing:
                log.info("ready")
            else:
                level = logging.INFO if all(one.status == "loading" for one in missing) else logging.WARNING
                log.log(level, "not ready: %s", "; ".join(one.reason for one in missing))
            self._last = missing
        return missing

    @staticmethod
    async def _check_one(reason: str, check: Check) -> NotReady | None:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                return await check()
        except (TimeoutError, PellucidError):
            return NotReady("unavailable", reason)
        except Exception as error:
            log.error("a fault while checking the readiness: %s", error_location(error))
            return NotReady("unavailable", reason)
