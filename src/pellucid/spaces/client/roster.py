"""Who is in a space, as one of them is told: by each welcome, and by who came and left since."""

from __future__ import annotations

import msgspec

from ...envelopes import kinds
from ...envelopes.envelope import Envelope
from ...envelopes.payloads import Presence, Present, Welcome


class Roster:
    """`me` is this participant with what it may; `others` are the rest, by id."""

    def __init__(self) -> None:
        self.me = Present("")
        self.others: dict[str, Present] = {}
        self.head = 0
        """Where the space stood at the last welcome: up to there it is known who is here."""

    def welcomed(self, welcome: Envelope, head: int) -> None:
        """Raises `msgspec.ValidationError` for what is none."""
        said = msgspec.convert(welcome.payload, Welcome)
        self.me = said.you
        self.others = {one.id: one for one in said.participants if one.id != said.you.id}
        self.head = head

    def hear(self, envelope: Envelope) -> None:
        """Somebody may have come or left."""
        if envelope.kind != kinds.PRESENCE or envelope.seq <= self.head:
            return
        said = msgspec.convert(envelope.payload, Presence)
        if said.participant.id == self.me.id:
            return
        if said.event == "join":
            self.others[said.participant.id] = said.participant
        elif said.event == "leave":
            self.others.pop(said.participant.id, None)
