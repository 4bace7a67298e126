"""Taking away what was recorded, by the name that the record has for it.

It goes as if it were deleted, and the record says `erased`. Of a space, what was said goes and its place stays; of a
conversation or a chat, all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from ..record import Recording, canonical
from . import chats, conversations, envelopes, responses, tables
from .contents import ENVELOPE, ITEM, RESPONSE
from .record import milliseconds
from .statement import Ask, Database, Op, Params, Statement, each, given, written

STEP = 200
"""So many go in one transaction."""

_S, _K = tables.record_scopes, tables.record_salts
_owner, _scope = given("for_owner"), given("for_scope")
_OWNERS = Statement(sa.select(_S.c.owner).where(_S.c.scope == _scope).order_by(_S.c.owner))
_after = given("after_subject"), given("after_kind")
_KEPT = Statement(
    sa.select(_K.c.kind, _K.c.subject)
    .where(_K.c.owner == _owner, _K.c.scope == _scope, sa.tuple_(_K.c.subject, _K.c.kind) > sa.tuple_(*_after))
    .order_by(_K.c.subject, _K.c.kind)
    .limit(sa.literal_column(str(STEP)))
)
_these = "SELECT kind, subject FROM record_salts WHERE owner = :for_owner AND scope = :for_scope AND subject IN "
_named = {"for_owner": sa.Text, "for_scope": sa.Text, "subjects": sa.Text}
_THESE = Statement(
    written(_these + "(SELECT json_array_elements_text(CAST(:subjects AS json)))", **_named),
    sqlite=written(_these + "(SELECT value FROM json_each(:subjects))", **_named),
)


class Kept(NamedTuple):
    """Something of which the content is there."""

    kind: str
    subject: str


def owners(params: Params) -> Op[tuple[str, ...]]:
    return tuple(owner for (owner,) in (yield Ask(_OWNERS, params)))


def _kept(params: Params) -> Op[list[Kept]]:
    """What is there of a scope, the next of it."""
    return [Kept(*row) for row in (yield Ask(_KEPT, params))]


def _erase(params: Params) -> Op[int]:
    """These `subjects` of a scope, as far as they are in it."""
    asked = {**params, "why": "erased"}
    id = params["for_scope"].partition(":")[2]
    rows = yield Ask(_THESE, {**params, "subjects": canonical(list(params["subjects"])).decode()})
    there = [Kept(*row) for row in rows]
    gone = 0
    for kept in there:
        if kept.kind == RESPONSE:
            gone += yield from responses.delete({**asked, "for_id": kept.subject})
        elif kept.kind == ITEM:
            gone += yield from conversations.delete_entry({**asked, "for_id": id, "entry_id": kept.subject})
    if seqs := tuple(int(kept.subject) for kept in there if kept.kind == ENVELOPE and kept.subject.isdecimal()):
        at = milliseconds(params["now"])
        gone += yield from envelopes.erase_some(
            envelopes.Erasing(params["for_owner"], id, seqs, at, params["recording"])
        )
    return gone


def _whole(params: Params) -> Op[None]:
    """The conversation or chat itself, when nothing of it is left in the record."""
    asked = {**params, "why": "erased"}
    yield from chats.delete(asked)
    yield from conversations.delete(asked)


_ERASE_EACH, _WHOLE_EACH = each(_erase), each(_whole)


async def erase(
    database: Database, recording: Recording, now: float, owner: str, scope: str, subjects: Sequence[str]
) -> int:
    where, _, id = scope.partition(":")
    params: Params = {"for_owner": owner, "for_scope": scope, "now": now, "recording": recording}
    if subjects:
        steps = [subjects[at : at + STEP] for at in range(0, len(subjects), STEP)]
        return sum([await database.write(_ERASE_EACH, {**params, "subjects": step}) for step in steps])
    gone, after = 0, {"after_subject": "", "after_kind": ""}
    while some := await database.read(_kept, {**params, **after}):
        subjects = list(dict.fromkeys(kept.subject for kept in some))
        gone += await database.write(_ERASE_EACH, {**params, "subjects": subjects})
        after = {"after_subject": some[-1].subject, "after_kind": some[-1].kind}
    if where == "conversation":
        await database.write(_WHOLE_EACH, {**params, "for_id": id})
    return gone
