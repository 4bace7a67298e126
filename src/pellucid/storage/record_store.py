"""`store.record`: the tamper-evident record of what is stored (`pellucid.record`).

What is stored says so itself, in its own transaction (`record`). Here the record is read, signed, and erased from.

What is erased goes as if it were deleted, by the name that the record has for it, and the record says `erased`. Of a
space, what was said goes and its place stays; of a conversation or a chat, all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlalchemy as sa

from ..record import Begin, Head, KeyLine, Line, Recording, Signer, canonical
from ..record.lines import FORMAT
from . import chats, conversations, envelopes, record, record_export, responses, tables
from .contents import ENVELOPE, ITEM, RESPONSE
from .errors import StoreError
from .names import finds, storable
from .record import Signatures, milliseconds
from .statement import Ask, Bulk, Database, Op, Params, Statement, each, given, listed

STEP = 200
"""So many are erased in one transaction."""

_S, _K = tables.record_scopes, tables.record_salts
_OWNERS = Statement(sa.select(_S.c.owner).where(_S.c.scope == given("for_scope")).order_by(_S.c.owner))
_there = sa.select(_K.c.kind, _K.c.subject).where(_K.c.owner == given("for_owner"), _K.c.scope == given("for_scope"))
_NEXT = Statement(
    _there.where(sa.tuple_(_K.c.subject, _K.c.kind) > sa.tuple_(given("after_subject"), given("after_kind")))
    .order_by(_K.c.subject, _K.c.kind)
    .limit(sa.literal_column(str(STEP)))
)
_subjects = listed("subjects")
_THESE = Statement(
    _there.where(_K.c.subject.in_(sa.select(_subjects.postgresql.c.value))),
    sqlite=_there.where(_K.c.subject.in_(sa.select(_subjects.sqlite.c.value))),
)


def _owners(params: Params) -> Op[tuple[str, ...]]:
    return tuple(owner for (owner,) in (yield Ask(_OWNERS, params)))


def _next(params: Params) -> Op[list[tuple[str, str]]]:
    """Kind and subject of what is there of a scope, the next of it."""
    return [(kind, subject) for kind, subject in (yield Ask(_NEXT, params))]


def _erase(params: Params) -> Op[int]:
    """These `subjects` of a scope, as far as they are in it."""
    asked = {**params, "why": "erased"}
    id = params["for_scope"].partition(":")[2]
    rows = yield Ask(_THESE, {**params, "subjects": canonical(list(params["subjects"])).decode()})
    gone = 0
    for kind, subject in rows:
        if kind == RESPONSE:
            gone += yield from responses.delete({**asked, "for_id": subject})
        elif kind == ITEM:
            gone += yield from conversations.delete_entry({**asked, "for_id": id, "entry_id": subject})
    if seqs := tuple(int(subject) for kind, subject in rows if kind == ENVELOPE and subject.isdecimal()):
        at = milliseconds(params["now"])
        gone += yield from envelopes.erase_some(
            envelopes.Erasing(params["for_owner"], id, seqs, at, params["recording"])
        )
    return gone


def _erase_place(params: Params) -> Op[None]:
    """The conversation or chat itself, when nothing of it is left in the record."""
    asked = {**params, "why": "erased"}
    yield from chats.delete(asked)
    yield from conversations.delete(asked)


_SIGN_EACH, _ACCEPT_EACH = each(record.sign), each(record.accept)
_ERASE_EACH, _ERASE_PLACE_EACH = each(_erase), each(_erase_place)


class _Stopped(Exception):
    """Whoever is told does not want more."""


class Record:
    """`store.record`."""

    def __init__(self, database: Database, clock: Callable[[], float], recording: Recording) -> None:
        self._database = database
        self._clock = clock
        self.recording = recording

    async def sign(self, signer: Signer | None = None) -> Signatures:
        """Make checkpoints of all that went on since the last ones. `signer`: by default, who seals.

        Raises `AlreadyStored` when another replica does the same at this moment, `StoreError` as usual."""
        signer = signer or next(iter(self.recording.signers), None)
        if signer is None:
            raise ValueError("a checkpoint needs a key to sign it with")
        self.recording.waiting = 0
        if not await self._database.read(record.some, None):
            return Signatures(0, 0)
        return await self._through(_SIGN_EACH, {"signer": signer})

    @finds(0)
    async def accept(self, *, owner: str | None = None, scope: str | None = None) -> int:
        """Take the ends of chains that were written without the key as they are, and seal them; each chain says so. How
        many there were. Of everything, one owner's, or one scope."""
        return (await self._through(_ACCEPT_EACH, {"only_owner": owner, "only_scope": scope})).signed

    async def _through(self, op: Bulk[Params, Signatures], params: Params) -> Signatures:
        """All chains, step by step."""
        signed = refused = 0
        after: Params | None = {"after_owner": "", "after_scope": ""}
        while after is not None:
            now = {"recording": self.recording, "at": milliseconds(self._clock())}
            step = await self._database.write(op, {**params, **now, **after})
            signed, refused, after = signed + step.signed, refused + step.refused, step.after
        return Signatures(signed, refused)

    async def tell(
        self,
        tell: Callable[[Line], None],
        *,
        owner: str | None = None,
        scope: str | None = None,
        keys: Sequence[KeyLine] = (),
    ) -> None:
        """Give the record away line by line, as it is now: everything, one owner's, or one scope. `tell` is called in
        another thread, or in this one, and is not to take long."""
        if not (storable(owner or "") and storable(scope or "")):
            owner, scope = "", "?"  # which nobody has
        begun = False
        wrong: Exception | None = None

        def once(line: Line) -> None:
            # What `tell` does wrong is no fault of the store's; and nothing is told twice, though it is read so.
            nonlocal begun, wrong
            if isinstance(line, Begin):
                if begun:
                    raise _Stopped
                begun = True
            try:
                tell(line)
            except Exception as error:
                wrong = error
                raise _Stopped from None

        begin = Begin(format=FORMAT, at=milliseconds(self._clock()), owner=owner, scope=scope)
        try:
            await self._database.read(record_export.tell, record_export.Telling(once, begin, tuple(keys)))
        except _Stopped:
            raise wrong or StoreError() from None

    @finds(None)
    async def head(self, owner: str, scope: str) -> Head | None:
        """How far the chain of a scope has come: the number and hash of its newest entry. None: there is none."""
        return await self._database.read(record.head, {"for_owner": owner, "for_scope": scope})

    @finds(())
    async def owners(self, scope: str) -> tuple[str, ...]:
        """Whose scopes are called so."""
        return await self._database.read(_owners, {"for_scope": scope})

    @finds(0)
    async def erase(self, owner: str, scope: str, subjects: Sequence[str] = ()) -> int:
        """Take away what was stored in a scope: these, or all of it. How many contents went. The record says that they
        did, and keeps their digests, which can be compared with nothing any more.

        What is being answered at the moment is not over, and comes to nothing: its end is kept nowhere."""
        if not all(map(storable, subjects)):
            return 0
        where, _, id = scope.partition(":")
        params: Params = {"for_owner": owner, "for_scope": scope, "now": self._clock(), "recording": self.recording}
        if subjects:
            steps = [subjects[at : at + STEP] for at in range(0, len(subjects), STEP)]
            return sum([await self._database.write(_ERASE_EACH, {**params, "subjects": step}) for step in steps])
        gone, after = 0, {"after_subject": "", "after_kind": ""}
        while some := await self._database.read(_next, {**params, **after}):
            step = list(dict.fromkeys(subject for _, subject in some))
            gone += await self._database.write(_ERASE_EACH, {**params, "subjects": step})
            after = dict(zip(("after_kind", "after_subject"), some[-1], strict=True))
        if where == "conversation":
            await self._database.write(_ERASE_PLACE_EACH, {**params, "for_id": id})
        return gone
