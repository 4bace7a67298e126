"""`store.spaces`: spaces, their participants, and their logs of envelopes.

`space_rows` has the operations on spaces and participants, `appends` those that append to the log, and `space_log`
those that read it. Several envelopes are returned as an `EnvelopePage`, whose size in bytes is limited; `has_more`
shows whether there may be more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..envelopes.reasoning import NameSet
from ..errors import RequestError
from . import appends, envelopes, search, space_log, space_rows
from .appends import Append, SpaceHead
from .database import StoreOperations
from .envelopes import StoredEnvelope
from .errors import AlreadyStored, SpaceNotFound
from .names import check_names, is_storable, return_if_unstorable
from .record_write import to_milliseconds
from .space_log import EnvelopePage, LogQuery
from .space_rows import StoredParticipant, StoredSpace, space_params
from .statement import Operation

ENVELOPES_PER_STEP = 100
"""Maximum number of envelopes that are erased or deleted in one transaction."""

_MAX_TIME_MS = 2**62


class Spaces(StoreOperations):
    """Operations on spaces: `store.spaces`. Names of spaces are unique in the gateway, for all owners.

    For another owner than its own, a space does not exist.
    """

    async def put(self, space: StoredSpace, participants: Sequence[StoredParticipant]) -> StoredSpace:
        """Create a space, or update its settings and participants.

        Existing participants with the origin of `space` that are not in `participants` are deleted; others remain. The
        version increases if anything changed. The head does not change.

        Returns:
            The space as it is stored now.

        Raises:
            AlreadyStored: If the name belongs to another owner, or two participants have the same id or token.
        """
        check_names(owner=space.owner, name=space.name)
        write = _space_write(space, participants)
        try:
            return _space_or_raise(await self._database.write(space_rows.put, write))
        except AlreadyStored:
            # Perhaps another replica created it at this moment, or it was removed and is not completely deleted.
            await self.sweep(space.name)
            return _space_or_raise(await self._database.write(space_rows.put, write))

    async def add(self, owner: str, name: str, participants: Sequence[StoredParticipant]) -> StoredSpace:
        """Add participants to a space; return the space.

        Raises:
            AlreadyStored: If a participant with one of the ids or tokens exists.
            SpaceNotFound: If the space does not exist.
        """
        if not (is_storable(owner) and is_storable(name)):
            raise SpaceNotFound(name)
        space = StoredSpace(owner=owner, name=name, created_at=0.0, settings=b"")
        return _space_or_raise(await self._database.write(space_rows.add, _space_write(space, participants)))

    @return_if_unstorable(None)
    async def get(self, name: str) -> StoredSpace | None:
        """Return a space by its name; None if it does not exist."""
        return await self._database.read(space_rows.get, {"for_name": name})

    @return_if_unstorable(())
    async def list(self, owner: str | None = None) -> tuple[StoredSpace, ...]:
        """Return all spaces, or those of one owner, ordered by name."""
        read = space_rows.list_all if owner is None else space_rows.list_of_owner
        return tuple(await self._database.read(read, {"for_owner": owner}))

    @return_if_unstorable(())
    async def participants(self, owner: str, name: str) -> tuple[StoredParticipant, ...]:
        """Return the participants of a space, ordered by id."""
        return tuple(await self._database.read(space_rows.get_participants, space_params(owner, name)))

    async def find_by_token(self, token_hash: bytes) -> tuple[tuple[StoredSpace, StoredParticipant], ...]:
        """Return each participant that has this token, with its space."""
        return tuple(await self._database.read(space_rows.find_by_token, {"token_hash": token_hash}))

    @return_if_unstorable(False)
    async def remove(self, owner: str, name: str) -> bool:
        """Remove a space with its log; return whether it existed.

        The space is invisible at once. Its envelopes are deleted when this returns.
        """
        is_removed = await self._database.write(
            space_rows.mark_removed, {**space_params(owner, name), "now": self._clock()}
        )
        await self._finish_removal(owner, name)
        return is_removed

    async def sweep(self, name: str | None = None) -> None:
        """Complete interrupted removals: of the space `name`, or of all spaces."""
        for owner, removed_name in await self._database.read(space_rows.removed_spaces, {}):
            if name in (None, removed_name):
                await self._finish_removal(owner, removed_name)

    @return_if_unstorable(None)
    async def begin_webhook(self, owner: str, name: str, webhook: str) -> int | None:
        """Return the number of the last envelope that a webhook of a space delivered.

        A new one begins at the head of the space. None: the space does not exist.
        """
        return await self._database.write(space_rows.begin_webhook, {**space_params(owner, name), "for_id": webhook})

    @return_if_unstorable(False)
    async def move_webhook(self, owner: str, name: str, webhook: str, position: int) -> bool:
        """Store what a webhook delivered.

        Returns:
            False if the space was removed since it began, or another process has delivered more.
        """
        params = {**space_params(owner, name), "for_id": webhook, "to_position": position}
        return await self._database.write(space_rows.move_webhook, params)

    @return_if_unstorable(None)
    async def head(self, owner: str, name: str) -> SpaceHead | None:
        """Return the end of a space's log, and its version; None if the space does not exist."""
        return await self._database.read(appends.get_head, space_params(owner, name))

    async def heads(self, names: Sequence[str]) -> dict[tuple[str, str], SpaceHead]:
        """Return the heads of those of these spaces that exist, by owner and name."""
        return await self._database.read(appends.get_heads, tuple(names))

    async def append(self, append: Append) -> SpaceHead:
        """Append envelopes to the log of a space; return its new head.

        Raises:
            AppendConflict: If the space has another head or version (its `.head` and `.version`). Nothing was appended.
            IdsExist: If one of `new_ids` is in the log. Nothing was appended.
            SpaceNotFound: If the space does not exist.
            StoreError: If the database failed. Then it is not known whether the envelopes were appended; the caller
                must read the head and the new envelopes.
        """
        if not (is_storable(append.owner) and is_storable(append.space)):
            raise SpaceNotFound(append.space)
        prepared = appends.prepare(append, self.recording, to_milliseconds(self._clock()))
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
        """Return envelopes with after < seq < before, in ascending order.

        Args:
            owner: Owner of the space.
            name: Name of the space.
            after: Lower bound of sequence numbers (exclusive).
            before: Upper bound of sequence numbers (exclusive); None: no bound.
            limit: Maximum number of envelopes.
            newest: Whether the last envelopes of the range are returned, instead of the first.
            sender: Only envelopes of this sender.
            kinds: Only envelopes of one of these kinds; a kind may end in `/*`.
            within: Only envelopes in the context with this path, or below it.
        """
        query = LogQuery(
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
        return await self._read_page(space_log.read_log, query)

    @return_if_unstorable(None)
    async def get_envelope(self, owner: str, name: str, seq: int) -> StoredEnvelope | None:
        """Return an envelope by its sequence number; None if it does not exist."""
        params = {**space_params(owner, name), "seq": _seq_or_zero(seq)}
        return await self._database.read(space_log.get_envelope, params)

    @return_if_unstorable(None)
    async def get_envelope_by_id(
        self, owner: str, name: str, id: str, sender: str | None = None, *, before: int | None = None
    ) -> StoredEnvelope | None:
        """Return the newest envelope with this id, before the sequence number `before`; only of `sender`, if given."""
        params = {**space_params(owner, name), "for_id": id, "sender": sender, "before": space_log.seq_limit(before)}
        return await self._database.read(space_log.get_envelope_by_id, params)

    async def find_correlated(
        self, owner: str, name: str, ids: Sequence[str], *, after: int = 0, limit: int = 500
    ) -> EnvelopePage:
        """Return the first `limit` envelopes after the number `after` that correlate to one of the ids, ascending."""
        query = LogQuery(owner=owner, name=name, correlation_ids=ids, after=after, limit=limit)
        return await self._read_page(space_log.find_correlated, query)

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
        """Return envelopes that opened contexts, with after < seq < before: newest first, or in ascending order."""
        query = LogQuery(owner=owner, name=name, after=after, before=before, limit=limit, newest=newest)
        return await self._read_page(space_log.find_openers, query)

    @return_if_unstorable(1)
    async def first_seq_since(self, owner: str, name: str, at_ms: int) -> int:
        """Return the sequence number of the first envelope accepted at or after `at_ms`; head + 1 if there is none."""
        params = {**space_params(owner, name), "since_ms": min(at_ms, _MAX_TIME_MS)}
        return await self._database.read(space_log.first_seq_since, params)

    @return_if_unstorable(NameSet())
    async def existing_names(self, owner: str, name: str, names: NameSet) -> NameSet:
        """Return those ids and paths that exist in a space. A path exists if an envelope opened a context there."""
        return await self._database.read(space_log.existing_names, {**space_params(owner, name), "name_set": names})

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
        """Return envelopes with `query` in the strings of their payload (see `storage.search`), newest first.

        Queries of three characters or more are fast. The other arguments are those of `page`.
        """
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
        return await self._read_page(space_log.search_log, log_query)

    @return_if_unstorable(None)
    async def state(self, owner: str, name: str) -> tuple[int, bytes] | None:
        """Return the newest snapshot, after the sequence number of its last envelope; None if there is none."""
        return await self._database.read(appends.get_state, space_params(owner, name))

    @return_if_unstorable(0)
    async def erase(self, owner: str, name: str, seqs: Sequence[int], *, at_ms: int) -> int:
        """Erase the content of envelopes: payload, unknown fields and searchable text.

        Id, kind, sender, recipients and place remain; `extra` becomes `{"erased": true}`. Snapshots are not changed.
        The caller must store one that is not older than the envelopes: the replay of an erased envelope does not give
        the same state.

        Args:
            owner: Owner of the space.
            name: Name of the space.
            seqs: Sequence numbers of the envelopes.
            at_ms: Time for the record, in milliseconds since 1970.

        Returns:
            The number of envelopes that existed and were not erased before.
        """
        erased_count = 0
        chosen = sorted({_seq_or_zero(seq) for seq in seqs})
        for first in range(0, len(chosen), ENVELOPES_PER_STEP):
            step_seqs = tuple(chosen[first : first + ENVELOPES_PER_STEP])
            erasure = envelopes.Erasure(owner, name, step_seqs, at_ms, self.recording)
            erased_count += await self._database.write(envelopes.erase, erasure)
        return erased_count

    async def _finish_removal(self, owner: str, name: str) -> None:
        params = space_params(owner, name)
        removal = {**params, "most": ENVELOPES_PER_STEP, "now": self._clock(), "recording": self.recording}
        while await self._database.write(envelopes.remove, removal):
            pass
        while await self._database.write(envelopes.remove_links, removal):
            pass
        await self._database.write(space_rows.delete_row, params)

    async def _read_page(self, op: Callable[[LogQuery], Operation[EnvelopePage]], query: LogQuery) -> EnvelopePage:
        return await self._database.read(op, query) if query.is_possible else EnvelopePage()


def _seq_or_zero(seq: int) -> int:
    """Return a sequence number if it is in the possible range, else 0, which no envelope has."""
    return seq if 0 < seq <= envelopes.MAX_SEQ else 0


def _space_write(space: StoredSpace, participants: Sequence[StoredParticipant]) -> space_rows.SpaceWrite:
    check_names(**{f"participants[{index}].id": one.id for index, one in enumerate(participants)})
    return space_rows.SpaceWrite(space, tuple(participants))


def _space_or_raise(result: StoredSpace | RequestError | AlreadyStored) -> StoredSpace:
    if isinstance(result, StoredSpace):
        return result
    raise result
