"""What the record says of what is stored: written in the transaction that stores it, and signed soon afterwards.

The rules:

* What is stored adds an entry, and so does what goes. Entries are never changed. The salts stand beside them, and one
  whose content is gone is gone with it.
* Whoever adds to a chain holds its row (`record_scopes`) until the transaction is over, so that two who write at once
  come one after the other. It has the hash that comes next, and a seal over that.
* What follows an end that was written without the key has no seal either: so nobody has it sealed by waiting.
* One call for all that is said in a transaction by one write: four statements, however many chains.
* What is signed is what this gateway's writers left there, which their seals say. A chain whose end somebody changed
  without the key is left unsigned, and counted.
* Of two replicas that make a checkpoint at once, one does: the gateway's checkpoints have numbers without holes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from os import urandom
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from msgspec.structs import asdict

from ..record import SALT_BYTES, Checkpoint, Entry, Head, Recording, Signer, canonical, digest, follow, genesis, signed
from ..record.chain import ranges
from . import tables
from .contents import ENVELOPE
from .statement import Ask, Op, Params, Row, Statement, given, over

_S, _E, _K, _C = tables.record_scopes, tables.record_entries, tables.record_salts, tables.record_checkpoints
_this = sa.and_(_S.c.owner == given("for_owner"), _S.c.scope == given("for_scope"))

# ------------------------------------------------------------------------------------------- what is stored, and goes


class Noted(NamedTuple):
    """Something that the record is to say."""

    owner: str
    scope: str
    kind: str
    subject: str
    content: Sequence[bytes] | None = None
    """What was stored, in pieces."""
    more: Mapping[str, Any] = {}
    of: str | None = None
    """As what it was stored, where the entry has another kind than that."""


class Gone(NamedTuple):
    """Something that is not stored any more."""

    owner: str
    scope: str
    kind: str
    """As what it was stored."""
    subject: str | None
    """None: all of that kind in the scope."""


def milliseconds(now: float) -> int:
    return int(now * 1000)


# A row that is made is one whose chain is empty: its hash is known without it.
_TAKE = over(
    "INSERT INTO record_scopes (owner, scope, number, hash, signed, since) "
    "SELECT {owner}, {scope}, 0, :nothing, 0, :at FROM {asked} WHERE true ORDER BY 1, 2 "
    "ON CONFLICT (owner, scope) DO UPDATE SET number = record_scopes.number "
    "RETURNING owner, scope, number, hash, signed, seal",
    {"owner": "text", "scope": "text"},
    at=sa.BigInteger,
    nothing=sa.LargeBinary,
)
_ADD, _KEEP = Statement(sa.insert(_E)), Statement(sa.insert(_K))
_MOVE = Statement(
    sa.update(_S)
    .where(_this)
    .values(
        number=given("to_number", sa.BigInteger),
        hash=given("to_hash", sa.LargeBinary),
        seal=given("seal", sa.LargeBinary),
    )
)
_HEAD = Statement(sa.select(_S.c.number, _S.c.hash).where(_this))


def _ending(*columns: str) -> Statement:
    """Those that are asked for are gone, and with them their salts."""
    asked = ", ".join(f"{{{column}}}" for column in columns)
    return over(
        f"DELETE FROM record_salts WHERE ({', '.join(columns)}) IN (SELECT {asked} FROM {{asked}}) "
        "RETURNING owner, scope, number, subject",
        dict.fromkeys(columns, "text"),
    )


_END, _END_ALL = _ending("owner", "scope", "subject", "kind"), _ending("owner", "scope", "kind")

_BROKEN = b""
"""No seal."""


def append(recording: Recording, at: int, noted: Sequence[Noted], *, accept: bool = False) -> Op[None]:
    """Say this, in this order. `at` is the time in milliseconds. `accept`: also where the end of a chain was written
    without the key, which is otherwise not sealed any more."""
    if not noted or not recording.enabled:
        return
    scopes: dict[tuple[str, str], list[Noted]] = {}
    for one in noted:
        scopes.setdefault((one.owner, one.scope), []).append(one)
    asked = canonical([{"owner": owner, "scope": scope} for owner, scope in sorted(scopes)]).decode()
    taken = yield Ask(_TAKE, {"asked": asked, "at": at, "nothing": b""})
    rows: list[Params] = []
    salts: list[Params] = []
    moved: list[Params] = []
    for owner, scope, number, hash, signed_to, seal in taken:
        head = Head(number, bytes(hash) if number else genesis(owner, scope))
        ours = accept or number == 0 or recording.sealed(owner, scope, head, signed_to, seal)
        for one in scopes[owner, scope]:
            salt = None if one.content is None else urandom(SALT_BYTES)
            head, row = _next(head, at, one, salt)
            rows.append(row)
            if salt is not None:
                salts.append({**row, "kind": one.of or one.kind, "salt": salt})
        named = {"for_owner": owner, "for_scope": scope, "to_number": head.number, "to_hash": head.hash}
        moved.append({**named, "seal": recording.seal(owner, scope, head, signed_to) if ours else _BROKEN})
    yield Ask(_ADD, rows)
    if salts:
        yield Ask(_KEEP, salts)
    yield Ask(_MOVE, moved)
    recording.waiting += len(rows)


def _next(head: Head, at: int, noted: Noted, salt: bytes | None) -> tuple[Head, Params]:
    owner, scope, kind, subject, content, more, _ = noted
    made = None if salt is None or content is None else digest(salt, content)
    hexadecimal = made.hex() if made is not None else None
    entry = Entry(number=head.number + 1, at=at, kind=kind, subject=subject, digest=hexadecimal, more=dict(more))
    hash = follow(head.hash, entry)
    kept = {"owner": owner, "scope": scope, "digest": made, "more": canonical(more) if more else None, "hash": hash}
    return Head(entry.number, hash), asdict(entry) | kept


def end(
    recording: Recording,
    at: int,
    kind: str,
    gone: Iterable[Gone],
    left: Mapping[tuple[str, str, str], Sequence[bytes]] | None = None,
) -> Op[None]:
    """What is not stored any more, and why: `deleted`, `expired`, `erased`. Nothing is said of what the record never
    knew. `left`: what is stored in the place of something, by owner, scope and subject.

    Done even where nothing is recorded any more, for what was recorded before must not be left to be guessed."""
    named: list[dict[str, Any]] = []
    whole: list[dict[str, Any]] = []
    for one in gone:
        (named if one.subject is not None else whole).append(one._asdict())
    rows: list[Row] = []
    for statement, asked in ((_END, named), (_END_ALL, whole)):
        if asked:
            rows += yield Ask(statement, {"asked": canonical(asked).decode()})
    always = recording if recording.enabled else Recording(True, recording.signers)
    yield from append(always, at, _ended(kind, rows, left or {}))


def end_of(params: Params, gone: Iterable[Gone]) -> Op[None]:
    """`end`, for whoever deletes something with these parameters: `recording`, `now`, and `why`, if that is another
    reason than that somebody wanted it."""
    yield from end(params["recording"], milliseconds(params["now"]), params.get("why", "deleted"), gone)


def _ended(kind: str, rows: Sequence[Row], left: Mapping[tuple[str, str, str], Sequence[bytes]]) -> list[Noted]:
    """One entry for all that went in a scope; but one of its own for each of which something is left."""
    noted: list[Noted] = []
    together: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for owner, scope, number, subject in sorted(rows, key=lambda row: (row[0], row[1], row[2])):
        if (content := left.get((owner, scope, subject))) is not None:
            noted.append(Noted(owner, scope, kind, subject, content, {"ends": [[number, number]]}, ENVELOPE))
        else:
            together.setdefault((owner, scope), []).append((number, subject))
    for (owner, scope), ended in together.items():
        subject = ended[0][1] if len(ended) == 1 else ""
        noted.append(Noted(owner, scope, kind, subject, None, {"ends": ranges(number for number, _ in ended)}))
    return noted


def head(params: Params) -> Op[Head | None]:
    """How far a chain has come. None: there is none."""
    rows = yield Ask(_HEAD, params)
    return Head(rows[0][0], bytes(rows[0][1])) if rows and rows[0][0] else None


def read_more(data: bytes | None) -> dict[str, Any]:
    """What stands beside an entry. What is not as it was written reads as something that nobody writes."""
    if data is None:
        return {}
    try:
        more = msgspec.json.decode(data, type=dict[str, Any])
        if more and canonical(more) == data:
            return more
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    return {"unreadable": bytes(data).hex()}


# ---------------------------------------------------------------------------------------------------------- checkpoints

STEP = 200
"""So many chains are signed in one transaction, at most."""

_ends = (
    sa.select(_S.c.owner, _S.c.scope, _S.c.number, _S.c.hash, _S.c.signed, _S.c.seal)
    .where(sa.tuple_(_S.c.owner, _S.c.scope) > sa.tuple_(given("after_owner"), given("after_scope")))
    .order_by(_S.c.owner, _S.c.scope)
    .limit(sa.literal_column(str(STEP)))
)
_unsigned = sa.text("number > signed")
# One that is being written to is signed the next time.
_UNSIGNED = Statement(_ends.where(_unsigned).with_for_update(skip_locked=True))
_one: sa.Select[Any] = sa.select(sa.literal_column("1")).select_from(_S).where(_unsigned)
_SOME = Statement(_one.order_by(_S.c.owner, _S.c.scope).limit(sa.literal_column("1")))
_only_owner, _only_scope = given("only_owner"), given("only_scope")
_ENDS = Statement(
    _ends.where(
        sa.or_(_only_owner.is_(None), _S.c.owner == _only_owner),
        sa.or_(_only_scope.is_(None), _S.c.scope == _only_scope),
    )
)
_newest = sa.select(_C.c.number, _C.c.serial, _C.c.body, _C.c.signature).limit(sa.literal_column("1"))
_LAST = Statement(_newest.order_by(_C.c.serial.desc()))
_LAST_OF = Statement(_newest.where(_C.c.owner == given("for_owner")).order_by(_C.c.number.desc()))
_ADD_CHECKPOINTS = Statement(sa.insert(_C))
_SIGNED = Statement(
    sa.update(_S).where(_this).values(signed=given("up_to", sa.BigInteger), seal=given("seal", sa.LargeBinary))
)


class Signatures(NamedTuple):
    """What came of signing, or accepting, the next chains in their order."""

    signed: int
    """So many chains are in a new checkpoint, or were accepted."""
    refused: int
    """So many have an end that was written without the key, and were not signed."""
    after: Params | None = None
    """Where to go on; None: all were looked at."""


def some(_: None) -> Op[bool]:
    """Whether there are any that are not signed."""
    return bool((yield Ask(_SOME, {})))


def sign(params: Params) -> Op[Signatures]:
    """The next of those that went on since the last checkpoint: `recording`, `signer`, `at`, and `after_owner` and
    `after_scope` of the step before."""
    rows = yield Ask(_UNSIGNED, params)
    right = [row for row in rows if _sealed(params["recording"], row)]
    if right:
        yield from _checkpoints(params["recording"], params["signer"], params["at"], right)
    return Signatures(len(right), len(rows) - len(right), _after(rows))


def accept(params: Params) -> Op[Signatures]:
    """Take the next of the ends that were written without the key as they are, and say so in their chains. As `sign`,
    without a signer; `only_owner` and `only_scope`, or None, choose."""
    rows = yield Ask(_ENDS, params)
    noted = [Noted(row[0], row[1], "accepted", "") for row in rows if not _sealed(params["recording"], row)]
    yield from append(params["recording"], params["at"], noted, accept=True)
    return Signatures(len(noted), 0, _after(rows))


def _after(rows: list[Row]) -> Params | None:
    return {"after_owner": rows[-1][0], "after_scope": rows[-1][1]} if len(rows) == STEP else None


def _sealed(recording: Recording, row: Row) -> bool:
    owner, scope, number, hash, signed_to, seal = row
    return recording.sealed(owner, scope, Head(number, bytes(hash)), signed_to, seal)


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
        checkpoint = Checkpoint(
            owner=owner,
            number=number + 1,
            previous=previous,
            serial=serial,
            before=before,
            at=at,
            key=signer.id,
            heads={scope: (head.number, head.hash.hex()) for scope, head in heads.items()},
        )
        body, signature = checkpoint.body(), signed(signer, checkpoint).signature
        row = {"owner": owner, "number": number + 1, "serial": serial, "body": body, "signature": signature}
        made.append(row)
        before = sha256(body + signature).hexdigest()
        for scope, head in heads.items():
            seal = recording.seal(owner, scope, head, head.number)
            moved.append({"for_owner": owner, "for_scope": scope, "up_to": head.number, "seal": seal})
    yield Ask(_ADD_CHECKPOINTS, made)
    yield Ask(_SIGNED, moved)


def _hash(row: Row) -> str:
    _, _, body, signature = row
    return sha256(bytes(body) + bytes(signature)).hexdigest()
