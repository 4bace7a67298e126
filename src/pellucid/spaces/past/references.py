"""What an envelope refers to, and what refers to it, resolved for one reader.

A name of this space means what was said last with it, before. `space:NAME/ID` means something in another space, and is
resolved through what the asker may read there. What is not there, what may not be read, and a space in which the asker
is nobody all look alike: unknown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from ...envelopes import Envelope
from ...envelopes.ids import is_id
from .reading import Log

MOST = 256
"""So many names of one envelope are resolved."""

MOST_ANSWERS = 100

Elsewhere: TypeAlias = Callable[[str], Awaitable[Log | None]]
"""What the asker may read of the space of this name; None: nothing."""

How: TypeAlias = Literal["correlation", "trigger", "reference", "compresses"]

_SPACE = "space:"


class Reference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    """As it is written."""
    how: How
    space: str | None = None
    """None: this one."""
    envelope: Envelope | None = None
    """None: unknown to the reader."""


class References(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    references: tuple[Reference, ...] = ()
    referred_by: tuple[Envelope, ...] = ()
    """What correlates to it, said later."""


async def references(log: Log, seq: int, elsewhere: Elsewhere | None = None) -> References | None:
    """None: there is no such envelope for the reader."""
    stored = await log.one(seq)
    if stored is None:
        return None
    envelope = stored.envelope
    spaces: dict[str, Log | None] = {}
    found: list[Reference] = []
    for how, name in list(dict.fromkeys(_named(envelope)))[:MOST]:
        if not name.startswith(_SPACE):
            there = await log.by_id(name, before=seq) if is_id(name) else None
            found.append(Reference(name=name, how=how, envelope=None if there is None else there.envelope))
            continue
        space, _, id = name.removeprefix(_SPACE).partition("/")
        if space not in spaces:
            spaces[space] = log if space == log.name else await elsewhere(space) if elsewhere is not None else None
        other = spaces[space]
        there = await other.by_id(id) if other is not None and is_id(id) else None
        found.append(Reference(name=name, how=how, space=space, envelope=None if there is None else there.envelope))
    later = await log.about([envelope.id], after=seq, limit=MOST_ANSWERS)
    return References(seq=seq, references=tuple(found), referred_by=tuple(one.envelope for one in later))


def _named(envelope: Envelope) -> Iterator[tuple[How, str]]:
    payload = envelope.payload
    for id in envelope.correlation_id:
        yield "correlation", id
    if envelope.family != "reasoning":
        return
    metadata = payload.get("metadata")
    listed: tuple[tuple[How, Any], ...] = (
        ("trigger", payload.get("triggered_by")),
        ("reference", payload.get("references")),
        ("compresses", metadata.get("compresses") if isinstance(metadata, dict) else None),
    )
    for how, value in listed:
        for name in value if isinstance(value, list | tuple) else [value]:
            if isinstance(name, str) and name:
                yield how, name
