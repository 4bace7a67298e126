"""The periodic work of a space: reading what other replicas announce, ending silent contexts, announcing that the time
of agents' talk is over, and renewing presence.

A notification from another replica may be lost, and changes of the configuration notify no replica. So the heads of all
open spaces are also read at intervals (`space_manager`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing, suppress
from time import monotonic
from typing import NamedTuple

from ...envelopes import GATEWAY, Envelope
from ...envelopes.kinds import CANCEL
from ...errors import PellucidError
from ...relay import Relay, RelayError
from ...telemetry import error_location, log
from .ids import new_id
from .replicas import PresenceTracker, WriterLease
from .state import EnvelopeFactory, SpaceState
from .writer import Writer, WriteRequest

RENEWALS_PER_PERIOD = 3
DEFER_ABOVE = 10_000
"""Number of waiting requests above which maintenance does not add any more; it tries again at the next interval."""


_CONTENDED_SUFFIX = b" turns"
"""Follows the replica's id in a notification from a replica that was overtaken."""


class Intervals(NamedTuple):
    """Times in seconds."""

    poll_seconds: float = 1.0
    """Between two reads of the heads of all open spaces, and between two looks for what is due in each."""
    presence_seconds: float = 15.0
    """Silence after which a replica and all participants connected to it have left."""
    unused_seconds: float = 60.0
    """Time without use after which a space is closed."""


class Maintenance:
    """The periodic work of one space.

    Args:
        name: The name of the space.
        replica_id: The id of this replica.
        relay: The relay between replicas.
        writer: The writer of the space.
        lease: The writer lease.
        presence: Who is connected.
        intervals: Intervals of the work.
        clock: Returns seconds since 1970.
    """

    def __init__(
        self,
        name: str,
        replica_id: str,
        relay: Relay,
        writer: Writer,
        lease: WriterLease,
        presence: PresenceTracker,
        intervals: Intervals,
        clock: Callable[[], float],
    ) -> None:
        self._channel = f"space:{name}"
        self._replica_id = replica_id.encode()
        self._relay = relay
        self._writer = writer
        self._lease = lease
        self._presence = presence
        self._intervals = intervals
        self._clock = clock
        self._notify = asyncio.Event()
        self._is_contended = False
        self._last_renewal = 0.0

    def notify_replicas(self) -> None:
        """Notify other replicas that there is something to read."""
        self._notify.set()

    def announce_contention(self) -> None:
        """Notify other replicas that they need the writer lease for a while."""
        self._is_contended = True
        self._notify.set()

    async def run(self) -> None:
        """Do the work, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poll())
            group.create_task(self._listen())
            group.create_task(self._publish_notifications())

    async def _poll(self) -> None:
        while True:
            try:
                self._cancel_due_contexts()
                self._announce_talk_limits()
                if monotonic() - self._last_renewal >= self._intervals.presence_seconds / RENEWALS_PER_PERIOD:
                    self._last_renewal = monotonic()
                    await self._renew_presence()
            except PellucidError:
                # The relay does not answer: nothing is known about any participant.
                pass
            except Exception as error:
                log.error("the maintenance of a space failed: %s", error_location(error))
            await asyncio.sleep(self._intervals.poll_seconds)

    async def _listen(self) -> None:
        with closing(self._relay.subscribe(self._channel)) as listener:
            while (messages := await listener.read()) is not None:
                foreign = [one for one in messages if one.removesuffix(_CONTENDED_SUFFIX) != self._replica_id]
                if foreign:
                    self._writer.queue.request_catch_up()
                if any(one.endswith(_CONTENDED_SUFFIX) for one in foreign):
                    self._lease.mark_contended()

    async def _publish_notifications(self) -> None:
        while True:
            await self._notify.wait()
            self._notify.clear()
            message, self._is_contended = (
                self._replica_id + _CONTENDED_SUFFIX if self._is_contended else self._replica_id,
                False,
            )
            with suppress(RelayError):
                await self._relay.publish(self._channel, message)

    async def _renew_presence(self) -> None:
        await self._presence.renew()
        for participant in await self._presence.missing(list(self._writer.live.state.present_since)):
            self._enqueue(self._presence.make_leave(participant))

    def _cancel_due_contexts(self) -> None:
        now = round(self._clock() * 1000)
        for path, reason in self._writer.live.state.due(now):
            self._enqueue(_cancel(path, reason))

    def _announce_talk_limits(self) -> None:
        for path in self._writer.live.state.talk_due(round(self._clock() * 1000)):
            self._enqueue(_talk_notice(path))

    def _enqueue(self, make: EnvelopeFactory) -> None:
        if len(self._writer.queue) < DEFER_ABOVE:
            # What is deferred now is found again at the next interval.
            self._writer.queue.put(WriteRequest(make=make))


def _cancel(path: str, reason: str) -> EnvelopeFactory:
    def make(state: SpaceState, time_ms: int) -> Envelope | None:
        if not any(due == path for due, _ in state.due(time_ms)):
            return None
        return Envelope(id=new_id(), ts=time_ms, sender=GATEWAY, kind=CANCEL, context=path, payload={"reason": reason})

    return make


def _talk_notice(path: str | None) -> EnvelopeFactory:
    def make(state: SpaceState, time_ms: int) -> Envelope | None:
        return state.talk_notice(path, time_ms)

    return make
