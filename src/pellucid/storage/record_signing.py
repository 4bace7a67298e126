"""Checkpoints, as they are made: of the chains that went on since the last one.

The rules:

* What is signed is what this gateway's writers left there, which their seals say. A chain whose end somebody changed
  without the key is left unsigned, and counted.
* Of two replicas that make one at once, one does: the gateway's checkpoints have numbers without holes.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import groupby
from typing import NamedTuple

import sqlalchemy as sa

from ..record import Checkpoint, Head, Recording, Signer, signed
from . import tables
from .record import Noted, append
from .statement import Ask, Op, Params, Row, Statement, given

STEP = 200
"""So many chains are signed in one transaction, at most."""

_S, _C = tables.record_scopes, tables.record_checkpoints

_after = sa.tuple_(_S.c.owner, _S.c.scope) > sa.tuple_(given("after_owner"), given("after_scope"))
_UNSIGNED = Statement(
    sa.select(_S.c.owner, _S.c.scope, _S.c.number, _S.c.hash, _S.c.signed, _S.c.seal)
    .where(sa.text("number > signed"), _after)
    .order_by(_S.c.owner, _S.c.scope)
    .limit(given("most", sa.BigInteger))
    # One that is being written to is signed the next time.
    .with_for_update(skip_locked=True)
)
_only_owner, _only_scope = given("only_owner"), given("only_scope")
_ENDS = Statement(
    sa.select(_S.c.owner, _S.c.scope, _S.c.number, _S.c.hash, _S.c.signed, _S.c.seal)
    .where(
        sa.or_(_only_owner.is_(None), _S.c.owner == _only_owner),
        sa.or_(_only_scope.is_(None), _S.c.scope == _only_scope),
        _after,
    )
    .order_by(_S.c.owner, _S.c.scope)
    .limit(given("most", sa.BigInteger))
)
_SOME = Statement(
    sa.select(sa.literal_column("1"))
    .select_from(_S)
    .where(sa.text("number > signed"))
    .order_by(_S.c.owner, _S.c.scope)
    .limit(sa.literal_column("1"))
)
_NEWEST = sa.select(_C.c.number, _C.c.serial, _C.c.body, _C.c.signature).limit(sa.literal_column("1"))
_LAST = Statement(_NEWEST.order_by(_C.c.serial.desc()))
_LAST_OF = Statement(_NEWEST.where(_C.c.owner == given("for_owner")).order_by(_C.c.number.desc()))
_ADD = Statement(sa.insert(_C))
_SIGNED = Statement(
    sa.update(_S)
    .where(_S.c.owner == given("for_owner"), _S.c.scope == given("for_scope"))
    .values(signed=given("up_to", sa.BigInteger), seal=given("seal", sa.LargeBinary))
)


class Signing(NamedTuple):
    recording: Recording
    signer: Signer
    at: int
    after: tuple[str, str] = ("", "")
    """Of the chains in their order, those after this one."""


class Done(NamedTuple):
    signed: int
    """So many chains are in a checkpoint now."""
    refused: int
    """So many are not what this gateway left there."""
    after: tuple[str, str] | None
    """Where to go on; None: all were looked at."""


def sign(asked: Signing) -> Op[Done]:
    """The next of them."""
    recording, signer, at, (owner, scope) = asked
    rows = yield Ask(_UNSIGNED, {"after_owner": owner, "after_scope": scope, "most": STEP})
    right = [row for row in rows if _sealed(recording, row)]
    if right:
        yield from _checkpoints(recording, signer, at, right)
    on = (rows[-1][0], rows[-1][1]) if len(rows) == STEP else None
    return Done(len(right), len(rows) - len(right), on)


def some(_: None) -> Op[bool]:
    """Whether there are any."""
    return bool((yield Ask(_SOME, {})))


class Accepting(NamedTuple):
    recording: Recording
    at: int
    owner: str | None
    scope: str | None
    after: tuple[str, str] = ("", "")


def accept(asked: Accepting) -> Op[Done]:
    """Take the next of the ends that were written without the key as they are, and say so in their chains."""
    recording, at, only_owner, only_scope, (owner, scope) = asked
    only = {"only_owner": only_owner, "only_scope": only_scope}
    rows = yield Ask(_ENDS, {**only, "after_owner": owner, "after_scope": scope, "most": STEP})
    noted = [Noted(row[0], row[1], "accepted", "") for row in rows if not _sealed(recording, row)]
    yield from append(recording, at, noted, accept=True)
    on = (rows[-1][0], rows[-1][1]) if len(rows) == STEP else None
    return Done(len(noted), 0, on)


def _sealed(recording: Recording, row: Row) -> bool:
    owner, scope, number, hash, up_to, seal = row
    return recording.sealed(owner, scope, Head(number, bytes(hash)), up_to, seal)


def _checkpoints(recording: Recording, signer: Signer, at: int, rows: list[Row]) -> Op[None]:
    last = yield Ask(_LAST, {})
    serial, before = (last[0][1], _hash(last[0])) if last else (0, "")
    made: list[Params] = []
    moved: list[Params] = []
    for owner, of_owner in groupby(rows, lambda row: row[0]):
        heads = {scope: Head(number, bytes(hash)) for _, scope, number, hash, _, _ in of_owner}
        mine = yield Ask(_LAST_OF, {"for_owner": owner})
        number, previous = (mine[0][0], _hash(mine[0])) if mine else (0, "")
        serial += 1
        checkpoint = signed(
            signer,
            Checkpoint(
                owner=owner,
                number=number + 1,
                previous=previous,
                serial=serial,
                before=before,
                at=at,
                key=signer.id,
                heads={scope: (head.number, head.hash.hex()) for scope, head in heads.items()},
            ),
        )
        before = checkpoint.hash
        made.append(
            {
                "owner": owner,
                "number": number + 1,
                "serial": serial,
                "body": checkpoint.checkpoint.body(),
                "signature": checkpoint.signature,
            }
        )
        for scope, head in heads.items():
            seal = recording.seal(owner, scope, head, head.number)
            moved.append({"for_owner": owner, "for_scope": scope, "up_to": head.number, "seal": seal})
    yield Ask(_ADD, made)
    yield Ask(_SIGNED, moved)


def _hash(row: Row) -> str:
    _, _, body, signature = row
    return sha256(bytes(body) + bytes(signature)).hexdigest()
