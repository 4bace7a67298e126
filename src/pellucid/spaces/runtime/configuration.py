"""What the operator says of a space, as it was last read from the store: its settings, and who is at its doors."""

from __future__ import annotations

from typing import Any

import msgspec

from ...envelopes import GATEWAY, Envelope
from ...envelopes.kinds import CONFIGURED
from ...storage import SpaceGone, Spaces, StoredParticipant, StoredSpace
from .ids import new_id
from .redaction import Redactor
from .settings import SpaceSettings, read_settings
from .state import Doors

INVITED = "invited"


class Configuration:
    def __init__(self, space: StoredSpace, participants: tuple[StoredParticipant, ...]) -> None:
        self.owner = space.owner
        self.name = space.name
        self.head = space.head
        """When it was first read."""
        self._take(space, participants)

    @classmethod
    async def of(cls, spaces: Spaces, name: str) -> Configuration | None:
        """None: there is no such space. Raises `StoreError`."""
        space = await spaces.get(name)
        return None if space is None else cls(space, await spaces.participants(space.owner, name))

    async def read(self, spaces: Spaces) -> None:
        """What holds now. Raises `StoreError`, `SpaceGone`."""
        space = await spaces.get(self.name)
        if space is None or space.owner != self.owner:
            raise SpaceGone(self.name)
        # Read after the version: if they change in between, the next append is told so.
        self._take(space, await spaces.participants(self.owner, self.name))

    def _take(self, space: StoredSpace, participants: tuple[StoredParticipant, ...]) -> None:
        self.version = space.version
        self.settings: SpaceSettings = read_settings(space.settings)
        self.redactor = Redactor.of(self.settings.redact)
        self.doors = Doors(
            always=tuple(self.settings.always),
            doors={
                one.id: tuple(msgspec.json.decode(one.capabilities, type=list[Any]))
                for one in participants
                if one.origin != INVITED
            },
            templates={name: tuple(steps) for name, steps in self.settings.templates.items()},
        )

    def told(self, said: dict[str, Any], at: int) -> Envelope:
        """The envelope by which it comes into the log."""
        return Envelope(id=new_id(), ts=at, sender=GATEWAY, to=(GATEWAY,), kind=CONFIGURED, payload=said)
