"""The sessions of a space at this replica, and the delivery of stored envelopes to them.

* Every session gets what it may see: one write for each commit, of frames that are encoded once. Sessions with the same
  dialect and the same rights to read are a group. The frames for a viewer who has nothing to do with the commit are
  worked out once for the group. They differ only for the sender of an envelope, its recipients, and the owner of what
  it ends. Those see at least the same frames (see `envelopes.visibility`).
* A session whose outlet is full lags. Nothing more is written to it, and the visible envelopes that it misses are
  counted until its outlet is drained.
* A session that joins or comes back reads the log on its own (`session.last_seq`) until it is in the audience.
  It gets the following envelopes page by page, as fast as its outlet takes them. When nothing is left that was
  delivered to others, it is added to the audience in the same step, so that nothing comes in between. Envelopes that
  are not delivered yet are not read ahead.
* A participant whose rights change gets a new welcome, and reads by the new rights from that commit on. A removed
  participant gets the envelope that removed it and is then disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from ...envelopes import GATEWAY, DialectName, Present, close_codes, gateway_messages
from ...envelopes.grants import ConfiguredRevoked, GrantAdded, GrantEnded, ParticipantKicked, RightsChange
from ...envelopes.kinds import CANCEL, CONFIGURED, PRESENCE
from ...envelopes.streams import Stream
from ...envelopes.visibility import SpaceViewer, is_shown
from ...errors import PellucidError
from ...storage import Spaces, StoredEnvelope
from ...telemetry import error_location, log
from .ids import new_id
from .live_state import Configuration, LiveState
from .session import Frame, RawWrite, Session, encode_frame

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]
"""Runs a coroutine as a task, until the space is closed."""

ANONYMOUS_ID = ""
"""An id that no participant has."""
PAGE_SIZE = 200
MAX_SCANNED_PAGES = 20
"""How many pages are scanned for the requested number of visible envelopes."""
MAX_ATTEMPTS = 5
RETRY_PAUSE_SECONDS = 0.5


class _Commit:
    """The envelopes of one commit, with their frames."""

    def __init__(self, stored: Sequence[StoredEnvelope]) -> None:
        self.stored = stored
        self.concerned: set[str] = set()
        """Ids of participants who may see more than an unrelated viewer."""
        self._frames: dict[DialectName, list[Frame | None]] = {}
        for one in stored:
            envelope = one.envelope
            self.concerned.add(envelope.sender)
            self.concerned.update(envelope.recipients)
            if envelope.kind == CANCEL and one.place.owner is not None:
                self.concerned.add(one.place.owner)

    def frames(self, dialect: DialectName, viewer: SpaceViewer, limit: int | None = None) -> list[Frame]:
        """Return the frames that the viewer may see.

        Args:
            dialect: The dialect of the frames.
            viewer: Who reads.
            limit: Only the first envelopes of the commit. None: all.
        """
        cached = self._frames.get(dialect)
        if cached is None:
            cached = self._frames[dialect] = [None] * len(self.stored)
        out: list[Frame] = []
        for number, one in enumerate(self.stored[:limit] if limit is not None else self.stored):
            if is_shown(one.envelope, one.place, viewer):
                frame = cached[number]
                if frame is None:
                    frame = cached[number] = encode_frame(one.with_flags, dialect)
                out.append(frame)
        return out


class _AudienceGroup:
    """Sessions with the same dialect and the same rights to read."""

    def __init__(self, dialect: DialectName, anonymous_viewer: SpaceViewer) -> None:
        self.key = dialect, anonymous_viewer
        self.dialect = dialect
        self.anonymous_viewer = anonymous_viewer
        self.raw_writes: dict[Session, RawWrite] = {}
        """Sessions with a direct write function."""
        self.indirect: dict[Session, None] = {}

    def discard(self, session: Session) -> None:
        self.raw_writes.pop(session, None)
        self.indirect.pop(session, None)

    def __bool__(self) -> bool:
        return bool(self.raw_writes or self.indirect)


class Audience:
    """The sessions that are up to date and receive new envelopes at once."""

    def __init__(self, configuration: Configuration, *, delivered: int) -> None:
        self.delivered = delivered
        """Number of the newest delivered envelope."""
        self.configure(configuration)
        self._groups: dict[tuple[DialectName, SpaceViewer], _AudienceGroup] = {}
        self._lagging: dict[Session, None] = {}

    def configure(self, configuration: Configuration) -> None:
        """Apply the settings of the space."""
        self.max_buffered_bytes = configuration.settings.limits.outlet_bytes
        """Maximum number of bytes that may wait in an outlet."""

    def add(self, session: Session) -> None:
        """Add a session that is up to date."""
        key = (session.wire_dialect, replace(session.viewer, participant=ANONYMOUS_ID))
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _AudienceGroup(*key)
        session.group_key = group.key
        self._choose_write_path(session)
        session.outlet.watch(partial(self._choose_write_path, session))

    def _choose_write_path(self, session: Session) -> None:
        if session.group_key is None:
            return
        group = self._groups[session.group_key]
        group.discard(session)
        raw_write = session.outlet.raw_write
        if raw_write is not None:
            group.raw_writes[session] = raw_write
        else:
            group.indirect[session] = None

    def discard(self, session: Session) -> None:
        """Remove a session, if it is in the audience."""
        self._lagging.pop(session, None)
        if session.group_key is None:
            return
        session.outlet.watch(None)
        group = self._groups[session.group_key]
        group.discard(session)
        if not group:
            del self._groups[session.group_key]
        session.group_key = None

    def regroup(self, session: Session) -> None:
        """Move a session to another group after its dialect or rights changed."""
        if session.group_key is not None:
            self.discard(session)
            self.add(session)

    def deliver(self, stored: Sequence[StoredEnvelope], removed: dict[str, int]) -> list[Session]:
        """Deliver a commit to all sessions of the audience.

        Args:
            stored: The envelopes.
            removed: Participants that one of these envelopes removes, with its index in `stored`. They see nothing
                after it.

        Returns:
            The sessions whose outlet is full now. They lag from here on.
        """
        commit = _Commit(stored)
        concerned, max_buffered_bytes = commit.concerned, self.max_buffered_bytes
        full: list[tuple[Session, int]] = []
        broken: list[Session] = []
        for group in self._groups.values():
            shared = commit.frames(group.dialect, group.anonymous_viewer)
            is_uniform = len(shared) == len(stored) and not removed
            sessions = [*group.indirect] if is_uniform else [*group.raw_writes, *group.indirect]
            if is_uniform:
                data = shared[0].wire if len(shared) == 1 else b"".join([frame.wire for frame in shared])
                failed_writes: list[RawWrite] = []
                # Only the write functions are touched here. A broadcast is one system call for each session, and
                # further attribute accesses in this loop would cost as much again.
                for raw_write in tuple(group.raw_writes.values()):
                    try:
                        raw_write(data)
                    except Exception:
                        failed_writes.append(raw_write)
                if failed_writes:
                    # Write through their outlets, which handle the failure.
                    sessions += [
                        session for session, raw_write in group.raw_writes.items() if raw_write in failed_writes
                    ]
            for session in sessions:
                frames = shared
                if not is_uniform:
                    participant = session.participant
                    if participant in removed:
                        frames = commit.frames(group.dialect, session.viewer, removed[participant] + 1)
                    elif participant in concerned:
                        frames = commit.frames(group.dialect, session.viewer)
                if frames:
                    outlet = session.outlet
                    if outlet.buffered_bytes > max_buffered_bytes:
                        full.append((session, len(frames)))
                        continue
                    try:
                        outlet.write(frames)
                    except Exception as error:
                        log.error("an outlet failed: %s", error_location(error))
                        broken.append(session)
        for session in self._lagging:
            session.missed_count += len(
                commit.frames(
                    session.wire_dialect, session.viewer, removed.get(session.participant, len(stored) - 1) + 1
                )
            )
        for session in broken:
            session.close(close_codes.INTERNAL_ERROR, "an envelope could not be sent")
        for session, missed in full:
            self.discard(session)
            self._lagging[session] = None
            session.missed_count = missed
        self.delivered = stored[-1].envelope.seq
        return [session for session, _ in full]


class Effects(NamedTuple):
    """What a commit means for sessions."""

    removed: dict[str, int]
    """Participants who are removed, with the index of the envelope that removes them."""
    rights_changed: set[str]
    """Participants who hold more or less than before."""
    left: list[str]
    configuration_changed: bool


def effects_of(stored: Sequence[StoredEnvelope], changes: Sequence[tuple[RightsChange, ...]]) -> Effects:
    """Return the effects of a commit.

    Args:
        stored: The envelopes.
        changes: The changes by each of them.
    """
    effects = Effects({}, set(), [], any(_is_gateway_kind(one, CONFIGURED) for one in stored))
    for number, (one, some) in enumerate(zip(stored, changes, strict=True)):
        for change in some:
            match change:
                case ParticipantKicked(participant=participant):
                    effects.removed.setdefault(participant, number)
                case GrantAdded(grant=grant):
                    effects.rights_changed.add(grant.recipient)
                case GrantEnded(recipient=recipient) | ConfiguredRevoked(recipient=recipient):
                    effects.rights_changed.add(recipient)
        if _is_gateway_kind(one, PRESENCE) and one.envelope.payload.get("event") == "leave":
            present = one.envelope.payload.get("participant")
            if isinstance(present, dict):
                effects.left.append(str(present["id"]))
    return effects


def _is_gateway_kind(stored: StoredEnvelope, kind: str) -> bool:
    return stored.envelope.kind == kind and stored.envelope.sender == GATEWAY


class SessionRegistry:
    """The sessions of a space at this replica."""

    def __init__(
        self,
        configuration: Configuration,
        live: LiveState,
        spaces: Spaces,
        now_ms: Callable[[], int],
        spawn: Spawn,
    ) -> None:
        self._configuration = configuration
        self._live = live
        self._spaces = spaces
        self._now_ms = now_ms
        self._spawn = spawn
        self._by_participant: dict[str, dict[Session, None]] = {}
        """Sessions by participant."""
        self.audience = Audience(configuration, delivered=live.head)

    @property
    def all_sessions(self) -> list[Session]:
        return [session for own_sessions in self._by_participant.values() for session in own_sessions]

    def of(self, participant: str) -> list[Session]:
        """Return the sessions of a participant."""
        return list(self._by_participant.get(participant, ()))

    def add(self, session: Session, after_seq: int | None, history: int) -> None:
        """Welcome a session and bring it up to date."""
        self._by_participant.setdefault(session.participant, {})[session] = None
        self._send_welcome(session, after_seq)
        self._begin_catch_up(session, after_seq, history)

    def remove(self, session: Session) -> None:
        """Write nothing more to a session."""
        self.audience.discard(session)
        session.stop()
        own_sessions = self._by_participant.get(session.participant)
        if own_sessions is not None:
            own_sessions.pop(session, None)
            if not own_sessions:
                del self._by_participant[session.participant]

    def close(self, code: int, reason: str) -> None:
        """Close all sessions."""
        for session in self.all_sessions:
            session.close(code, reason)

    def deliver_stream_frame(self, stream: Stream, frame: Frame, sender: str) -> None:
        """Write a frame of a stream to its readers and its sender, except those that are not up to date or too slow."""
        for session in self.all_sessions:
            if session.group_key is None or session.outlet.buffered_bytes > self.audience.max_buffered_bytes:
                continue
            if session.participant == sender or stream.is_read_by(session.viewer):
                session.outlet.write([frame])

    def deliver(self, stored: Sequence[StoredEnvelope], effects: Effects) -> None:
        """Deliver a commit, with its effects on rights and members."""
        affected = effects.rights_changed
        if effects.configuration_changed:
            self.audience.configure(self._configuration)
            affected = affected.union(self._by_participant)
        self._update_rights(affected)
        before = self.audience.delivered
        full = self.audience.deliver(stored, effects.removed)
        for session in full:
            session.last_seq = before
            session.catch_up_task = self._spawn(self._resume_after_drain(session))
        is_member = self._live.state.ledger.is_member
        for participant in {*effects.removed, *(one for one in affected if not is_member(one))}:
            for session in self.of(participant):
                session.close(close_codes.FORBIDDEN, "you are not in this space any more")

    def _update_rights(self, participants: Iterable[str]) -> None:
        """Apply changed rights of participants to their sessions, and send them a new welcome."""
        state = self._live.state
        for participant in participants:
            for session in self.of(participant):
                viewer = state.viewer(participant, session.viewer.view)
                if viewer != session.viewer:
                    session.viewer = viewer
                    self.audience.regroup(session)
                if state.ledger.is_member(participant) and session.capabilities != state.capabilities(participant):
                    self._send_welcome(session)

    def _send_welcome(self, session: Session, after_seq: int | None = None) -> None:
        state = self._live.state
        streams = [one for one in state.streams.state.values() if one.is_read_by(session.viewer)]
        unknown_position = (
            {} if after_seq is None or after_seq <= self.audience.delivered else {"unknown_after_seq": after_seq}
        )
        session.capabilities = state.capabilities(session.participant)
        others = [Present(one, state.capabilities(one)) for one in state.present_since if one != session.participant]
        session.write(
            gateway_messages.welcome(
                new_id(),
                self._now_ms(),
                Present(session.participant, session.capabilities),
                others,
                space=self._configuration.name,
                head=self.audience.delivered,
                view=session.viewer.view,
                **({"talk": counts} if (counts := state.talk_counts(self._now_ms())) else {}),
                active_streams=[one.describe() for one in streams],
                **unknown_position,
            )
        )

    # --- bringing a session up to date

    def _begin_catch_up(self, session: Session, after: int | None, history: int) -> None:
        """Start with a session whose welcome is the only thing that is written.

        Args:
            session: The session.
            after: The last envelope that its participant has. None: none was named.
            history: How many of the latest visible envelopes it wants, if `after` is None.
        """
        session.last_seq = self.audience.delivered if after is None else after
        if session.last_seq > self.audience.delivered:
            # The number belongs to an earlier space of this name. Everything in this one is new to them, and past.
            session.last_seq, session.replayed_until = 0, self.audience.delivered
        history = history if after is None else 0
        if history > 0 or not self._catch_up_from_memory(session):
            session.catch_up_task = self._spawn(self._catch_up_with_retries(session, history))

    async def _resume_after_drain(self, session: Session) -> None:
        """Wait until the session's full outlet is drained, then return it to the audience."""
        await session.outlet.wait_drained()
        if session.is_stopped:
            return
        if session.missed_count:
            gap = gateway_messages.gap(
                new_id(),
                self._now_ms(),
                session.participant,
                after=session.last_seq,
                before=self.audience.delivered + 1,
                missed=session.missed_count,
            )
            session.write(gap)
            session.missed_count = 0
        session.catch_up_task = None
        self.audience.discard(session)
        self.audience.add(session)

    def _catch_up_from_memory(self, session: Session) -> bool:
        """Write what the session missed, if all of it is in memory.

        Returns:
            Whether the session is up to date.
        """
        if session.last_seq < self.audience.delivered:
            recent = self._live.recent.after(session.last_seq, PAGE_SIZE + 1)
            if recent is None or len(recent) > PAGE_SIZE:
                return False
            self._write_page(session, recent)
        self.audience.add(session)
        return True

    async def _catch_up_with_retries(self, session: Session, history: int) -> None:
        attempts = 0
        while not session.is_stopped:
            try:
                if history:
                    await self._replay(session, history)
                    history = 0
                await self._catch_up(session)
                return
            except PellucidError:
                attempts += 1
                if attempts == MAX_ATTEMPTS:
                    session.close(close_codes.TRY_AGAIN_LATER, "the history does not answer; connect again in a moment")
                    return
                await asyncio.sleep(RETRY_PAUSE_SECONDS * attempts)
        self.audience.discard(session)

    async def _catch_up(self, session: Session) -> None:
        while session.last_seq < self.audience.delivered and not session.is_stopped:
            page = self._live.recent.after(session.last_seq, PAGE_SIZE)
            if page is None:
                page = await self._page(after=session.last_seq, before=self.audience.delivered + 1, limit=PAGE_SIZE)
            if not page:
                break
            self._write_page(session, page)
            if session.outlet.buffered_bytes:
                await session.outlet.wait_drained()
            else:
                await asyncio.sleep(0)
        if not session.is_stopped:
            session.catch_up_task = None
            self.audience.add(session)

    def _write_page(self, session: Session, page: list[StoredEnvelope]) -> None:
        frames = [
            _encode(one, session, replayed=one.envelope.seq <= session.replayed_until)
            for one in page
            if self._is_shown(one, session)
        ]
        session.last_seq = page[-1].envelope.seq
        if frames:
            session.outlet.write(frames)

    async def _replay(self, session: Session, count: int) -> None:
        """Write the latest visible envelopes, flagged as replayed.

        Their beginning is searched first. The scanned pages are not held in memory, unless it was a single one.
        """
        end = session.last_seq + 1
        step = max(PAGE_SIZE, min(count, 1000))
        first = before = end
        visible_count = scanned_count = 0
        only_page: list[StoredEnvelope] | None = None
        while visible_count < count and before > 1 and scanned_count < MAX_SCANNED_PAGES * step:
            page = await self._page(before=before, limit=step, newest=True)
            if not page:
                break
            only_page = page if scanned_count == 0 else None
            seqs = [one.envelope.seq for one in page if self._is_shown(one, session)][visible_count - count :]
            first = seqs[0] if seqs else first
            visible_count, scanned_count, before = (
                visible_count + len(seqs),
                scanned_count + len(page),
                page[0].envelope.seq,
            )
        if only_page is not None:
            await self._write_replayed(session, [one for one in only_page if one.envelope.seq >= first])
            return
        after = first - 1
        while after < end - 1 and not session.is_stopped:
            page = await self._page(after=after, before=end, limit=PAGE_SIZE)
            if not page:
                break
            after = page[-1].envelope.seq
            await self._write_replayed(session, page)

    async def _write_replayed(self, session: Session, page: list[StoredEnvelope]) -> None:
        shown = [one for one in page if self._is_shown(one, session)]
        for start in range(0, len(shown), PAGE_SIZE):
            if session.is_stopped:
                return
            some = shown[start : start + PAGE_SIZE]
            session.outlet.write([_encode(one, session, replayed=True) for one in some])
            await session.outlet.wait_drained()

    def _is_shown(self, one: StoredEnvelope, session: Session) -> bool:
        return is_shown(one.envelope, one.place, session.viewer)

    async def _page(self, **query: Any) -> list[StoredEnvelope]:
        """Read a page of the log.

        Raises:
            StoreError: If the store fails.
        """
        return await self._spaces.page(self._configuration.owner, self._configuration.name, **query)


def _encode(stored: StoredEnvelope, session: Session, *, replayed: bool) -> Frame:
    envelope = stored.with_flags
    return encode_frame(replace(envelope, replayed=True) if replayed else envelope, session.wire_dialect)
