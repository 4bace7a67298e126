"""Rows of spaces: the settings and the participants of each.

The rules:

* The name of a space is unique in the gateway, for all owners.
* Settings and participants have a version, which increases when they are changed from outside. A writer that validated
  for an older version gets a conflict when it appends (`appends`). The head of the log does not change.
* Rows of the configuration and rows made by a command exist in parallel (`origin`): each origin changes only its own.
* A token is found by its hash, and identifies one participant in a space.
* Each webhook of a space has the number of the last envelope that it delivered. It never decreases.
* A removed space is invisible at once, and its envelopes are deleted step by step. When that is done, the name can be
  used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import sqlalchemy as sa
from msgspec.structs import replace

from ..errors import RequestError
from . import tables
from .errors import AlreadyStored, SpaceNotFound
from .statement import (
    ID,
    NAME,
    OWNER,
    Execute,
    Operation,
    Params,
    Row,
    Statement,
    columns_of,
    for_each,
    has_rows,
    param,
    read_first,
    read_rows,
    struct_from_row,
)

SpaceOrigin: TypeAlias = Literal["config", "made"]
ParticipantOrigin: TypeAlias = Literal["config", "made", "invited"]


class StoredSpace(msgspec.Struct, frozen=True, kw_only=True):
    """A space as it is stored, without its participants and its log."""

    owner: str
    name: str
    created_at: float
    """In seconds since 1970."""
    settings: bytes
    """JSON."""
    version: int = 1
    """Increases when the settings or the participants change."""
    head: int = 0
    """Sequence number of the newest envelope."""
    origin: SpaceOrigin = "made"


class StoredParticipant(msgspec.Struct, frozen=True, kw_only=True):
    """A participant of a space as it is stored."""

    id: str
    capabilities: bytes = b"[]"
    """A JSON list, as it was written."""
    token_hash: bytes
    """SHA-256 of the token. The same token may belong to participants of several spaces."""
    origin: ParticipantOrigin = "made"
    created_at: float


# ---------------------------------------------------------------------------------------------- statements

_S, _P, _N, _W = tables.spaces, tables.participants, tables.states, tables.webhooks
_spaces = sa.select(*columns_of(StoredSpace, _S))
_participants = sa.select(*columns_of(StoredParticipant, _P))

_not_removed = _S.c.removed_at.is_(None)
_this_space = sa.and_(_S.c.owner == OWNER, _S.c.name == NAME)
_in_space = sa.and_(_P.c.owner == OWNER, _P.c.space == NAME)

_LOCK_BY_NAME = Statement(_spaces.add_columns(_S.c.removed_at).where(_S.c.name == NAME).with_for_update())
_LOCK = Statement(_spaces.where(_this_space, _not_removed).with_for_update())
_GET = Statement(_spaces.where(_S.c.name == NAME, _not_removed))
_LIST = Statement(_spaces.where(_S.c.owner == OWNER, _not_removed).order_by(_S.c.name))
_ALL = Statement(_spaces.where(_not_removed).order_by(_S.c.name))
_REMOVED = Statement(sa.select(_S.c.owner, _S.c.name).where(_S.c.removed_at.is_not(None)))
_INSERT = Statement(sa.insert(_S))
_UPDATE = Statement(
    sa.update(_S)
    .where(_this_space)
    .values(settings=param("settings", sa.LargeBinary), origin=param("origin"), version=param("version", sa.BigInteger))
)
_MARK_REMOVED = Statement(
    sa.update(_S).where(_this_space, _not_removed).values(removed_at=param("now", sa.Double)).returning(_S.c.created_at)
)
_DELETE = Statement(sa.delete(_S).where(_this_space, _S.c.removed_at.is_not(None)).returning(_S.c.name))

_PARTICIPANTS = Statement(_participants.where(_in_space).order_by(_P.c.id))
_GET_PARTICIPANT = Statement(_participants.where(_in_space, _P.c.id == ID))
_INSERT_PARTICIPANTS = Statement(sa.insert(_P))
_DELETE_PARTICIPANT = Statement(sa.delete(_P).where(_in_space, _P.c.id == ID))
_DELETE_PARTICIPANTS = Statement(sa.delete(_P).where(_in_space))
_DELETE_STATE = Statement(sa.delete(_N).where(_N.c.owner == OWNER, _N.c.space == NAME))
_this_webhook = sa.and_(_W.c.owner == OWNER, _W.c.space == NAME, _W.c.name == ID)
_WEBHOOK_POSITION = Statement(sa.select(_W.c.position).where(_this_webhook))
_INSERT_WEBHOOK = Statement(sa.insert(_W))
_MOVE_WEBHOOK = Statement(
    sa.update(_W)
    .where(_this_webhook, _W.c.position <= param("to_position", sa.BigInteger))
    .values(position=param("to_position", sa.BigInteger))
    .returning(_W.c.name)
)
_DELETE_WEBHOOKS = Statement(sa.delete(_W).where(_W.c.owner == OWNER, _W.c.space == NAME))
_BY_TOKEN = Statement(
    _spaces.add_columns(*columns_of(StoredParticipant, _P))
    .join(_P, sa.and_(_P.c.owner == _S.c.owner, _P.c.space == _S.c.name))
    .where(_P.c.token_hash == param("token_hash", sa.LargeBinary), _not_removed)
    .order_by(_S.c.name)
)


# ---------------------------------------------------------------------------------------------- operations

_space_from_row = partial(struct_from_row, StoredSpace)
_participant_from_row = partial(struct_from_row, StoredParticipant)


def _space_and_participant(row: Row) -> tuple[StoredSpace, StoredParticipant]:
    return _space_from_row(row), _participant_from_row(row[len(StoredSpace.__struct_fields__) :])


get = read_first(_GET, _space_from_row)
list_all, list_of_owner = read_rows(_ALL, _space_from_row), read_rows(_LIST, _space_from_row)
get_participants = read_rows(_PARTICIPANTS, _participant_from_row)
find_by_token = read_rows(_BY_TOKEN, _space_and_participant)
removed_spaces = read_rows(_REMOVED, tuple[str, str])
"""Owner and name of removed spaces that are not completely deleted."""


class SpaceWrite(NamedTuple):
    """A space, and participants to write."""

    space: StoredSpace
    participants: tuple[StoredParticipant, ...]


@for_each
def put(write: SpaceWrite) -> Operation[StoredSpace | RequestError | AlreadyStored]:
    """Create or update a space, and the participants of the same origin (see `Spaces.put`).

    An error is returned, because an exception would repeat all writes of the transaction.
    """
    space, participants = write
    params = space_params(space.owner, space.name)
    rows = yield Execute(_LOCK_BY_NAME, params)
    if not rows:
        created = replace(space, version=1, head=0)
        yield Execute(_INSERT, {**msgspec.structs.asdict(created), "latest": 0, "removed_at": None})
        yield from _insert_participants(params, participants)
        return created
    stored, is_removed = _space_from_row(rows[0]), rows[0][-1] is not None
    if stored.owner != space.owner or is_removed:
        return AlreadyStored("there is a space with this name already; each needs a name of its own")
    current = yield from get_participants(params)
    current_by_id = {one.id: one for one in current}
    ids_of_origin = {one.id for one in current if one.origin == space.origin}
    new = [one for one in participants if one.id not in current_by_id]
    changed = [
        updated
        for one in participants
        if one.id in current_by_id
        and (updated := replace(one, created_at=current_by_id[one.id].created_at)) != current_by_id[one.id]
    ]
    removed_ids = ids_of_origin - {one.id for one in participants}
    if not (removed_ids or new or changed) and (stored.settings, stored.origin) == (space.settings, space.origin):
        return stored
    yield from _delete_participants(params, [*removed_ids, *(one.id for one in changed)])
    yield from _insert_participants(params, [*new, *changed])
    return (yield from _bump_version(replace(stored, settings=space.settings, origin=space.origin)))


@for_each
def add(write: SpaceWrite) -> Operation[StoredSpace | RequestError | AlreadyStored]:
    space, participants = write
    params = space_params(space.owner, space.name)
    rows = yield Execute(_LOCK, params)
    if not rows:
        return SpaceNotFound(space.name)
    stored = _space_from_row(rows[0])
    current_ids = {one.id for one in (yield from get_participants(params))}
    if current_ids.intersection(one.id for one in participants):
        return AlreadyStored("there is a participant with this id in the space already; each needs an id of its own")
    if not participants:
        return stored
    yield from _insert_participants(params, participants)
    return (yield from _bump_version(stored))


def _bump_version(space: StoredSpace) -> Operation[StoredSpace]:
    changed = replace(space, version=space.version + 1)
    yield Execute(_UPDATE, {**space_params(space.owner, space.name), **msgspec.structs.asdict(changed)})
    return changed


def _insert_participants(params: Params, participants: Sequence[StoredParticipant]) -> Operation[None]:
    if participants:
        space_key = {"owner": params["for_owner"], "space": params["for_name"]}
        yield Execute(_INSERT_PARTICIPANTS, [{**space_key, **msgspec.structs.asdict(one)} for one in participants])


def _delete_participants(params: Params, ids: list[str]) -> Operation[None]:
    if ids:
        yield Execute(_DELETE_PARTICIPANT, [{**params, "for_id": id} for id in ids])


def invite(owner: str, name: str, participant: StoredParticipant) -> Operation[None]:
    """Add an invited participant; if it was invited before, replace its token and capabilities."""
    params = space_params(owner, name)
    rows = yield Execute(_GET_PARTICIPANT, {**params, "for_id": participant.id})
    if rows:
        stored = _participant_from_row(rows[0])
        if stored.origin != "invited":
            return
        participant = replace(participant, created_at=stored.created_at)
        yield from _delete_participants(params, [participant.id])
    yield from _insert_participants(params, [replace(participant, origin="invited")])


@for_each
def mark_removed(params: Params) -> Operation[bool]:
    """Mark a space as removed: it is invisible from now on. Delete its participants and its snapshot."""
    if not (yield Execute(_MARK_REMOVED, params)):
        return False
    yield Execute(_DELETE_PARTICIPANTS, params)
    yield Execute(_DELETE_STATE, params)
    yield Execute(_DELETE_WEBHOOKS, params)
    return True


@for_each
def begin_webhook(params: Params) -> Operation[int | None]:
    """Return the position of a webhook. A new one begins at the head of the space; None: there is no such space."""
    rows = yield Execute(_LOCK, params)
    if not rows:
        return None
    if positions := (yield Execute(_WEBHOOK_POSITION, params)):
        return int(positions[0][0])
    head = _space_from_row(rows[0]).head
    row = {"owner": params["for_owner"], "space": params["for_name"], "name": params["for_id"], "position": head}
    yield Execute(_INSERT_WEBHOOK, row)
    return head


move_webhook = for_each(has_rows(_MOVE_WEBHOOK))


delete_row = for_each(has_rows(_DELETE))
"""Delete the row of a removed space, after its envelopes were deleted."""


def space_params(owner: str, name: str) -> Params:
    """Return the parameters that identify a space in every statement."""
    return {"for_owner": owner, "for_name": name}
