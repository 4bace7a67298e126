"""The part of a space that is in memory: its state, which can be rolled back to what is stored, and its configuration.

Judging changes the state before the envelopes are stored. If they are not stored after all (another replica was faster,
the store did not answer), `roll_back` builds the state again from its last base, a dump, and from what was stored
since.

A base is stored as a snapshot, in the transaction of its last envelope (`is_snapshot_due`). So a space opens by one
snapshot and a short rest of the log, however long the log is and however its last process ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from ...envelopes import GATEWAY, Envelope
from ...envelopes.grants import RightsChange
from ...envelopes.kinds import CONFIGURED
from ...errors import PellucidError
from ...storage import SpaceNotFound, Spaces, StoredEnvelope, StoredParticipant, StoredSpace
from ...storage.space_rows import ParticipantOrigin
from .ids import new_id
from .redaction import PatternRedactor
from .settings import SpaceSettings, read_settings
from .state import ConfiguredAccess, SpaceState

SNAPSHOT_INTERVAL = 500
"""Number of envelopes between two snapshots."""
SNAPSHOT_BYTES = 2 << 20
"""Number of bytes of envelopes after which there is a snapshot in any case."""
MAX_RECENT = 512
"""How many of the newest envelopes are in memory."""
MAX_RECENT_BYTES = 4 << 20


class LiveState:
    """The state of one space, with its base and the newest envelopes."""

    def __init__(self, state: SpaceState) -> None:
        self.state = state
        self.recent = RecentEnvelopes()
        self.head = state.head
        """Number of the newest envelope that is known to be stored."""
        self._base_dump = state.dump()
        self._since_base: list[StoredEnvelope] = []
        self._since_base_bytes = 0

    @property
    def is_snapshot_due(self) -> bool:
        """Whether a snapshot has to be stored with the envelopes that were judged.

        Whichever replica appends the last envelope of an interval stores it.
        """
        ends_interval = self.state.head // SNAPSHOT_INTERVAL != self.head // SNAPSHOT_INTERVAL
        return ends_interval or self._since_base_bytes > SNAPSHOT_BYTES

    def accept(self, stored: Sequence[StoredEnvelope], dump: bytes | None = None) -> None:
        """Record that judged envelopes are stored.

        Args:
            stored: The envelopes.
            dump: The state after them, if it was dumped already.
        """
        self.head = self.state.head
        self._since_base_bytes += sum(map(self.recent.add, stored))
        # A replica that only reads makes bases for itself.
        count = len(self._since_base) + len(stored)
        needs_rebase = count > SNAPSHOT_INTERVAL or self._since_base_bytes > 2 * SNAPSHOT_BYTES
        if dump is not None or needs_rebase:
            self._rebase(self.state.dump() if dump is None else dump)
        else:
            self._since_base += stored

    def apply_remote(self, stored: Sequence[StoredEnvelope]) -> list[tuple[RightsChange, ...]]:
        """Apply envelopes that another replica stored.

        Returns:
            The changes by each of them.
        """
        changes = [self.state.replay(one) for one in stored]
        self.accept(stored)
        return changes

    def roll_back(self) -> None:
        """Undo what was judged and not stored."""
        self.state = self._rebuild()

    def forget(self) -> None:
        """Drop all contents from memory, because some of them may have been erased."""
        self.recent = RecentEnvelopes()
        # Rebuilt from what is stored, because the current state may include envelopes that are being judged.
        self._rebase(self._rebuild().dump())

    def _rebuild(self) -> SpaceState:
        state = SpaceState.load(self.state.settings, self._base_dump)
        for one in self._since_base:
            state.replay(one)
        return state

    def _rebase(self, dump: bytes) -> None:
        self._base_dump, self._since_base, self._since_base_bytes = dump, [], 0


class RecentEnvelopes:
    """The newest envelopes, so that a short reconnection or a repeated envelope does not need the store."""

    def __init__(self) -> None:
        self._entries: deque[tuple[StoredEnvelope, int]] = deque()
        self._by_sender_and_id: dict[tuple[str, str], StoredEnvelope] = {}
        self._size_bytes = 0

    def add(self, one: StoredEnvelope) -> int:
        """Add an envelope.

        Returns:
            Approximate number of bytes that it takes.
        """
        size_bytes = 200 + len(one.note) + _size_of(one.envelope.payload) + _size_of(one.envelope.extra)
        self._entries.append((one, size_bytes))
        self._size_bytes += size_bytes
        self._by_sender_and_id[one.envelope.sender, one.envelope.id] = one
        while len(self._entries) > MAX_RECENT or (self._size_bytes > MAX_RECENT_BYTES and len(self._entries) > 1):
            oldest, freed_bytes = self._entries.popleft()
            self._size_bytes -= freed_bytes
            key = (oldest.envelope.sender, oldest.envelope.id)
            if self._by_sender_and_id.get(key) is oldest:
                del self._by_sender_and_id[key]
        return size_bytes

    def get(self, sender: str, id: str) -> StoredEnvelope | None:
        """Return the newest envelope of this sender with this id."""
        return self._by_sender_and_id.get((sender, id))

    def after(self, seq: int, limit: int) -> list[StoredEnvelope] | None:
        """Return the envelopes after `seq`, at most `limit`; None if not all of them are here."""
        if not self._entries or self._entries[0][0].envelope.seq > seq + 1:
            return None
        skipped = seq + 1 - self._entries[0][0].envelope.seq
        return [self._entries[n][0] for n in range(skipped, min(skipped + limit, len(self._entries)))]


def _size_of(value: object) -> int:
    return len(msgspec.json.encode(value)) if value else 0


def load_state(settings: SpaceSettings, snapshot: tuple[int, bytes] | None) -> SpaceState:
    """Restore the state from a snapshot. Without one, or if it cannot be read any more, the state is new."""
    if snapshot is not None:
        try:
            return SpaceState.load(settings, snapshot[1])
        except (msgspec.MsgspecError, PellucidError):
            pass
    return SpaceState(settings)


# --- the configuration


INVITED: ParticipantOrigin = "invited"
"""Origin of participants who were invited by others."""


class Configuration:
    """The configuration of a space, as it was last read from the store: its settings and configured participants."""

    def __init__(self, space: StoredSpace, participants: tuple[StoredParticipant, ...]) -> None:
        self.owner = space.owner
        self.name = space.name
        self.head = space.head
        """Head of the log when the configuration was first read."""
        self._apply(space, participants)

    @classmethod
    async def load(cls, spaces: Spaces, name: str) -> Configuration | None:
        """Read the configuration of a space; None if there is no such space.

        Raises:
            StoreError: If the store fails.
        """
        space = await spaces.get(name)
        return None if space is None else cls(space, await spaces.participants(space.owner, name))

    async def reload(self, spaces: Spaces) -> None:
        """Read the configuration again.

        Raises:
            SpaceNotFound: If the space was deleted, or belongs to another owner.
            StoreError: If the store fails.
        """
        space = await spaces.get(self.name)
        if space is None or space.owner != self.owner:
            raise SpaceNotFound(self.name)
        # Read after the version: if they change in between, the next append fails.
        self._apply(space, await spaces.participants(self.owner, self.name))

    def _apply(self, space: StoredSpace, participants: tuple[StoredParticipant, ...]) -> None:
        self.version = space.version
        self.settings: SpaceSettings = read_settings(space.settings)
        self.redactor = PatternRedactor.from_rules(self.settings.redact)
        self.access = ConfiguredAccess(
            always=tuple(self.settings.always),
            participants={
                one.id: tuple(msgspec.json.decode(one.capabilities, type=list[Any]))
                for one in participants
                if one.origin != INVITED
            },
            templates={name: tuple(steps) for name, steps in self.settings.templates.items()},
            people=self.settings.talk.people,
        )

    def to_envelope(self, payload: dict[str, Any], time_ms: int) -> Envelope:
        """Build the envelope that brings a change of the configuration into the log."""
        return Envelope(id=new_id(), ts=time_ms, sender=GATEWAY, to=(GATEWAY,), kind=CONFIGURED, payload=payload)
