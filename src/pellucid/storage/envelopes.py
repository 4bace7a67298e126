"""What was said in a space, as it is kept and read back.

The rules:

* `at` is the time of whichever replica took an envelope, so it may fall. `latest`, the latest so far, does not: the
  first that was taken at a time or later is found by halving.
* What is searched is every string of the payload, the words that its sender meant for people first; of MCP, nothing
  that JSON-RPC needs for itself. The text is not kept again beside the envelope, only what compares.
* What is erased keeps its place in the log, and loses what it said. The space gets a new version, so that whoever has
  it in memory forgets it.
"""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec.structs import replace

from ..envelopes import ERASED, Envelope, Flag, context, searched_text
from ..envelopes.reasoning import Names, Place
from ..record import Recording
from . import contents, record, search, tables
from .contents import ENVELOPE
from .names import storable
from .statement import Ask, Op, Params, Row, Statement, each, given, listed


class StoredEnvelope(msgspec.Struct, frozen=True):
    """What is kept of an envelope."""

    envelope: Envelope
    """With its seq."""
    at: int
    """When the gateway took it: milliseconds since 1970."""
    place: Place
    note: bytes = b"{}"
    """JSON, of whoever writes it: flags, links, what it ended …"""

    @property
    def told(self) -> Envelope:
        """The envelope as its readers are told: with what there is to be seen about it."""
        flags = _flags_in(self.note)
        return replace(self.envelope, flags=flags) if flags else self.envelope


class _Flagged(msgspec.Struct):
    flags: tuple[Flag, ...] = ()


_flagged = msgspec.json.Decoder(_Flagged)


def _flags_in(note: bytes) -> tuple[Flag, ...]:
    if b'"flags"' not in note:
        return ()
    try:
        return _flagged.decode(note).flags
    except msgspec.DecodeError:
        return ()


def _unflagged(note: bytes) -> bytes:
    """The note without its flags, which quote what was said."""
    if not _flags_in(note):
        return note
    kept: dict[str, msgspec.Raw] = msgspec.json.decode(note, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({name: value for name, value in kept.items() if name != "flags"})


# ---------------------------------------------------------------------------------------------- statements

_E, _S = tables.envelopes, tables.spaces
stored_columns = [_E.c.at, _E.c.path, _E.c.role, _E.c.of, _E.c.note, _E.c.body]

_owner, _name, _id = given("for_owner"), given("for_name"), given("for_id")
_seq, _before = given("seq", sa.BigInteger), given("before", sa.BigInteger)
_most = given("most", sa.BigInteger)
_in_it = sa.and_(_E.c.owner == _owner, _E.c.space == _name)
_this = sa.and_(_in_it, _E.c.seq == _seq)
_sender = given("sender")


def first_from(select: sa.Select[Any], seq: sa.ColumnElement[int]) -> sa.Select[Any]:
    """The first row of `select` from this seq on, along the primary key.

    Of a table that is new PostgreSQL has no statistics: by an equation it would find a seq as well along an index in
    which another column stands before it, and read all of the log for one envelope, for as long as it keeps that plan.
    In the order of a range there is the primary key alone.
    """
    return select.where(_E.c.seq >= seq).order_by(_E.c.seq).limit(sa.literal_column("1"))


_ONE = Statement(first_from(sa.select(_E.c.seq, *stored_columns).where(_in_it), _seq))
_LOCKED = Statement(sa.select(*stored_columns).where(_this).with_for_update())
_BY_ID = Statement(
    sa.select(*stored_columns)
    .where(_in_it, _E.c.id == _id, _E.c.seq < _before, sa.or_(_sender.is_(None), _E.c.sender == _sender))
    .order_by(_E.c.seq.desc())
    .limit(sa.literal_column("1"))
)
_LATEST = Statement(first_from(sa.select(_E.c.latest).where(_in_it), _seq))
_HEAD = Statement(sa.select(_S.c.head).where(_S.c.owner == _owner, _S.c.name == _name, _S.c.removed_at.is_(None)))


def _asked_for(of: sa.Column[Any], *more: Any) -> Statement:
    """Those of the names given, as JSON, that are there. Each is looked up by itself: PostgreSQL would rather join than
    do that for what merely is to exist."""
    one: sa.Select[Any] = sa.select(sa.literal_column("1")).where(_in_it, *more).limit(sa.literal_column("1"))
    there = [
        sa.select(names.c.value).where(one.where(of == names.c.value).scalar_subquery().is_not(None))
        for names in listed("names")
    ]
    return Statement(there[0], sqlite=there[1])


_IDS = _asked_for(_E.c.id)
_PATHS = _asked_for(_E.c.path, sa.text("role = 'opens'"))

INSERT = Statement(sa.insert(_E))
_STRIP = Statement(
    sa.update(_E).where(_this).values(body=given("to_body", sa.LargeBinary), note=given("to_note", sa.LargeBinary)),
    erases=True,
)
_ANEW = Statement(
    sa.update(_S).where(_S.c.owner == _owner, _S.c.name == _name).values(version=_S.c.version + sa.literal_column("1"))
)
_some = sa.select(_E.c.owner, _E.c.space, _E.c.seq).where(_in_it).order_by(_E.c.seq).limit(_most)
_DELETE = Statement(sa.delete(_E).where(sa.tuple_(_E.c.owner, _E.c.space, _E.c.seq).in_(_some)).returning(_E.c.seq))

DIGITS = 12
"""Of a seq, as the id of a text: so many, that they are in order."""


# ---------------------------------------------------------------------------------------------- what is kept of one


scope_of = contents.of_space


def row_of(owner: str, name: str, stored: StoredEnvelope) -> Params:
    """As the table has it, but for `latest`."""
    envelope, at, place, note = stored.envelope, stored.at, stored.place, stored.note
    return {
        "owner": owner,
        "space": name,
        "seq": envelope.seq,
        "id": envelope.id,
        "at": at,
        "sender": envelope.sender,
        "family": envelope.family,
        "kind": envelope.kind,
        "of": place.owner,
        "role": place.role,
        "root": None if place.path is None else context.root(place.path),
        "path": place.path,
        "note": note,
        "body": msgspec.json.encode(envelope),
    }


def text_for(owner: str, name: str, stored: StoredEnvelope) -> search.Text | None:
    """What search is to find of it."""
    envelope = stored.envelope
    text = searched_text(envelope)
    if not text:
        return None
    traits = [said_by(envelope.sender), of_kind(envelope.family), of_kind(envelope.kind)]
    if (path := stored.place.path) is not None:
        traits += [within(one) for one in (path, *context.ancestors(path))]
    return search.Text(owner, scope_of(name), name, text_id(envelope.seq), text, traits=tuple(traits), kept=False)


def text_id(seq: int) -> str:
    return f"{seq:0{DIGITS}d}"


def said_by(sender: str) -> str:
    return f"from {sender}"


def of_kind(kind: str) -> str:
    return f"kind {kind}"


def within(path: str) -> str:
    return f"in {path}"


_read = msgspec.json.Decoder(Envelope).decode


def stored_one(row: Row) -> StoredEnvelope:
    at, path, role, of, note, body = row
    return StoredEnvelope(_read(body), at, Place(path, role, of), note)


# ---------------------------------------------------------------------------------------------- what is asked for


LAST_SEQ = 10**DIGITS - 1


def seq_in_log(seq: int) -> int:
    """The seq, if it can be one: else 0, which none has."""
    return seq if 0 < seq <= LAST_SEQ else 0


def one(params: Params) -> Op[StoredEnvelope | None]:
    rows = yield Ask(_ONE, params)
    return stored_one(rows[0][1:]) if rows and rows[0][0] == params["seq"] else None


def by_id(params: Params) -> Op[StoredEnvelope | None]:
    rows = yield Ask(_BY_ID, params)
    return stored_one(rows[0]) if rows else None


def since(params: Params) -> Op[int]:
    head = yield Ask(_HEAD, params)
    first, end = 1, (head[0][0] if head else 0) + 1
    while first < end:
        middle = (first + end) // 2
        rows = yield Ask(_LATEST, {**params, "seq": middle})
        if not rows or rows[0][0] >= params["at"]:
            end = middle
        else:
            first = middle + 1
    return first


class Asked(msgspec.Struct, frozen=True):
    owner: str
    name: str
    names: Names


def known(asked: Asked) -> Op[Names]:
    found: list[frozenset[str]] = []
    for statement, names in (_IDS, asked.names.ids), (_PATHS, asked.names.paths):
        listed = [name for name in names if storable(name)]
        params = {"for_owner": asked.owner, "for_name": asked.name, "names": msgspec.json.encode(listed).decode()}
        found.append(frozenset(row[0] for row in (yield Ask(statement, params))) if listed else frozenset())
    return Names(*found)


# ---------------------------------------------------------------------------------------------- what is taken away


class Erasing(msgspec.Struct, frozen=True):
    owner: str
    name: str
    seqs: tuple[int, ...]
    at: int
    recording: Recording


def erase_some(erasing: Erasing) -> Op[int]:
    named = {"for_owner": erasing.owner, "for_name": erasing.name}
    bodies: list[Params] = []
    left: dict[tuple[str, str, str], list[bytes]] = {}
    for seq in erasing.seqs:
        rows = yield Ask(_LOCKED, {**named, "seq": seq})
        there = stored_one(rows[0]) if rows else None
        # Not by its mark alone: a sender may have written that.
        if (
            there
            and (bare := replace(there.envelope, payload={}, extra=ERASED, context_operation=None)) != there.envelope
        ):
            row = row_of(erasing.owner, erasing.name, replace(there, envelope=bare, note=_unflagged(there.note)))
            bodies.append({**named, "seq": seq, "to_body": row["body"], "to_note": row["note"]})
            left[erasing.owner, scope_of(erasing.name), str(seq)] = contents.content(ENVELOPE, row)
    if bodies:
        yield Ask(_ANEW, named)
        yield Ask(_STRIP, bodies)
        gone = [text_id(body["seq"]) for body in bodies]
        yield from search.remove(erasing.owner, scope_of(erasing.name), gone)
        gone_from = [record.Gone(owner, scope, ENVELOPE, subject) for owner, scope, subject in left]
        yield from record.end(erasing.recording, erasing.at, "erased", gone_from, left)
    return len(bodies)


def _remove(params: Params) -> Op[int]:
    """The first of what was said in it; how many."""
    rows = yield Ask(_DELETE, params)
    gone = [text_id(row[0]) for row in rows]
    owner, scope = params["for_owner"], scope_of(params["for_name"])
    yield from search.remove(owner, scope, gone)
    yield from record.end_of(params, [record.Gone(owner, scope, ENVELOPE, str(row[0])) for row in rows])
    return len(gone)


erase, remove = each(erase_some), each(_remove)
