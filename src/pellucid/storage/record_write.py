"""Writing the record: entries in the transaction that stores the content, and checkpoints soon afterwards.

The rules:

* Stored content adds an entry, and so does removed content. Entries are never changed. The salts are in another table,
  and the salt of removed content is deleted.
* A writer locks the row of a chain (`record_scopes`) until its transaction is over, so concurrent writers are
  serialized. The row contains the hash of the last entry, and a seal over it.
* Entries after a chain end that was written without the key get no seal either. So an attacker cannot wait until the
  gateway seals a forged end.
* One call adds all entries of a write: four statements for any number of chains.
* Only chain ends that this gateway's writers wrote are signed; their seals prove it. A chain whose end was changed
  without the key remains unsigned, and is counted.
* If two replicas make a checkpoint at the same time, one succeeds: the numbers of checkpoints have no gaps.
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

from ..record import (
    SALT_BYTES,
    ChainHead,
    Checkpoint,
    Entry,
    Recording,
    Signer,
    canonical_json,
    content_digest,
    entry_hash,
    genesis_hash,
    sign_checkpoint,
)
from ..record.chain import to_ranges
from . import tables
from .record_content import ENVELOPE
from .statement import (
    ONE,
    OWNER,
    Execute,
    Operation,
    Params,
    Row,
    Statement,
    has_rows,
    over_json_rows,
    param,
    read_first,
)

_S, _E, _K, _C = tables.record_scopes, tables.record_entries, tables.record_salts, tables.record_checkpoints
_this_scope = sa.and_(_S.c.owner == OWNER, _S.c.scope == param("for_scope"))

_only_owner, _only_scope = param("only_owner"), param("only_scope")


def is_of_owner(owner: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that rows are of the owner `only_owner`, if it is not None."""
    return sa.or_(_only_owner.is_(None), owner == _only_owner)


def is_selected(table: sa.Table) -> sa.ColumnElement[bool]:
    """Return the condition that rows are of `only_owner` and of `only_scope`, if these are not None."""
    return sa.and_(is_of_owner(table.c.owner), sa.or_(_only_scope.is_(None), table.c.scope == _only_scope))


# ------------------------------------------------------------------------------------------- entries


class NewEntry(NamedTuple):
    """An entry to add to the record."""

    owner: str
    scope: str
    kind: str
    subject: str
    content: Sequence[bytes] | None = None
    """The stored content, in pieces; None: the entry has no content."""
    more: Mapping[str, Any] = {}
    content_kind: str | None = None
    """The kind of the content, if it is not the kind of the entry."""


class RemovedContent(NamedTuple):
    """Content that is not stored any more."""

    owner: str
    scope: str
    kind: str
    """The kind of the content."""
    subject: str | None
    """None: all contents of that kind in the scope."""


def to_milliseconds(now: float) -> int:
    """Convert seconds to milliseconds."""
    return int(now * 1000)


# A new row belongs to an empty chain, whose hash is not stored because it can be computed.
_LOCK_SCOPES = over_json_rows(
    "INSERT INTO record_scopes (owner, scope, number, hash, signed, since) "
    "SELECT {owner}, {scope}, 0, :nothing, 0, :time_ms FROM {requested} WHERE true ORDER BY 1, 2 "
    "ON CONFLICT (owner, scope) DO UPDATE SET number = record_scopes.number "
    "RETURNING owner, scope, number, hash, signed, seal",
    {"owner": "text", "scope": "text"},
    time_ms=sa.BigInteger,
    nothing=sa.LargeBinary,
)
_INSERT_ENTRIES, _INSERT_SALTS = Statement(sa.insert(_E)), Statement(sa.insert(_K))
_UPDATE_HEAD = Statement(
    sa.update(_S)
    .where(_this_scope)
    .values(
        number=param("to_number", sa.BigInteger),
        hash=param("to_hash", sa.LargeBinary),
        seal=param("seal", sa.LargeBinary),
    )
)
_GET_HEAD = Statement(sa.select(_S.c.number, _S.c.hash).where(_this_scope))
get_head = read_first(_GET_HEAD, lambda row: ChainHead(row[0], bytes(row[1])) if row[0] else None)
"""Return the head of a chain; None if there is no chain."""


def _delete_salts(*columns: str) -> Statement:
    """Build the statement that deletes the salts of removed contents, and returns the numbers of their entries."""
    values = ", ".join(f"{{{column}}}" for column in columns)
    return over_json_rows(
        f"DELETE FROM record_salts WHERE ({', '.join(columns)}) IN (SELECT {values} FROM {{requested}}) "
        "RETURNING owner, scope, number, subject",
        dict.fromkeys(columns, "text"),
    )


_DELETE_SALTS, _DELETE_ALL_SALTS = (
    _delete_salts("owner", "scope", "subject", "kind"),
    _delete_salts("owner", "scope", "kind"),
)

_NO_SEAL = b""
"""A value that is not a valid seal."""


def append_entries(
    recording: Recording, time_ms: int, new_entries: Sequence[NewEntry], *, accept: bool = False
) -> Operation[None]:
    """Append entries to the record, in their order.

    Args:
        recording: Whether to record, and the keys for seals.
        time_ms: Time of the entries, in milliseconds since 1970.
        new_entries: The entries, of one or more chains.
        accept: Whether a chain is sealed again although its end was written without the key.
    """
    if not new_entries or not recording.is_enabled:
        return
    scopes: dict[tuple[str, str], list[NewEntry]] = {}
    for new_entry in new_entries:
        scopes.setdefault((new_entry.owner, new_entry.scope), []).append(new_entry)
    scope_rows = canonical_json([{"owner": owner, "scope": scope} for owner, scope in sorted(scopes)]).decode()
    locked = yield Execute(_LOCK_SCOPES, {"requested": scope_rows, "time_ms": time_ms, "nothing": b""})
    rows: list[Params] = []
    salts: list[Params] = []
    head_params: list[Params] = []
    for owner, scope, number, hash, signed_to, seal in locked:
        head = ChainHead(number, bytes(hash) if number else genesis_hash(owner, scope))
        is_ours = accept or number == 0 or recording.is_sealed(owner, scope, head, signed_to, seal)
        for new_entry in scopes[owner, scope]:
            salt = None if new_entry.content is None else urandom(SALT_BYTES)
            head, row = _next_entry(head, time_ms, new_entry, salt)
            rows.append(row)
            if salt is not None:
                salts.append({**row, "kind": new_entry.content_kind or new_entry.kind, "salt": salt})
        params = {"for_owner": owner, "for_scope": scope, "to_number": head.number, "to_hash": head.hash}
        head_params.append({**params, "seal": recording.seal(owner, scope, head, signed_to) if is_ours else _NO_SEAL})
    yield Execute(_INSERT_ENTRIES, rows)
    if salts:
        yield Execute(_INSERT_SALTS, salts)
    yield Execute(_UPDATE_HEAD, head_params)
    recording.unsigned_count += len(rows)


def _next_entry(head: ChainHead, time_ms: int, new_entry: NewEntry, salt: bytes | None) -> tuple[ChainHead, Params]:
    owner, scope, kind, subject, content, more, _ = new_entry
    entry_digest = None if salt is None or content is None else content_digest(salt, content)
    digest_hex = entry_digest.hex() if entry_digest is not None else None
    entry = Entry(number=head.number + 1, at=time_ms, kind=kind, subject=subject, digest=digest_hex, more=dict(more))
    hash = entry_hash(head.hash, entry)
    stored_fields = {
        "owner": owner,
        "scope": scope,
        "digest": entry_digest,
        "more": canonical_json(more) if more else None,
        "hash": hash,
    }
    return ChainHead(entry.number, hash), asdict(entry) | stored_fields


def record_removals(
    recording: Recording,
    time_ms: int,
    kind: str,
    removed: Iterable[RemovedContent],
    replacements: Mapping[tuple[str, str, str], Sequence[bytes]] | None = None,
) -> Operation[None]:
    """Record that contents were removed, and delete their salts.

    This is done even if recording is disabled now: the digests of earlier entries must not be open to guesses. Contents
    that were never recorded add no entry.

    Args:
        recording: The keys for seals.
        time_ms: Time of the removal, in milliseconds since 1970.
        kind: The reason: `deleted`, `expired` or `erased`.
        removed: The removed contents.
        replacements: Contents that are stored instead, by (owner, scope, subject).
    """
    by_subject: list[dict[str, Any]] = []
    by_kind: list[dict[str, Any]] = []
    for content in removed:
        (by_subject if content.subject is not None else by_kind).append(content._asdict())
    rows: list[Row] = []
    for statement, keys in ((_DELETE_SALTS, by_subject), (_DELETE_ALL_SALTS, by_kind)):
        if keys:
            rows += yield Execute(statement, {"requested": canonical_json(keys).decode()})
    enabled_recording = recording if recording.is_enabled else Recording(True, recording.signers)
    yield from append_entries(enabled_recording, time_ms, _removal_entries(kind, rows, replacements or {}))


def record_removals_of(params: Params, removed: Iterable[RemovedContent]) -> Operation[None]:
    """Call `record_removals` with the parameters of a deletion: `recording`, `now`, and `why` (default: `deleted`)."""
    yield from record_removals(
        params["recording"], to_milliseconds(params["now"]), params.get("why", "deleted"), removed
    )


def _removal_entries(
    kind: str, rows: Sequence[Row], replacements: Mapping[tuple[str, str, str], Sequence[bytes]]
) -> list[NewEntry]:
    """Build one entry for all removed contents of a scope, and an entry for each content that has a replacement."""
    new_entries: list[NewEntry] = []
    removed_by_scope: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for owner, scope, number, subject in sorted(rows, key=lambda row: (row[0], row[1], row[2])):
        if (content := replacements.get((owner, scope, subject))) is not None:
            new_entries.append(NewEntry(owner, scope, kind, subject, content, {"ends": [[number, number]]}, ENVELOPE))
        else:
            removed_by_scope.setdefault((owner, scope), []).append((number, subject))
    for (owner, scope), removed in removed_by_scope.items():
        subject = removed[0][1] if len(removed) == 1 else ""
        new_entries.append(
            NewEntry(owner, scope, kind, subject, None, {"ends": to_ranges(number for number, _ in removed)})
        )
    return new_entries


def decode_more(data: bytes | None) -> dict[str, Any]:
    """Decode the extra members of an entry.

    A value that is not canonical JSON was not written by Pellucid. It is returned as `{"unreadable": <hexadecimal>}`,
    which does not match the hash of the entry.
    """
    if data is None:
        return {}
    try:
        more = msgspec.json.decode(data, type=dict[str, Any])
        if more and canonical_json(more) == data:
            return more
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    return {"unreadable": bytes(data).hex()}


# ---------------------------------------------------------------------------------------------------------- checkpoints

CHAINS_PER_STEP = 200
"""Maximum number of chains that are signed in one transaction."""

_chain_ends = (
    sa.select(_S.c.owner, _S.c.scope, _S.c.number, _S.c.hash, _S.c.signed, _S.c.seal)
    .where(sa.tuple_(_S.c.owner, _S.c.scope) > sa.tuple_(param("after_owner"), param("after_scope")))
    .order_by(_S.c.owner, _S.c.scope)
    .limit(sa.literal_column(str(CHAINS_PER_STEP)))
)
_is_unsigned = sa.text("number > signed")
# A chain that is locked by a writer is signed the next time.
_UNSIGNED = Statement(_chain_ends.where(_is_unsigned).with_for_update(skip_locked=True))
_any_unsigned: sa.Select[Any] = sa.select(ONE).select_from(_S).where(_is_unsigned)
_ANY_UNSIGNED = Statement(_any_unsigned.order_by(_S.c.owner, _S.c.scope).limit(ONE))
_CHAIN_ENDS = Statement(_chain_ends.where(is_selected(_S)))
_newest_checkpoint = sa.select(_C.c.number, _C.c.serial, _C.c.body, _C.c.signature).limit(ONE)
_LAST_CHECKPOINT = Statement(_newest_checkpoint.order_by(_C.c.serial.desc()))
_LAST_CHECKPOINT_OF_OWNER = Statement(_newest_checkpoint.where(_C.c.owner == OWNER).order_by(_C.c.number.desc()))
_INSERT_CHECKPOINTS = Statement(sa.insert(_C))
_MARK_SIGNED = Statement(
    sa.update(_S).where(_this_scope).values(signed=param("up_to", sa.BigInteger), seal=param("seal", sa.LargeBinary))
)


class SigningResult(NamedTuple):
    """Result of one step of signing or accepting chains."""

    signed: int
    """Number of chains that are in a new checkpoint, or were accepted."""
    refused: int
    """Number of chains that were not signed, because their ends were written without the key."""
    after: Params | None = None
    """Parameters of the next step; None: this was the last one."""


has_unsigned = has_rows(_ANY_UNSIGNED)
"""Whether there is a chain with unsigned entries."""


def sign_chains(params: Params) -> Operation[SigningResult]:
    """Sign the next chains that have entries after the last checkpoint.

    Parameters: `recording`, `signer`, `time_ms` (since 1970), and `after_owner` and `after_scope`, where the
    step before ended.
    """
    rows = yield Execute(_UNSIGNED, params)
    sealed_rows = [row for row in rows if _is_sealed(params["recording"], row)]
    if sealed_rows:
        yield from _add_checkpoints(params["recording"], params["signer"], params["time_ms"], sealed_rows)
    return SigningResult(len(sealed_rows), len(rows) - len(sealed_rows), _next_position(rows))


def accept_chains(params: Params) -> Operation[SigningResult]:
    """Accept the next chain ends that were written without the key, with an entry `accepted` in each chain.

    Parameters: as `sign_chains`, without `signer`; `only_owner` and `only_scope` (or None) select chains.
    """
    rows = yield Execute(_CHAIN_ENDS, params)
    new_entries = [NewEntry(row[0], row[1], "accepted", "") for row in rows if not _is_sealed(params["recording"], row)]
    yield from append_entries(params["recording"], params["time_ms"], new_entries, accept=True)
    return SigningResult(len(new_entries), 0, _next_position(rows))


def _next_position(rows: list[Row]) -> Params | None:
    return {"after_owner": rows[-1][0], "after_scope": rows[-1][1]} if len(rows) == CHAINS_PER_STEP else None


def _is_sealed(recording: Recording, row: Row) -> bool:
    owner, scope, number, hash, signed_to, seal = row
    return recording.is_sealed(owner, scope, ChainHead(number, bytes(hash)), signed_to, seal)


def _add_checkpoints(recording: Recording, signer: Signer, time_ms: int, rows: list[Row]) -> Operation[None]:
    last = yield Execute(_LAST_CHECKPOINT, {})
    serial, before = (last[0][1], _checkpoint_hash(last[0])) if last else (0, "")
    checkpoint_rows: list[Params] = []
    signed_params: list[Params] = []
    for owner, of_owner in groupby(rows, lambda row: row[0]):
        heads = {scope: ChainHead(number, bytes(hash)) for _, scope, number, hash, _, _ in of_owner}
        last_of_owner = yield Execute(_LAST_CHECKPOINT_OF_OWNER, {"for_owner": owner})
        number, previous = (last_of_owner[0][0], _checkpoint_hash(last_of_owner[0])) if last_of_owner else (0, "")
        serial += 1
        checkpoint = Checkpoint(
            owner=owner,
            number=number + 1,
            previous=previous,
            serial=serial,
            before=before,
            at=time_ms,
            key=signer.id,
            heads={scope: (head.number, head.hash.hex()) for scope, head in heads.items()},
        )
        body, signature = checkpoint.body(), sign_checkpoint(signer, checkpoint).signature
        row = {"owner": owner, "number": number + 1, "serial": serial, "body": body, "signature": signature}
        checkpoint_rows.append(row)
        before = sha256(body + signature).hexdigest()
        for scope, head in heads.items():
            seal = recording.seal(owner, scope, head, head.number)
            signed_params.append({"for_owner": owner, "for_scope": scope, "up_to": head.number, "seal": seal})
    yield Execute(_INSERT_CHECKPOINTS, checkpoint_rows)
    yield Execute(_MARK_SIGNED, signed_params)


def _checkpoint_hash(row: Row) -> str:
    _, _, body, signature = row
    return sha256(bytes(body) + bytes(signature)).hexdigest()
