"""The connection of a participant, and its reconnection.

One task receives (`_run`); each connection has a task that sends. Received envelopes pass the `Deduplicator`, then the
echoes that callers wait for (`Outbox`), then the `Roster`, then the `Subscribers`. A gap that the space announces is
read from the history before anything after it. If that fails, the connection is opened again from before the gap.

When there is no connection, or it was closed, there may be one later (`ConnectionLost`), or there will be none
(`SpaceClosed`).

`Deduplicator` passes each envelope of a space once, in the space's order, across reconnections:

    deduplicator.resume           where a connection has to resume, or how much of the history it wants
    deduplicator.on_welcome(head) a connection was accepted
    deduplicator.restart(head)    … by another space than the one to which the numbers belong
    deduplicator.accept(envelope) the envelope to pass on, or None if it was received before

The space sends in its order and leaves out what this viewer may not see. So numbers may be missing, but a smaller one
never follows a greater one. What a connection missed is requested from the next one.

`Roster` holds who is in the space, from each welcome and from later joins and leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from msgspec import structs
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from ...envelopes import DEFAULT_DIALECT, DIALECTS, close_codes, kinds
from ...envelopes.envelope import Envelope, EnvelopeError
from ...envelopes.payloads import Presence, Present, Welcome
from ...envelopes.streams import stream_id_of
from ...envelopes.translate import read
from ...envelopes.visibility import SpaceView
from ...errors import PellucidError
from ...telemetry import error_location, log
from .errors import Kicked, SpaceClosed
from .outbox import Outbox
from .remote import HistoryReader, SpaceAddress, SpaceReader, error_from_response
from .subscribers import Subscribers

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection


class ResumePoint(NamedTuple):
    """Where a new connection begins."""

    after_seq: int | None
    history: int | None


class Deduplicator:
    """Passes each envelope once. For one participant."""

    def __init__(self, after_seq: int | None = None, history: int = 0) -> None:
        self.seen = after_seq or 0
        """Number of the last envelope that was passed."""
        self.head = self.seen
        """Number of the newest known envelope."""
        self.joined_at_seq: int | None = 0 if after_seq is not None else None
        """Head of the space when this participant joined: older envelopes are replayed. None: not known."""
        self._history = history if after_seq is None else 0
        self._has_position = after_seq is not None

    @property
    def resume(self) -> ResumePoint:
        """Where a new connection has to begin."""
        if self._has_position or self.seen:
            return ResumePoint(self.seen, None)
        return ResumePoint(None, self._history or None)

    def on_welcome(self, head: int | None) -> None:
        """Record the head of the space at a welcome."""
        if head is None:
            return
        self.head = max(self.head, head)
        if self.joined_at_seq is None:
            self.joined_at_seq = head
            if not self._history:
                self.seen, self._has_position = max(self.seen, head), True

    def restart(self, head: int) -> None:
        """Begin again with another space: everything that it holds is past."""
        self.seen, self.head, self.joined_at_seq, self._has_position = 0, head, head, True

    def accept(self, envelope: Envelope) -> Envelope | None:
        """Return the envelope to pass on, with `replayed` set; None if it was received before."""
        seq = envelope.seq
        if not seq:
            return envelope
        if seq <= self.seen:
            return None
        self.seen = seq
        self.head = max(self.head, seq)
        if self.joined_at_seq is None or envelope.replayed == (seq <= self.joined_at_seq):
            return envelope
        # After a reconnection, the requested history may hold new envelopes, and the missed ones may hold history.
        return structs.replace(envelope, replayed=seq <= self.joined_at_seq)


CLOSE_TIMEOUT_SECONDS = 3.0
MAX_QUEUED_FRAMES = 64
"""Frames that are read ahead."""

_PERMANENT_CLOSES = {
    close_codes.POLICY_VIOLATION: "the space closed the connection because its rules were broken",
    close_codes.INVALID_JOIN: "the space does not accept how this participant joined",
    close_codes.UNAUTHORIZED: "the space does not know this token",
    close_codes.FORBIDDEN: "this participant may not be in the space",
    close_codes.SPACE_NOT_FOUND: "there is no such space",
}
_TRANSIENT_STATUSES = frozenset({408, 421, 425, 429})
"""HTTP statuses below 500 that mean "not now"."""


class ConnectionLost(Exception):
    """There is no connection, but there may be one later."""


class Socket(Protocol):
    """One connection to a space. What `websockets` raises when it is closed ends it."""

    async def recv(self) -> str | bytes:
        """Return the next frame."""
        ...

    def __aiter__(self) -> AsyncIterator[str | bytes]:
        """Iterate over the frames, until the connection is closed."""
        ...

    async def send(self, message: bytes, *, text: bool | None = None) -> None:
        """Send a frame."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...

    @property
    def close_code(self) -> int | None:
        """The close code; None while it is open."""
        ...

    @property
    def close_reason(self) -> str | None:
        """The reason of the close."""
        ...


class Transport(Protocol):
    """How a participant reaches its space."""

    @property
    def space(self) -> str:
        """Name of the space."""
        ...

    @property
    def location(self) -> str:
        """Where the space is, for messages."""
        ...

    @property
    def reader(self) -> HistoryReader:
        """The history of the space."""
        ...

    async def connect(self, *, view: SpaceView, resume: ResumePoint, max_frame: int) -> Socket:
        """Open a connection.

        Raises:
            ConnectionLost: If it failed and may succeed later.
            SpaceClosed: If it will not succeed.
        """
        ...


class RemoteTransport:
    """The WebSocket of a space, and its history over HTTP."""

    def __init__(self, address: SpaceAddress, token: str) -> None:
        self._address = address
        self._token = token
        self.space = address.space
        self.location = address.socket()
        self.reader = SpaceReader(address, token)

    async def connect(self, *, view: SpaceView, resume: ResumePoint, max_frame: int) -> Socket:
        """Open the WebSocket (see `Transport.connect`)."""
        return await connect_socket(self._address, self._token, view=view, resume=resume, max_frame=max_frame)


async def connect_socket(
    address: SpaceAddress, token: str, *, view: SpaceView, resume: ResumePoint, max_frame: int
) -> ClientConnection:
    """Open the WebSocket of a space.

    Raises:
        ConnectionLost: If it failed and may succeed later.
        SpaceClosed: If it will not succeed.
    """
    from websockets.asyncio.client import connect  # a gateway with spaces does not need it

    url = address.socket(view=view, after_seq=resume.after_seq, history=resume.history)
    try:
        return await connect(
            url,
            subprotocols=[DIALECTS[DEFAULT_DIALECT].subprotocol],  # type: ignore[list-item]
            additional_headers={"Authorization": f"Bearer {token}"},
            compression=None,
            max_size=max_frame,
            max_queue=MAX_QUEUED_FRAMES,
            close_timeout=CLOSE_TIMEOUT_SECONDS,
        )
    except InvalidStatus as error:
        raise _handshake_error(address, error) from None
    except InvalidURI as error:
        raise SpaceClosed(str(error), kind="invalid_request", code="invalid_url") from None
    except (InvalidHandshake, OSError, TimeoutError, EOFError) as error:
        raise ConnectionLost(f"no answer ({type(error).__name__})") from None


def _handshake_error(address: SpaceAddress, error: InvalidStatus) -> Exception:
    status = error.response.status_code
    info = error_from_response(status, bytes(error.response.body or b""))
    if status >= 500 or status in _TRANSIENT_STATUSES:
        return ConnectionLost(f"it answers with {status}: {info.message}")
    return SpaceClosed(
        f"{address.socket()} does not admit this participant: {info.message}",
        kind=info.kind,
        code=info.code or "not_let_in",
    )


def permanent_close_error(code: int | None, reason: str) -> SpaceClosed | None:
    """Return the error for a close code after which reconnecting has no use; None for other codes.

    Args:
        code: The close code.
        reason: The reason that the space gave.
    """
    if code not in _PERMANENT_CLOSES:
        return None
    return SpaceClosed(
        f"{_PERMANENT_CLOSES[code]}{f': {reason}' if reason else ''}", kind="forbidden", code=f"closed_{code}"
    )


class Roster:
    """Who is in the space. `me` is this participant with its capabilities; `others` are the rest, by id."""

    def __init__(self) -> None:
        self.me = Present("")
        self.others: dict[str, Present] = {}
        self.head = 0
        """Head of the space at the last welcome. Presence up to there is included in it."""

    def on_welcome(self, welcome: Envelope, head: int) -> None:
        """Read the participants from a welcome.

        Raises:
            msgspec.ValidationError: If it is not a valid welcome.
        """
        payload = msgspec.convert(welcome.payload, Welcome)
        self.me = payload.you
        self.others = {one.id: one for one in payload.participants if one.id != payload.you.id}
        self.head = head

    def on_envelope(self, envelope: Envelope) -> None:
        """Apply a join or leave."""
        if envelope.kind != kinds.PRESENCE or envelope.seq <= self.head:
            return
        presence = msgspec.convert(envelope.payload, Presence)
        if presence.participant.id == self.me.id:
            return
        if presence.event == "join":
            self.others[presence.participant.id] = presence.participant
        elif presence.event == "leave":
            self.others.pop(presence.participant.id, None)


WELCOME_TIMEOUT_SECONDS = 15.0
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.1, 5.0
PATIENCE_SECONDS = 300.0
MAX_FRAME_BYTES = 64 * 1024 * 1024

_PERMANENT_KINDS = frozenset({"unauthorized", "forbidden", "not_found", "invalid_request"})


class ParticipantConnection:
    """The connection of one participant, which reconnects.

    Args:
        transport: How the space is reached.
        view: The participant's view.
        after_seq: The last envelope that the participant has.
        history: Without `after_seq`: how many of the latest envelopes come first.
        patience_seconds: Seconds for which a lost connection is tried again.
        max_frame: Maximum size of a frame in bytes.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        view: SpaceView,
        after_seq: int | None = None,
        history: int = 0,
        patience_seconds: float = PATIENCE_SECONDS,
        max_frame: int = MAX_FRAME_BYTES,
    ) -> None:
        self.transport = transport
        self.view = view
        self.deduplicator = Deduplicator(after_seq, history)
        self.reader = transport.reader
        self.roster = Roster()
        self.subscribers = Subscribers(self._fetch_missed)
        self._patience_seconds = patience_seconds
        self._max_frame = max_frame
        self._outbox = Outbox(patience_seconds)
        self._socket: Socket | None = None
        self._task: asyncio.Task[None] | None = None
        self._first_welcome: asyncio.Future[None] | None = None
        """Done when the first welcome arrived, or when it is known that none will."""
        self._early_error: str | None = None
        """Message of an error that came instead of a welcome."""
        self._kicked: Kicked | None = None
        self._end_error: Exception | None = None
        self._is_leaving = False

    # --- interface -----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, and wait for the first welcome.

        Raises:
            SpaceClosed: If it fails.
        """
        if self._task is not None:
            raise RuntimeError("a Participant can be used once; create another one")
        self._first_welcome = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run())
        try:
            await self._first_welcome
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Leave the space and release everything."""
        self._is_leaving = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._end(None)
        await self.reader.aclose()

    @property
    def is_connected(self) -> bool:
        """Whether the socket is open."""
        return self._socket is not None

    @property
    def is_closed(self) -> bool:
        """Whether there will be no connection any more."""
        return self._end_error is not None or self._is_leaving

    async def set_view(self, view: SpaceView) -> None:
        """Reconnect with another view."""
        if view != self.view:
            self.view = view
            if self._socket is not None:
                await self._socket.close()  # the reconnection uses the new view and resumes

    async def send(self, envelope: Envelope) -> Envelope:
        """Send an envelope and wait for its echo.

        Raises:
            Refused: If the space refuses it.
            SpaceClosed: If there is no connection and there will be none.
            PellucidError: If the space does not answer within the patience (`no_answer`).
        """
        if self._end_error is not None:
            raise self._end_error
        if self._task is None or self._is_leaving:
            raise SpaceClosed("this participant is not in the space: use it in `async with`", code="not_joined")
        sent = self._outbox.add(envelope)
        try:
            return await sent.echo
        finally:
            self._outbox.drop(sent)

    # --- connecting ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        failure: Exception | None = None
        try:
            failure = await self._keep_connected()
        except Exception as error:
            log.error("a participant's connection failed because of a fault of its own: %s", error_location(error))
            failure = error
        finally:
            self._end(failure)

    async def _keep_connected(self) -> Exception:
        """Connect again and again, until there is no use in it.

        Returns:
            Why it ended.
        """
        loop = asyncio.get_running_loop()
        pause, since = FIRST_PAUSE_SECONDS, loop.time()
        while True:
            seen = self.deduplicator.seen
            try:
                await self._run_session()
                since = loop.time()
                if self.deduplicator.seen > seen:
                    pause = FIRST_PAUSE_SECONDS
            except SpaceClosed as error:
                return error
            except ConnectionLost as error:
                if self._first_welcome is None or not self._first_welcome.done():
                    return SpaceClosed(f"{self.transport.location}: {error}", code="unreachable")
                if loop.time() - since > self._patience_seconds:
                    return SpaceClosed(
                        f"the connection to {self.transport.location} was lost, and could not be opened again within "
                        f"{self._patience_seconds:g} s: {error}",
                        code="lost",
                    )
            # When a server stops, many lose their connection at the same time; they should not all come back together.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, MAX_PAUSE_SECONDS)

    async def _run_session(self) -> None:
        """Run one connection to its end.

        Raises:
            ConnectionLost: If it was not accepted.
            SpaceClosed: If there will be no further one.
        """
        socket = await self.transport.connect(
            view=self.view, resume=self.deduplicator.resume, max_frame=self._max_frame
        )
        sender: asyncio.Task[None] | None = None
        try:
            try:
                async with asyncio.timeout(WELCOME_TIMEOUT_SECONDS):
                    while not self._on_first_frame(await socket.recv()):
                        pass
            except TimeoutError:
                raise ConnectionLost("no welcome arrived") from None
            self._socket = socket
            sender = asyncio.create_task(self._send_all(socket))
            async for data in socket:
                await self._on_frame(data)
        except ConnectionClosed:
            pass
        except PellucidError as error:
            log.debug("a gap could not be read, the connection is opened again: %s", error.info.code)
        finally:
            was_welcomed, self._socket = self._socket is not None, None
            if sender is not None:
                sender.cancel()
            self._outbox.resend_all()
            with contextlib.suppress(Exception):
                await socket.close()
        self._on_close(socket.close_code, socket.close_reason or "")
        if not was_welcomed:
            raise ConnectionLost("it was closed before the welcome")

    def _on_close(self, code: int | None, reason: str) -> None:
        """Handle the end of a connection.

        Raises:
            SpaceClosed: If there will be no further one.
        """
        if self._kicked is not None:
            raise self._kicked
        if code == close_codes.MESSAGE_TOO_BIG:
            self._outbox.fail_largest(reason)
        elif (error := permanent_close_error(code, self._early_error or reason)) is not None:
            raise error

    async def _send_all(self, socket: Socket) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await socket.send((await self._outbox.next()).data, text=True)

    # --- receiving -----------------------------------------------------------------------------------------------

    def _on_first_frame(self, data: str | bytes) -> bool:
        """Process a frame before the welcome.

        Returns:
            Whether it is the welcome.
        """
        envelope = self._read(data)
        if envelope is None:
            return False
        if envelope.kind != kinds.WELCOME:
            if envelope.kind == kinds.ERROR:
                message = envelope.payload.get("message")
                self._early_error = message if isinstance(message, str) else None
                return False
            raise ConnectionLost(f"it began with {envelope.kind!r}, not with {kinds.WELCOME!r}")
        self._on_welcome(envelope)
        return True

    def _on_welcome(self, envelope: Envelope) -> None:
        head = envelope.payload.get("head")
        head = head if isinstance(head, int) and not isinstance(head, bool) else None
        self.roster.on_welcome(envelope, head or 0)
        if envelope.payload.get("unknown_after_seq") is not None:
            log.warning("the space %s is not the same as before: it is read from its beginning", self.transport.space)
            self.deduplicator.restart(head or 0)
            self.subscribers.publish(envelope)
        else:
            self.deduplicator.on_welcome(head)
        if self._first_welcome is not None and not self._first_welcome.done():
            self._first_welcome.set_result(None)

    def _read(self, data: str | bytes) -> Envelope | None:
        if stream_id_of(data) is not None:
            return None
        try:
            return read(data)
        except EnvelopeError as error:
            log.warning("a frame of the space cannot be read: %s", error.info.code)
            return None

    async def _on_frame(self, data: str | bytes) -> None:
        envelope = self._read(data)
        if envelope is None:
            return
        if envelope.kind == kinds.WELCOME:
            self._on_welcome(envelope)  # this participant's rights have changed
        elif envelope.kind == kinds.GAP:
            await self._fill_gap(envelope.payload)
        elif envelope.kind == kinds.ERROR and not envelope.seq:
            if not self._outbox.handle_error(envelope):
                self.subscribers.publish(envelope)
        elif envelope.sender == self.roster.me.id and self._may_be_ahead(envelope):
            await self._fill_gap({"before_seq": envelope.seq + 1})
        else:
            self._accept(envelope)

    def _may_be_ahead(self, envelope: Envelope) -> bool:
        """Check whether an echo may come before envelopes that are missing here.

        The space answers a repeated envelope at once, before what was written in the meantime.
        """
        seen = self.deduplicator.seen
        send_count = self._outbox.acknowledge(envelope)
        return envelope.seq > seen + 1 and (send_count > 1 or (send_count == 1 and seen < self.roster.head))

    async def _fill_gap(self, payload: dict[str, Any]) -> None:
        """Read what was left out from the history.

        Raises:
            PellucidError: If the history cannot be read.
        """
        after, before = payload.get("after_seq"), payload.get("before_seq")
        if not isinstance(before, int):
            return
        reached = self.deduplicator.seen
        if isinstance(after, int):
            reached = max(reached, after)
        while reached < before - 1:
            page = await self.reader.page(after_seq=reached, before_seq=before, view=self.view)
            for envelope in page.envelopes:
                self._accept(envelope)
            if not page.has_more or page.reached <= reached:
                return
            reached = page.reached

    def _accept(self, envelope: Envelope) -> None:
        if envelope.sender == self.roster.me.id:
            self._outbox.acknowledge(envelope)  # from the history, it may be the first echo
        new = self.deduplicator.accept(envelope)
        if new is None:
            return
        self.roster.on_envelope(new)
        if new.kind == kinds.KICK and not new.replayed and new.payload.get("participant_id") == self.roster.me.id:
            reason = new.payload.get("reason")
            self._kicked = Kicked(new.sender, reason if isinstance(reason, str) else None)
        self.subscribers.publish(new)

    async def _fetch_missed(self, after: int, before: int) -> tuple[list[Envelope], int]:
        """Read what a full inbox left out.

        Raises:
            PellucidError: If the history cannot be read within the patience.
        """
        loop = asyncio.get_running_loop()
        since, pause = loop.time(), FIRST_PAUSE_SECONDS
        while True:
            if self._is_leaving:
                return [], before - 1
            try:
                page = await self.reader.page(after_seq=after, before_seq=before, view=self.view)
                break
            except PellucidError as error:
                if error.info.kind in _PERMANENT_KINDS or loop.time() - since > self._patience_seconds:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE_SECONDS)
        joined = self.deduplicator.joined_at_seq or 0
        envelopes = [msgspec.structs.replace(one, replayed=one.seq <= joined) for one in page.envelopes]
        return envelopes, page.reached if page.has_more else before - 1

    # --- the end -------------------------------------------------------------------------------------------------

    def _end(self, failure: Exception | None) -> None:
        if self._end_error is None and failure is not None:
            self._end_error = failure
        error = failure or self._end_error or SpaceClosed("this participant has left the space", code="left")
        if self._first_welcome is not None and not self._first_welcome.done():
            self._first_welcome.set_exception(error)
        self._outbox.fail_all(error)
        self.subscribers.end(error, None if self._is_leaving else failure)
