"""Pages of a space's log, limited by the number of envelopes and by their bytes.

A page is read with two queries. The first returns sequence numbers and lengths, along an index. The second reads the
envelopes that fit into one page, by their numbers. So a result is at most one page and one envelope long, even if the
envelopes are large. Neither database reads an envelope to determine its length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import sqlalchemy as sa

from . import tables
from .envelopes import StoredEnvelope, envelope_from_row, first_from, stored_columns
from .statement import Execute, Operation, Row, Statement, json_list, param

MAX_PAGE_BYTES = 4 << 20
"""Maximum size of a page in bytes, unless its first envelope is larger."""

_E = tables.envelopes

sized_columns = [_E.c.seq, sa.func.length(_E.c.body).label("size")]
"""Columns of the first query."""


_in_space = sa.and_(_E.c.owner == param("for_owner"), _E.c.space == param("for_name"))
_seqs = json_list("seqs")


def _each_by_seq() -> sa.Select[tuple[object, ...]]:
    """Build the second query for PostgreSQL: a lateral join looks up each envelope.

    Without it, PostgreSQL may read the whole log, if it has no statistics of it. If an envelope is gone, the query
    returns the next one instead.
    """
    seqs = _seqs.postgresql
    select = sa.select(_E.c.seq, *stored_columns).where(_in_space)
    envelope = first_from(select, sa.cast(seqs.c.value, sa.BigInteger)).lateral()
    return sa.select(*envelope.c).select_from(seqs.join(envelope, sa.true()))


_BY_SEQS = Statement(
    _each_by_seq(),
    sqlite=sa.select(_E.c.seq, *stored_columns).where(_in_space, _E.c.seq.in_(sa.select(_seqs.sqlite.c.value))),
)


class EnvelopePage(list[StoredEnvelope]):
    """A page of envelopes, and whether there may be more."""

    def __init__(
        self, rows: Iterable[StoredEnvelope] = (), *, has_more: bool = False, sizes_bytes: Sequence[int] = ()
    ) -> None:
        super().__init__(rows)
        self.has_more = has_more
        """Whether there may be more in the direction of reading: the limit of envelopes or of bytes was reached. The
        number of envelopes in the page does not show this."""
        self.sizes_bytes = sizes_bytes
        """Size of each envelope in bytes."""

    @property
    def total_bytes(self) -> int:
        """Size of all envelopes in bytes."""
        return sum(self.sizes_bytes)


def cut_page(sized_rows: Sequence[Row], limit: int, max_bytes: int) -> tuple[list[tuple[int, int]], bool]:
    """Select the first rows that fit into one page.

    Args:
        sized_rows: rows of (sequence number, length), in the order of reading.
        limit: maximum number of envelopes, which was also the limit of the query.
        max_bytes: maximum size of the page.

    Returns:
        The selected rows, and whether there may be more.
    """
    chosen: list[tuple[int, int]] = []
    total_bytes = 0
    for seq, length in sized_rows[:limit]:
        total_bytes += length
        if chosen and total_bytes > max_bytes:
            return chosen, True
        chosen.append((seq, length))
    return chosen, len(sized_rows) >= limit


def read_page(owner: str, name: str, sized_rows: Sequence[Row], limit: int) -> Operation[EnvelopePage]:
    """Read the envelopes of the first rows that fit into one page, in order. `sized_rows` have `sized_columns`."""
    chosen, has_more = cut_page(sized_rows, limit, MAX_PAGE_BYTES)
    if not chosen:
        return EnvelopePage(has_more=has_more)
    seqs = msgspec.json.encode([seq for seq, _ in chosen]).decode()
    rows = yield Execute(_BY_SEQS, {"for_owner": owner, "for_name": name, "seqs": seqs})
    by_seq = {row[0]: envelope_from_row(row[1:]) for row in rows}
    # An envelope may be gone since the first query, because its space is being removed.
    present = [(seq, size) for seq, size in chosen if seq in by_seq]
    return EnvelopePage(
        [by_seq[seq] for seq, _ in present],
        has_more=has_more and bool(present),
        sizes_bytes=[size for _, size in present],
    )
