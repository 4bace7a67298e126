"""The state of an engine, and waiting until it can take requests."""

from __future__ import annotations

import asyncio
from typing import Literal

from .model_index import EngineError

State = Literal["stopped", "starting", "ready", "restarting", "failed"]


class Readiness:
    """The state of an engine.

    Args:
        location_hint: Appended to the message of a timeout. It states where to look for the cause.
    """

    def __init__(self, location_hint: str = "") -> None:
        self.state: State = "stopped"
        self.error: EngineError | None = None
        """Why the engine failed, or why it is being restarted."""
        self._location_hint = location_hint
        self._changed = asyncio.Event()

    def set_state(self, state: State) -> None:
        """Set the state, and wake everything that waits for a change."""
        self.state = state
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait_changed(self) -> None:
        """Wait until the state is set again."""
        await self._changed.wait()

    async def wait_ready(self, timeout_seconds: float | None) -> None:
        """Wait until the engine is ready.

        Args:
            timeout_seconds: The longest wait. None: no limit.

        Raises:
            EngineError: It failed, is stopped, or was not ready in time.
        """
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
                f"the embedded engine was not ready after {timeout_seconds} seconds "
                f"(state: {self.state}{self._location_hint})",
                "timeout",
            ) from self.error
