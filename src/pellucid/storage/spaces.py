"""`store.spaces`: spaces, who is in them, and what was said there.

`rooms` is what a space is, `appends` how its log grows, `envelopes` and `walks` how the log is read. Where several
envelopes are asked for, a portion is given (`portions`), never more than so many bytes; `more` says if that is not all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..envelopes.reasoning import Names
from ..errors import RequestError
from ..record import Recording
from . import appends, envelopes, links, rooms, search, walks
from .appends import Append, Head
from .envelopes import StoredEnvelope
from .errors import AlreadyStored, SpaceGone
from .names import check_names, finds, storable
from .portions import Portion
from .record import milliseconds
from .rooms import StoredParticipant, StoredSpace
from .statement import Database
from .walks import Wanted

STEP = 100
"""So many envelopes are taken away in one transaction."""

_END_OF_TIME = 2**62


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
        asked = _put_of(space, participants)
        try:
            return _said(await self._database.write(rooms.put, asked))
        except AlreadyStored:
            # Perhaps another replica made it at this moment, or it was removed and something of it is left.
            await self.sweep(space.name)
            return _said(await self._database.write(rooms.put, asked))

    async def add(self, owner: str, name: str, participants: Sequence[StoredParticipant]) -> StoredSpace:
        """More participants. Raises `AlreadyStored` for an id (or a token) that is there, `SpaceGone` if there is no
        such space."""
        if not (storable(owner) and storable(name)):
            raise SpaceGone(name)
        space = StoredSpace(owner=owner, name=name, created_at=0.0, settings=b"")
        return _said(await self._database.write(rooms.add, _put_of(space, participants)))

    @finds(None)
    async def get(self, name: str) -> StoredSpace | None:
        return await self._database.read(rooms.get, {"for_name": name})

    @finds(())
    async def list(self, owner: str | None = None) -> tuple[StoredSpace, ...]:
        """By name; those of one owner, or all."""
        return await self._database.read(rooms.listing, {"for_owner": owner})

    @finds(())
    async def participants(self, owner: str, name: str) -> tuple[StoredParticipant, ...]:
        """By id."""
        return await self._database.read(rooms.who, rooms.this_space(owner, name))

    async def of_token(self, token_hash: bytes) -> tuple[tuple[StoredSpace, StoredParticipant], ...]:
        """Whom a token names, in every space where it names somebody."""
        return await self._database.read(rooms.of_token, {"token_hash": token_hash})

    @finds(False)
    async def remove(self, owner: str, name: str) -> bool:
        """With all that was said. Whether there was one. It is gone at once, and what is in it when this returns."""
        marked = await self._database.write(rooms.mark, {**rooms.this_space(owner, name), "now": self._clock()})
        await self._finish(owner, name)
        return marked

    async def sweep(self, name: str | None = None) -> None:
        """Finish what a removal left that was broken off: of this space, or of all."""
        for owner, left in await self._database.read(rooms.left, None):
            if name in (None, left):
                await self._finish(owner, left)

    @finds(None)
    async def head(self, owner: str, name: str) -> Head | None:
        return await self._database.read(appends.head, rooms.this_space(owner, name))

    async def append(self, append: Append) -> Head:
        """Append it, and say where the space is now. Raises `Overtaken` (with `.head`, `.version`) if the space was
        elsewhere, `SpaceGone` if there is no such space; then nothing was done. After a `StoreError` nobody knows
        whether it was: the head and what is new tell."""
        if not (storable(append.owner) and storable(append.space)):
            raise SpaceGone(append.space)
        ready = appends.ready(append, self._recording, milliseconds(self._clock()))
        answer = await self._database.write(appends.append, ready)
        if not isinstance(answer, Head):
            raise answer
        return answer

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
    ) -> Portion:
        """Those with after < seq < before, ascending: the first `limit` of them, or the last ones (`newest`).

        `kinds` may end in `/*`; any of them will do. `within`: whose place is this path, or below it."""
        wanted = Wanted(
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
        return await self._database.read(walks.page, wanted) if wanted.possible else Portion()

    @finds(None)
    async def one(self, owner: str, name: str, seq: int) -> StoredEnvelope | None:
        return await self._database.read(
            envelopes.one, {**rooms.this_space(owner, name), "seq": envelopes.seq_in_log(seq)}
        )

    @finds(None)
    async def by_id(
        self, owner: str, name: str, id: str, sender: str | None = None, *, before: int | None = None
    ) -> StoredEnvelope | None:
        """The newest with this id, of this sender if one is named, and below the seq `before`."""
        last = envelopes.LAST_SEQ
        named = {**rooms.this_space(owner, name), "for_id": id, "sender": sender}
        return await self._database.read(
            envelopes.by_id, {**named, "before": last if before is None else max(0, min(before, last))}
        )

    async def about(self, owner: str, name: str, ids: Sequence[str], *, after: int = 0, limit: int = 500) -> Portion:
        """Those that correlate to any of these ids, ascending, with seq > after: the first `limit`."""
        if not ids or not (storable(owner) and storable(name)):
            return Portion()
        return await self._database.read(links.about, links.About(owner, name, tuple(ids), after, limit))

    async def opened(
        self,
        owner: str,
        name: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 50,
        newest: bool = True,
    ) -> Portion:
        """What opened contexts, with after < seq < before: the newest first, or ascending."""
        if not (storable(owner) and storable(name)):
            return Portion()
        return await self._database.read(links.opened, links.Opened(owner, name, after, before, limit, newest))

    @finds(1)
    async def since(self, owner: str, name: str, at: int) -> int:
        """The seq of the first envelope that was taken then or later; head + 1 if there is none."""
        return await self._database.read(
            envelopes.since, {**rooms.this_space(owner, name), "at": min(at, _END_OF_TIME)}
        )

    async def known(self, owner: str, name: str, names: Names) -> Names:
        """Which of these ids and paths are there; a path is, if something opened there once."""
        if not (storable(owner) and storable(name)):
            return Names()
        return await self._database.read(envelopes.known, envelopes.Asked(owner, name, names))

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
    ) -> Portion:
        """Those whose payload holds this in its strings, newest first (see `storage.search`), before the seq `before`.
        The other filters are those of `page`. Fast from three characters on."""
        wanted = Wanted(
            owner=owner,
            name=name,
            before=before,
            limit=limit,
            sender=sender,
            kinds=kinds,
            within=within,
            query=search.keepable(query),
        )
        return await self._database.read(walks.find, wanted) if wanted.possible else Portion()

    @finds(None)
    async def state(self, owner: str, name: str) -> tuple[int, bytes] | None:
        """The seq as of which the newest snapshot is, and the snapshot."""
        return await self._database.read(appends.state, rooms.this_space(owner, name))

    @finds(0)
    async def erase(self, owner: str, name: str, seqs: Sequence[int], *, at: int) -> int:
        """Take away what these say: payload, unknown fields, what search finds. Id, kind, sender, recipients and place
        stay; `extra` is `{"erased": true}`. How many were there and not erased yet. `at` (ms) is for the record.

        Snapshots are not touched: keep one that is not older, for an erased envelope does not replay to the state
        that the whole one did."""
        gone = 0
        chosen = sorted({envelopes.seq_in_log(seq) for seq in seqs})
        for first in range(0, len(chosen), STEP):
            some = tuple(chosen[first : first + STEP])
            asked = envelopes.Erasing(owner, name, some, at, self._recording)
            gone += await self._database.write(envelopes.erase, asked)
        return gone

    async def _finish(self, owner: str, name: str) -> None:
        named = rooms.this_space(owner, name)
        asked = {**named, "most": STEP, "now": self._clock(), "recording": self._recording}
        while await self._database.write(envelopes.remove, asked):
            pass
        while await self._database.write(links.remove, {**named, "most": STEP}):
            pass
        await self._database.write(rooms.drop, named)


def _put_of(space: StoredSpace, participants: Sequence[StoredParticipant]) -> rooms.Put:
    check_names(**{f"participants[{place}].id": one.id for place, one in enumerate(participants)})
    return rooms.Put(space, tuple(participants))


def _said(answer: StoredSpace | RequestError | AlreadyStored) -> StoredSpace:
    if isinstance(answer, StoredSpace):
        return answer
    raise answer
