"""The one task of a space that judges, stores and delivers envelopes.

    take all that waits -> judge it at the head -> append it in one transaction -> deliver it -> report the results

* A result is reported only after the envelope is stored. A refusal counts only at the head of the log: if nothing is
  appended, the store is first asked whether there is more.
* If another replica was faster (`AppendConflict`), the state is rolled back, the new envelopes are read and delivered,
  and everything is judged again.
* If the store does not say whether it appended, the log is read. If that is not possible either, the sender gets
  `unavailable`. If the envelope was stored after all, it is delivered when the store is back, and a sender who repeats
  it gets the same result.
* If the store refuses a batch because of one envelope, each envelope is tried alone.
* Ids are unique in a space: an id that another participant has used is refused. A sender may repeat its own envelope,
  which is stored once; and may use its own id again for another one, because MEW's clients count theirs from the start
  in every process.

A batch is judged together, stored in one transaction, and its results are reported together. Judging does not wait for
anything: names that only the history knows are looked up before.

Invitations: when one is accepted, a token is created. Its digest is stored in the same transaction, and only the
inviter gets the token, once (`space/invite-ack`). A participant who is in the space already, or has a token from the
operator, gets none, so that an invitation cannot take over another participant's place.

Replicas that write to the same space at the same time use a lease for a while, so that none is overtaken for ever
(`WriterLease`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from ...envelopes import GATEWAY, Envelope, gateway_messages, kinds
from ...envelopes.envelope import refuse
from ...envelopes.grants import ParticipantInvited, RightsChange
from ...envelopes.reasoning import NO_NAMES, NameSet
from ...errors import ErrorInfo, PellucidError
from ...storage import Append, AppendConflict, SpaceNotFound, Spaces, StoredEnvelope, StoredParticipant
from ...storage.errors import IdsExist, StoreUnavailable
from ...telemetry import error_location, log
from ...unicode import truncate
from .ids import digest_of, new_id, new_token
from .live_state import INVITED, Configuration, LiveState
from .replicas import WriterLease
from .state import EnvelopeFactory, SpaceState


class WriteResult(msgspec.Struct, eq=False):
    """The result of a write request."""

    stored: StoredEnvelope | None = None
    """None without an error: there was nothing to write."""
    error: PellucidError | None = None
    is_new: bool = True
    """False: it was sent before, and `stored` is what was stored then."""
    for_sender: tuple[Envelope, ...] = ()
    """Envelopes for its sender alone."""


def _ignore_result(result: WriteResult) -> None:
    pass


class WriteRequest(msgspec.Struct, eq=False, kw_only=True):
    """One envelope to be judged, or a factory of one."""

    envelope: Envelope | None = None
    make: EnvelopeFactory | None = None
    has_sender_id: bool = False
    """Whether its sender chose its id. Then it may be a repetition."""
    has_sender_ts: bool = False
    """Whether its sender chose its time. Then a repetition has the same time."""
    size_bytes: int = 0
    redacted: tuple[str, ...] = ()
    """Names of the patterns that matched something in it."""
    address: str = ""
    """Base URL under which its sender reached the gateway, `wss://host`, if known."""
    on_result: Callable[[WriteResult], None] = _ignore_result
    """Receives its one result: what was stored, or the error. It is called in the writer's task and must not block."""


class WriteQueue:
    """Requests in order, with the number of bytes that wait."""

    MAX_BATCH = 500
    MAX_BATCH_BYTES = 4 << 20
    MAX_QUEUED_BYTES = 32 << 20
    """Waiting bytes above which no more frames are read until there is space again."""

    def __init__(self) -> None:
        self._requests: deque[WriteRequest] = deque()
        self._work = asyncio.Event()
        self._catch_up_requested = False
        self.size_bytes = 0

    def put(self, request: WriteRequest) -> None:
        """Add a request."""
        self._requests.append(request)
        self.size_bytes += request.size_bytes
        self._work.set()

    def request_catch_up(self) -> None:
        """Ask the writer to read what other replicas may have written."""
        self._catch_up_requested = True
        self._work.set()

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def is_full(self) -> bool:
        """Whether so many bytes wait that no more frames are read."""
        return self.size_bytes > self.MAX_QUEUED_BYTES

    async def take(self) -> tuple[list[WriteRequest], bool]:
        """Wait for requests or for a request to catch up.

        Returns:
            The waiting requests, at most one batch of them; and whether to read what other replicas wrote.
        """
        await self._work.wait()
        taken: list[WriteRequest] = []
        size_bytes = 0
        while self._requests and len(taken) < self.MAX_BATCH and size_bytes < self.MAX_BATCH_BYTES:
            request = self._requests.popleft()
            size_bytes += request.size_bytes
            taken.append(request)
        self.size_bytes -= size_bytes
        catch_up_requested, self._catch_up_requested = self._catch_up_requested, False
        if not self._requests:
            self._work.clear()
        return taken, catch_up_requested

    def close(self, error: PellucidError) -> None:
        """Fail everything that waits."""
        waiting, self._requests, self.size_bytes = self._requests, deque(), 0
        _fail_all(waiting, error)


async def submit(put: Callable[[WriteRequest], None], request: WriteRequest) -> WriteResult:
    """Enqueue a request and wait for its result.

    Raises:
        PellucidError: Why the envelope was refused.
    """
    future: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()

    def on_result(result: WriteResult) -> None:
        if not future.done():
            future.set_result(result)

    request.on_result = on_result
    put(request)
    result = await future
    if result.error is not None:
        raise result.error
    return result


class WriteBatch:
    """Envelopes that are judged, stored and reported together."""

    def __init__(self, state: SpaceState, time_ms: int, space: str) -> None:
        self._state = state
        self._space = space
        self._at = time_ms
        self._results: list[tuple[WriteRequest, WriteResult]] = []
        self.stored: list[StoredEnvelope] = []
        self.changes: list[tuple[RightsChange, ...]] = []
        self.invited: list[StoredParticipant] = []
        self.new_ids: list[str] = []
        """Ids that senders chose for what was accepted, which must not be in the log."""
        self.refused_ids: list[str] = []
        """The same of what was refused. If one is in the log, that counts, and not the other reason."""
        self.has_refusals = False
        """Whether something was refused that might be accepted after envelopes of other replicas."""

    def judge(
        self,
        requests: Sequence[WriteRequest],
        configuration: Configuration,
        known: NameSet,
        earlier: dict[tuple[str, str], StoredEnvelope],
        live: LiveState,
    ) -> None:
        """Judge all requests, in order.

        Args:
            requests: The requests.
            configuration: The configuration of the space.
            known: Names that only the history knows.
            earlier: Earlier envelopes with the same senders and ids.
            live: The state in memory.
        """
        payload = self._state.configuration_change(configuration.access)
        if payload is not None:
            self._accept(configuration.to_envelope(payload, self._at), NO_NAMES)
        new: dict[tuple[str, str], StoredEnvelope] = {}
        for request in requests:
            envelope = request.envelope if request.make is None else request.make(self._state, self._at)
            if envelope is None:
                self._results.append((request, WriteResult()))
                continue
            key = (envelope.sender, envelope.id)
            old = None
            if request.has_sender_id:
                old = new.get(key) or live.recent.get(*key) or earlier.get(key)
                if old is not None and _is_resend(old.envelope, envelope, request.has_sender_ts):
                    self._results.append((request, WriteResult(old, is_new=False)))
                    self.has_refusals = True
                    continue
                if old is None and (envelope.id in known.ids or self._state.knows(envelope.id)):
                    self._results.append((request, WriteResult(error=PellucidError(_taken_id_error(envelope.id)))))
                    self.has_refusals = True
                    continue
            is_new_id = request.has_sender_id and old is None
            stored, result = self._accept(envelope, known, request.redacted, request.address)
            self._results.append((request, result))
            if is_new_id:
                (self.refused_ids if stored is None else self.new_ids).append(envelope.id)
            if stored is not None:
                new[key] = stored
                for notice in self._state.talk_notices(stored):
                    self._accept(notice, NO_NAMES)

    def _accept(
        self, envelope: Envelope, known: NameSet, redacted: tuple[str, ...] = (), address: str = ""
    ) -> tuple[StoredEnvelope | None, WriteResult]:
        outcome = self._state.judge(envelope, self._at, known, redacted)
        if outcome.error is not None:
            self.has_refusals = self.has_refusals or envelope.sender != GATEWAY
            return None, WriteResult(error=PellucidError(outcome.error))
        stored = outcome.stored
        assert stored is not None
        self.stored.append(stored)
        self.changes.append(outcome.changes)
        answers = [
            self._invite(change, stored, address)
            for change in outcome.changes
            if isinstance(change, ParticipantInvited)
        ]
        for follow_up in self._state.stream_follow_ups(stored.envelope, outcome.changes):
            _, result = self._accept(replace(follow_up, id=new_id(), ts=self._at), known)
            if result.error is not None:
                answers.append(
                    gateway_messages.error(new_id(), self._at, envelope.sender, result.error, stored.envelope)
                )
        return stored, WriteResult(stored, for_sender=tuple(answers))

    def _invite(self, change: ParticipantInvited, stored: StoredEnvelope, address: str) -> Envelope:
        """Add the invited participant to the batch.

        Returns:
            The answer for the inviter.
        """
        payload = {"status": change.status, "participant_id": change.participant}
        if change.status == "created" and change.participant not in self._state.access.participants:
            token = new_token()
            payload |= {"token": token, "connection_url": f"{address}/spaces/{self._space}/ws"}
            self.invited.append(
                StoredParticipant(
                    id=change.participant, token_hash=digest_of(token), origin=INVITED, created_at=stored.at / 1000
                )
            )
        return gateway_messages.invite_ack(new_id(), stored.at, stored.envelope, payload)

    def report_results(self) -> None:
        """Report the result of each request."""
        for request, result in self._results:
            request.on_result(result)


def _taken_id_error(id: str) -> ErrorInfo:
    return refuse(
        "id_conflict",
        f"id {truncate(id)!r} belongs to another participant's envelope: use one that is new in this space, or none",
        param="id",
    )


def _is_resend(old: Envelope, new: Envelope, has_sender_ts: bool) -> bool:
    """Check whether an envelope repeats an earlier one, in any dialect.

    A sender who sets the time (`has_sender_ts`) repeats it with the same time. Another time means that ids were counted
    from the start again, as MEW's clients do in every process.
    """
    if has_sender_ts and new.ts != old.ts:
        return False
    return old == replace(new, seq=old.seq, ts=old.ts, dialect=old.dialect, audience=old.audience)


PAGE_SIZE = 500


class WriterObserver(Protocol):
    """Is notified by the writer."""

    def deliver(self, stored: Sequence[StoredEnvelope], changes: Sequence[tuple[RightsChange, ...]]) -> None:
        """Deliver envelopes that are stored. The state is the one after them."""
        ...

    def on_written(self, stored: Sequence[StoredEnvelope]) -> None:
        """Handle that this replica wrote envelopes, so others have something to read."""
        ...

    def on_overtaken(self) -> None:
        """Handle that another replica was faster, so others should use the lease."""
        ...

    def on_removed(self) -> None:
        """Handle that the space was deleted."""
        ...


class Writer:
    """Writes the log of one space.

    Args:
        spaces: The store's spaces.
        live: The state in memory.
        configuration: The configuration of the space.
        lease: The writer lease.
        observer: Is notified of what is stored.
        clock: Returns seconds since 1970.
    """

    def __init__(
        self,
        spaces: Spaces,
        live: LiveState,
        configuration: Configuration,
        lease: WriterLease,
        observer: WriterObserver,
        clock: Callable[[], float],
    ) -> None:
        self.queue = WriteQueue()
        self.live = live
        self.configuration = configuration
        self._spaces = spaces
        self._lease = lease
        self._observer = observer
        self._clock = clock
        self._may_be_behind = True
        """Whether the log may have more than is known here."""
        self._taken_ids: frozenset[str] = frozenset()
        """Ids of the current batch that are in the log already, according to the store."""

    async def run(self) -> None:
        """Write batches until cancelled."""
        while True:
            requests, catch_up_requested = await self.queue.take()
            self._may_be_behind = self._may_be_behind or catch_up_requested
            try:
                await self._write(requests)
            except PellucidError as error:
                _fail_all(requests, error)
                if not requests:
                    # No caller waits for it; maintenance asks again.
                    await asyncio.sleep(0)
            except Exception as error:
                log.error("a space could not be written to: %s", error_location(error))
                self._roll_back()
                _fail_all(requests, _server_error())
            except BaseException:
                _fail_all(requests, _closing_error())
                raise

    async def _write(self, requests: list[WriteRequest]) -> None:
        self._taken_ids = frozenset()
        while True:
            async with self._lease.acquire():
                if self._may_be_behind or self._lease.is_contended:
                    await self.catch_up()
                batch = WriteBatch(self.live.state, round(self._clock() * 1000), self.configuration.name)
                known = await self._known_names(requests)
                earlier = await self._earlier_envelopes(requests, known)
                batch.judge(requests, self.configuration, known, earlier, self.live)
                if batch.refused_ids and (taken := await self._existing(NameSet(frozenset(batch.refused_ids)))).ids:
                    self._roll_back()
                    self._taken_ids |= taken.ids
                    continue
                if not batch.stored:
                    if batch.has_refusals and await self._is_behind():
                        self._may_be_behind = True
                        continue
                    batch.report_results()
                    return
                if await self._store(requests, batch):
                    return

    async def _store(self, requests: list[WriteRequest], batch: WriteBatch) -> bool:
        """Store a batch.

        Returns:
            Whether it is finished: stored, or finally refused.
        """
        live, expected = self.live, self.live.head
        dump = live.state.dump() if live.is_snapshot_due else None
        append = Append(
            owner=self.configuration.owner,
            space=self.configuration.name,
            expected_head=expected,
            version=self.configuration.version,
            envelopes=batch.stored,
            new_ids=batch.new_ids,
            state=dump,
            participants=batch.invited,
        )
        try:
            await self._spaces.append(append)
        except IdsExist as error:
            self._roll_back()
            self._taken_ids |= error.ids
            return False
        except AppendConflict:
            self._roll_back()
            self._lease.mark_contended()
            self._observer.on_overtaken()
            return False
        except (PellucidError, ValueError) as error:
            self._roll_back()
            if await self._was_stored(batch.stored):
                batch.report_results()
                self._observer.on_written(batch.stored)
                return True
            if len(requests) > 1 and not isinstance(error, StoreUnavailable):
                for request in requests:
                    try:
                        await self._write([request])
                    except PellucidError as single_error:
                        _fail_all([request], single_error)
                return True
            raise error if isinstance(error, PellucidError) else _server_error() from error
        except BaseException:
            self._roll_back()
            raise
        live.accept(batch.stored, dump)
        self._observer.deliver(batch.stored, batch.changes)
        batch.report_results()
        self._observer.on_written(batch.stored)
        return True

    def _roll_back(self) -> None:
        """Undo what was judged and not stored; the log may have more than is known here."""
        self.live.roll_back()
        self._may_be_behind = True

    async def _was_stored(self, stored: Sequence[StoredEnvelope]) -> bool:
        """Check whether envelopes are in the log, after an append with an unknown result.

        Returns:
            False also if the log cannot be read.
        """
        try:
            await self.catch_up()
            after = stored[0].envelope.seq - 1
            found_rows: list[StoredEnvelope] = []
            while len(found_rows) < len(stored) and (
                some := await self._page(after + len(found_rows), len(stored) - len(found_rows))
            ):
                found_rows += some
        except PellucidError:
            return False
        return [one.envelope for one in found_rows] == [one.envelope for one in stored]

    # --- the log of other replicas

    async def catch_up(self) -> None:
        """Read and deliver the new envelopes of the log.

        Raises:
            SpaceNotFound: If the space was deleted.
            StoreError: If the store fails.
        """
        self._may_be_behind = True
        head = await self._spaces.head(self.configuration.owner, self.configuration.name)
        if head is None or head.head < self.live.head:
            # Deleted; or the store was restored to an older state, and this is another space of the same name.
            self._observer.on_removed()
            raise SpaceNotFound(self.configuration.name)
        if head.version != self.configuration.version:
            await self.configuration.reload(self._spaces)
            self.live.state.configure(self.configuration.settings)
            self.live.forget()
        while self.live.head < head.head:
            new = await self._page(self.live.head, PAGE_SIZE)
            if not new:
                break
            changes = self.live.apply_remote(new)
            self._observer.deliver(new, changes)
        self._may_be_behind = False

    async def _is_behind(self) -> bool:
        head = await self._spaces.head(self.configuration.owner, self.configuration.name)
        return head is None or head != (self.live.head, self.configuration.version)

    async def _page(self, after: int, limit: int) -> list[StoredEnvelope]:
        return await self._spaces.page(self.configuration.owner, self.configuration.name, after=after, limit=limit)

    # --- lookups in the history

    async def _known_names(self, requests: list[WriteRequest]) -> NameSet:
        """Return which of the names that only the history knows are in it.

        The id of an envelope itself is usually new, so it is looked up when it is appended (`WriteBatch.new_ids`).
        """
        ids: set[str] = set()
        paths: set[str] = set()
        for request in requests:
            envelope = request.envelope
            if envelope is not None:
                names = self.live.state.lifecycle.unknown_names(envelope)
                ids |= names.ids
                paths |= names.paths
        if not ids and not paths:
            return NameSet(self._taken_ids)
        known = await self._existing(NameSet(frozenset(ids), frozenset(paths)))
        private = [path for path in paths if await self._was_private(path)]
        return NameSet(known.ids | self._taken_ids, known.paths, frozenset(private))

    async def _existing(self, names: NameSet) -> NameSet:
        return await self._spaces.existing_names(self.configuration.owner, self.configuration.name, names)

    async def _was_private(self, path: str) -> bool:
        """Check in the log whether a context that is not remembered had an audience."""
        owner, name = self.configuration.owner, self.configuration.name
        if not self.configuration.settings.lifecycle().has_audiences:
            return False
        starts = [
            one
            for one in await self._spaces.page(owner, name, within=path, kinds=(kinds.START,), limit=PAGE_SIZE)
            if one.place.path == path
        ]
        # The id of a start also means its context.
        by_id = None if "/" in path else await self._spaces.get_envelope_by_id(owner, name, path)
        if by_id is not None and by_id.envelope.kind == kinds.START:
            starts.append(by_id)
        return any(one.envelope.to for one in starts)

    async def _earlier_envelopes(
        self, requests: list[WriteRequest], known: NameSet
    ) -> dict[tuple[str, str], StoredEnvelope]:
        """Return earlier envelopes by the same senders with the same ids."""
        earlier: dict[tuple[str, str], StoredEnvelope] = {}
        for request in requests:
            envelope = request.envelope
            if envelope is None or not request.has_sender_id:
                continue
            if not (self.live.state.knows(envelope.id) or envelope.id in known.ids):
                continue
            key = (envelope.sender, envelope.id)
            if key not in earlier and self.live.recent.get(*key) is None:
                old = await self._spaces.get_envelope_by_id(
                    self.configuration.owner, self.configuration.name, envelope.id, envelope.sender
                )
                if old is not None:
                    earlier[key] = old
        return earlier


def _fail_all(requests: Iterable[WriteRequest], error: PellucidError) -> None:
    for request in requests:
        request.on_result(WriteResult(error=error))


def _server_error() -> PellucidError:
    return PellucidError(
        ErrorInfo("server_error", "the space could not store this; that is a fault of this server", code="space_failed")
    )


def _closing_error() -> PellucidError:
    return PellucidError(
        ErrorInfo(
            "unavailable",
            "the space is being closed here; its history shows whether this was stored",
            code="space_closed",
            retry_after=1.0,
        )
    )
