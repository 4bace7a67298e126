"""What the record says of what is stored: written in the transaction that stores it.

The rules:

* What is stored adds an entry, and so does what goes. Entries are never changed. The salts stand beside them, and one
  whose content is gone is gone with it.
* Whoever adds to a chain holds its row (`record_scopes`) until the transaction is over, so that two who write at once
  come one after the other. It has the hash that comes next, and a seal over that.
* What follows an end that was written without the key has no seal either: so nobody has it sealed by waiting.
* One call for all that is said in a transaction by one write: four statements, however many chains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import urandom
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from ..record import SALT_BYTES, Entry, Head, Recording, canonical, digest, follow, genesis
from ..record.chain import ranges
from . import tables
from .contents import ENVELOPE
from .statement import Ask, Op, Params, Row, Statement, given, written

_S, _E, _K = tables.record_scopes, tables.record_entries, tables.record_salts


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
_TAKE = Statement(
    written(
        "INSERT INTO record_scopes (owner, scope, number, hash, signed, since) "
        "SELECT asked.owner, asked.scope, 0, CAST('' AS bytea), 0, :at "
        "FROM json_to_recordset(CAST(:asked AS json)) AS asked(owner text, scope text) ORDER BY 1, 2 "
        "ON CONFLICT (owner, scope) DO UPDATE SET number = record_scopes.number "
        "RETURNING owner, scope, number, hash, signed, seal",
        at=sa.BigInteger,
        asked=sa.Text,
    ),
    sqlite=written(
        "INSERT INTO record_scopes (owner, scope, number, hash, signed, since) "
        "SELECT json_extract(value, '$.owner'), json_extract(value, '$.scope'), 0, x'', 0, :at "
        "FROM json_each(:asked) WHERE true "
        "ON CONFLICT (owner, scope) DO UPDATE SET number = number "
        "RETURNING owner, scope, number, hash, signed, seal",
        at=sa.BigInteger,
        asked=sa.Text,
    ),
)
_ADD, _KEEP = Statement(sa.insert(_E)), Statement(sa.insert(_K))
_MOVE = Statement(
    sa.update(_S)
    .where(_S.c.owner == given("for_owner"), _S.c.scope == given("for_scope"))
    .values(
        number=given("to_number", sa.BigInteger),
        hash=given("to_hash", sa.LargeBinary),
        seal=given("seal", sa.LargeBinary),
    )
)
_HEAD = Statement(
    sa.select(_S.c.number, _S.c.hash).where(_S.c.owner == given("for_owner"), _S.c.scope == given("for_scope"))
)


def _ending(*columns: str) -> Statement:
    """Those that are asked for are gone, and with them their salts."""
    named = ", ".join(columns)
    general = ", ".join(f"{column} text" for column in columns)
    sqlite = ", ".join(f"json_extract(value, '$.{column}')" for column in columns)
    delete = f"DELETE FROM record_salts WHERE ({named}) IN (SELECT {{}}) RETURNING owner, scope, number, subject"
    recordset = f"{named} FROM json_to_recordset(CAST(:asked AS json)) AS asked({general})"
    return Statement(
        written(delete.format(recordset), asked=sa.Text),
        sqlite=written(delete.format(f"{sqlite} FROM json_each(:asked)"), asked=sa.Text),
    )


_BROKEN = b""
"""No seal."""

_END, _END_ALL = _ending("owner", "scope", "subject", "kind"), _ending("owner", "scope", "kind")


def append(recording: Recording, at: int, noted: Sequence[Noted], *, accept: bool = False) -> Op[None]:
    """Say this, in this order. `at` is the time in milliseconds. `accept`: also where the end of a chain was written
    without the key, which is otherwise not sealed any more."""
    if not noted or not recording.enabled:
        return
    scopes: dict[tuple[str, str], list[Noted]] = {}
    for one in noted:
        scopes.setdefault((one.owner, one.scope), []).append(one)
    asked = canonical([{"owner": owner, "scope": scope} for owner, scope in sorted(scopes)]).decode()
    taken = yield Ask(_TAKE, {"asked": asked, "at": at})
    rows: list[Params] = []
    salts: list[Params] = []
    moved: list[Params] = []
    for owner, scope, number, hash, signed, seal in taken:
        head = Head(number, bytes(hash) if number else genesis(owner, scope))
        ours = accept or number == 0 or recording.sealed(owner, scope, head, signed, seal)
        for one in scopes[owner, scope]:
            salt = None if one.content is None else urandom(SALT_BYTES)
            head, row = _next(head, at, one, salt)
            rows.append(row)
            if salt is not None:
                salts.append({**row, "kind": one.of or one.kind, "salt": salt})
        named = {"for_owner": owner, "for_scope": scope, "to_number": head.number, "to_hash": head.hash}
        moved.append({**named, "seal": recording.seal(owner, scope, head, signed) if ours else _BROKEN})
    yield Ask(_ADD, rows)
    if salts:
        yield Ask(_KEEP, salts)
    yield Ask(_MOVE, moved)
    recording.waiting += len(rows)


def _next(head: Head, at: int, noted: Noted, salt: bytes | None) -> tuple[Head, Params]:
    owner, scope, kind, subject, content, more, _ = noted
    made = None if salt is None or content is None else digest(salt, content)
    number = head.number + 1
    entry = Entry(
        number=number,
        at=at,
        kind=kind,
        subject=subject,
        digest=made.hex() if made is not None else None,
        more=dict(more),
    )
    hash = follow(head.hash, entry)
    return Head(number, hash), {
        "owner": owner,
        "scope": scope,
        "number": number,
        "at": at,
        "kind": kind,
        "subject": subject,
        "digest": made,
        "more": canonical(more) if more else None,
        "hash": hash,
    }


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
    yield from append(_always(recording), at, _ended(kind, rows, left or {}))


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


def _always(recording: Recording) -> Recording:
    return recording if recording.enabled else Recording(True, recording.signers)


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
