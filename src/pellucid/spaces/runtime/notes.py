"""What is kept beside an envelope: what the gateway found when it took it."""

from __future__ import annotations

from typing import Any

import msgspec

from ...envelopes.envelope import Flag
from ...envelopes.verdict import Ended


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    flags: tuple[Flag, ...] = ()
    """What is to be seen about it."""
    ended: tuple[Ended, ...] = ()
    """The contexts that it ended."""
    links: tuple[str, ...] = ()
    """The contexts that it came out of."""
    proposals: tuple[str, ...] = ()
    """The proposals that it made, settled or answered."""
    by: dict[str, Any] | None = None
    """The capability that allowed it, as it was written."""
    source: str | None = None
    """Where that is from: `door`, the id of a grant, or `gateway`."""
    redacted: tuple[str, ...] = ()
    """The names of the operator's patterns that found something in it, which was taken out."""

    meaning: dict[str, Any] = {}
    """Of what changes rights, and of what the gateway says: the payload without its remarks. It outlives the payload's
    erasure, so that the log still folds to the same state."""

    def dump(self) -> bytes:
        return msgspec.json.encode(self)


def note_of(kept: bytes) -> Note:
    """What was kept; an empty note for what cannot be read."""
    try:
        return msgspec.json.decode(kept, type=Note)
    except msgspec.DecodeError:
        return Note()
