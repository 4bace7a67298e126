"""`store.spaces`: spaces, who is in them, and what was said there.

`rooms` is what a space is, `appends` how its log grows, `envelopes` and `walks` how the log is read. Where several
envelopes are asked for, a portion is given (`portions`), never more than so many bytes; `more` says if that is not all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..envelopes.reasoning import NameSet
from ..errors import RequestError
from ..record import Recording
from . import appends, correlation, envelopes, index_scans, search, space_rows
from .appends import Append, SpaceHead
from .envelopes import StoredEnvelope
from .errors import AlreadyStored, SpaceNotFound
from .index_scans import LogQuery
from .names import check_names, is_storable, return_if_unstorable
from .paging import EnvelopePage
from .record_write import to_milliseconds
from .space_rows import StoredParticipant, StoredSpace
from .statement import Database

ENVELOPES_PER_STEP = 100
"""So many envelopes are taken away in one transaction."""

_MAX_TIME_MS = 2**62


class Spaces:
    """`store.spaces`. Names of spaces are unique in the gateway; what is another owner's is not there."""

    def __init__(self, database: Database, clock: Callable[[], float], recording: Recording) -> None:
        self._database = database
        self._clock = clock
        self._recording = recording

    async def put(self, space: StoredSpace, participants: Sequence[StoredParticipant]) -> StoredSpace:
        """Make it; or give it these settings, and these participants.

        Of the participants who are there, those that have the space's origin and are not listed go; others stay. The
        version grows iff anything changed; the head stays. Raises `AlreadyStored` if the name is another owner's, or
        two participants have one id or one token."""
        check_names(owner=space.owner, name=space.name)
        write = _space_write(space, participants)
        try:
            return _space_or_raise(await self._database.write(space_rows.put, write))
        except AlreadyStored:
            # Perhaps another replica made it at this moment, or it was removed and something of it is left.
            await self.sweep(space.name)
            return _space_or_raise(await self._database.write(space_rows.put, write))

    async def add(self, owner: str, name: str, participants: Sequence[StoredParticipant]) -> StoredSpace:
        """More participants. Raises `AlreadyStored` for an id (or a token) that is there, `SpaceNotFound` if there is no
        such space."""
        if not (is_storable(owner) and is_storable(name)):
            raise SpaceNotFound(name)
        space = StoredSpace(owner=owner, name=name, created_at=0.0, settings=b"")
        return _space_or_raise(await self._database.write(space_rows.add, _space_write(space, participants)))

    @return_if_unstorable(None)
    async def get(self, name: str) -> StoredSpace | None:
        return await self._database.read(space_rows.get, {"for_name": name})

    @return_if_unstorable(())
    async def list(self, owner: str | None = None) -> tuple[StoredSpace, ...]:
        """By name; those of one owner, or all."""
        return await self._database.read(space_rows.list_spaces, {"for_owner": owner})

    @return_if_unstorable(())
    async def participants(self, owner: str, name: str) -> tuple[StoredParticipant, ...]:
        """By id."""
        return await self._database.read(space_rows.get_participants, space_rows.space_params(owner, name))

    async def find_by_token(self, token_hash: bytes) -> tuple[tuple[StoredSpace, StoredParticipant], ...]:
        """Whom a token names, in every space where it names somebody."""
        return await self._database.read(space_rows.find_by_token, {"token_hash": token_hash})

    @return_if_unstorable(False)
    async def remove(self, owner: str, name: str) -> bool:
        """With all that was said. Whether there was one. It is gone at once, and what is in it when this returns."""
        is_removed = await self._database.write(
            space_rows.mark_removed, {**space_rows.space_params(owner, name), "now": self._clock()}
        )
        await self._finish_removal(owner, name)
        return is_removed

    async def sweep(self, name: str | None = None) -> None:
        """Finish what a removal left that was broken off: of this space, or of all."""
        for owner, removed_name in await self._database.read(space_rows.removed_spaces, None):
            if name in (None, removed_name):
                await self._finish_removal(owner, removed_name)

    @return_if_unstorable(None)
    async def head(self, owner: str, name: str) -> SpaceHead | None:
        return await self._database.read(appends.get_head, space_rows.space_params(owner, name))

    async def append(self, append: Append) -> SpaceHead:
        """Append it, and say where the space is now. Raises `AppendConflict` (with `.head`, `.version`) if the space was
        elsewhere, `SpaceNotFound` if there is no such space; then nothing was done. After a `StoreError` nobody knows
        whether it was: the head and what is new tell."""
        if not (is_storable(append.owner) and is_storable(append.space)):
            raise SpaceNotFound(append.space)
        prepared = appends.prepare(append, self._recording, to_milliseconds(self._clock()))
        result = await self._database.write(appends.append, prepared)
        if not isinstance(result, SpaceHead):
            raise result
        return result

    async def page(
        self,
        owner: str,
        name: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 500,
        newest: bool = False,
        sender: str | None = None,
        kinds: Sequence[str] = (),
        within: str | None = None,
    ) -> EnvelopePage:
        """Those with after < seq < before, ascending: the first `limit` of them, or the last ones (`newest`).

        `kinds` may end in `/*`; any of them will do. `within`: whose place is this path, or below it."""
        log_query = LogQuery(
            owner=owner,
            name=name,
            after=after,
            before=before,
            limit=limit,
            newest=newest,
            sender=sender,
            kinds=kinds,
            within=within,
        )
        return await self._database.read(index_scans.read_log, log_query) if log_query.is_possible else EnvelopePage()

    @return_if_unstorable(None)
    async def get_envelope(self, owner: str, name: str, seq: int) -> StoredEnvelope | None:
        return await self._database.read(
            envelopes.get_envelope, {**space_rows.space_params(owner, name), "seq": envelopes.seq_or_zero(seq)}
        )

    @return_if_unstorable(None)
    async def get_envelope_by_id(
        self, owner: str, name: str, id: str, sender: str | None = None, *, before: int | None = None
    ) -> StoredEnvelope | None:
        """The newest with this id, of this sender if one is named, and below the seq `before`."""
        last = envelopes.MAX_SEQ
        params = {**space_rows.space_params(owner, name), "for_id": id, "sender": sender}
        return await self._database.read(
            envelopes.get_envelope_by_id, {**params, "before": last if before is None else max(0, min(before, last))}
        )

    async def find_correlated(
        self, owner: str, name: str, ids: Sequence[str], *, after: int = 0, limit: int = 500
    ) -> EnvelopePage:
        """Those that correlate to any of these ids, ascending, with seq > after: the first `limit`."""
        if not ids or not (is_storable(owner) and is_storable(name)):
            return EnvelopePage()
        return await self._database.read(
            correlation.find_correlated, correlation.CorrelationQuery(owner, name, tuple(ids), after, limit)
        )

    async def find_openers(
        self,
        owner: str,
        name: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 50,
        newest: bool = True,
    ) -> EnvelopePage:
        """What opened contexts, with after < seq < before: the newest first, or ascending."""
        if not (is_storable(owner) and is_storable(name)):
            return EnvelopePage()
        return await self._database.read(
            correlation.find_openers, correlation.OpenersQuery(owner, name, after, before, limit, newest)
        )

    @return_if_unstorable(1)
    async def first_seq_since(self, owner: str, name: str, at_ms: int) -> int:
        """The seq of the first envelope that was taken then or later; head + 1 if there is none."""
        return await self._database.read(
            envelopes.first_seq_since, {**space_rows.space_params(owner, name), "at": min(at_ms, _MAX_TIME_MS)}
        )

    async def existing_names(self, owner: str, name: str, names: NameSet) -> NameSet:
        """Which of these ids and paths are there; a path is, if something opened there once."""
        if not (is_storable(owner) and is_storable(name)):
            return NameSet()
        return await self._database.read(envelopes.existing_names, envelopes.NamesQuery(owner, name, names))

    async def search(
        self,
        owner: str,
        name: str,
        query: str,
        *,
        before: int | None = None,
        limit: int = 50,
        sender: str | None = None,
        kinds: Sequence[str] = (),
        within: str | None = None,
    ) -> EnvelopePage:
        """Those whose payload holds this in its strings, newest first (see `storage.search`), before the seq `before`.
        The other filters are those of `page`. Fast from three characters on."""
        log_query = LogQuery(
            owner=owner,
            name=name,
            before=before,
            limit=limit,
            sender=sender,
            kinds=kinds,
            within=within,
            query=search.replace_unstorable(query),
        )
        return await self._database.read(index_scans.search_log, log_query) if log_query.is_possible else EnvelopePage()

    @return_if_unstorable(None)
    async def state(self, owner: str, name: str) -> tuple[int, bytes] | None:
        """The seq as of which the newest snapshot is, and the snapshot."""
        return await self._database.read(appends.get_state, space_rows.space_params(owner, name))

    @return_if_unstorable(0)
    async def erase(self, owner: str, name: str, seqs: Sequence[int], *, at_ms: int) -> int:
        """Take away what these say: payload, unknown fields, what search finds. Id, kind, sender, recipients and place
        stay; `extra` is `{"erased": true}`. How many were there and not erased yet. `at` (ms) is for the record.

        Snapshots are not touched: keep one that is not older, for an erased envelope does not replay to the state
        that the whole one did."""
        erased_count = 0
        chosen = sorted({envelopes.seq_or_zero(seq) for seq in seqs})
        for first in range(0, len(chosen), ENVELOPES_PER_STEP):
            step_seqs = tuple(chosen[first : first + ENVELOPES_PER_STEP])
            erasure = envelopes.Erasure(owner, name, step_seqs, at_ms, self._recording)
            erased_count += await self._database.write(envelopes.erase, erasure)
        return erased_count

    async def _finish_removal(self, owner: str, name: str) -> None:
        params = space_rows.space_params(owner, name)
        removal = {**params, "most": ENVELOPES_PER_STEP, "now": self._clock(), "recording": self._recording}
        while await self._database.write(envelopes.remove, removal):
            pass
        while await self._database.write(correlation.remove, {**params, "most": ENVELOPES_PER_STEP}):
            pass
        await self._database.write(space_rows.delete_row, params)


def _space_write(space: StoredSpace, participants: Sequence[StoredParticipant]) -> space_rows.SpaceWrite:
    check_names(**{f"participants[{place}].id": one.id for place, one in enumerate(participants)})
    return space_rows.SpaceWrite(space, tuple(participants))


def _space_or_raise(answer: StoredSpace | RequestError | AlreadyStored) -> StoredSpace:
    if isinstance(answer, StoredSpace):
        return answer
    raise answer
