"""`store.record`: signs, erases and exports the record of stored contents (`record_write` writes its entries).

* Only chain ends that this gateway's writers wrote are signed; their seals prove it. A chain whose end was changed
  without the key remains unsigned, and is counted.
* If two replicas make a checkpoint at the same time, one succeeds: the numbers of checkpoints have no gaps.
* Contents are erased by their names in the record, which gets entries of the kind `erased`. In a space, the envelopes
  keep their places. A conversation or a chat is deleted as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

import sqlalchemy as sa

from ..record import ChainHead, KeyLine, Line, Recording
from ..record.chain import FORMAT, Begin, Checkpoint, checkpoint_hash
from . import chats, conversations, envelopes, record_write, responses, tables
from .database import StoreOperations
from .names import is_storable, return_if_unstorable
from .record_export import SCOPES, Export, ExportStopped
from .record_write import ENVELOPE, ITEM, RESPONSE, NewEntry, conversation_scope, head_of, to_milliseconds
from .statement import BulkOperation, Execute, Operation, Params, Row, Statement, for_each, raw_sql, read_rows

STEP_SIZE = 200
"""Maximum number of chains that are signed, or contents that are erased, in one transaction."""

_heads = "SELECT owner, scope, number, hash, signed, seal FROM record_scopes WHERE"
_HEAD = Statement(raw_sql(f"{_heads} owner = :owner AND scope = :scope"))
_unsigned = f"{_heads} number > signed"
_ANY_UNSIGNED = Statement(raw_sql(f"{_unsigned} ORDER BY owner, scope LIMIT 1"))
_next_unsigned = (
    f"{_unsigned} AND (owner, scope) > (:after_owner, :after_scope) ORDER BY owner, scope LIMIT {STEP_SIZE}"
)
# A chain that is locked by a writer is signed the next time.
_UNSIGNED = Statement(raw_sql(f"{_next_unsigned} FOR UPDATE SKIP LOCKED"), sqlite=raw_sql(_next_unsigned))
_checkpoints = "SELECT number, serial, body, signature FROM record_checkpoints"
_LAST_CHECKPOINT = Statement(raw_sql(f"{_checkpoints} ORDER BY serial DESC LIMIT 1"))
_LAST_CHECKPOINT_OF_OWNER = Statement(raw_sql(f"{_checkpoints} WHERE owner = :owner ORDER BY number DESC LIMIT 1"))
_INSERT_CHECKPOINTS = Statement(sa.insert(tables.record_checkpoints))
_contents = "SELECT subject, kind FROM record_salts WHERE owner = :for_owner AND scope = :for_scope AND"
_CONTENTS_OF_SUBJECT = Statement(raw_sql(f"{_contents} subject = :subject"))
_CONTENTS = Statement(
    raw_sql(f"{_contents} (subject, kind) > (:after_subject, :after_kind) ORDER BY subject, kind LIMIT {STEP_SIZE}")
)
_OWNERS = Statement(raw_sql("SELECT owner FROM record_scopes WHERE scope = :scope ORDER BY owner"))
_read_unsigned, _read_heads = read_rows(_ANY_UNSIGNED, head_of), read_rows(_HEAD, head_of)
_read_owners = read_rows(_OWNERS, lambda row: str(row[0]))


class StepResult(NamedTuple):
    """Result of one step over chains or contents, or of all steps."""

    done: int  # number of chains that were signed or accepted, or of contents that were erased
    refused: int = 0  # number of chains that were not signed, because their ends were written without the key
    after: Params | None = None  # parameters of the next step; None: this was the last one


def _next_step(rows: list[Row], *names: str) -> Params | None:
    return dict(zip(names, rows[-1], strict=False)) if len(rows) == STEP_SIZE else None


@for_each
def _sign(params: Params) -> Operation[StepResult]:
    """Sign the next chains that have entries after the last checkpoint."""
    rows = yield Execute(_UNSIGNED, params)
    heads = [head for head in map(head_of, rows) if params["recording"].is_sealed(head)]
    if heads:
        yield from _add_checkpoints(params["recording"], to_milliseconds(params["now"]), heads)
    return StepResult(len(heads), len(rows) - len(heads), _next_step(rows, "after_owner", "after_scope"))


def _add_checkpoints(recording: Recording, time_ms: int, heads: list[ChainHead]) -> Operation[None]:
    signer = recording.signers[0]
    _, serial, before = _last_checkpoint((yield Execute(_LAST_CHECKPOINT, {})))
    rows: list[Params] = []
    for owner, of_owner in groupby(heads, lambda head: head.owner):
        number, _, previous = _last_checkpoint((yield Execute(_LAST_CHECKPOINT_OF_OWNER, {"owner": owner})))
        number, serial = number + 1, serial + 1
        body = Checkpoint(
            owner=owner,
            number=number,
            previous=previous,
            serial=serial,
            before=before,
            at=time_ms,
            key=signer.id,
            heads={head.scope: (head.number, head.hash.hex()) for head in of_owner},
        ).body()
        signature = signer.sign(body)
        before = checkpoint_hash(body, signature)
        rows.append({"owner": owner, "number": number, "serial": serial, "body": body, "signature": signature})
    yield Execute(_INSERT_CHECKPOINTS, rows)
    signed = [recording.seal(head._replace(signed=head.number)) for head in heads]
    yield Execute(record_write.UPDATE_HEAD, [head._asdict() for head in signed])


def _last_checkpoint(rows: list[Row]) -> tuple[int, int, str]:
    """Return the number, the serial number and the hash of a checkpoint; zeros and no hash if there is none."""
    return (*rows[0][:2], checkpoint_hash(bytes(rows[0][2]), bytes(rows[0][3]))) if rows else (0, 0, "")


@for_each
def _accept(params: Params) -> Operation[StepResult]:
    """Accept the next chain ends that were written without the key, with an entry `accepted` in each chain."""
    rows = yield Execute(SCOPES.statement, params)
    heads = [head_of((*row[:5], row[6])) for row in rows]
    unsealed = [head for head in heads if not params["recording"].is_sealed(head)]
    accepted = [NewEntry(head.owner, head.scope, "accepted", "") for head in unsealed]
    yield from record_write.append_entries(params["recording"], to_milliseconds(params["now"]), accepted, accept=True)
    return StepResult(len(accepted), 0, _next_step(rows, "after_owner", "after_scope"))


@for_each
def _erase(params: Params) -> Operation[StepResult]:
    """Erase `subjects` of a scope; or its next contents, if there are no subjects."""
    rows: list[Row] = []
    for subject in set(params["subjects"]):
        rows += yield Execute(_CONTENTS_OF_SUBJECT, {**params, "subject": subject})
    if not params["subjects"]:
        rows = yield Execute(_CONTENTS, params)
    erased = 0
    for subject, kind in sorted(rows):
        if kind == RESPONSE:
            erased += yield from responses.delete({**params, "for_id": subject})
        elif kind == ITEM:
            erased += yield from conversations.delete_entry({**params, "entry_id": subject})
    if seqs := tuple(int(subject) for subject, kind in sorted(rows) if kind == ENVELOPE and subject.isdecimal()):
        owner, name, recording = params["for_owner"], params["for_id"], params["recording"]
        erasure = envelopes.Erasure(owner, name, seqs, to_milliseconds(params["now"]), recording)
        erased += yield from envelopes.erase_envelopes(erasure)
    if params["subjects"]:
        return StepResult(erased)
    after = _next_step(rows, "after_subject", "after_kind")
    if after is None and params["for_scope"] == conversation_scope(params["for_id"]):
        yield from chats.delete(params)
        yield from conversations.delete(params)
    return StepResult(erased, 0, after)


class RecordStore(StoreOperations):
    """Operations on the tamper-evident record: `store.record`."""

    async def sign(self) -> StepResult:
        """Make checkpoints of all chains that have new entries.

        Raises:
            ValueError: If there is no key.
            AlreadyStored: If another replica makes a checkpoint at the same time.
        """
        if not self.recording.signers:
            raise ValueError("a checkpoint needs a key to sign it with")
        self.recording.unsigned_count = 0
        if not await self._database.read(_read_unsigned, {}):
            return StepResult(0)
        return await self._in_steps(_sign, {"after_owner": "", "after_scope": ""})

    @return_if_unstorable(0)
    async def accept(self, *, owner: str | None = None, scope: str | None = None) -> int:
        """Accept and seal the ends of chains, of an owner or a scope, that were written without the key.

        Each chain gets an entry `accepted`. Return the number of these chains.
        """
        params = {"only_owner": owner, "only_scope": scope, "after_owner": "", "after_scope": ""}
        return (await self._in_steps(_accept, params)).done

    @return_if_unstorable(0)
    async def erase(self, owner: str, scope: str, subjects: Sequence[str] = ()) -> int:
        """Erase contents of a scope (for example `conversation:ID`); return their number.

        `subjects` are ids of contents, or sequence numbers of envelopes; if empty, all contents are erased. The record
        gets entries about it, and keeps the digests. The end of a response that is in progress is not stored.
        """
        if not all(map(is_storable, subjects)):
            return 0
        params = {"for_owner": owner, "for_id": scope.partition(":")[2], "for_scope": scope, "why": "erased"}
        params |= {"after_subject": "", "after_kind": ""}
        steps = [subjects[start : start + STEP_SIZE] for start in range(0, len(subjects) or 1, STEP_SIZE)]
        return sum([(await self._in_steps(_erase, {**params, "subjects": step})).done for step in steps])

    async def _in_steps(self, op: BulkOperation[Params, StepResult], params: Params) -> StepResult:
        done = refused = 0
        after: Params | None = {}
        while after is not None:
            params = {**params, **after, "now": self._clock(), "recording": self.recording}
            step = await self._database.write(op, params)
            done, refused, after = done + step.done, refused + step.refused, step.after
        return StepResult(done, refused)

    async def export(
        self,
        write_line: Callable[[Line], object],
        *,
        owner: str | None = None,
        scope: str | None = None,
        keys: Sequence[KeyLine] = (),
    ) -> None:
        """Export the record as it is now, of everything or of an owner or a scope, with public keys.

        `write_line` is called with each line, in this thread or in another one. It must return quickly. Its exception
        ends the export, and is raised.
        """
        if not (is_storable(owner or "") and is_storable(scope or "")):
            owner, scope = "", "?"  # these do not exist
        begin = Begin(format=FORMAT, at=to_milliseconds(self._clock()), owner=owner, scope=scope)
        try:
            await self._database.read(Export.run, Export(write_line, begin, keys))
        except ExportStopped as stopped:
            raise stopped.__cause__ or stopped from None

    @return_if_unstorable(None)
    async def head(self, owner: str, scope: str) -> ChainHead | None:
        """Return the head of the chain of a scope; None if there is no chain."""
        heads = await self._database.read(_read_heads, {"owner": owner, "scope": scope})
        return heads[0] if heads and heads[0].number else None

    @return_if_unstorable(())
    async def owners_of(self, scope: str) -> tuple[str, ...]:
        """Return the owners of scopes with this name."""
        return tuple(await self._database.read(_read_owners, {"scope": scope}))
