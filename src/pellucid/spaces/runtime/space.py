"""One space in one process: who sits there, what they say, and what they are given.

The log is the store's; the state is the fold of it (`state`), kept by one writer (`writer`). What is stored goes to
those who sit there (`delivery`).

Time in a space, which does not go back: where the machine's clock is put back, it goes on from what it was.

Silence and absence are measured by it, also beyond a restart: the log says how late it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

import msgspec

from ...envelopes import DialectName, Envelope, Present, closing
from ...envelopes.grants import Change
from ...envelopes.shown import SpaceView, Subscriber
from ...errors import ErrorInfo, PellucidError, RequestError
from ...relay import Relay
from ...storage import Store, StoredEnvelope
from ...telemetry import log, place_of
from .compression import Compressing
from .delivery import Seating, consequences_of
from .hearing import Heard, Hearing
from .inbox import Answer, Item, Make, ask, nobody
from .keeper import Keeper, Pace, Presence
from .living import Configuration, Living
from .seats import Outlet, Seat
from .settings import SpaceSettings
from .writer import Turns, Writer


class Steady:
    """Seconds since 1970 by `clock`, and never before `since`, nor before what was said last."""

    def __init__(self, clock: Callable[[], float], since: float = 0.0) -> None:
        self._clock = clock
        self._last = since
        self._ticks = monotonic()

    def __call__(self) -> float:
        now, ticks = self._clock(), monotonic()
        self._last = now if now >= self._last else self._last + (ticks - self._ticks)
        self._ticks = ticks
        return self._last


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
        self._tasks: set[asyncio.Task[Any]] = set()
        self._configuration = configuration
        self._living = living
        self._clock = clock = Steady(clock, living.state.at / 1000)
        self.presence = Presence(relay, self.name, me, pace.roll)
        turns = Turns(relay, self.name, me)
        self.writer = Writer(store.spaces, living, configuration, turns, self, clock)
        self._keeper = Keeper(self.name, me, relay, self.writer, turns, self.presence, pace, clock)
        self.seating = Seating(configuration, living, store.spaces, self.now_ms, self.do)
        self._hearing = Hearing(configuration, clock)
        for work in (self.writer.run(), self._keeper.run()):
            self.do(work).add_done_callback(self._broke)

    # --- asked

    @property
    def settings(self) -> SpaceSettings:
        return self._configuration.settings

    @property
    def head(self) -> int:
        """The number of the newest envelope that was delivered here."""
        return self.seating.audience.delivered

    @property
    def advisory(self) -> bool:
        return self.settings.advisory

    @property
    def is_full(self) -> bool:
        return self.writer.inbox.full

    @property
    def is_idle(self) -> bool:
        """Whether nobody is here, and nobody's leaving is still to be seen to."""
        return not self.seating.all and not self.presence.anybody and not self._living.state.away

    def now_ms(self) -> int:
        return round(self._clock() * 1000)

    def reader(self, participant: str, view: SpaceView = "full") -> Subscriber:
        """What they may read now, of the history too."""
        return self._living.state.subscriber(participant, view)

    def capabilities(self, participant: str) -> tuple[dict[str, Any], ...]:
        return self._living.state.capabilities(participant)

    def is_member(self, participant: str) -> bool:
        return self._living.state.ledger.is_member(participant)

    def members(self) -> Sequence[Member]:
        """Who may come in, and who is here, on any replica."""
        state = self._living.state
        return [Member(one, state.capabilities(one), one in state.present) for one in state.ledger.members]

    def you(self, participant: str) -> Present:
        return Present(participant, self.capabilities(participant))

    async def look(self) -> None:
        """Come to know what others wrote until now: who is a member, and what was said. Raises `StoreError`."""
        await self.say(lambda state, at: None, look=True)

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
        address: str = "",
    ) -> Seat:
        """A seat. When it comes back, its participant is present and the welcome is written; what was said before, as
        asked for, and then what is said, follow.

        `after_seq`: what was said after that, as if it were said now. `history`: or else so many of the last envelopes
        that they may see, flagged as replayed. An `after_seq` that is greater than the head is not of this space (one
        by its name was deleted): the welcome says so, and all that there is follows, flagged. `address`: under which
        they reached the gateway (`wss://host`). Raises `PellucidError`."""
        self.used = monotonic()
        self._let_in(participant)
        self._room_for(participant)
        seat = Seat(self, participant, outlet, dialect, self.reader(participant, view), address)
        try:
            await self.presence.come(participant)
            # What is remembered here may have been erased, or may not be all: the store is asked.
            await self.say(self.presence.joined(participant), look=True)
            self._let_in(participant)
        except BaseException:
            self.do(self._gone_from(seat))
            raise
        seat.reader = self.reader(participant, view)
        self.seating.add(seat, after_seq, history)
        return seat

    def _let_in(self, participant: str) -> None:
        if self.closed:
            raise _closed()
        if not self.is_member(participant):
            raise RequestError("you are not in this space any more", kind="forbidden", code="not_a_member")

    def _room_for(self, participant: str) -> None:
        if self.presence.count(participant) >= self.settings.limits.seats:
            raise PellucidError(
                ErrorInfo(
                    "too_many_requests",
                    f"{participant!r} has {self.settings.limits.seats} connections, which is the most: close one",
                    code="too_many_connections",
                )
            )

    def regroup(self, seat: Seat) -> None:
        """It speaks another dialect now."""
        self.seating.audience.regroup(seat)

    def remove(self, seat: Seat) -> None:
        """Nothing more is written to it."""
        self.seating.remove(seat)

    async def left(self, seat: Seat) -> None:
        """Its connection is gone."""
        if seat.has_left:
            return
        self.seating.remove(seat)
        # Also if whoever says so is cancelled.
        with suppress(PellucidError):
            await asyncio.shield(self.do(self._gone_from(seat)))

    async def _gone_from(self, seat: Seat) -> None:
        if seat.has_left:
            return
        seat.has_left = True
        self.used = monotonic()
        if await self.presence.go(seat.participant):
            with suppress(PellucidError):
                await self.say(self.presence.left(seat.participant))

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

    async def post(
        self,
        participant: str,
        data: bytes | dict[str, Any],
        dialect: DialectName | None = None,
        *,
        address: str = "",
    ) -> Posted:
        """Say something without a seat. It is stored when it comes back. `address`: under which they reached the
        gateway. Raises `PellucidError` for what is refused."""
        self.used = monotonic()
        self._let_in(participant)
        heard = self._hearing.read(participant, data, None, dialect)
        answer = await ask(self.put, partial(heard.item, address=address))
        assert answer.stored is not None
        return Posted(answer.stored, answer.extra)

    async def say(self, make: Make, *, look: bool = False) -> StoredEnvelope | None:
        """What the gateway says itself. None: there was nothing to say. `look`: the store is asked first what is new.
        Raises `PellucidError`."""
        if look:
            self.writer.inbox.stir()
        return (await ask(self.put, partial(Item, make=make))).stored

    def forget(self) -> None:
        """Keep nothing of what was said in memory: some of it was erased. Others are told to look."""
        self._living.forget()
        self._keeper.tell()

    # --- what is stored

    def deliver(self, stored: Sequence[StoredEnvelope], changes: Sequence[tuple[Change, ...]]) -> None:
        """Called by the writer, as soon as it is stored."""
        what = consequences_of(stored, changes)
        for participant in what.left:
            if self.presence.is_here(participant):
                # Another replica said so, and they have come in here meanwhile.
                self.put(Item(nobody, make=self.presence.joined(participant)))
        if what.configured:
            self._hearing.take_limits()
        self.seating.deliver(stored, what)

    def told(self, stored: Sequence[StoredEnvelope]) -> None:
        """Called by the writer: these were said here."""
        self._keeper.tell()
        if self.compressing is not None:
            self.compressing.heard(stored)

    def overtaken(self) -> None:
        """Called by the writer: another replica was faster."""
        self._keeper.ask_for_turns()

    def gone(self) -> None:
        """There is no such space any more."""
        self.closed = True
        self.seating.close(closing.GONE, "there is no such space any more")

    # --- its end

    async def aclose(self) -> None:
        """Say who leaves, and let go."""
        self.used = monotonic()
        seats = self.seating.all
        self.seating.close(closing.RESTARTING, "the server restarts; come back in a moment")
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                await asyncio.gather(*(self.left(seat) for seat in seats))
        self.closed = True
        self.writer.inbox.close(_closed())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _broke(self, task: asyncio.Task[Any]) -> None:
        """Nothing goes on without it: whoever comes next opens the space anew."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a space broke: %s", place_of(error))
            self.closed = True
            self.seating.close(closing.RESTARTING, "the space broke here; come back in a moment")

    def do(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """In the background, until the space is closed."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _closed() -> PellucidError:
    return PellucidError(
        ErrorInfo("unavailable", "the space is being closed here; come back", code="space_closed", retry_after=1.0)
    )
