"""What happens in a space by itself: looking for what others wrote, contexts that fell silent, who is gone.

A wake from another replica may be lost, and the configuration is changed by others who wake nobody: so the store is
asked at intervals, too.

Who is there: seats counted at this replica, and the roll that replicas keep together at the relay. That somebody came
or went is an envelope of the log, said by whoever finds that the log does not have it yet: so it is said once. An entry
of the roll lapses when its replica does not renew it. Who is missing from it for longer than its replica takes to renew
it is gone; a relay that does not answer says nothing about anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from ...envelopes import GATEWAY, Envelope, Present, gateway_messages
from ...envelopes.kinds import CANCEL
from ...errors import PellucidError
from ...relay import Relay, RelayError
from ...telemetry import error_location, log
from .ids import new_id
from .state import SpaceState
from .write_queue import EnvelopeFactory, WriteRequest, ignore_result
from .writer import Writer, WriterLease

RENEWALS_PER_PERIOD = 3
DEFER_ABOVE = 10_000
"""So many wait to be judged that what can be said at the next look is said then."""


_CONTENDED_SUFFIX = b" turns"
"""Said after its name by a replica that was overtaken."""


class Intervals(NamedTuple):
    """Seconds."""

    poll_seconds: float = 1.0
    """Between two looks at the store."""
    presence_seconds: float = 15.0
    """Without a word, after which a replica and all who are connected to it are gone."""
    unused_seconds: float = 60.0
    """After which a space that nobody uses is closed."""


class Maintenance:
    """`clock` gives seconds since 1970."""

    def __init__(
        self,
        name: str,
        replica_id: str,
        relay: Relay,
        writer: Writer,
        lease: WriterLease,
        presence: Presence,
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
        """Others are to look."""
        self._notify.set()

    def announce_contention(self) -> None:
        """Others are to take turns with this replica."""
        self._is_contended = True
        self._notify.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poll())
            group.create_task(self._listen())
            group.create_task(self._publish_notifications())

    async def _poll(self) -> None:
        while True:
            try:
                self._cancel_due_contexts()
                if monotonic() - self._last_renewal >= self._intervals.presence_seconds / RENEWALS_PER_PERIOD:
                    self._last_renewal = monotonic()
                    await self._renew_presence()
            except PellucidError:
                # The relay does not answer: nothing is known about anybody.
                pass
            except Exception as error:
                log.error("a space could not be looked after: %s", error_location(error))
            await asyncio.sleep(self._intervals.poll_seconds)
            self._writer.queue.request_catch_up()

    async def _listen(self) -> None:
        while True:
            listener = self._relay.subscribe(self._channel)
            try:
                while (messages := await listener.read()) is not None:
                    foreign = [one for one in messages if one.removesuffix(_CONTENDED_SUFFIX) != self._replica_id]
                    if foreign:
                        self._writer.queue.request_catch_up()
                    if any(one.endswith(_CONTENDED_SUFFIX) for one in foreign):
                        self._lease.mark_contended()
            except RelayError:
                pass
            finally:
                listener.close()
            await asyncio.sleep(self._intervals.poll_seconds)

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

    def _enqueue(self, make: EnvelopeFactory) -> None:
        if len(self._writer.queue) < DEFER_ABOVE:
            # What is not said now is said at the next look.
            self._writer.queue.put(WriteRequest(ignore_result, make=make))


def _cancel(path: str, reason: str) -> EnvelopeFactory:
    def make(state: SpaceState, at: int) -> Envelope | None:
        if not any(due == path for due, _ in state.due(at)):
            return None
        return Envelope(id=new_id(), ts=at, sender=GATEWAY, kind=CANCEL, context=path, payload={"reason": reason})

    return make


# --- who is there


MISSING_SHARE = 0.6
"""Of the time for which an entry holds. It is renewed three times in it, and the roll may have been lost."""


class Presence:
    """`me` is this replica's name; `seconds`, how long an entry holds."""

    def __init__(self, relay: Relay, space: str, replica_id: str, ttl_seconds: float) -> None:
        self._relay = relay
        self._key = f"space:{space}"
        self._replica_id = replica_id
        self._ttl_seconds = ttl_seconds
        self._local_counts: dict[str, int] = {}
        self._missing_since: dict[str, float] = {}
        """Since when."""

    def is_local(self, participant: str) -> bool:
        return participant in self._local_counts

    def local_count(self, participant: str) -> int:
        return self._local_counts.get(participant, 0)

    @property
    def has_local(self) -> bool:
        return bool(self._local_counts)

    async def enter(self, participant: str) -> None:
        self._local_counts[participant] = first = self.local_count(participant) + 1
        if first == 1:
            with suppress(RelayError):
                await self._relay.set_presence(self._key, self._entry(participant), self._ttl_seconds)

    async def leave(self, participant: str) -> bool:
        """Whether they are nowhere any more, as far as can be seen."""
        left = self.local_count(participant) - 1
        if left > 0:
            self._local_counts[participant] = left
            return False
        self._local_counts.pop(participant, None)
        try:
            await self._relay.clear_presence(self._key, self._entry(participant))
            online = await self._online()
        except RelayError:
            return False
        return participant not in online and not self.is_local(participant)

    async def renew(self) -> None:
        """Raises `RelayError`."""
        for participant in list(self._local_counts):
            await self._relay.set_presence(self._key, self._entry(participant), self._ttl_seconds)

    async def missing(self, present: Iterable[str]) -> set[str]:
        """Of those who are there by the log, who was on no roll for long enough. Raises `RelayError`."""
        online = await self._online()
        now = monotonic()
        self._missing_since = {
            one: self._missing_since.get(one, now) for one in present if one not in online and not self.is_local(one)
        }
        return {one for one, since in self._missing_since.items() if now - since >= self._ttl_seconds * MISSING_SHARE}

    async def _online(self) -> set[str]:
        return {entry.partition(" ")[2] for entry in await self._relay.list_present(self._key)}

    def _entry(self, participant: str) -> str:
        return f"{self._replica_id} {participant}"

    # --- what is said of it

    def make_join(self, participant: str) -> EnvelopeFactory:
        def make(state: SpaceState, at: int) -> Envelope | None:
            if participant in state.present_since or not state.ledger.is_member(participant):
                return None
            return gateway_messages.presence(
                new_id(), at, "join", Present(participant, state.capabilities(participant))
            )

        return make

    def make_leave(self, participant: str) -> EnvelopeFactory:
        def make(state: SpaceState, at: int) -> Envelope | None:
            if participant not in state.present_since or self.is_local(participant):
                return None
            return gateway_messages.presence(new_id(), at, "leave", Present(participant))

        return make
