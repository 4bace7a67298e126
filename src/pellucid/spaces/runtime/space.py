"""One space in one process: its sessions, and the way of their envelopes.

The log is in the store. The state is the fold of it (`state`) and is kept by one writer (`writer`). What is stored is
delivered to the sessions (`delivery`).

The time of a space does not go back: if the machine's clock is set back, it continues from its latest value. Silence
and absence are measured by it, also across a restart, because the log has the time of the latest envelope.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import msgspec

from ...envelopes import DialectName, Envelope, Present, close_codes
from ...envelopes.grants import Ledger, ParticipantInvited, RightsChange
from ...envelopes.streams import StreamError, stream_id_of
from ...envelopes.visibility import SpaceView, SpaceViewer
from ...errors import ErrorInfo, PellucidError, RequestError
from ...relay import Relay
from ...storage import SpaceHead, Store, StoredEnvelope
from ...telemetry import error_location, log
from .compression import Compressor, ThoughtCompression
from .delivery import SessionRegistry, effects_of
from .ingest import Ingest
from .live_state import Configuration, LiveState
from .maintenance import Intervals, Maintenance
from .replicas import PresenceTracker, StreamRelay, WriterLease
from .session import Frame, Outlet, Session
from .settings import SpaceSettings
from .state import EnvelopeFactory
from .writer import Writer, WriteRequest, WriteResult, submit


class MonotonicClock:
    """Seconds since 1970 by `clock`, but never less than `since` or than an earlier value."""

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
"""Seconds in which a space that closes announces who leaves."""


class Member(msgspec.Struct, frozen=True):
    """A participant who may join, and whether it is present."""

    id: str
    capabilities: tuple[str | dict[str, Any], ...] = ()
    present: bool = False


class PostResult(msgspec.Struct, frozen=True):
    """The result of a post."""

    stored: StoredEnvelope
    answers: tuple[Envelope, ...] = ()
    """Envelopes for the sender alone: the `space/invite-ack` with the token of an invited participant."""


class Space:
    """One space. Opened by `space_manager.SpaceManager`.

    Args:
        store: The store.
        relay: The relay between replicas.
        live: Its state in memory.
        configuration: Its configuration.
        replica_id: The id of this replica.
        intervals: Intervals of the periodic work.
        clock: Returns seconds since 1970.
        compressor: Summarises several thoughts in one. None: no thoughts are summarised.
    """

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
        compressor: Compressor | None = None,
    ) -> None:
        self.owner = configuration.owner
        self.name = configuration.name
        self.is_closed = False
        self.last_used = monotonic()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._configuration = configuration
        self._live = live
        self._clock = clock = MonotonicClock(clock, live.state.latest_at_ms / 1000)
        self.presence = PresenceTracker(relay, self.name, replica_id, intervals.presence_seconds)
        lease = WriterLease(relay, self.name, replica_id)
        self.writer = Writer(store.spaces, live, configuration, lease, self, clock)
        self._maintenance = Maintenance(
            self.name, replica_id, relay, self.writer, lease, self.presence, intervals, clock
        )
        self.sessions = SessionRegistry(configuration, live, store.spaces, self.now_ms, self.spawn)
        self._ingest = Ingest(configuration, clock)
        self._compression = (
            ThoughtCompression(configuration, store.spaces, compressor, spawn=self.spawn, append=self.append_as_gateway)
            if compressor is not None
            else None
        )
        self._stream_relay = StreamRelay(relay, self.name, replica_id, self._receive_stream_frame, self.catch_up)
        for work in (self.writer.run(), self._maintenance.run(), self._stream_relay.run()):
            self.spawn(work).add_done_callback(self._on_task_done)

    # --- queries

    @property
    def settings(self) -> SpaceSettings:
        return self._configuration.settings

    @property
    def head(self) -> int:
        """Number of the newest envelope that was delivered at this replica."""
        return self.sessions.audience.delivered

    @property
    def is_full(self) -> bool:
        return self.writer.queue.is_full

    @property
    def is_idle(self) -> bool:
        """Whether no participant is connected here, and no absent one has open contexts."""
        return not self.sessions.all_sessions and not self.presence.has_local and not self._live.state.away_since

    def now_ms(self) -> int:
        """Return the time of the space, in milliseconds since 1970."""
        return round(self._clock() * 1000)

    def viewer(self, participant: str, view: SpaceView = "full") -> SpaceViewer:
        """Return what a participant may read now, of the history too."""
        return self._live.state.viewer(participant, view)

    def capabilities(self, participant: str) -> tuple[dict[str, Any], ...]:
        return self._live.state.capabilities(participant)

    def is_member(self, participant: str) -> bool:
        """Check whether a participant may join."""
        return self._live.state.ledger.is_member(participant)

    def members(self) -> Sequence[Member]:
        """Return everyone who may join, and whether they are present at any replica."""
        state = self._live.state
        return [Member(one, state.capabilities(one), one in state.present_since) for one in state.ledger.members]

    def presence_of(self, participant: str) -> Present:
        """Return a participant with its capabilities, for a welcome."""
        return Present(participant, self.capabilities(participant))

    def check_invitation(self, envelope: Envelope) -> None:
        """Check whether an invitation would be accepted now, without sending it.

        Raises:
            RequestError: If it would be refused, or the invited participant is in the space already.
        """
        ruling = Ledger.load(self._live.state.ledger.dump()).feed(envelope)
        if ruling.refusal is not None:
            raise PellucidError(ruling.refusal)
        configured = self._live.state.access.participants
        if any(
            isinstance(one, ParticipantInvited) and (one.status != "created" or one.participant in configured)
            for one in ruling.events
        ):
            raise RequestError(
                "there is a participant of this name already; choose another name",
                kind="conflict",
                code="name_taken",
                param="participant",
            )

    def check_head(self, head: SpaceHead | None) -> None:
        """Read what other replicas have written, if the head in the store is another one than here.

        Args:
            head: The head of the log in the store. None: the space was deleted.
        """
        if head != (self._live.head, self._configuration.version):
            self.writer.queue.request_catch_up()

    async def catch_up(self) -> None:
        """Read what other replicas have written until now: members and envelopes.

        Raises:
            StoreError: If the store fails.
        """
        await self.append_as_gateway(lambda state, time_ms: None, catch_up=True)

    # --- sessions

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
        """Open a session.

        When it returns, the participant is present and the welcome is written. The requested history and then new
        envelopes follow.

        Args:
            participant: Who joins.
            outlet: Where its frames are written.
            dialect: Its dialect. None: detect it from its first envelope.
            view: Its view.
            after_seq: Send everything after this number, as if it were new. A number greater than the head belongs to
                an earlier space of this name, which was deleted: the welcome says so, and everything in this space
                follows, flagged as replayed.
            history: Without `after_seq`: how many of the latest visible envelopes to send, flagged as replayed.
            address: Base URL under which the participant reached the gateway (`wss://host`).

        Raises:
            PellucidError: If the participant may not join.
        """
        self.last_used = monotonic()
        self._check_membership(participant)
        self._check_session_limit(participant)
        session = Session(self, participant, outlet, dialect, self.viewer(participant, view), address)
        try:
            await self.presence.enter(participant)
            # The store is read first: what is in memory may have been erased, or may be incomplete.
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
                    f"{participant!r} has {self.settings.limits.seats} connections, the maximum: close one",
                    code="too_many_connections",
                )
            )

    def regroup(self, session: Session) -> None:
        """Apply a changed dialect of a session."""
        self.sessions.audience.regroup(session)

    def remove(self, session: Session) -> None:
        """Write nothing more to a session."""
        self.sessions.remove(session)

    async def leave(self, session: Session) -> None:
        """End a session whose connection is gone."""
        if session.has_left:
            return
        self.sessions.remove(session)
        # Shielded: the leave is announced even if the caller is cancelled.
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

    # --- envelopes

    def ingest(self, session: Session, data: bytes | str | dict[str, Any], size: int | None) -> WriteRequest:
        """Turn a frame of a session into a request for the writer.

        Raises:
            PellucidError: If it is not valid, or the rate limit is exceeded.
        """
        self.last_used = monotonic()
        return self._ingest.process(
            session.participant, data, size, session.dialect, session.set_dialect, session.address
        )

    def send_stream_frame(self, session: Session, stream_id: str, data: bytes | str) -> None:
        """Deliver a frame of a stream, here and at other replicas. It is not stored.

        Args:
            session: The session of its sender.
            stream_id: The id of the stream.
            data: The frame.

        Raises:
            PellucidError: If there is no such stream, the participant may not write to it (now), or a limit is
                exceeded.
        """
        self.last_used = monotonic()
        self._ingest.charge_stream_frame(session.participant, data)
        state, participant = self._live.state, session.participant
        stream = state.streams.writable(stream_id, participant, state.sees(participant))
        if (error := state.frame_refusal(participant, stream, self.now_ms())) is not None:
            raise StreamError(error.message, error.code or error.kind, stream_id, error.kind)
        try:
            text = data.encode() if isinstance(data, str) else data.decode().encode()
        except UnicodeError:
            raise StreamError(
                "the frames of streams are UTF-8: encode other bytes, as base64",
                "invalid_encoding",
                stream_id,
                "invalid_request",
            ) from None
        self.sessions.deliver_stream_frame(stream, Frame(text), session.participant)
        self._stream_relay.publish(session.participant, text)

    def _receive_stream_frame(self, sender: str, text: bytes) -> bool:
        """Deliver a frame that another replica accepted, if its stream is known here."""
        stream = self._live.state.streams.state.get(stream_id_of(text) or "")
        if stream is None:
            return False
        self.sessions.deliver_stream_frame(stream, Frame(text), sender)
        return True

    def put(self, request: WriteRequest) -> None:
        """Enqueue a request for the writer."""
        if self.is_closed:
            request.on_result(WriteResult(error=_closed_error()))
        else:
            self.writer.queue.put(request)

    async def post(
        self,
        participant: str,
        data: bytes | dict[str, Any],
        dialect: DialectName | None = None,
        *,
        address: str = "",
        notify_sessions: bool = False,
    ) -> PostResult:
        """Send one envelope without a session. It is stored when this returns.

        Args:
            participant: The sender.
            data: The envelope.
            dialect: Its dialect. None: detect it.
            address: Base URL under which the participant reached the gateway.
            notify_sessions: Whether to send a refusal to the participant's sessions at this replica, too.

        Raises:
            PellucidError: If it is refused.
        """
        self.last_used = monotonic()
        self._check_membership(participant)
        envelope: Envelope | None = None
        try:
            request = self._ingest.process(participant, data, None, dialect, address=address)
            envelope = request.envelope
            result = await submit(self.put, request)
        except PellucidError as error:
            if notify_sessions:
                for session in self.sessions.of(participant):
                    session.send_error(error, envelope)
            raise
        assert result.stored is not None
        return PostResult(result.stored, result.for_sender)

    async def append_as_gateway(self, make: EnvelopeFactory, *, catch_up: bool = False) -> StoredEnvelope | None:
        """Write an envelope of the gateway.

        Args:
            make: Builds the envelope when it is judged.
            catch_up: Whether to read first what other replicas have written.

        Returns:
            None if there was nothing to write.

        Raises:
            PellucidError: If it is refused or cannot be stored.
        """
        if catch_up:
            self.writer.queue.request_catch_up()
        return (await submit(self.put, WriteRequest(make=make))).stored

    def forget(self) -> None:
        """Drop all contents from memory, because some of them were erased, and notify other replicas."""
        self._live.forget()
        self._maintenance.notify_replicas()

    # --- calls of the writer

    def deliver(self, stored: Sequence[StoredEnvelope], changes: Sequence[tuple[RightsChange, ...]]) -> None:
        """Deliver a commit, as soon as it is stored."""
        effects = effects_of(stored, changes)
        for participant in effects.left:
            if self.presence.is_local(participant):
                # Another replica announced it, and the participant has joined here in the meantime.
                self.put(WriteRequest(make=self.presence.make_join(participant)))
        if effects.configuration_changed:
            self._ingest.reload_limits()
        self.sessions.deliver(stored, effects)

    def on_written(self, stored: Sequence[StoredEnvelope]) -> None:
        """Notify other replicas of envelopes that this one wrote."""
        self._maintenance.notify_replicas()
        if self._compression is not None:
            self._compression.on_stored(stored)

    def on_overtaken(self) -> None:
        """Ask other replicas to use the writer lease."""
        self._maintenance.announce_contention()

    def on_removed(self) -> None:
        """Close all sessions, because the space was deleted."""
        self.is_closed = True
        self.sessions.close(close_codes.SPACE_NOT_FOUND, "there is no such space any more")

    # --- closing

    async def aclose(self) -> None:
        """Announce that all participants leave, and release everything."""
        self.last_used = monotonic()
        sessions = self.sessions.all_sessions
        self.sessions.close(close_codes.SERVICE_RESTART, "the server restarts; connect again in a moment")
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*(self.leave(session) for session in sessions))
        self.is_closed = True
        self._ingest.refusals.flush()
        self.writer.queue.close(_closed_error())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        """Close the space if one of its main tasks failed. The next participant opens it again."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a space failed: %s", error_location(error))
            self.is_closed = True
            self.sessions.close(close_codes.SERVICE_RESTART, "the space failed here; connect again in a moment")

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a task, until the space is closed."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _closed_error() -> PellucidError:
    return PellucidError(
        ErrorInfo("unavailable", "the space is being closed here; connect again", code="space_closed", retry_after=1.0)
    )
