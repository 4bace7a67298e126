"""`store.record`: the tamper-evident record of stored contents (`pellucid.record`).

Entries are written in the transactions that store contents (`record_write`). This module signs the record, exports it,
and erases recorded contents.

Erased contents are deleted by their names in the record, and the record gets entries of the kind `erased`. In a space,
the contents of envelopes are erased and the envelopes keep their places. A conversation or a chat is deleted as a
whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlalchemy as sa

from ..record import Begin, ChainHead, KeyLine, Line, Signer, canonical_json
from ..record.lines import FORMAT
from . import chats, conversations, envelopes, record_export, record_write, responses, tables
from .database import StoreOperations
from .errors import StoreError
from .names import is_storable, return_if_unstorable
from .record_content import ENVELOPE, ITEM, RESPONSE
from .record_write import SigningResult, to_milliseconds
from .statement import (
    OWNER,
    BulkOperation,
    Execute,
    Operation,
    Params,
    Statement,
    for_each,
    json_list,
    param,
    read_rows,
)

SUBJECTS_PER_STEP = 200
"""Maximum number of contents that are erased in one transaction."""

_S, _K = tables.record_scopes, tables.record_salts
_OWNERS = Statement(sa.select(_S.c.owner).where(_S.c.scope == param("for_scope")).order_by(_S.c.owner))
_stored_contents = sa.select(_K.c.kind, _K.c.subject).where(_K.c.owner == OWNER, _K.c.scope == param("for_scope"))
_NEXT = Statement(
    _stored_contents.where(sa.tuple_(_K.c.subject, _K.c.kind) > sa.tuple_(param("after_subject"), param("after_kind")))
    .order_by(_K.c.subject, _K.c.kind)
    .limit(sa.literal_column(str(SUBJECTS_PER_STEP)))
)
_subjects = json_list("subjects")
_BY_SUBJECTS = Statement(
    _stored_contents.where(_K.c.subject.in_(sa.select(_subjects.postgresql.c.value))),
    sqlite=_stored_contents.where(_K.c.subject.in_(sa.select(_subjects.sqlite.c.value))),
)


_owners = read_rows(_OWNERS, lambda row: str(row[0]))
_next_subjects = read_rows(_NEXT, tuple[str, str])
"""Kind and subject of the next stored contents of a scope."""


@for_each
def _erase(params: Params) -> Operation[int]:
    """Erase `subjects` of a scope; return how many contents were erased."""
    removal = {**params, "why": "erased"}
    id = params["for_scope"].partition(":")[2]
    rows = yield Execute(_BY_SUBJECTS, {**params, "subjects": canonical_json(list(params["subjects"])).decode()})
    erased_count = 0
    for kind, subject in rows:
        if kind == RESPONSE:
            erased_count += yield from responses.delete({**removal, "for_id": subject})
        elif kind == ITEM:
            erased_count += yield from conversations.delete_entry({**removal, "for_id": id, "entry_id": subject})
    if seqs := tuple(int(subject) for kind, subject in rows if kind == ENVELOPE and subject.isdecimal()):
        erasure = envelopes.Erasure(params["for_owner"], id, seqs, to_milliseconds(params["now"]), params["recording"])
        erased_count += yield from envelopes.erase_envelopes(erasure)
    return erased_count


@for_each
def _erase_conversation(params: Params) -> Operation[None]:
    """Delete the conversation or chat itself, when no recorded content of it is left."""
    removal = {**params, "why": "erased"}
    yield from chats.delete(removal)
    yield from conversations.delete(removal)


_sign, _accept = for_each(record_write.sign_chains), for_each(record_write.accept_chains)


class _ExportStopped(Exception):
    """Ends an export whose receiver of lines failed."""


class RecordStore(StoreOperations):
    """Operations on the tamper-evident record: `store.record`."""

    async def sign(self, signer: Signer | None = None) -> SigningResult:
        """Make checkpoints of all chains that have new entries.

        Args:
            signer: The key; by default, the first key of `recording`, which also seals.

        Raises:
            ValueError: If there is no key.
            AlreadyStored: If another replica makes a checkpoint at the same time.
        """
        signer = signer or next(iter(self.recording.signers), None)
        if signer is None:
            raise ValueError("a checkpoint needs a key to sign it with")
        self.recording.unsigned_count = 0
        if not await self._database.read(record_write.has_unsigned, {}):
            return SigningResult(0, 0)
        return await self._in_steps(_sign, {"signer": signer})

    @return_if_unstorable(0)
    async def accept(self, *, owner: str | None = None, scope: str | None = None) -> int:
        """Accept and seal the ends of chains that were written without the key. Each chain gets an entry `accepted`.

        Args:
            owner: Only chains of this owner.
            scope: Only chains of this scope.

        Returns:
            The number of accepted chains.
        """
        return (await self._in_steps(_accept, {"only_owner": owner, "only_scope": scope})).signed

    async def _in_steps(self, op: BulkOperation[Params, SigningResult], params: Params) -> SigningResult:
        """Apply an operation to all chains, step by step."""
        signed = refused = 0
        after: Params | None = {"after_owner": "", "after_scope": ""}
        while after is not None:
            now = {"recording": self.recording, "time_ms": to_milliseconds(self._clock())}
            step = await self._database.write(op, {**params, **now, **after})
            signed, refused, after = signed + step.signed, refused + step.refused, step.after
        return SigningResult(signed, refused)

    async def export(
        self,
        write_line: Callable[[Line], None],
        *,
        owner: str | None = None,
        scope: str | None = None,
        keys: Sequence[KeyLine] = (),
    ) -> None:
        """Export the record line by line, as it is now.

        Args:
            write_line: Called with each line, in this thread or in another one. It must return quickly. Its exception
                ends the export, and is raised.
            owner: Only chains of this owner.
            scope: Only chains of this scope.
            keys: Public keys that are included in the export.
        """
        if not (is_storable(owner or "") and is_storable(scope or "")):
            owner, scope = "", "?"  # these do not exist
        has_begun = False
        failure: Exception | None = None

        def write_once(line: Line) -> None:
            # An exception of `write_line` is not an error of the store. If the store repeats the read, stop: no line
            # may be written twice.
            nonlocal has_begun, failure
            if isinstance(line, Begin):
                if has_begun:
                    raise _ExportStopped
                has_begun = True
            try:
                write_line(line)
            except Exception as error:
                failure = error
                raise _ExportStopped from None

        begin = Begin(format=FORMAT, at=to_milliseconds(self._clock()), owner=owner, scope=scope)
        try:
            await self._database.read(record_export.export, record_export.Export(write_once, begin, tuple(keys)))
        except _ExportStopped:
            raise failure or StoreError() from None

    @return_if_unstorable(None)
    async def head(self, owner: str, scope: str) -> ChainHead | None:
        """Return number and hash of the newest entry in the chain of a scope; None if there is no chain."""
        return await self._database.read(record_write.get_head, {"for_owner": owner, "for_scope": scope})

    @return_if_unstorable(())
    async def owners_of(self, scope: str) -> tuple[str, ...]:
        """Return the owners of scopes with this name."""
        return tuple(await self._database.read(_owners, {"for_scope": scope}))

    @return_if_unstorable(0)
    async def erase(self, owner: str, scope: str, subjects: Sequence[str] = ()) -> int:
        """Erase the contents of a scope.

        The record gets entries about it, and keeps the digests. Without salts, no guess can be compared with them. The
        end of a response that is in progress is not stored.

        Args:
            owner: Owner of the scope.
            scope: For example `conversation:ID`.
            subjects: Ids of contents, or sequence numbers of envelopes; if empty, all contents of the scope.

        Returns:
            The number of erased contents.
        """
        if not all(map(is_storable, subjects)):
            return 0
        scope_kind, _, id = scope.partition(":")
        params = {**self._params(owner, id), "for_scope": scope}
        if subjects:
            steps = [
                subjects[start : start + SUBJECTS_PER_STEP] for start in range(0, len(subjects), SUBJECTS_PER_STEP)
            ]
            return sum([await self._database.write(_erase, {**params, "subjects": step}) for step in steps])
        erased_count, after = 0, {"after_subject": "", "after_kind": ""}
        while next_subjects := await self._database.read(_next_subjects, {**params, **after}):
            step = list(dict.fromkeys(subject for _, subject in next_subjects))
            erased_count += await self._database.write(_erase, {**params, "subjects": step})
            after = dict(zip(("after_kind", "after_subject"), next_subjects[-1], strict=True))
        if scope_kind == "conversation":
            await self._database.write(_erase_conversation, params)
        return erased_count
