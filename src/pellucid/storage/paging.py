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
from .envelopes import StoredEnvelope, envelope_from_row, first_from, stored_columns
from .statement import Execute, Operation, Row, Statement, json_list, param

MAX_PAGE_BYTES = 4 << 20
"""So much is read at once, unless the first envelope alone is more."""

_E = tables.envelopes

sized_columns = [_E.c.seq, sa.func.length(_E.c.body).label("size")]
"""What the first question asks for."""


_in_space = sa.and_(_E.c.owner == param("for_owner"), _E.c.space == param("for_name"))
_seqs = json_list("seqs")


def _each_by_seq() -> sa.Select[tuple[object, ...]]:
    """Each is looked up by itself: PostgreSQL would rather read the log through, if it knows little of it. Where one
    is gone, the next comes in its place."""
    seqs = _seqs.postgresql
    select = sa.select(_E.c.seq, *stored_columns).where(_in_space)
    envelope = first_from(select, sa.cast(seqs.c.value, sa.BigInteger)).lateral()
    return sa.select(*envelope.c).select_from(seqs.join(envelope, sa.true()))


_BY_SEQS = Statement(
    _each_by_seq(),
    sqlite=sa.select(_E.c.seq, *stored_columns).where(_in_space, _E.c.seq.in_(sa.select(_seqs.sqlite.c.value))),
)


class EnvelopePage(list[StoredEnvelope]):
    """What was read, and whether that is all."""

    def __init__(
        self, rows: Iterable[StoredEnvelope] = (), *, has_more: bool = False, sizes_bytes: Sequence[int] = ()
    ) -> None:
        super().__init__(rows)
        self.has_more = has_more
        """Whether there may be more in the direction in which it was read: as many were found as were asked for, or
        what they say was too much at once. Nobody can tell by how many there are."""
        self.sizes_bytes = sizes_bytes
        """The bytes of each."""

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes_bytes)


def cut_page(sized_rows: Sequence[Row], limit: int, max_bytes: int) -> tuple[list[tuple[int, int]], bool]:
    """The first of these, in the order in which they were found, that make a portion; whether there may be more."""
    chosen: list[tuple[int, int]] = []
    total_bytes = 0
    for seq, length in sized_rows[:limit]:
        total_bytes += length
        if chosen and total_bytes > max_bytes:
            return chosen, True
        chosen.append((seq, length))
    return chosen, len(sized_rows) >= limit


def read_page(owner: str, name: str, sized_rows: Sequence[Row], limit: int) -> Operation[EnvelopePage]:
    """What the first of these say, in their order. `found`: rows of `sized_columns`."""
    chosen, has_more = cut_page(sized_rows, limit, MAX_PAGE_BYTES)
    if not chosen:
        return EnvelopePage(has_more=has_more)
    seqs = msgspec.json.encode([seq for seq, _ in chosen]).decode()
    rows = yield Execute(_BY_SEQS, {"for_owner": owner, "for_name": name, "seqs": seqs})
    by_seq = {row[0]: envelope_from_row(row[1:]) for row in rows}
    # One may be gone since it was found: its space is being removed.
    present = [(seq, size) for seq, size in chosen if seq in by_seq]
    return EnvelopePage(
        [by_seq[seq] for seq, _ in present],
        has_more=has_more and bool(present),
        sizes_bytes=[size for _, size in present],
    )
