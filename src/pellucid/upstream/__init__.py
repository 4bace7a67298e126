"""TEMPORARY bridge."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from ..errors import ErrorInfo, ModelError
from ..transport import Answer, Limits, Seconds, Transport


class BodyReceiver(Protocol):
    def data_received(self, data: bytes) -> None: ...
    def body_ended(self, error: ErrorInfo | None) -> None: ...


class UpstreamResponse:
    def __init__(self, answer: Answer) -> None:
        self._a = answer
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._t: Any = None

    def __getattr__(self, n: str) -> Any:
        return getattr(self._a, n)

    status: int
    headers: Any
    content_type: str
    retry_after: float | None

    def start(self, r: BodyReceiver) -> None:
        async def pump() -> None:
            try:
                while True:
                    await self._resumed.wait()
                    await self._a.wait()
                    await self._resumed.wait()
                    d = self._a.take()
                    if not d:
                        r.body_ended(None)
                        return
                    r.data_received(d)
            except ModelError as e:
                r.body_ended(e.info)

        self._t = asyncio.get_running_loop().create_task(pump())

    def pause_reading(self) -> None:
        self._resumed.clear()

    def resume_reading(self) -> None:
        self._resumed.set()

    async def read_all(self, limit: int, seconds: float = 10.0) -> bytes:
        return await self._a.read_all(limit, seconds)

    def close(self) -> None:
        self._a.close()
        if self._t and asyncio.current_task() is not self._t:
            self._t.cancel()

    def finish(self) -> None:
        self._a.finish()


class Upstream(Transport):
    async def open(self, *a: Any, **k: Any) -> Any:
        return UpstreamResponse(await super().open(*a, **k))


__all__ = ["BodyReceiver", "Limits", "Seconds", "Upstream", "UpstreamResponse"]
