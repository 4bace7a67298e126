"""`store.record`: the tamper-evident record of what is stored (`pellucid.record`).

What is stored says so itself, in its own transaction (`record`). Here the record is read, signed, and erased from.

What is erased goes as if it were deleted, by the name that the record has for it, and the record says `erased`. Of a
space, what was said goes and its place stays; of a conversation or a chat, all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlalchemy as sa

from ..record import Begin, ChainHead, KeyLine, Line, Recording, Signer, canonical_json
from ..record.lines import FORMAT
from . import chats, conversations, envelopes, record_export, record_write, responses, tables
from .errors import StoreError
from .names import is_storable, return_if_unstorable
from .record_content import ENVELOPE, ITEM, RESPONSE
from .record_write import SigningResult, to_milliseconds
from .statement import BulkOperation, Database, Execute, Operation, Params, Statement, for_each, json_list, param

SUBJECTS_PER_STEP = 200
"""So many are erased in one transaction."""

_S, _K = tables.record_scopes, tables.record_salts
_OWNERS = Statement(sa.select(_S.c.owner).where(_S.c.scope == param("for_scope")).order_by(_S.c.owner))
_stored_contents = sa.select(_K.c.kind, _K.c.subject).where(
    _K.c.owner == param("for_owner"), _K.c.scope == param("for_scope")
)
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


def _owners(params: Params) -> Operation[tuple[str, ...]]:
    return tuple(owner for (owner,) in (yield Execute(_OWNERS, params)))


def _next_subjects(params: Params) -> Operation[list[tuple[str, str]]]:
    """Kind and subject of what is there of a scope, the next of it."""
    return [(kind, subject) for kind, subject in (yield Execute(_NEXT, params))]


def _erase(params: Params) -> Operation[int]:
    """These `subjects` of a scope, as far as they are in it."""
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
        at = to_milliseconds(params["now"])
        erased_count += yield from envelopes.erase_envelopes(
            envelopes.Erasure(params["for_owner"], id, seqs, at, params["recording"])
        )
    return erased_count


def _erase_conversation(params: Params) -> Operation[None]:
    """The conversation or chat itself, when nothing of it is left in the record."""
    removal = {**params, "why": "erased"}
    yield from chats.delete(removal)
    yield from conversations.delete(removal)


_SIGN_EACH, _ACCEPT_EACH = for_each(record_write.sign_chains), for_each(record_write.accept_chains)
_ERASE_EACH, _ERASE_CONVERSATION_EACH = for_each(_erase), for_each(_erase_conversation)


class _ExportStopped(Exception):
    """Whoever is told does not want more."""


class RecordStore:
    """`store.record`."""

    def __init__(self, database: Database, clock: Callable[[], float], recording: Recording) -> None:
        self._database = database
        self._clock = clock
        self.recording = recording

    async def sign(self, signer: Signer | None = None) -> SigningResult:
        """Make checkpoints of all that went on since the last ones. `signer`: by default, who seals.

        Raises `AlreadyStored` when another replica does the same at this moment, `StoreError` as usual."""
        signer = signer or next(iter(self.recording.signers), None)
        if signer is None:
            raise ValueError("a checkpoint needs a key to sign it with")
        self.recording.unsigned_count = 0
        if not await self._database.read(record_write.has_unsigned, None):
            return SigningResult(0, 0)
        return await self._in_steps(_SIGN_EACH, {"signer": signer})

    @return_if_unstorable(0)
    async def accept(self, *, owner: str | None = None, scope: str | None = None) -> int:
        """Take the ends of chains that were written without the key as they are, and seal them; each chain says so. How
        many there were. Of everything, one owner's, or one scope."""
        return (await self._in_steps(_ACCEPT_EACH, {"only_owner": owner, "only_scope": scope})).signed

    async def _in_steps(self, op: BulkOperation[Params, SigningResult], params: Params) -> SigningResult:
        """All chains, step by step."""
        signed = refused = 0
        after: Params | None = {"after_owner": "", "after_scope": ""}
        while after is not None:
            now = {"recording": self.recording, "at": to_milliseconds(self._clock())}
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
        """Give the record away line by line, as it is now: everything, one owner's, or one scope. `tell` is called in
        another thread, or in this one, and is not to take long."""
        if not (is_storable(owner or "") and is_storable(scope or "")):
            owner, scope = "", "?"  # which nobody has
        has_begun = False
        failure: Exception | None = None

        def write_once(line: Line) -> None:
            # What `tell` does wrong is no fault of the store's; and nothing is told twice, though it is read so.
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
        """How far the chain of a scope has come: the number and hash of its newest entry. None: there is none."""
        return await self._database.read(record_write.get_head, {"for_owner": owner, "for_scope": scope})

    @return_if_unstorable(())
    async def owners_of(self, scope: str) -> tuple[str, ...]:
        """Whose scopes are called so."""
        return await self._database.read(_owners, {"for_scope": scope})

    @return_if_unstorable(0)
    async def erase(self, owner: str, scope: str, subjects: Sequence[str] = ()) -> int:
        """Take away what was stored in a scope: these, or all of it. How many contents went. The record says that they
        did, and keeps their digests, which can be compared with nothing any more.

        What is being answered at the moment is not over, and comes to nothing: its end is kept nowhere."""
        if not all(map(is_storable, subjects)):
            return 0
        scope_kind, _, id = scope.partition(":")
        params: Params = {"for_owner": owner, "for_scope": scope, "now": self._clock(), "recording": self.recording}
        if subjects:
            steps = [subjects[at : at + SUBJECTS_PER_STEP] for at in range(0, len(subjects), SUBJECTS_PER_STEP)]
            return sum([await self._database.write(_ERASE_EACH, {**params, "subjects": step}) for step in steps])
        erased_count, after = 0, {"after_subject": "", "after_kind": ""}
        while next_subjects := await self._database.read(_next_subjects, {**params, **after}):
            step = list(dict.fromkeys(subject for _, subject in next_subjects))
            erased_count += await self._database.write(_ERASE_EACH, {**params, "subjects": step})
            after = dict(zip(("after_kind", "after_subject"), next_subjects[-1], strict=True))
        if scope_kind == "conversation":
            await self._database.write(_ERASE_CONVERSATION_EACH, {**params, "for_id": id})
        return erased_count
