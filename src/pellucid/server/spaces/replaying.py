"""A socket that looks at the history: what was said is told again, and nothing that comes is taken.

It has no seat: nobody sees it come, and what is said meanwhile is not in it. The welcome says what is replayed; every
envelope is flagged `replayed`; behind the last one the socket is closed (1000).
"""

from __future__ import annotations

import asyncio
from typing import Any

from ...asgi.streaming import FAULT
from ...envelopes import DialectName, Envelope, Present, closing
from ...envelopes.envelope import EnvelopeError
from ...envelopes.said import error, welcome
from ...envelopes.shown import SpaceView
from ...errors import PellucidError
from ...spaces.past.history import Stretch
from ...spaces.runtime.ids import new_id
from ...spaces.runtime.seats import frame_of
from ...telemetry import log, place_of
from ..services import Services
from .door import Inside
from .outlets import SMALL, DirectOutlet, QueuedOutlet
from .reading import history_of


class Replaying:
    """One replay to one socket."""

    def __init__(
        self,
        services: Services,
        inside: Inside,
        outlet: DirectOutlet | QueuedOutlet,
        wanted: Stretch,
        view: SpaceView,
        dialect: DialectName,
    ) -> None:
        self._inside = inside
        self._outlet = outlet
        self._wanted = wanted
        self._dialect = dialect
        self._history = history_of(services, inside, view, None)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._play())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def hear(self, data: str | bytes) -> None:
        """Nothing is taken here. Who goes on talking without reading is not told each time."""
        if self._outlet.waiting <= SMALL:
            told = EnvelopeError(
                "this socket replays what was said, and takes nothing; open one without `replay` to say something",
                kind="forbidden",
                code="read_only",
            )
            self._tell([error(new_id(), self._inside.space.now_ms(), self._inside.participant, told)])

    async def _play(self) -> None:
        try:
            self._tell([self._welcome()])
            async for batch in self._history.replay(self._wanted):
                self._tell(batch)
                await self._outlet.drained()
            self._outlet.close(closing.OVER, "the replay is over")
        except PellucidError as failed:
            self._fail(failed)
        except Exception as failed:
            log.error("a fault while replaying a space: %s", place_of(failed))
            self._fail(PellucidError(FAULT))

    def _welcome(self) -> Envelope:
        space, wanted = self._inside.space, self._wanted
        others = [Present(member.id, member.capabilities) for member in space.members() if member.present]
        about: dict[str, Any] = {
            "after_seq": wanted.after,
            "before_seq": wanted.before,
            "since": wanted.since,
            "until": wanted.until,
            "speed": wanted.speed,
            "longest_pause": wanted.longest_pause,
        }
        you = space.you(self._inside.participant)
        said = {name: value for name, value in about.items() if value is not None}
        return welcome(new_id(), space.now_ms(), you, others, head=space.head, replay=said)

    def _fail(self, failed: PellucidError) -> None:
        self._tell([error(new_id(), self._inside.space.now_ms(), self._inside.participant, failed)])
        self._outlet.close(closing.BROKEN, (failed.info.code or failed.info.kind)[:120])

    def _tell(self, envelopes: list[Envelope]) -> None:
        self._outlet.write([frame_of(envelope, self._dialect) for envelope in envelopes])
