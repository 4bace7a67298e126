"""The one task of a space that judges, stores and delivers.

    take all that waits -> judge it at the head -> append it in one transaction -> deliver it -> answer

* Nobody is answered before what was said is stored. A refusal counts only at the head of the log: where nothing is
  appended, the store is asked whether there is more, first.
* When another replica was faster (`Overtaken`), the state is put back, what is new is read and delivered, and all is
  judged again.
* When the store does not say whether it did it, the log is asked. If that cannot be known either, whoever sent is told
  `unavailable`; should it have been stored all the same, it is delivered when the store is back, and who sends it again
  gets the same.
* What the store refuses for one envelope's sake, it refuses for that one alone: then each is tried by itself.

What is judged together, stored in one transaction, and answered together.

Nothing here waits: what only the history knows is looked up before.

Invitations: a token is made when one is accepted, kept as a digest in the same transaction, and told to nobody but
the inviter, once (`space/invite-ack`).

Who is there already, or has a token of the operator's, gets none: nobody takes another's place by inviting them.

Replicas that are busy in the same space take turns, for a while, so that none is overtaken for ever (`Turns`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Protocol

from msgspec.structs import replace

from ...envelopes import GATEWAY, Envelope, said
from ...envelopes.grants import Change, Invited
from ...envelopes.reasoning import Names
from ...errors import ErrorInfo, PellucidError
from ...relay import Relay, RelayError
from ...storage import Append, Overtaken, SpaceGone, Spaces, StoredEnvelope, StoredParticipant
from ...storage.errors import Unanswered
from ...telemetry import log, place_of
from .ids import digest_of, new_id, new_token
from .inbox import Answer, Inbox, Item
from .living import Configuration, Living
from .state import SpaceState


def invited_by(
    stored: StoredEnvelope, changes: Iterable[Change], state: SpaceState, space: str, address: str = ""
) -> tuple[list[StoredParticipant], tuple[Envelope, ...]]:
    """Who is to be let into `space` by this envelope, and what its sender is told. `address`: under which its sender
    reached the gateway."""
    let_in: list[StoredParticipant] = []
    told: list[Envelope] = []
    for change in changes:
        if not isinstance(change, Invited):
            continue
        payload = {"status": change.status, "participant_id": change.participant}
        if change.status == "created" and change.participant not in state.doors.doors:
            payload |= {"token": (token := new_token()), "connection_url": f"{address}/spaces/{space}/ws"}
            let_in.append(
                StoredParticipant(
                    id=change.participant,
                    token_hash=digest_of(token),
                    origin="invited",
                    created_at=stored.at / 1000,
                )
            )
        told.append(said.invite_ack(new_id(), stored.at, stored.envelope, payload))
    return let_in, tuple(told)


class Batch:
    """What was judged together, and is stored and answered together."""

    def __init__(self, state: SpaceState, at: int, space: str) -> None:
        self._state = state
        self._space = space
        self._at = at
        self._answers: list[tuple[Item, Answer]] = []
        self.stored: list[StoredEnvelope] = []
        self.changes: list[tuple[Change, ...]] = []
        self.invited: list[StoredParticipant] = []
        self.refused = False
        """Whether something was not accepted that might be, by a state that others have moved on."""

    def judge(
        self,
        items: Sequence[Item],
        configuration: Configuration,
        known: Names,
        before: dict[tuple[str, str], StoredEnvelope],
        living: Living,
    ) -> None:
        """`known`: names that only the history knows. `before`: what was said under the same ids before."""
        said = self._state.unconfigured(configuration.doors)
        if said is not None:
            self._accept(configuration.told(said, self._at), Names())
        new: dict[tuple[str, str], StoredEnvelope] = {}
        for item in items:
            envelope = item.envelope if item.make is None else item.make(self._state, self._at)
            if envelope is None:
                self._answers.append((item, Answer()))
                continue
            key = (envelope.sender, envelope.id)
            if item.named:
                old = new.get(key) or living.recent.named(*key) or before.get(key)
                if old is not None and _same(old.envelope, envelope, item.dated):
                    self._answers.append((item, Answer(old, fresh=False)))
                    self.refused = True
                    continue
            stored, answer = self._accept(envelope, known, item.redacted, item.address)
            self._answers.append((item, answer))
            if stored is not None:
                new[key] = stored

    def _accept(
        self, envelope: Envelope, known: Names, redacted: tuple[str, ...] = (), address: str = ""
    ) -> tuple[StoredEnvelope | None, Answer]:
        outcome = self._state.judge(envelope, self._at, known, redacted)
        if outcome.error is not None:
            self.refused = self.refused or envelope.sender != GATEWAY
            return None, Answer(error=PellucidError(outcome.error))
        stored = outcome.stored
        assert stored is not None
        self.stored.append(stored)
        self.changes.append(outcome.changes)
        invited, told = invited_by(stored, outcome.changes, self._state, self._space, address)
        self.invited += invited
        return stored, Answer(stored, extra=told)

    def answer(self) -> None:
        """Tell each what became of it."""
        for item, answer in self._answers:
            item.tell(answer)


def _same(old: Envelope, new: Envelope, dated: bool) -> bool:
    """Whether it is the same once more, in whichever dialect. Who says when it was sent (`dated`) sends it again with
    the same time: another means that ids are counted anew, as MEW's clients do in every process."""
    if dated and new.ts != old.ts:
        return False
    return old == replace(new, seq=old.seq, ts=old.ts, dialect=old.dialect)


SNAPSHOT = 500
"""Envelopes between two snapshots."""
PAGE = 500


class Delivery(Protocol):
    def deliver(self, stored: Sequence[StoredEnvelope], changes: Sequence[tuple[Change, ...]]) -> None:
        """These are stored, and the state is as they left it."""
        ...

    def told(self, stored: Sequence[StoredEnvelope]) -> None:
        """This replica wrote these: others are to look."""
        ...

    def overtaken(self) -> None:
        """Another replica was faster: others are to take turns."""
        ...

    def gone(self) -> None:
        """There is no such space any more."""
        ...


class Writer:
    """`clock` gives seconds since 1970."""

    def __init__(
        self,
        spaces: Spaces,
        living: Living,
        configuration: Configuration,
        turns: Turns,
        delivery: Delivery,
        clock: Callable[[], float],
    ) -> None:
        self.inbox = Inbox()
        self.living = living
        self.configuration = configuration
        self._spaces = spaces
        self._turns = turns
        self._delivery = delivery
        self._clock = clock
        self._doubted = True
        """Whether the log may have more than is known here."""

    async def run(self) -> None:
        while True:
            items, stirred = await self.inbox.take()
            self._doubted = self._doubted or stirred
            try:
                await self._write(items)
            except PellucidError as error:
                _tell_all(items, error)
                if not items:
                    # Nobody waits for it; whoever looks after the space asks again.
                    await asyncio.sleep(0)
            except Exception as error:
                log.error("a space could not be written: %s", place_of(error))
                self._doubted = True
                self.living.roll_back()
                _tell_all(items, _fault())
            except BaseException:
                _tell_all(items, _closing())
                raise

    async def _write(self, items: list[Item]) -> None:
        while True:
            async with self._turns.mine():
                if self._doubted or self._turns.busy:
                    await self.catch_up()
                batch = Batch(self.living.state, round(self._clock() * 1000), self.configuration.name)
                before = await self._before(items)
                known = await self._known(items)
                batch.judge(items, self.configuration, known, before, self.living)
                if not batch.stored:
                    if batch.refused and await self._is_behind():
                        self._doubted = True
                        continue
                    batch.answer()
                    return
                if await self._store(items, batch):
                    return

    async def _store(self, items: list[Item], batch: Batch) -> bool:
        """Whether it is over: stored, or refused for good."""
        living, expected = self.living, self.living.head
        last = batch.stored[-1].envelope.seq
        dump = living.state.dump() if last // SNAPSHOT != expected // SNAPSHOT else None
        append = Append(
            owner=self.configuration.owner,
            space=self.configuration.name,
            expected=expected,
            version=self.configuration.version,
            envelopes=batch.stored,
            state=dump,
            participants=batch.invited,
        )
        try:
            await self._spaces.append(append)
        except Overtaken:
            living.roll_back()
            self._doubted = True
            self._turns.begin()
            self._delivery.overtaken()
            return False
        except (PellucidError, ValueError) as error:
            living.roll_back()
            self._doubted = True
            if await self._happened(batch.stored):
                batch.answer()
                self._delivery.told(batch.stored)
                return True
            if len(items) > 1 and not isinstance(error, Unanswered):
                for item in items:
                    try:
                        await self._write([item])
                    except PellucidError as alone:
                        _tell_all([item], alone)
                return True
            raise error if isinstance(error, PellucidError) else _fault() from error
        except BaseException:
            living.roll_back()
            self._doubted = True
            raise
        living.accept(batch.stored, dump)
        self._delivery.deliver(batch.stored, batch.changes)
        batch.answer()
        self._delivery.told(batch.stored)
        return True

    async def _happened(self, stored: Sequence[StoredEnvelope]) -> bool:
        """Whether these are in the log, after an append that did not say. Raises what `catch_up` does."""
        try:
            await self.catch_up()
            after = stored[0].envelope.seq - 1
            there: list[StoredEnvelope] = []
            while len(there) < len(stored) and (some := await self._page(after + len(there), len(stored) - len(there))):
                there += some
        except PellucidError:
            return False
        return [one.envelope for one in there] == [one.envelope for one in stored]

    # --- what others wrote

    async def catch_up(self) -> None:
        """Read and deliver what is new in the log. Raises `StoreError`, or `SpaceGone`."""
        self._doubted = True
        head = await self._spaces.head(self.configuration.owner, self.configuration.name)
        if head is None or head.head < self.living.head:
            # Removed; or the store was put back to an older state, and this is another space by the same name.
            self._delivery.gone()
            raise SpaceGone(self.configuration.name)
        if head.version != self.configuration.version:
            await self.configuration.read(self._spaces)
            self.living.configure(self.configuration.settings)
            self.living.forget()
        while self.living.head < head.head:
            new = await self._page(self.living.head, PAGE)
            if not new:
                break
            changes = self.living.absorb(new)
            self._delivery.deliver(new, changes)
        self._doubted = False

    async def _is_behind(self) -> bool:
        head = await self._spaces.head(self.configuration.owner, self.configuration.name)
        return head is None or head != (self.living.head, self.configuration.version)

    async def _page(self, after: int, limit: int) -> list[StoredEnvelope]:
        return await self._spaces.page(self.configuration.owner, self.configuration.name, after=after, limit=limit)

    # --- what only the history knows

    async def _known(self, items: list[Item]) -> Names:
        ids: set[str] = set()
        paths: set[str] = set()
        for item in items:
            if item.envelope is not None:
                names = self.living.state.lifecycle.unknown(item.envelope)
                ids |= names.ids
                paths |= names.paths
        if not ids and not paths:
            return Names()
        return await self._spaces.known(
            self.configuration.owner, self.configuration.name, Names(frozenset(ids), frozenset(paths))
        )

    async def _before(self, items: list[Item]) -> dict[tuple[str, str], StoredEnvelope]:
        """What was said before by the same sender with the same id."""
        found: dict[tuple[str, str], StoredEnvelope] = {}
        for item in items:
            envelope = item.envelope
            if envelope is None or not item.named or not self.living.state.knows(envelope.id):
                continue
            key = (envelope.sender, envelope.id)
            if key not in found and self.living.recent.named(*key) is None:
                old = await self._spaces.by_id(
                    self.configuration.owner, self.configuration.name, envelope.id, envelope.sender
                )
                if old is not None:
                    found[key] = old
        return found


def _tell_all(items: Sequence[Item], error: PellucidError) -> None:
    for item in items:
        item.tell(Answer(error=error))


def _fault() -> PellucidError:
    return PellucidError(
        ErrorInfo("server_error", "the space could not take this; that is a fault of this server", code="space_failed")
    )


def _closing() -> PellucidError:
    return PellucidError(
        ErrorInfo(
            "unavailable",
            "the space is being closed here; whether this was taken, its history tells",
            code="space_closed",
            retry_after=1.0,
        )
    )


# --- turns


WHILE = 3.0
"""Seconds after a collision in which turns are taken."""
HELD = 2.0
PATIENCE = 1.0
PAUSES = 0.002, 0.005
"""Seconds between two tries: soon enough to come upon the pause of who just had it, which is the first."""
ALONE = 10.0


class Turns:
    """A lease at the relay, claimed only after a replica was overtaken.

    That one tells the others (`keeper`), for who is never overtaken would not know, and one that claims nothing
    overtakes all who do. It is a courtesy: whoever does not get the lease in time, or finds no relay, goes on without,
    and the store decides as ever.
    """

    def __init__(self, relay: Relay, name: str, me: str) -> None:
        self._relay = relay
        self._name = f"space-turn:{name}"
        self._me = me
        self._until = 0.0
        self._alone_until = 0.0
        """The relay did not answer: nobody waits for it, for a while."""

    @property
    def busy(self) -> bool:
        return self._alone_until <= monotonic() < self._until

    def begin(self) -> None:
        """This replica was overtaken, or another one."""
        self._until = monotonic() + WHILE

    @asynccontextmanager
    async def mine(self) -> AsyncIterator[None]:
        token = await self._claim() if self.busy else None
        try:
            yield
        finally:
            if token is not None:
                with suppress(RelayError):
                    await self._relay.release(self._name, token)
                # Whoever waits gets it, and not at once whoever had it.
                await asyncio.sleep(PAUSES[0])

    async def _claim(self) -> int | None:
        until, pause = monotonic() + PATIENCE, PAUSES[0]
        while monotonic() < until:
            try:
                token = await self._relay.claim(self._name, self._me, HELD)
            except RelayError:
                self._alone_until = monotonic() + ALONE
                return None
            if token is not None:
                return token
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, PAUSES[1])
        return None
