"""Whether an engine can be asked now, and waiting until it can."""

from __future__ import annotations

import asyncio
from typing import Literal

from .model_index import EngineError

State = Literal["stopped", "starting", "ready", "restarting", "failed"]


class Readiness:
    """`where` is told to those who wait in vain: it says where to look."""

    def __init__(self, location_hint: str = "") -> None:
        self.state: State = "stopped"
        self.error: EngineError | None = None
        """Why it failed, or why it is being restarted."""
        self._location_hint = location_hint
        self._changed = asyncio.Event()

    def set_state(self, state: State) -> None:
        self.state = state
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait_changed(self) -> None:
        """Wait until it is set again."""
        await self._changed.wait()

    async def wait_ready(self, timeout_seconds: float | None) -> None:
        """Raises ``EngineError``."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while self.state != "ready":
                    if self.state == "failed" and self.error:
                        raise self.error
                    if self.state == "stopped":
                        raise EngineError("the embedded engine is not started", "stopped")
                    await self._changed.wait()
        except TimeoutError:
            raise EngineError(
                f"the embedded engine was not ready after {timeout_seconds} seconds (state: {self.state}{self._location_hint})",
                "timeout",
            ) from self.error
