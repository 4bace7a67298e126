"""What was stored means for those who sit in a space: who is put out by it, whose rights are others now, who is said to
have left, and whether the configuration changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...envelopes import GATEWAY
from ...envelopes.changes import Change, Granted, GrantEnded, Kicked
from ...envelopes.kinds import CONFIGURED, PRESENCE
from ...storage import StoredEnvelope


class Consequences(NamedTuple):
    out: dict[str, int]
    """Who is put out, and by which of the envelopes."""
    rights: set[str]
    """Who holds more or less than before."""
    left: list[str]
    configured: bool


def consequences_of(stored: Sequence[StoredEnvelope], changes: Sequence[tuple[Change, ...]]) -> Consequences:
    """`changes`: those of each envelope."""
    found = Consequences({}, set(), [], any(_is_of_gateway(one, CONFIGURED) for one in stored))
    for number, (one, some) in enumerate(zip(stored, changes, strict=True)):
        for change in some:
            match change:
                case Kicked(participant=participant):
                    found.out.setdefault(participant, number)
                case Granted(grant=grant):
                    found.rights.add(grant.recipient)
                case GrantEnded(recipient=recipient):
                    found.rights.add(recipient)
        if _is_of_gateway(one, PRESENCE) and one.envelope.payload.get("event") == "leave":
            who = one.envelope.payload.get("participant")
            if isinstance(who, dict):
                found.left.append(str(who["id"]))
    return found


def _is_of_gateway(stored: StoredEnvelope, kind: str) -> bool:
    return stored.envelope.kind == kind and stored.envelope.sender == GATEWAY
