"""What is said in a space is appended to its log: all of it or nothing, at the place where its writer saw the end.

The rules:

* An envelope's number is one more than that of the one before it, from 1, without holes. Whoever appends says where
  the log ended when it judged (`expected`) and by which settings and participants (`version`). If either is another by
  now, nothing is appended and it is told (`Overtaken`): it reads what is new, judges again, and tries again.
* That is decided under the lock of the space's own row, in the transaction that appends: of two writers at once, in
  one process or two, one comes first, and the other is overtaken. Several appends to one space may follow each other
  within one transaction.
* A snapshot of the space's state goes with what it is a snapshot of. Who is invited can come in when the invitation
  stands in the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import sqlalchemy as sa

from ..record import Recording
from . import contents, links, record, rooms, search, tables
from .contents import ENVELOPE
from .envelopes import INSERT, StoredEnvelope, row_of, text_for
from .errors import Overtaken, SpaceGone
from .names import check_names
from .rooms import StoredParticipant
from .statement import Ask, Op, Params, Statement, given


class Head(NamedTuple):
    """Where a space is."""

    head: int
    version: int


class Append(msgspec.Struct, frozen=True, kw_only=True):
    owner: str
    space: str
    expected: int
    """The head as its writer saw it."""
    version: int
    """The version by which it judged."""
    envelopes: Sequence[StoredEnvelope]
    """Their seqs are expected + 1 and so on. None: only the snapshot is kept, if the head is still there."""
    state: bytes | None = None
    """A snapshot as of the last of them."""
    participants: Sequence[StoredParticipant] = ()
    """Invited by these envelopes. One who was invited before gets the new token and capabilities; one who is there by
    the configuration or a command is left as it is. That makes no new version."""
    recorded: bool = True
    """Whether the record takes them."""


_S, _N = tables.spaces, tables.states
_owner, _name = given("for_owner"), given("for_name")
_this = sa.and_(_S.c.owner == _owner, _S.c.name == _name, _S.c.removed_at.is_(None))
_state_of = sa.and_(_N.c.owner == _owner, _N.c.space == _name)

_LOCK = Statement(sa.select(_S.c.head, _S.c.version, _S.c.latest).where(_this).with_for_update())
_HEAD = Statement(sa.select(_S.c.head, _S.c.version).where(_this))
_MOVE = Statement(
    sa.update(_S).where(_this).values(head=given("to_head", sa.BigInteger), latest=given("to_latest", sa.BigInteger))
)
_STATE = Statement(sa.select(_N.c.seq, _N.c.state).where(_state_of))
_FORGET = Statement(sa.delete(_N).where(_state_of), erases=False)  # another takes its place at once
_KEEP = Statement(sa.insert(_N))


class Ready(NamedTuple):
    """An append, with what is to be written made out of it."""

    append: Append
    rows: list[Params]
    texts: list[search.Text]
    links: list[Params]
    recording: Recording
    at: int
    """The time in milliseconds."""


def ready(append: Append, recording: Recording | None = None, at: int = 0) -> Ready:
    """Raises `ValueError` if its seqs are not those that follow, `RequestError` for a name that cannot be kept."""
    owner, space, envelopes = append.owner, append.space, append.envelopes
    for place, stored in enumerate(envelopes):
        envelope = stored.envelope
        if envelope.seq != append.expected + 1 + place:
            raise ValueError(f"envelopes[{place}] has the seq {envelope.seq}, not {append.expected + 1 + place}")
        check_names(**{"id": envelope.id, "from": envelope.sender, "kind": envelope.kind, "context": stored.place.path})
    for invited in append.participants:
        check_names(participant=invited.id)
    texts = [text for stored in envelopes if (text := text_for(owner, space, stored)) is not None]
    rows = [row_of(owner, space, stored) for stored in envelopes]
    return Ready(append, rows, texts, links.rows_of(owner, space, envelopes), recording or Recording(), at)


Answer: TypeAlias = Head | Overtaken | SpaceGone


class _Place(NamedTuple):
    head: int
    version: int
    latest: int


def append(several: list[Ready]) -> Op[list[Answer]]:
    """What refuses one comes back, for an exception would have all that is written with it done again."""
    places: dict[tuple[str, str], _Place | None] = {}
    for owner, space in sorted({(one.append.owner, one.append.space) for one in several}):
        # In one order, so that two who lock several do not wait for each other.
        rows = yield Ask(_LOCK, rooms.this_space(owner, space))
        places[owner, space] = _Place(*rows[0]) if rows else None
    answers: list[Answer] = []
    accepted: list[Ready] = []
    rows_of: list[Params] = []
    for one in several:
        owner, space = key = one.append.owner, one.append.space
        place = places[key]
        if place is None:
            answers.append(SpaceGone(space))
        elif (place.head, place.version) != (one.append.expected, one.append.version):
            answers.append(Overtaken(place.head, place.version))
        else:
            latest = place.latest
            for row in one.rows:
                latest = max(latest, row["at"])
                rows_of.append({**row, "latest": latest})
            places[key] = place = _Place(place.head + len(one.rows), place.version, latest)
            answers.append(Head(place.head, place.version))
            accepted.append(one)
    if rows_of:
        yield Ask(INSERT, rows_of)
        if linked := [link for one in accepted for link in one.links]:
            yield Ask(links.INSERT, linked)
        yield from search.add([text for one in accepted for text in one.texts])
        moved = {(one.append.owner, one.append.space) for one in accepted if one.rows}
        yield Ask(_MOVE, [_moved(key, place) for key in sorted(moved) if (place := places[key]) is not None])
    yield from _snapshots(accepted)
    for one in accepted:
        for invited in one.append.participants:
            yield from rooms.invite(one.append.owner, one.append.space, invited)
    if noted := [noted for one in accepted if one.append.recorded for noted in _noted(one)]:
        yield from record.append(accepted[0].recording, max(one.at for one in accepted), noted)
    return answers


def _noted(one: Ready) -> Iterator[record.Noted]:
    owner, scope = one.append.owner, contents.of_space(one.append.space)
    for row in one.rows:
        kept, more = contents.content(ENVELOPE, row), contents.beside(row["note"])
        yield record.Noted(owner, scope, ENVELOPE, str(row["seq"]), kept, more)


def _moved(key: tuple[str, str], place: _Place) -> Params:
    return {**rooms.this_space(*key), "to_head": place.head, "to_latest": place.latest}


def _snapshots(accepted: list[Ready]) -> Op[None]:
    """The last of each space."""
    last = {(one.append.owner, one.append.space): one.append for one in accepted if one.append.state is not None}
    if last:
        yield Ask(_FORGET, [rooms.this_space(*key) for key in last])
        yield Ask(
            _KEEP,
            [
                {
                    "owner": owner,
                    "space": space,
                    "seq": append.expected + len(append.envelopes),
                    "state": append.state,
                }
                for (owner, space), append in last.items()
            ],
        )


def head(params: Params) -> Op[Head | None]:
    rows = yield Ask(_HEAD, params)
    return Head(*rows[0]) if rows else None


def state(params: Params) -> Op[tuple[int, bytes] | None]:
    rows = yield Ask(_STATE, params)
    return (rows[0][0], rows[0][1]) if rows else None
