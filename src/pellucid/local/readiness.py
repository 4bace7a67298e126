"""Whether an engine can be asked now, and waiting until it can."""

from __future__ import annotations

import asyncio
from typing import Literal

from .catalogue import EngineError

State = Literal["stopped", "starting", "ready", "restarting", "failed"]


class Readiness:
    """`where` is told to those who wait in vain: it says where to look."""

    def __init__(self, where: str = "") -> None:
        self.state: State = "stopped"
        self.error: EngineError | None = None
        """Why it failed, or why it is being restarted."""
        self._where = where
        self._changed = asyncio.Event()

    def set(self, state: State) -> None:
        self.state = state
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changed(self) -> None:
        """Wait until it is set again."""
        await self._changed.wait()

    async def ready(self, timeout: float | None) -> None:  # noqa: ASYNC109 (its message says more)
        """Raises ``EngineError``."""
        try:
            async with asyncio.timeout(timeout):
                while self.state != "ready":
                    if self.state == "failed" and self.error:
                        raise self.error
                    if self.state == "stopped":
                        raise EngineError("the embedded engine is not started", "stopped")
                    await self._changed.wait()
        except TimeoutError:
            raise EngineError(
                f"the embedded engine was not ready after {timeout} seconds (state: {self.state}{self._where})",
                "timeout",
            ) from self.error
