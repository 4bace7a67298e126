"""Who came and went, in as few words as it takes: successive comings and goings of one participant are one line.

alice left and came back, 3 times
"""

from __future__ import annotations

from collections.abc import Sequence

from ..envelopes.envelope import Envelope

_WORDS = {"join": "came", "leave": "left", "invited": "may come"}
_OFTEN = {
    ("join", 0): "came and left",
    ("leave", 0): "left and came back",
    ("join", 1): "came, left and came back",
    ("leave", 1): "left, came back and left",
}
"""By what came first, and whether what came last is the same."""


def comings(told: Sequence[Envelope]) -> list[str]:
    """What `system/presence` tells, each participant in the place where it was first told of."""
    of: dict[str, list[str]] = {}
    for envelope in told:
        participant = envelope.payload.get("participant")
        who = participant.get("id") if isinstance(participant, dict) else None
        events = of.setdefault(str(who or "?"), [])
        event = str(envelope.payload.get("event"))
        if events[-1:] != [event]:
            events.append(event)
    return [f"{who} {_did(events)}" for who, events in of.items()]


def _did(events: Sequence[str]) -> str:
    if len(events) == 1 or not set(events) <= {"join", "leave"}:
        return ", ".join(_WORDS.get(event, "?") for event in events)
    times = len(events) // 2
    return _OFTEN[events[0], len(events) % 2] + (f", {times} times" if times > 1 else "")
