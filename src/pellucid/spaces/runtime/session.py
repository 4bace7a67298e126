"""A seat: one connection of a participant, at one replica.

    seat = await space.sit("alice", outlet)
    await seat.hear(frame)                    # what is wrong with it goes to the outlet, as `system/error`
    await seat.leave()

The welcome is written first; then what was said before, if it was asked for; then what is said, as it is stored. What
is shown comes in its order, and nothing comes twice or is left out, but for a gap that is told (`system/gap`).

An outlet is the connection's way out, given by whoever holds it. A frame is made once for all who read the same of it:
as JSON, and as the bytes of one WebSocket text frame, which a server may hand to each socket as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Protocol, TypeAlias, runtime_checkable

from ...envelopes import DEFAULT_DIALECT, DialectName, Envelope, EnvelopeError, close_codes, encode, gateway_messages
from ...envelopes.kinds import HEARTBEAT
from ...envelopes.visibility import SpaceViewer
from ...errors import ErrorInfo, PellucidError
from .ids import new_id
from .ingest import Bucket, IngestedEnvelope, RateLimited
from .settings import SpaceSettings
from .write_queue import WriteRequest, WriteResult

_FINAL_TEXT = 0x81


class Frame:
    """One envelope in one dialect. Immutable."""

    __slots__ = ("seq", "text", "wire")

    def __init__(self, text: bytes, seq: int = 0) -> None:
        self.text = text
        """JSON."""
        self.wire = websocket_frame(text)
        """The same as one unmasked WebSocket text frame."""
        self.seq = seq
        """The envelope's number in its space; 0: it has none, it is for this reader alone."""


def websocket_frame(text: bytes) -> bytes:
    """One WebSocket frame, as servers send it (RFC 6455, 5.2)."""
    size = len(text)
    if size < 126:
        return bytes((_FINAL_TEXT, size)) + text
    if size < 1 << 16:
        return b"\x81\x7e" + size.to_bytes(2, "big") + text
    return b"\x81\x7f" + size.to_bytes(8, "big") + text


def encode_frame(envelope: Envelope, dialect: DialectName) -> Frame:
    return Frame(encode(envelope, dialect), envelope.seq)


class Outlet(Protocol):
    """Given by whoever holds the connection. Nothing here raises."""

    def write(self, frames: Sequence[Frame]) -> None:
        """Send them, in order. It does not block: what the socket does not take yet, waits."""
        ...

    @property
    def buffered_bytes(self) -> int:
        """Bytes that the socket has not taken yet."""
        ...

    async def wait_drained(self) -> None:
        """Until `waiting` is small again, or the connection is gone."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Close it, after what was written. Idempotent."""
        ...


RawWrite: TypeAlias = Callable[[bytes], object]
"""Takes the bytes of frames (`Frame.wire`)."""


@runtime_checkable
class RawWriteOutlet(Outlet, Protocol):
    """An outlet that has a shorter way, most of the time: what is said to many costs little more than what its network
    does with it."""

    @property
    def raw_write(self) -> RawWrite | None:
        """Where frames may be written with nothing asked, for as long as it is this. None: not now, `write` does it."""
        ...

    def watch(self, changed: Callable[[], None] | None) -> None:
        """It is called whenever `line` may be another, also from within it."""
        ...


# --- seats


MAX_PENDING = 128
"""Envelopes of one seat that may wait to be judged before it is not heard any further."""
REFUSALS_PER_YIELD = 64
"""Refusals after which others get their turn."""


class SessionHost(Protocol):
    """What a seat needs of its space."""

    @property
    def settings(self) -> SpaceSettings: ...

    @property
    def is_full(self) -> bool: ...

    def now_ms(self) -> int: ...

    def capabilities(self, participant: str) -> tuple[dict[str, Any], ...]: ...

    def ingest(
        self, participant: str, data: bytes | str | dict[str, Any], size: int | None, session: Session
    ) -> IngestedEnvelope: ...

    def exceeds_patience(self, participant: str) -> bool: ...

    def put(self, item: WriteRequest) -> None: ...

    def regroup(self, session: Session) -> None: ...

    def remove(self, session: Session) -> None: ...

    async def leave(self, session: Session) -> None: ...


class Session:
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
        """Under which it reached the gateway."""
        self.outlet = outlet
        self.dialect = dialect
        """None: it has not shown yet which it speaks."""
        self.wire_dialect: DialectName = dialect or DEFAULT_DIALECT
        self.viewer = viewer
        self.capabilities: tuple[dict[str, Any], ...] = ()
        """What it was told last that it may."""
        self.group_key: tuple[object, ...] | None = None
        self.position = 0
        """How far it was given the log, while it is not in the audience."""
        self.replayed_until = 0
        """Up to which number it is given what was said as what is over: flagged as replayed."""
        self.missed_count = 0
        """How much it might have seen that it was not given, since it is behind."""
        self.is_stopped = False
        """Nothing more is written to it."""
        self.has_left = False
        self.catch_up_task: asyncio.Task[None] | None = None
        """What brings it up to date."""
        self._space = space
        self._pending_count = 0
        self._capacity: asyncio.Future[None] | None = None
        self._error_bucket = Bucket(space.settings.limits.errors)
        self._unreported_errors = 0
        self._error_timer: asyncio.TimerHandle | None = None
        self._refusal_count = 0

    async def receive(self, data: bytes | str | dict[str, Any], size: int | None = None) -> None:
        """Take one frame. It comes back when the next may be taken; it raises nothing, whatever is in the frame.

        `size`: its bytes, where `data` was read before."""
        if self.is_stopped:
            return
        space = self._space
        try:
            ingested = space.ingest(self.participant, data, size, self)
        except PellucidError as error:
            if isinstance(error, EnvelopeError) and _is_heartbeat(error):
                return
            self.send_error(error, error.envelope if isinstance(error, RateLimited) else None)
            if error.info.code == "rate_limited" and space.exceeds_patience(self.participant):
                self.close(close_codes.POLICY_VIOLATION, "it says more than the space takes, and goes on")
            self._refusal_count += 1
            if self._refusal_count % REFUSALS_PER_YIELD == 0:
                await asyncio.sleep(0)
            return
        self._pending_count += 1

        def on_result(result: WriteResult) -> None:
            self._pending_count -= 1
            self._on_result(ingested.envelope, result)
            if self._capacity is not None and not self._capacity.done():
                self._capacity.set_result(None)

        space.put(ingested.to_request(on_result, self.address))
        while self._pending_count >= MAX_PENDING or (self._pending_count and space.is_full):
            self._capacity = asyncio.get_running_loop().create_future()
            try:
                await self._capacity
            finally:
                self._capacity = None

    async def leave(self) -> None:
        """It is over. Idempotent."""
        await self._space.leave(self)

    def set_dialect(self, dialect: DialectName) -> None:
        """It has shown which dialect it speaks."""
        self.dialect = dialect
        if dialect != self.wire_dialect:
            self.wire_dialect = dialect
            self._space.regroup(self)

    def write(self, *envelopes: Envelope) -> None:
        """What is for this seat alone."""
        if not self.is_stopped:
            self.outlet.write([encode_frame(one, self.wire_dialect) for one in envelopes])

    def send_error(self, error: PellucidError, about: Envelope | None = None) -> None:
        """Tell it, unless it was told too much."""
        space = self._space
        if self._error_bucket.wait_seconds(1, monotonic()) > 0:
            self._unreported_errors += 1
            if self._error_timer is None:
                self._error_timer = asyncio.get_running_loop().call_later(1.0, self._report_dropped_errors)
            return
        self._error_bucket.take(1)
        more: dict[str, Any] = {}
        if error.info.code == "capability_violation":
            more["your_capabilities"] = list(space.capabilities(self.participant))
        if self._unreported_errors:
            more["dropped"], self._unreported_errors = self._unreported_errors, 0
        self.write(gateway_messages.error(new_id(), space.now_ms(), self.participant, error, about, **more))

    def _report_dropped_errors(self) -> None:
        self._error_timer = None
        if self._unreported_errors and not self.is_stopped:
            count = self._unreported_errors
            self.send_error(
                PellucidError(
                    ErrorInfo(
                        "too_many_requests",
                        f"{count} more were refused, and not told of one by one",
                        code="rate_limited",
                        retry_after=1.0,
                    )
                )
            )

    def _on_result(self, envelope: Envelope, result: WriteResult) -> None:
        if self.is_stopped:
            return
        if result.error is not None:
            self.send_error(result.error, envelope)
        # Who is not there yet is given it in its place, or told that it stands in a gap.
        elif result.stored and not result.is_new and (self.group_key or result.stored.envelope.seq <= self.position):
            self.write(result.stored.with_flags)
        if result.for_sender:
            self.write(*result.for_sender)

    def close(self, code: int, reason: str) -> None:
        """The gateway closes it. Whoever holds the connection still says `leave`."""
        if not self.is_stopped:
            self._space.remove(self)
            self.outlet.close(code, reason)

    def stop(self) -> None:
        """Nothing more is written to it."""
        self.is_stopped = True
        if self._error_timer is not None:
            self._error_timer.cancel()
        if self.catch_up_task is not None and self.catch_up_task is not asyncio.current_task():
            self.catch_up_task.cancel()
        if self._capacity is not None and not self._capacity.done():
            self._capacity.set_result(None)


def _is_heartbeat(error: EnvelopeError) -> bool:
    kind = error.attempted_kind
    return kind is not None and kind.replace(".", "/") == HEARTBEAT
