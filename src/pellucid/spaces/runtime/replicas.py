"""What the replicas of a space share at the relay: who is present, the frames of streams, and the writer lease.

Presence: each replica counts the sessions of its participants, and all replicas share a set of entries at the relay. A
join or leave is an envelope of the log. The first replica that finds that the log does not have it writes it, so it is
written once. An entry of the shared set expires unless its replica renews it. A participant who is missing for longer
than a renewal takes has left. If the relay does not answer, nothing is known about any participant.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, closing, suppress
from time import monotonic

from ...envelopes import Envelope, Present, gateway_messages
from ...errors import PellucidError
from ...relay import Relay, RelayError
from .ids import new_id
from .state import EnvelopeFactory, SpaceState

MISSING_SHARE = 0.6
"""Share of an entry's lifetime after which a missing participant has left. The entry is renewed three times in its
lifetime, and the set may have been lost.
"""


class PresenceTracker:
    """Who is connected, at this replica and at others.

    Args:
        relay: The relay between replicas.
        space: The name of the space.
        replica_id: The id of this replica.
        ttl_seconds: How long an entry is valid.
    """

    def __init__(self, relay: Relay, space: str, replica_id: str, ttl_seconds: float) -> None:
        self._relay = relay
        self._key = f"space:{space}"
        self._replica_id = replica_id
        self._ttl_seconds = ttl_seconds
        self._local_counts: dict[str, int] = {}
        self._missing_since: dict[str, float] = {}
        """By participant, the time when it was first missing."""

    def is_local(self, participant: str) -> bool:
        """Check whether a participant has a session at this replica."""
        return participant in self._local_counts

    def local_count(self, participant: str) -> int:
        return self._local_counts.get(participant, 0)

    @property
    def has_local(self) -> bool:
        return bool(self._local_counts)

    async def enter(self, participant: str) -> None:
        """Count one session more."""
        self._local_counts[participant] = first = self.local_count(participant) + 1
        if first == 1:
            with suppress(RelayError):
                await self._relay.set_presence(self._key, self._entry(participant), self._ttl_seconds)

    async def leave(self, participant: str) -> bool:
        """Count one session less.

        Returns:
            Whether the participant has no session at any replica, as far as is known.
        """
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
        """Renew the entries of all participants at this replica.

        Raises:
            RelayError: If the relay fails.
        """
        for participant in list(self._local_counts):
            await self._relay.set_presence(self._key, self._entry(participant), self._ttl_seconds)

    async def missing(self, present: Iterable[str]) -> set[str]:
        """Return those of the present participants who have been missing for long enough to have left.

        Args:
            present: The participants who are present according to the log.

        Raises:
            RelayError: If the relay fails.
        """
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

    # --- envelopes

    def make_join(self, participant: str) -> EnvelopeFactory:
        """Return the factory of a join, which builds nothing if the participant is present already."""

        def make(state: SpaceState, time_ms: int) -> Envelope | None:
            if participant in state.present_since or not state.ledger.is_member(participant):
                return None
            return gateway_messages.presence(
                new_id(), time_ms, "join", Present(participant, state.capabilities(participant))
            )

        return make

    def make_leave(self, participant: str) -> EnvelopeFactory:
        """Return the factory of a leave, which builds nothing if the participant is present here or absent already."""

        def make(state: SpaceState, time_ms: int) -> Envelope | None:
            if participant not in state.present_since or self.is_local(participant):
                return None
            return gateway_messages.presence(new_id(), time_ms, "leave", Present(participant))

        return make


class StreamRelay:
    """Carries the frames of streams between the replicas of a space. They are not stored, and may be lost.

    Each replica numbers its frames, so that one that the relay returns again is not delivered twice.

    Args:
        relay: The relay between replicas.
        space: The name of the space.
        replica_id: The id of this replica.
        deliver: Delivers the frame of a sender here. It returns False if the stream is not known here.
        catch_up: Reads what other replicas have written.
    """

    MAX_WAITING = 256
    """Frames that wait for the relay; further ones do not reach other replicas."""
    MAX_STORED = 256
    STORED_SECONDS = 10.0

    def __init__(
        self,
        relay: Relay,
        space: str,
        replica_id: str,
        deliver: Callable[[str, bytes], bool],
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._relay = relay
        self._channel = f"space-streams:{space}"
        self._replica_id = replica_id
        self._deliver = deliver
        self._catch_up = catch_up
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(self.MAX_WAITING)
        self._count = 0
        self._last_counts: dict[str, int] = {}

    def publish(self, sender: str, frame: bytes) -> None:
        """Send a frame to other replicas, soon."""
        self._count += 1
        head = f"{self._replica_id} {self._count} {sender}\n".encode()
        with suppress(asyncio.QueueFull):
            self._waiting.put_nowait(head + frame)

    async def run(self) -> None:
        """Carry frames, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send())
            group.create_task(self._listen())

    async def _send(self) -> None:
        while True:
            message = await self._waiting.get()
            with suppress(RelayError):
                await self._relay.publish(
                    self._channel, message, max_stored=self.MAX_STORED, seconds=self.STORED_SECONDS
                )

    async def _listen(self) -> None:
        with closing(self._relay.subscribe(self._channel)) as listener:
            while (messages := await listener.read()) is not None:
                for message in messages:
                    await self._receive(message)

    async def _receive(self, message: bytes) -> None:
        head, _, frame = message.partition(b"\n")
        replica_id, number, sender = head.decode(errors="replace").split(" ", 2)
        if replica_id == self._replica_id or int(number) <= self._last_counts.get(replica_id, 0):
            return
        self._last_counts[replica_id] = int(number)
        if not self._deliver(sender, frame):
            # The stream may have been opened just now.
            with suppress(PellucidError):
                await self._catch_up()
            self._deliver(sender, frame)


CONTENTION_SECONDS = 3.0
"""Seconds after a collision in which the lease is used."""
LEASE_SECONDS = 2.0
MAX_WAIT_SECONDS = 1.0
RETRY_PAUSES_SECONDS = 0.002, 0.005
"""Shortest and longest pause between two attempts. A holder pauses for the shortest after it releases the lease, so
that a waiting replica can get it.
"""
RELAY_RETRY_SECONDS = 10.0


class WriterLease:
    """A lease at the relay, used only after a replica was overtaken.

    That replica notifies the others (`maintenance`). Otherwise a replica that is never overtaken would not know, and a
    replica without the lease would overtake all that wait for it. The lease is a courtesy: a replica that does not get
    it in time, or cannot reach the relay, writes without it, and the store decides as always.
    """

    def __init__(self, relay: Relay, name: str, replica_id: str) -> None:
        self._relay = relay
        self._name = f"space-turn:{name}"
        self._replica_id = replica_id
        self._contended_until = 0.0
        self._relay_down_until = 0.0
        """The relay did not answer; until this time it is not tried again."""

    @property
    def is_contended(self) -> bool:
        """Whether the lease is used at the moment."""
        return self._relay_down_until <= monotonic() < self._contended_until

    def mark_contended(self) -> None:
        """Use the lease for a while, because a replica was overtaken."""
        self._contended_until = monotonic() + CONTENTION_SECONDS

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[None]:
        """Hold the lease, if it is needed and can be had in time."""
        token = await self._try_acquire() if self.is_contended else None
        try:
            yield
        finally:
            if token is not None:
                with suppress(RelayError):
                    await self._relay.release(self._name, token)
                # A waiting replica gets it next, not this one again.
                await asyncio.sleep(RETRY_PAUSES_SECONDS[0])

    async def _try_acquire(self) -> int | None:
        until, pause = monotonic() + MAX_WAIT_SECONDS, RETRY_PAUSES_SECONDS[0]
        while monotonic() < until:
            try:
                token = await self._relay.claim(self._name, self._replica_id, LEASE_SECONDS)
            except RelayError:
                self._relay_down_until = monotonic() + RELAY_RETRY_SECONDS
                return None
            if token is not None:
                return token
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, RETRY_PAUSES_SECONDS[1])
        return None
