"""A session: one connection of a participant, at one replica.

    session = await space.join("alice", outlet)
    await session.receive(frame)              # errors are written to the outlet, as `system/error`
    await session.leave()

The welcome is written first, then the requested part of the history, then new envelopes as they are stored. Envelopes
come in their order. None comes twice, and none is left out, except for a gap that is announced (`system/gap`).

An outlet is the sending side of the connection, provided by its owner. A frame is encoded once for all readers who
receive the same: as JSON, and as the bytes of one WebSocket text frame, which a server may write to each socket
unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, Protocol, TypeAlias

from ...envelopes import DEFAULT_DIALECT, DialectName, Envelope, EnvelopeError, close_codes, encode, gateway_messages
from ...envelopes.kinds import HEARTBEAT
from ...envelopes.streams import StreamError, stream_id_of
from ...envelopes.visibility import SpaceViewer
from ...errors import ErrorInfo, PellucidError
from .ids import new_id
from .ingest import RateLimited, TokenBucket
from .settings import SpaceSettings
from .writer import WriteRequest, WriteResult

_FINAL_TEXT = 0x81


class Frame:
    """One envelope in one dialect. Immutable."""

    __slots__ = ("seq", "text", "wire")

    def __init__(self, text: bytes, seq: int = 0) -> None:
        self.text = text
        """JSON."""
        self.wire = websocket_frame(text)
        """The JSON as one unmasked WebSocket text frame."""
        self.seq = seq
        """The envelope's number in its space. 0: it has none, it is for this reader alone."""


def websocket_frame(text: bytes) -> bytes:
    """Encode a text as one WebSocket frame from a server (RFC 6455, section 5.2)."""
    size = len(text)
    if size < 126:
        return bytes((_FINAL_TEXT, size)) + text
    if size < 1 << 16:
        return b"\x81\x7e" + size.to_bytes(2, "big") + text
    return b"\x81\x7f" + size.to_bytes(8, "big") + text


def encode_frame(envelope: Envelope, dialect: DialectName) -> Frame:
    """Encode an envelope in a dialect."""
    return Frame(encode(envelope, dialect), envelope.seq)


RawWrite: TypeAlias = Callable[[bytes], object]
"""Writes the bytes of frames (`Frame.wire`)."""


class Outlet(Protocol):
    """The sending side of a connection. Its methods do not raise."""

    def write(self, frames: Sequence[Frame]) -> None:
        """Send frames, in order. It does not block: what the socket does not take yet is buffered."""
        ...

    @property
    def buffered_bytes(self) -> int:
        """Bytes that the socket has not taken yet."""
        ...

    async def wait_drained(self) -> None:
        """Wait until `buffered_bytes` is small, or the connection is gone."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Close the connection after what was written. Idempotent."""
        ...

    @property
    def raw_write(self) -> RawWrite | None:
        """Function that writes frames without further checks. With it, a broadcast costs little more than system calls.

        It is valid as long as this property returns it. None: use `write`.
        """
        ...

    def watch(self, changed: Callable[[], None] | None) -> None:
        """Set a callback for changes of `raw_write`. It may be called within `raw_write` itself."""
        ...


# --- sessions


MAX_PENDING = 128
"""Envelopes of one session that may wait to be judged before no more frames are read from it."""
REPORT_SECONDS = 1.0
"""Seconds until refusals without an error of their own are reported."""
REFUSALS_PER_YIELD = 64
"""Refusals, or frames of streams, after which other tasks get to run."""


class SessionHost(Protocol):
    """The interface of a space that a session needs."""

    @property
    def settings(self) -> SpaceSettings: ...

    @property
    def is_full(self) -> bool: ...

    def now_ms(self) -> int: ...

    def capabilities(self, participant: str) -> tuple[dict[str, Any], ...]: ...

    def ingest(self, session: Session, data: bytes | str | dict[str, Any], size: int | None) -> WriteRequest: ...

    def put(self, request: WriteRequest) -> None: ...

    def send_stream_frame(self, session: Session, stream_id: str, data: bytes | str) -> None: ...

    def regroup(self, session: Session) -> None: ...

    def remove(self, session: Session) -> None: ...

    async def leave(self, session: Session) -> None: ...


class Session:
    """One connection of a participant."""

    def __init__(
        self,
        space: SessionHost,
        participant: str,
        outlet: Outlet,
        dialect: DialectName | None,
        viewer: SpaceViewer,
        address: str = "",
    ) -> None:
        self.participant = participant
        self.address = address
        """Base URL under which the participant reached the gateway."""
        self.outlet = outlet
        self.dialect = dialect
        """None: it is not known yet."""
        self.wire_dialect: DialectName = dialect or DEFAULT_DIALECT
        self.viewer = viewer
        self.capabilities: tuple[dict[str, Any], ...] = ()
        """The capabilities in the last welcome."""
        self.group_key: tuple[DialectName, SpaceViewer] | None = None
        self.last_seq = 0
        """Number of the last envelope that it was given, while it is not in the audience."""
        self.replayed_until = 0
        """Envelopes up to this number are sent as `replayed`."""
        self.missed_count = 0
        """How many visible envelopes it has missed since it lags."""
        self.is_stopped = False
        """Whether nothing more is written to it."""
        self.has_left = False
        self.catch_up_task: asyncio.Task[None] | None = None
        """The task that brings it up to date."""
        self._space = space
        self._pending_count = 0
        self._capacity: asyncio.Future[None] | None = None
        self._error_bucket = TokenBucket(space.settings.limits.errors)
        self._unreported_errors = 0
        self._error_timer: asyncio.TimerHandle | None = None
        self._refusal_count = 0
        self._stream_frame_count = 0

    async def receive(self, data: bytes | str | dict[str, Any], size: int | None = None) -> None:
        """Process one frame.

        Returns when the next frame may be read. It does not raise, whatever the frame contains.

        Args:
            data: The frame, or JSON that was decoded before.
            size: Number of bytes, for JSON that was decoded before.
        """
        if self.is_stopped:
            return
        space = self._space
        try:
            if isinstance(data, bytes | str) and (stream_id := stream_id_of(data)) is not None:
                space.send_stream_frame(self, stream_id, data)
                self._stream_frame_count += 1
                if self._stream_frame_count % REFUSALS_PER_YIELD == 0:
                    await asyncio.sleep(0)
                return
            request = space.ingest(self, data, size)
        except PellucidError as error:
            if isinstance(error, EnvelopeError) and _is_heartbeat(error):
                return
            self.send_error(error)
            if isinstance(error, RateLimited) and error.is_persistent:
                self.close(close_codes.POLICY_VIOLATION, "the rate limit was exceeded for too long")
            self._refusal_count += 1
            if self._refusal_count % REFUSALS_PER_YIELD == 0:
                await asyncio.sleep(0)
            return
        self._pending_count += 1
        request.on_result = partial(self._on_result, request.envelope)
        space.put(request)
        while self._pending_count >= MAX_PENDING or (self._pending_count and space.is_full):
            self._capacity = asyncio.get_running_loop().create_future()
            try:
                await self._capacity
            finally:
                self._capacity = None

    async def leave(self) -> None:
        """End the session. Idempotent."""
        await self._space.leave(self)

    def set_dialect(self, dialect: DialectName) -> None:
        """Set the dialect after it was detected."""
        self.dialect = dialect
        if dialect != self.wire_dialect:
            self.wire_dialect = dialect
            self._space.regroup(self)

    def write(self, *envelopes: Envelope) -> None:
        """Write envelopes for this session alone."""
        if not self.is_stopped:
            self.outlet.write([encode_frame(one, self.wire_dialect) for one in envelopes])

    def send_error(self, error: PellucidError, about: Envelope | EnvelopeError | None = None) -> None:
        """Send an error about something that was refused, or count it, if too many were sent.

        Every error stands for one refusal, and for as many more as it has `dropped`.
        """
        if self.is_stopped:
            return
        if self._error_bucket.wait_seconds(1, monotonic()) > 0:
            self._unreported_errors += 1
            self._schedule_report()
            return
        self._error_bucket.take(1)
        if isinstance(error, RateLimited):
            about = error.about
        more: dict[str, Any] = {}
        if error.info.code == "capability_violation":
            more["your_capabilities"] = list(self._space.capabilities(self.participant))
        if isinstance(error, StreamError):
            more["stream_id"] = error.stream_id
        self._write_error(error, about, self._unreported_errors, more)

    def _write_error(
        self,
        error: PellucidError,
        about: Envelope | EnvelopeError | None,
        dropped: int,
        more: dict[str, Any] | None = None,
    ) -> None:
        self._unreported_errors = 0
        fields = {**(more or {}), **({"dropped": dropped} if dropped else {})}
        self.write(gateway_messages.error(new_id(), self._space.now_ms(), self.participant, error, about, **fields))

    def _schedule_report(self) -> None:
        if self._error_timer is None:
            self._error_timer = asyncio.get_running_loop().call_later(REPORT_SECONDS, self._report_if_allowed)

    def _report_if_allowed(self) -> None:
        self._error_timer = None
        if self._error_bucket.wait_seconds(1, monotonic()) > 0:
            self._schedule_report()
        else:
            self._error_bucket.take(1)
            self._report_unreported_errors()

    def _report_unreported_errors(self) -> None:
        """Send one error for all refusals that had none."""
        if count := self._unreported_errors:
            info = ErrorInfo(
                "too_many_requests",
                f"{count} envelopes were refused, without an error for each",
                code="rate_limited",
                retry_after=1.0,
            )
            self._write_error(PellucidError(info), None, count - 1)

    def _on_result(self, envelope: Envelope | None, result: WriteResult) -> None:
        self._pending_count -= 1
        stored = result.stored
        if result.error is not None:
            self.send_error(result.error, envelope)
        # A session that is not up to date yet will receive it in its place, or within an announced gap.
        elif stored is not None and not result.is_new and (self.group_key or stored.envelope.seq <= self.last_seq):
            self.write(stored.with_flags)
        if result.for_sender:
            self.write(*result.for_sender)
        self._resume_reading()

    def _resume_reading(self) -> None:
        if self._capacity is not None and not self._capacity.done():
            self._capacity.set_result(None)

    def close(self, code: int, reason: str) -> None:
        """Close the connection, from the gateway's side. Its owner still calls `leave`."""
        if not self.is_stopped:
            self._report_unreported_errors()
            self._space.remove(self)
            self.outlet.close(code, reason)

    def stop(self) -> None:
        """Write nothing more."""
        self.is_stopped = True
        if self._error_timer is not None:
            self._error_timer.cancel()
        if self.catch_up_task is not None and self.catch_up_task is not asyncio.current_task():
            self.catch_up_task.cancel()
        self._resume_reading()


def _is_heartbeat(error: EnvelopeError) -> bool:
    kind = error.attempted_kind
    return kind is not None and kind.replace(".", "/") == HEARTBEAT
