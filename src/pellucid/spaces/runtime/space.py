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

from ...envelopes import DialectName, Envelope, Present, close_codes
from ...envelopes.grants import Change
from ...envelopes.visibility import SpaceView, SpaceViewer
from ...errors import ErrorInfo, PellucidError, RequestError
from ...relay import Relay
from ...storage import Store, StoredEnvelope
from ...telemetry import error_location, log
from .compression import ThoughtCompression
from .delivery import SessionRegistry, effects_of
from .ingest import Ingest, IngestedEnvelope
from .live_state import Configuration, LiveState
from .maintenance import Intervals, Maintenance, Presence
from .session import Outlet, Session
from .settings import SpaceSettings
from .write_queue import EnvelopeFactory, WriteRequest, WriteResult, ignore_result, submit
from .writer import Writer, WriterLease


class MonotonicClock:
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


CLOSE_SECONDS = 5.0
"""Seconds in which a space that closes still says who leaves."""


class Member(msgspec.Struct, frozen=True):
    """Somebody who may come in, and whether they are here."""

    id: str
    capabilities: tuple[str | dict[str, Any], ...] = ()
    present: bool = False


class PostResult(msgspec.Struct, frozen=True):
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
        live: LiveState,
        configuration: Configuration,
        *,
        replica_id: str,
        intervals: Intervals,
        clock: Callable[[], float],
    ) -> None:
        self.owner = configuration.owner
        self.name = configuration.name
        self.is_closed = False
        self.compression: ThoughtCompression | None = None
        self.last_used = monotonic()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._configuration = configuration
        self._live = live
        self._clock = clock = MonotonicClock(clock, live.state.latest_at_ms / 1000)
        self.presence = Presence(relay, self.name, replica_id, intervals.presence_seconds)
        lease = WriterLease(relay, self.name, replica_id)
        self.writer = Writer(store.spaces, live, configuration, lease, self, clock)
        self._maintenance = Maintenance(
            self.name, replica_id, relay, self.writer, lease, self.presence, intervals, clock
        )
        self.sessions = SessionRegistry(configuration, live, store.spaces, self.now_ms, self.spawn)
        self._ingest = Ingest(configuration, clock)
        for work in (self.writer.run(), self._maintenance.run()):
            self.spawn(work).add_done_callback(self._on_task_done)

    # --- asked

    @property
    def settings(self) -> SpaceSettings:
        return self._configuration.settings

    @property
    def head(self) -> int:
        """The number of the newest envelope that was delivered here."""
        return self.sessions.audience.delivered

    @property
    def is_advisory(self) -> bool:
        return self.settings.advisory

    @property
    def is_full(self) -> bool:
        return self.writer.queue.is_full

    @property
    def is_idle(self) -> bool:
        """Whether nobody is here, and nobody's leaving is still to be seen to."""
        return not self.sessions.all_sessions and not self.presence.has_local and not self._live.state.away_since

    def now_ms(self) -> int:
        return round(self._clock() * 1000)

    def viewer(self, participant: str, view: SpaceView = "full") -> SpaceViewer:
        """What they may read now, of the history too."""
        return self._live.state.viewer(participant, view)

    def capabilities(self, participant: str) -> tuple[dict[str, Any], ...]:
        return self._live.state.capabilities(participant)

    def is_member(self, participant: str) -> bool:
        return self._live.state.ledger.is_member(participant)

    def members(self) -> Sequence[Member]:
        """Who may come in, and who is here, on any replica."""
        state = self._live.state
        return [Member(one, state.capabilities(one), one in state.present_since) for one in state.ledger.members]

    def presence_of(self, participant: str) -> Present:
        return Present(participant, self.capabilities(participant))

    async def catch_up(self) -> None:
        """Come to know what others wrote until now: who is a member, and what was said. Raises `StoreError`."""
        await self.append_as_gateway(lambda state, at: None, catch_up=True)

    # --- seats

    async def join(
        self,
        participant: str,
        outlet: Outlet,
        *,
        dialect: DialectName | None = None,
        view: SpaceView = "full",
        after_seq: int | None = None,
        history: int = 0,
        address: str = "",
    ) -> Session:
        """A seat. When it comes back, its participant is present and the welcome is written; what was said before, as
        asked for, and then what is said, follow.

        `after_seq`: what was said after that, as if it were said now. `history`: or else so many of the last envelopes
        that they may see, flagged as replayed. An `after_seq` that is greater than the head is not of this space (one
        by its name was deleted): the welcome says so, and all that there is follows, flagged. `address`: under which
        they reached the gateway (`wss://host`). Raises `PellucidError`."""
        self.last_used = monotonic()
        self._check_membership(participant)
        self._check_session_limit(participant)
        session = Session(self, participant, outlet, dialect, self.viewer(participant, view), address)
        try:
            await self.presence.enter(participant)
            # What is remembered here may have been erased, or may not be all: the store is asked.
            await self.append_as_gateway(self.presence.make_join(participant), catch_up=True)
            self._check_membership(participant)
        except BaseException:
            self.spawn(self._announce_leave(session))
            raise
        session.viewer = self.viewer(participant, view)
        self.sessions.add(session, after_seq, history)
        return session

    def _check_membership(self, participant: str) -> None:
        if self.is_closed:
            raise _closed_error()
        if not self.is_member(participant):
            raise RequestError("you are not in this space any more", kind="forbidden", code="not_a_member")

    def _check_session_limit(self, participant: str) -> None:
        if self.presence.local_count(participant) >= self.settings.limits.seats:
            raise PellucidError(
                ErrorInfo(
                    "too_many_requests",
                    f"{participant!r} has {self.settings.limits.seats} connections, which is the most: close one",
                    code="too_many_connections",
                )
            )

    def regroup(self, session: Session) -> None:
        """It speaks another dialect now."""
        self.sessions.audience.regroup(session)

    def remove(self, session: Session) -> None:
        """Nothing more is written to it."""
        self.sessions.remove(session)

    async def leave(self, session: Session) -> None:
        """Its connection is gone."""
        if session.has_left:
            return
        self.sessions.remove(session)
        # Also if whoever says so is cancelled.
        with suppress(PellucidError):
            await asyncio.shield(self.spawn(self._announce_leave(session)))

    async def _announce_leave(self, session: Session) -> None:
        if session.has_left:
            return
        session.has_left = True
        self.last_used = monotonic()
        if await self.presence.leave(session.participant):
            with suppress(PellucidError):
                await self.append_as_gateway(self.presence.make_leave(session.participant))

    # --- what is said

    def ingest(
        self, participant: str, data: bytes | str | dict[str, Any], size: int | None, session: Session | None = None
    ) -> IngestedEnvelope:
        """Raises `PellucidError` for what cannot be taken."""
        self.last_used = monotonic()
        return self._ingest.process(participant, data, size, None if session is None else session.dialect, session)

    def exceeds_patience(self, participant: str) -> bool:
        return self._ingest.exceeds_patience(participant)

    def put(self, item: WriteRequest) -> None:
        if self.is_closed:
            item.on_result(WriteResult(error=_closed_error()))
        else:
            self.writer.queue.put(item)

    async def post(
        self,
        participant: str,
        data: bytes | dict[str, Any],
        dialect: DialectName | None = None,
        *,
        address: str = "",
    ) -> PostResult:
        """Say something without a seat. It is stored when it comes back. `address`: under which they reached the
        gateway. Raises `PellucidError` for what is refused."""
        self.last_used = monotonic()
        self._check_membership(participant)
        ingested = self._ingest.process(participant, data, None, dialect)
        result = await submit(self.put, partial(ingested.to_request, address=address))
        assert result.stored is not None
        return PostResult(result.stored, result.for_sender)

    async def append_as_gateway(self, make: EnvelopeFactory, *, catch_up: bool = False) -> StoredEnvelope | None:
        """What the gateway says itself. None: there was nothing to say. `look`: the store is asked first what is new.
        Raises `PellucidError`."""
        if catch_up:
            self.writer.queue.request_catch_up()
        return (await submit(self.put, partial(WriteRequest, make=make))).stored

    def forget(self) -> None:
        """Keep nothing of what was said in memory: some of it was erased. Others are told to look."""
        self._live.forget()
        self._maintenance.notify_replicas()

    # --- what is stored

    def deliver(self, stored: Sequence[StoredEnvelope], changes: Sequence[tuple[Change, ...]]) -> None:
        """Called by the writer, as soon as it is stored."""
        effects = effects_of(stored, changes)
        for participant in effects.left:
            if self.presence.is_local(participant):
                # Another replica said so, and they have come in here meanwhile.
                self.put(WriteRequest(ignore_result, make=self.presence.make_join(participant)))
        if effects.configuration_changed:
            self._ingest.reload_limits()
        self.sessions.deliver(stored, effects)

    def on_written(self, stored: Sequence[StoredEnvelope]) -> None:
        """Called by the writer: these were said here."""
        self._maintenance.notify_replicas()
        if self.compression is not None:
            self.compression.on_stored(stored)

    def on_overtaken(self) -> None:
        """Called by the writer: another replica was faster."""
        self._maintenance.announce_contention()

    def on_removed(self) -> None:
        """There is no such space any more."""
        self.is_closed = True
        self.sessions.close(close_codes.SPACE_NOT_FOUND, "there is no such space any more")

    # --- its end

    async def aclose(self) -> None:
        """Say who leaves, and let go."""
        self.last_used = monotonic()
        sessions = self.sessions.all_sessions
        self.sessions.close(close_codes.SERVICE_RESTART, "the server restarts; come back in a moment")
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*(self.leave(session) for session in sessions))
        self.is_closed = True
        self.writer.queue.close(_closed_error())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        """Nothing goes on without it: whoever comes next opens the space anew."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a space broke: %s", error_location(error))
            self.is_closed = True
            self.sessions.close(close_codes.SERVICE_RESTART, "the space broke here; come back in a moment")

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """In the background, until the space is closed."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _closed_error() -> PellucidError:
    return PellucidError(
        ErrorInfo("unavailable", "the space is being closed here; come back", code="space_closed", retry_after=1.0)
    )
