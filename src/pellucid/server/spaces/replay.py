"""A socket that replays the history of a space, and accepts no input.

It has no session: other participants do not see it, and envelopes that are sent meanwhile are not part of it. The
welcome describes what is replayed; every envelope is flagged `replayed`; after the last one the socket is closed
(1000).
"""

from __future__ import annotations

import asyncio
from typing import Any

from ...asgi.streaming import FAULT
from ...envelopes import DialectName, Envelope, Present, close_codes
from ...envelopes.envelope import EnvelopeError
from ...envelopes.gateway_messages import error, welcome
from ...envelopes.visibility import SpaceView
from ...errors import PellucidError
from ...spaces.history.history import ReplayRange
from ...spaces.runtime.ids import new_id
from ...spaces.runtime.session import encode_frame
from ...telemetry import error_location, log
from ..services import Services
from .auth import AuthenticatedParticipant
from .history_handlers import history_of
from .outlets import LOW_WATER_BYTES, DirectOutlet, QueuedOutlet


class ReplayConnection:
    """One replay to one socket."""

    def __init__(
        self,
        services: Services,
        authenticated: AuthenticatedParticipant,
        outlet: DirectOutlet | QueuedOutlet,
        stretch: ReplayRange,
        view: SpaceView,
        dialect: DialectName,
    ) -> None:
        self._authenticated = authenticated
        self._outlet = outlet
        self._stretch = stretch
        self._dialect = dialect
        self._history = history_of(services, authenticated, view, None)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._send_history())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def reject(self, data: str | bytes) -> None:
        """Answer a message with an error. A client that sends without reading does not get one each time."""
        if self._outlet.buffered_bytes <= LOW_WATER_BYTES:
            refusal = EnvelopeError(
                "this socket replays the history, and accepts no messages; open one without `replay` to send messages",
                kind="forbidden",
                code="read_only",
            )
            self._send([error(new_id(), self._authenticated.space.now_ms(), self._authenticated.participant, refusal)])

    async def _send_history(self) -> None:
        try:
            self._send([self._welcome()])
            async for batch in self._history.replay(self._stretch):
                self._send(batch)
                await self._outlet.wait_drained()
            self._outlet.close(close_codes.NORMAL_CLOSURE, "the replay is over")
        except PellucidError as failed:
            self._fail(failed)
        except Exception as failed:
            log.error("a fault while replaying a space: %s", error_location(failed))
            self._fail(PellucidError(FAULT))

    def _welcome(self) -> Envelope:
        space, stretch = self._authenticated.space, self._stretch
        others = [Present(member.id, member.capabilities) for member in space.members() if member.present]
        parameters: dict[str, Any] = {
            "after_seq": stretch.after,
            "before_seq": stretch.before,
            "since": stretch.since,
            "until": stretch.until,
            "speed": stretch.speed,
            "longest_pause": stretch.longest_pause,
        }
        you = space.presence_of(self._authenticated.participant)
        replay = {name: value for name, value in parameters.items() if value is not None}
        return welcome(new_id(), space.now_ms(), you, others, head=space.head, replay=replay)

    def _fail(self, failed: PellucidError) -> None:
        self._send([error(new_id(), self._authenticated.space.now_ms(), self._authenticated.participant, failed)])
        self._outlet.close(close_codes.INTERNAL_ERROR, (failed.info.code or failed.info.kind)[:120])

    def _send(self, envelopes: list[Envelope]) -> None:
        self._outlet.write([encode_frame(envelope, self._dialect) for envelope in envelopes])
