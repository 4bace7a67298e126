"""How much of a log is read at once: so many envelopes, and so many bytes.

A question about a log is asked twice: first which envelopes they are and how long each is, along whatever index finds
them; then what they say, by their numbers, of as many as make a portion. So no answer is larger than a portion and one
envelope more, however long the envelopes are. Neither database reads an envelope to tell how long it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import sqlalchemy as sa

from . import tables
from .envelopes import StoredEnvelope, first_from, stored_columns, stored_one
from .statement import Ask, Op, Row, Statement, given, listed

MOST_BYTES = 4 << 20
"""So much is read at once, unless the first envelope alone is more."""

_E = tables.envelopes

sized_columns = [_E.c.seq, sa.func.length(_E.c.body).label("size")]
"""What the first question asks for."""


_in_it = sa.and_(_E.c.owner == given("for_owner"), _E.c.space == given("for_name"))
_seqs = listed("seqs")


def _each_of() -> sa.Select[tuple[object, ...]]:
    """Each is looked up by itself: PostgreSQL would rather read the log through, if it knows little of it. Where one
    is gone, the next comes in its place."""
    seqs = _seqs.postgresql
    this = sa.select(_E.c.seq, *stored_columns).where(_in_it)
    one = first_from(this, sa.cast(seqs.c.value, sa.BigInteger)).lateral()
    return sa.select(*one.c).select_from(seqs.join(one, sa.true()))


_OF = Statement(
    _each_of(),
    sqlite=sa.select(_E.c.seq, *stored_columns).where(_in_it, _E.c.seq.in_(sa.select(_seqs.sqlite.c.value))),
)


class Portion(list[StoredEnvelope]):
    """What was read, and whether that is all."""

    def __init__(self, rows: Iterable[StoredEnvelope] = (), *, more: bool = False, sizes: Sequence[int] = ()) -> None:
        super().__init__(rows)
        self.more = more
        """Whether there may be more in the direction in which it was read: as many were found as were asked for, or
        what they say was too much at once. Nobody can tell by how many there are."""
        self.sizes = sizes
        """The bytes of each."""

    @property
    def size(self) -> int:
        return sum(self.sizes)


def cut(found: Sequence[Row], limit: int, most: int) -> tuple[list[tuple[int, int]], bool]:
    """The first of these, in the order in which they were found, that make a portion; whether there may be more."""
    chosen: list[tuple[int, int]] = []
    size = 0
    for seq, length in found[:limit]:
        size += length
        if chosen and size > most:
            return chosen, True
        chosen.append((seq, length))
    return chosen, len(found) >= limit


def portion(owner: str, name: str, found: Sequence[Row], limit: int) -> Op[Portion]:
    """What the first of these say, in their order. `found`: rows of `sized_columns`."""
    chosen, more = cut(found, limit, MOST_BYTES)
    if not chosen:
        return Portion(more=more)
    seqs = msgspec.json.encode([seq for seq, _ in chosen]).decode()
    rows = yield Ask(_OF, {"for_owner": owner, "for_name": name, "seqs": seqs})
    there = {row[0]: stored_one(row[1:]) for row in rows}
    # One may be gone since it was found: its space is being removed.
    left = [(seq, size) for seq, size in chosen if seq in there]
    return Portion([there[seq] for seq, _ in left], more=more and bool(left), sizes=[size for _, size in left])
