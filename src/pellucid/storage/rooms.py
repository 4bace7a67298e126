"""A space as it is kept: what it is set to, and who may come in.

The rules:

* A space's name is its own in the whole gateway, whoever owns it.
* Its settings and participants have a version. It grows whenever they are changed from outside, so that whoever judges
  by an older one is told when it appends (`appends`). The log itself (`head`) is not touched by that.
* What the configuration says and what was made by a command stand side by side (`origin`): each changes its own.
* A token is known by its hash, and names one participant in a space.
* A space that is removed is gone at once, and what was said in it goes step by step. Its name can be taken anew when
  that is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import sqlalchemy as sa
from msgspec.structs import replace

from ..errors import RequestError
from . import tables
from .errors import AlreadyStored, SpaceGone
from .statement import Ask, Op, Params, Row, Statement, each, given

SpaceOrigin: TypeAlias = Literal["config", "made"]
ParticipantOrigin: TypeAlias = Literal["config", "made", "invited"]


class StoredSpace(msgspec.Struct, frozen=True, kw_only=True):
    owner: str
    name: str
    created_at: float
    """In seconds since 1970."""
    settings: bytes
    """JSON."""
    version: int = 1
    """Grows whenever the settings or the participants change."""
    head: int = 0
    """The seq of the newest envelope."""
    origin: SpaceOrigin = "made"


class StoredParticipant(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    capabilities: bytes = b"[]"
    """A JSON list, as written."""
    token_hash: bytes
    """SHA-256 of the token. The same token may belong to participants of several spaces."""
    origin: ParticipantOrigin = "made"
    created_at: float


# ---------------------------------------------------------------------------------------------- statements

_S, _P, _N = tables.spaces, tables.participants, tables.states
_SPACE = StoredSpace.__struct_fields__
_PARTICIPANT = StoredParticipant.__struct_fields__
_COLUMNS = [_S.c[name] for name in _SPACE]
_MEMBERS = [_P.c[name] for name in _PARTICIPANT]

_owner, _name, _id = given("for_owner"), given("for_name"), given("for_id")
_there = _S.c.removed_at.is_(None)
_this = sa.and_(_S.c.owner == _owner, _S.c.name == _name)
_in_it = sa.and_(_P.c.owner == _owner, _P.c.space == _name)

_NAMED = Statement(sa.select(*_COLUMNS, _S.c.removed_at).where(_S.c.name == _name).with_for_update())
_LOCK = Statement(sa.select(*_COLUMNS).where(_this, _there).with_for_update())
_GET = Statement(sa.select(*_COLUMNS).where(_S.c.name == _name, _there))
_OWN = Statement(sa.select(*_COLUMNS).where(_this, _there))
_LIST = Statement(sa.select(*_COLUMNS).where(_S.c.owner == _owner, _there).order_by(_S.c.name))
_ALL = Statement(sa.select(*_COLUMNS).where(_there).order_by(_S.c.name))
_LEFT = Statement(sa.select(_S.c.owner, _S.c.name).where(_S.c.removed_at.is_not(None)))
_INSERT = Statement(sa.insert(_S))
_CHANGE = Statement(
    sa.update(_S)
    .where(_this)
    .values(settings=given("settings", sa.LargeBinary), origin=given("origin"), version=given("version", sa.BigInteger))
)
_MARK = Statement(
    sa.update(_S).where(_this, _there).values(removed_at=given("now", sa.Double)).returning(_S.c.created_at)
)
_DROP = Statement(sa.delete(_S).where(_this, _S.c.removed_at.is_not(None)).returning(_S.c.name))

_WHO = Statement(sa.select(*_MEMBERS).where(_in_it).order_by(_P.c.id))
_ONE = Statement(sa.select(*_MEMBERS).where(_in_it, _P.c.id == _id))
_LET_IN = Statement(sa.insert(_P))
_PUT_OUT = Statement(sa.delete(_P).where(_in_it, _P.c.id == _id))
_EMPTY = Statement(sa.delete(_P).where(_in_it))
_FORGET = Statement(sa.delete(_N).where(_N.c.owner == _owner, _N.c.space == _name))
_OF_TOKEN = Statement(
    sa.select(*_COLUMNS, *_MEMBERS)
    .join(_P, sa.and_(_P.c.owner == _S.c.owner, _P.c.space == _S.c.name))
    .where(_P.c.token_hash == given("token_hash", sa.LargeBinary), _there)
    .order_by(_S.c.name)
)


# ---------------------------------------------------------------------------------------------- what can be asked


class Put(NamedTuple):
    space: StoredSpace
    participants: tuple[StoredParticipant, ...]


def _put(put: Put) -> Op[StoredSpace | RequestError | AlreadyStored]:
    """What is wrong comes back, for an exception would have all that is written with it done again."""
    space, listed = put
    named = this_space(space.owner, space.name)
    rows = yield Ask(_NAMED, named)
    if not rows:
        made = replace(space, version=1, head=0)
        yield Ask(_INSERT, {**msgspec.structs.asdict(made), "latest": 0, "removed_at": None})
        yield from _let_in(named, listed)
        return made
    there, removed = read_space(rows[0]), rows[0][-1] is not None
    if there.owner != space.owner or removed:
        return _taken(space.name)
    before = yield from _who(named)
    known = {one.id: one for one in before}
    mine = {one.id for one in before if one.origin == space.origin}
    new = [one for one in listed if one.id not in known]
    other = [
        kept
        for one in listed
        if one.id in known and (kept := replace(one, created_at=known[one.id].created_at)) != known[one.id]
    ]
    gone = mine - {one.id for one in listed}
    if not (gone or new or other) and (there.settings, there.origin) == (space.settings, space.origin):
        return there
    yield from _put_out(named, [*gone, *(one.id for one in other)])
    yield from _let_in(named, [*new, *other])
    return (yield from _changed(replace(there, settings=space.settings, origin=space.origin)))


def _add(put: Put) -> Op[StoredSpace | RequestError | AlreadyStored]:
    space, listed = put
    named = this_space(space.owner, space.name)
    rows = yield Ask(_LOCK, named)
    if not rows:
        return SpaceGone(space.name)
    there = read_space(rows[0])
    known = {one.id for one in (yield from _who(named))}
    if known.intersection(one.id for one in listed):
        return AlreadyStored("there is a participant with this id in the space already; each needs an id of its own")
    if not listed:
        return there
    yield from _let_in(named, listed)
    return (yield from _changed(there))


def _changed(space: StoredSpace) -> Op[StoredSpace]:
    changed = replace(space, version=space.version + 1)
    yield Ask(_CHANGE, {**this_space(space.owner, space.name), **msgspec.structs.asdict(changed)})
    return changed


def _let_in(named: Params, listed: Sequence[StoredParticipant]) -> Op[None]:
    if listed:
        place = {"owner": named["for_owner"], "space": named["for_name"]}
        yield Ask(_LET_IN, [{**place, **msgspec.structs.asdict(one)} for one in listed])


def _put_out(named: Params, ids: list[str]) -> Op[None]:
    if ids:
        yield Ask(_PUT_OUT, [{**named, "for_id": id} for id in ids])


def invite(owner: str, name: str, invited: StoredParticipant) -> Op[None]:
    """Let this one in; if it was invited before, by its new token and capabilities."""
    named = this_space(owner, name)
    rows = yield Ask(_ONE, {**named, "for_id": invited.id})
    if rows:
        there = _participant(rows[0])
        if there.origin != "invited":
            return
        invited = replace(invited, created_at=there.created_at)
        yield from _put_out(named, [invited.id])
    yield from _let_in(named, [replace(invited, origin="invited")])


def _get(params: Params) -> Op[StoredSpace | None]:
    rows = yield Ask(_GET, params)
    return read_space(rows[0]) if rows else None


def own(params: Params) -> Op[StoredSpace | None]:
    rows = yield Ask(_OWN, params)
    return read_space(rows[0]) if rows else None


def listing(params: Params) -> Op[tuple[StoredSpace, ...]]:
    rows = yield Ask(_ALL if params["for_owner"] is None else _LIST, params)
    return tuple(map(read_space, rows))


def _who(params: Params) -> Op[tuple[StoredParticipant, ...]]:
    return tuple(map(_participant, (yield Ask(_WHO, params))))


def of_token(params: Params) -> Op[tuple[tuple[StoredSpace, StoredParticipant], ...]]:
    rows = yield Ask(_OF_TOKEN, params)
    return tuple((read_space(row), _participant(row[len(_SPACE) :])) for row in rows)


def _mark(params: Params) -> Op[bool]:
    """Gone for everybody from now on."""
    if not (yield Ask(_MARK, params)):
        return False
    yield Ask(_EMPTY, params)
    yield Ask(_FORGET, params)
    return True


def _drop(params: Params) -> Op[bool]:
    """What is left of it, when nothing is left that was said in it."""
    return bool((yield Ask(_DROP, params)))


def left(_: None) -> Op[list[tuple[str, str]]]:
    """Those that are gone, and of which something is left."""
    return [(owner, name) for owner, name in (yield Ask(_LEFT, {}))]


put, add, mark, drop, get, who = each(_put), each(_add), each(_mark), each(_drop), _get, _who


def this_space(owner: str, name: str) -> Params:
    """The parameters that name it, in every statement about a space."""
    return {"for_owner": owner, "for_name": name}


def _taken(name: str) -> AlreadyStored:
    return AlreadyStored("there is a space with this name already; each needs a name of its own")


def read_space(row: Row) -> StoredSpace:
    return StoredSpace(**dict[str, Any](zip(_SPACE, row, strict=False)))


def _participant(row: Row) -> StoredParticipant:
    return StoredParticipant(**dict[str, Any](zip(_PARTICIPANT, row, strict=False)))
