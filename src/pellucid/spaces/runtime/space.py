"""One space in one process: who sits there, what they say, and what they are given.

The log is the store's; the state is the fold of it (`state`), kept by one writer (`writer`). What is stored goes to the
seats (`delivery`), and a seat that was away is brought up to where the others are (`resuming`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import msgspec

from ...envelopes import DialectName, Envelope, Present, said
from ...envelopes.changes import Change, Ended, Granted, Kicked
from ...envelopes.envelope import GATEWAY
from ...envelopes.kinds import PRESENCE
from ...envelopes.shown import SpaceView, Subscriber
from ...errors import ErrorInfo, PellucidError, RequestError
from ...relay import Relay
from ...storage import Store, StoredEnvelope
from ...telemetry import log, place_of
from .compression import Compressing
from .configuration import Configuration
from .delivery import Audience
from .hearing import Heard, Hearing
from .ids import new_id
from .inbox import Answer, Item, Make
from .keeper import Keeper, Pace
from .living import Living
from .outlet import Outlet
from .presence import Presence
from .resuming import Resuming
from .seats import GONE, KICKED, Seat
from .settings import SpaceSettings
from .state import CONFIGURED
from .turns import Turns
from .writer import Writer

RESTARTING = 1012
CLOSING = 5.0
"""Seconds in which a space that closes still says who leaves."""


class Member(msgspec.Struct, frozen=True):
    """Somebody who may come in, and whether they are here."""

    id: str
    capabilities: tuple[str | dict[str, Any], ...] = ()
    present: bool = False


class Posted(msgspec.Struct, frozen=True):
    """What came of a post."""

    stored: StoredEnvelope
    answers: tuple[Envelope, ...] = ()
    """For its sender alone: the `space/invite-ack` that holds the token of whom it invited."""


class Space:
    """`spaces.Spaces` opens it. `clock` gives seconds since 1970; `me` is this replica's name."""

    def __init__(
        self,
        store: Store,
        relay: Relay,
        living: Living,
        configuration: Configuration,
        *,
        me: str,
        pace: Pace,
        clock: Callable[[], float],
    ) -> None:
        self.owner = configuration.owner
        self.name = configuration.name
        self.closed = False
        self.compressing: Compressing | None = None
        self.used = monotonic()
        self._configuration = configuration
        self._living = living
        self._clock = clock
        self._store = store
        self.delivered = living.head
        self._seats: dict[str, dict[Seat, None]] = {}
        self.presence = Presence(relay, self.name, me, pace.roll)
        self.writer = Writer(store.spaces, living, configuration, Turns(relay, self.name, me), self, clock)
        self._keeper = Keeper(self.name, me, relay, self.writer, self.presence, pace, clock)
        self._resuming = Resuming(self, store.spaces, living)
        self.audience = Audience(advisory=self.advisory, limit=self.settings.limits.outlet_bytes)
        self._hearing = Hearing(configuration, clock)
        self._tasks: set[asyncio.Task[Any]] = set()
        for work in (self.writer.run(), self._keeper.run()):
            self._do(work).add_done_callback(self._broke)

    # --- asked

    @property
    def settings(self) -> SpaceSettings:
        return self._configuration.settings

    @property
    def head(self) -> int:
        """The number of the newest envelope that was delivered here."""
        return self.delivered

    @property
    def advisory(self) -> bool:
        return self.settings.addresses == "advisory"

    @property
    def is_full(self) -> bool:
        return self.writer.inbox.full

    @property
    def is_idle(self) -> bool:
        """Whether nobody is here, and nobody's leaving is still to be seen to."""
        return not self._seats and not self.presence.anybody and not self._living.state.away

    def now(self) -> float:
        return monotonic()

    def now_ms(self) -> int:
        return round(self._clock() * 1000)

    def reader(self, participant: str, view: SpaceView = "full") -> Subscriber:
        """What they may read now, of the history too."""
        return self._living.state.subscriber(participant, view)

    def capabilities(self, participant: str) -> tuple[dict[str, Any], ...]:
        return self._living.state.capabilities(participant)

    def is_member(self, participant: str) -> bool:
        return self._living.state.ledger.is_member(participant)

    def is_kicked(self, participant: str) -> bool:
        return self._living.state.ledger.is_kicked(participant)

    def members(self) -> Sequence[Member]:
        """Who may come in, and who is here, on any replica."""
        state = self._living.state
        return [Member(one, state.capabilities(one), one in state.present) for one in state.ledger.members]

    def you(self, participant: str) -> Present:
        return Present(participant, self.capabilities(participant))

    async def look(self) -> None:
        """Come to know what others wrote until now: who is a member, and what was said. Raises `StoreError`."""
        await self._say(lambda state, at: None, look=True)

    # --- seats

    async def sit(
        self,
        participant: str,
        outlet: Outlet,
        *,
        dialect: DialectName | None = None,
        view: SpaceView = "full",
        after_seq: int | None = None,
        history: int = 0,
    ) -> Seat:
        """A seat. When it comes back, its participant is present and the welcome is written; what was said before, as
        asked for, and then what is said, follow.

        `after_seq`: what was said after that, as if it were said now. `history`: or else so many of the last envelopes
        that they may see, flagged as replayed. Raises `PellucidError`."""
        self.used = monotonic()
        self._let_in(participant)
        self._room_for(participant)
        seat = Seat(self, participant, outlet, dialect, self.reader(participant, view))
        try:
            await self.presence.come(participant)
            await self._say(self.presence.joined(participant))
            self._let_in(participant)
        except BaseException:
            self._do(self._gone_from(seat))
            raise
        seat.reader = self.reader(participant, view)
        self._seats.setdefault(participant, {})[seat] = None
        self._welcome(seat)
        self._resuming.begin(seat, after_seq, history)
        return seat

    def _let_in(self, participant: str) -> None:
        if self.closed:
            raise _closed()
        if not self.is_member(participant):
            raise _out()

    def _room_for(self, participant: str) -> None:
        if self.presence.count(participant) >= self.settings.limits.seats:
            raise PellucidError(
                ErrorInfo(
                    "too_many_requests",
                    f"{participant!r} has {self.settings.limits.seats} connections, which is the most: close one",
                    code="too_many_connections",
                )
            )

    def _welcome(self, seat: Seat) -> None:
        state = self._living.state
        seat.capabilities = state.capabilities(seat.participant)
        others = [Present(one, state.capabilities(one)) for one in state.present if one != seat.participant]
        seat.write(
            said.welcome(
                new_id(),
                self.now_ms(),
                Present(seat.participant, seat.capabilities),
                others,
                space=self.name,
                head=self.delivered,
                view=seat.reader.view,
            )
        )

    async def left(self, seat: Seat) -> None:
        """Its connection is gone."""
        if seat.has_left:
            return
        self.unseat(seat)
        # Also if whoever says so is cancelled.
        with suppress(PellucidError):
            await asyncio.shield(self._do(self._gone_from(seat)))

    async def _gone_from(self, seat: Seat) -> None:
        if seat.has_left:
            return
        seat.has_left = True
        self.used = monotonic()
        if await self.presence.go(seat.participant):
            with suppress(PellucidError):
                await self._say(self.presence.left(seat.participant))

    def unseat(self, seat: Seat) -> None:
        """Nothing more is written to it."""
        self.audience.discard(seat)
        seat.stop()
        mine = self._seats.get(seat.participant)
        if mine is not None:
            mine.pop(seat, None)
            if not mine:
                del self._seats[seat.participant]

    def regroup(self, seat: Seat) -> None:
        self.audience.regroup(seat)

    # --- what is said

    def read(
        self, participant: str, data: bytes | str | dict[str, Any], size: int | None, seat: Seat | None = None
    ) -> Heard:
        """Raises `PellucidError` for what cannot be taken."""
        self.used = monotonic()
        return self._hearing.read(participant, data, size, None if seat is None else seat.dialect, seat)

    def out_of_patience(self, participant: str) -> bool:
        return self._hearing.out_of_patience(participant)

    def put(self, item: Item) -> None:
        if self.closed:
            item.tell(Answer(error=_closed()))
        else:
            self.writer.inbox.put(item)

    async def post(self, participant: str, data: bytes | dict[str, Any], dialect: DialectName | None = None) -> Posted:
        """Say something without a seat. It is stored when it comes back. Raises `PellucidError` for what is refused."""
        if not self.is_member(participant):
            raise _out()
        self.used = monotonic()
        heard = self._hearing.read(participant, data, None, dialect)
        answer = await self._ask(heard.item(_unset))
        assert answer.stored is not None
        return Posted(answer.stored, answer.extra)

    async def say(self, make: Make) -> StoredEnvelope | None:
        """What the gateway says itself. None: there was nothing to say. Raises `PellucidError`."""
        return await self._say(make)

    async def _say(self, make: Make, *, look: bool = False) -> StoredEnvelope | None:
        if look:
            self.writer.inbox.stir()
        return (await self._ask(Item(_unset, make=make))).stored

    async def _ask(self, item: Item) -> Answer:
        asked: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def tell(answer: Answer) -> None:
            if not asked.done():
                asked.set_result(answer)

        item.tell = tell
        self.put(item)
        answer = await asked
        if answer.error is not None:
            raise answer.error
        return answer

    def forget(self) -> None:
        """Keep nothing of what was said in memory: some of it was erased."""
        self._living.forget()

    # --- what is stored

    def deliver(self, stored: Sequence[StoredEnvelope], changes: Sequence[tuple[Change, ...]]) -> None:
        """Called by the writer, as soon as it is stored."""
        out: dict[str, int] = {}
        lives: set[str] = set()
        configured = False
        for number, (one, some) in enumerate(zip(stored, changes, strict=True)):
            for change in some:
                match change:
                    case Kicked(participant=participant):
                        out.setdefault(participant, number)
                    case Granted(grant=grant):
                        lives.add(grant.recipient)
                    case Ended(recipient=recipient):
                        lives.add(recipient)
            if one.envelope.sender == GATEWAY:
                configured = configured or one.envelope.kind == CONFIGURED
                self._back_again(one.envelope)
        if configured:
            self._take_settings()
            lives.update(self._seats)
        self._rights(lives)
        before = self.delivered
        full = self.audience.deliver(stored, out)
        self.delivered = stored[-1].envelope.seq
        for seat in full:
            seat.at = before
            self._resuming.wait_for(seat)
        for participant in {*out, *(one for one in lives if not self.is_member(one))}:
            for seat in list(self._seats.get(participant, ())):
                seat.close(KICKED, "you are not in this space any more")

    def told(self, stored: Sequence[StoredEnvelope]) -> None:
        """Called by the writer: these were said here."""
        self._keeper.tell()
        if self.compressing is not None:
            self.compressing.heard(stored)

    def gone(self) -> None:
        """There is no such space any more."""
        self.closed = True
        self._close_seats(GONE, "there is no such space any more")

    def _back_again(self, envelope: Envelope) -> None:
        """Another replica said that somebody left who has come in here meanwhile."""
        who = envelope.payload.get("participant") if envelope.kind == PRESENCE else None
        if isinstance(who, dict) and envelope.payload.get("event") == "leave" and self.presence.is_here(str(who["id"])):
            self.put(Item(_unset, make=self.presence.joined(str(who["id"]))))

    def _rights(self, participants: Iterable[str]) -> None:
        """Some of what they may is another now: they are told, and read by it."""
        for participant in participants:
            for seat in list(self._seats.get(participant, ())):
                reader = self.reader(participant, seat.reader.view)
                if reader != seat.reader:
                    seat.reader = reader
                    self.audience.regroup(seat)
                if self.is_member(participant) and seat.capabilities != self.capabilities(participant):
                    self._welcome(seat)

    def _take_settings(self) -> None:
        self.audience.advisory = self.advisory
        self.audience.limit = self.settings.limits.outlet_bytes
        self._hearing.take_limits()

    # --- its end

    async def aclose(self) -> None:
        """Say who leaves, and let go."""
        self.used = monotonic()
        seats = [seat for mine in self._seats.values() for seat in mine]
        self._close_seats(RESTARTING, "the server restarts; come back in a moment")
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                await asyncio.gather(*(self.left(seat) for seat in seats))
        self.closed = True
        self.writer.inbox.close(_closed())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _close_seats(self, code: int, reason: str) -> None:
        for mine in list(self._seats.values()):
            for seat in list(mine):
                seat.close(code, reason)

    def _broke(self, task: asyncio.Task[Any]) -> None:
        """Nothing goes on without it: whoever comes next opens the space anew."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a space broke: %s", place_of(error))
            self.closed = True
            self._close_seats(RESTARTING, "the space broke here; come back in a moment")

    def _do(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def do(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """In the background, until the space is closed."""
        return self._do(work)


def _unset(answer: Answer) -> None:
    """Nobody waits for it."""


def _out() -> RequestError:
    return RequestError("you are not in this space any more", kind="forbidden", code="not_a_member")


def _closed() -> PellucidError:
    return PellucidError(
        ErrorInfo("unavailable", "the space is being closed here; come back", code="space_closed", retry_after=1.0)
    )


__all__ = ["Member", "Posted", "Space"]
