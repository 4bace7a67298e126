"""What is in memory of a space: its state, which can be put back to what is stored, and its configuration.

Judging changes the state before what was judged is stored. When it is not stored after all (another replica was faster,
the store did not answer), `roll_back` makes the state anew from the last base, a dump, and what was stored since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from ...envelopes import GATEWAY, Envelope
from ...envelopes.grants import Change
from ...envelopes.kinds import CONFIGURED
from ...errors import PellucidError
from ...storage import SpaceNotFound, Spaces, StoredEnvelope, StoredParticipant, StoredSpace
from .ids import new_id
from .redaction import PatternRedactor
from .settings import SpaceSettings, read_settings
from .state import ConfiguredAccess, SpaceState

REBASE_AFTER = 256
"""Envelopes after which the base is made anew."""
REBASE_BYTES = 4 << 20
MAX_RECENT = 512
"""How many of the newest are at hand."""
MAX_RECENT_BYTES = 4 << 20


class LiveState:
    def __init__(self, state: SpaceState) -> None:
        self.state = state
        self.recent = RecentEnvelopes()
        self.head = state.head
        """The newest that is known to be stored."""
        self._base_dump = state.dump()
        self._since_base: list[StoredEnvelope] = []
        self._since_base_bytes = 0

    def accept(self, stored: Sequence[StoredEnvelope], dump: bytes | None = None) -> None:
        """These were judged, and are stored. `dump`: the state after them, where it was made already."""
        self.head = self.state.head
        self._since_base_bytes += sum(map(self.recent.add, stored))
        self._extend_base(stored, dump)

    def apply_remote(self, stored: Sequence[StoredEnvelope]) -> list[tuple[Change, ...]]:
        """These were stored by somebody else: what each changed."""
        changes = [self.state.replay(one) for one in stored]
        self.accept(stored)
        return changes

    def roll_back(self) -> None:
        """What was judged and not accepted was never said."""
        self.state = self._rebuild()

    def forget(self) -> None:
        """Keep nothing of what was said in memory: some of it may have been erased."""
        self.recent = RecentEnvelopes()
        # Of what is stored alone: something may just be judged.
        self._base_dump, self._since_base, self._since_base_bytes = self._rebuild().dump(), [], 0

    def _rebuild(self) -> SpaceState:
        state = SpaceState.load(self.state.settings, self._base_dump)
        for one in self._since_base:
            state.replay(one)
        return state

    def configure(self, settings: SpaceSettings) -> None:
        self.state.configure(settings)

    def _extend_base(self, stored: Sequence[StoredEnvelope], dump: bytes | None) -> None:
        needs_rebase = len(self._since_base) + len(stored) > REBASE_AFTER or self._since_base_bytes > REBASE_BYTES
        if dump is not None or needs_rebase:
            self._base_dump, self._since_base, self._since_base_bytes = (
                dump if dump is not None else self.state.dump(),
                [],
                0,
            )
        else:
            self._since_base += stored


class RecentEnvelopes:
    """The newest envelopes, so that who comes back after a moment, or sends again, need not be looked up."""

    def __init__(self) -> None:
        self._entries: deque[tuple[StoredEnvelope, int]] = deque()
        self._by_sender_and_id: dict[tuple[str, str], StoredEnvelope] = {}
        self._size_bytes = 0

    def add(self, one: StoredEnvelope) -> int:
        """About how many bytes it takes."""
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
        """The newest of this sender with this id."""
        return self._by_sender_and_id.get((sender, id))

    def after(self, seq: int, limit: int) -> list[StoredEnvelope] | None:
        """The next after `seq`. None: they are not all here."""
        if not self._entries or self._entries[0][0].envelope.seq > seq + 1:
            return None
        skipped = seq + 1 - self._entries[0][0].envelope.seq
        return [self._entries[n][0] for n in range(skipped, min(skipped + limit, len(self._entries)))]


def _size_of(value: object) -> int:
    return len(msgspec.json.encode(value)) if value else 0


def load_state(settings: SpaceSettings, snapshot: tuple[int, bytes] | None) -> SpaceState:
    """The state of a snapshot; of none, or of one that is not readable any more, a new one."""
    if snapshot is not None:
        try:
            return SpaceState.load(settings, snapshot[1])
        except (msgspec.MsgspecError, PellucidError):
            pass
    return SpaceState(settings)


# --- the configuration


INVITED = "invited"


class Configuration:
    """What the operator says of a space, as it was last read from the store: its settings, and who is at its doors."""

    def __init__(self, space: StoredSpace, participants: tuple[StoredParticipant, ...]) -> None:
        self.owner = space.owner
        self.name = space.name
        self.head = space.head
        """When it was first read."""
        self._apply(space, participants)

    @classmethod
    async def load(cls, spaces: Spaces, name: str) -> Configuration | None:
        """None: there is no such space. Raises `StoreError`."""
        space = await spaces.get(name)
        return None if space is None else cls(space, await spaces.participants(space.owner, name))

    async def reload(self, spaces: Spaces) -> None:
        """What holds now. Raises `StoreError`, `SpaceNotFound`."""
        space = await spaces.get(self.name)
        if space is None or space.owner != self.owner:
            raise SpaceNotFound(self.name)
        # Read after the version: if they change in between, the next append is told so.
        self._apply(space, await spaces.participants(self.owner, self.name))

    def _apply(self, space: StoredSpace, participants: tuple[StoredParticipant, ...]) -> None:
        self.version = space.version
        self.settings: SpaceSettings = read_settings(space.settings)
        self.redactor = PatternRedactor.from_rules(self.settings.redact)
        self.access = ConfiguredAccess(
            always=tuple(self.settings.always),
            doors={
                one.id: tuple(msgspec.json.decode(one.capabilities, type=list[Any]))
                for one in participants
                if one.origin != INVITED
            },
            templates={name: tuple(steps) for name, steps in self.settings.templates.items()},
        )

    def to_envelope(self, payload: dict[str, Any], at: int) -> Envelope:
        """The envelope by which it comes into the log."""
        return Envelope(id=new_id(), ts=at, sender=GATEWAY, to=(GATEWAY,), kind=CONFIGURED, payload=payload)
