"""Envelopes that were sent and have no echo yet.

An envelope stays here until its echo arrives. It is sent again over each new connection, byte for byte, because a space
accepts the same envelope only once.

At most `MAX_IN_FLIGHT` envelopes are in flight at once. When the space reports that they come too fast, the limit is
halved. It grows by one for each full set of echoes.

A space answers every envelope. One that it does not answer must not hold up the others: if there was no answer for
`ANSWER_SECONDS`, what is in flight no longer counts as such, and is not sent again over the same connection unless the
space reports refusals that it has not named. After `patience_seconds` on one connection it fails (`no_answer`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import msgspec

from ...envelopes.envelope import Envelope, field_error
from ...envelopes.frames import MAX_DEPTH, too_deep
from ...envelopes.kinds import HEARTBEAT
from ...envelopes.payloads import Failure
from ...envelopes.translate import DEFAULT_DIALECT, encode
from ...errors import ERROR_KINDS, ErrorInfo, ErrorKind, PellucidError
from ...unicode import is_nested_deeper, json_safe
from .errors import Refused

RATE_LIMITED = "rate_limited"

MAX_IN_FLIGHT = 64

ANSWER_SECONDS = 10.0
"""Seconds without any answer after which what is in flight no longer prevents others from being sent."""


class SentEnvelope:
    """One envelope in flight."""

    __slots__ = ("created_at", "data", "echo", "id", "kind", "send_count", "timer")

    def __init__(self, envelope: Envelope, now: float) -> None:
        self.id = envelope.id
        self.kind = envelope.kind
        self.data = _encode_frame(envelope)
        self.created_at = now
        self.send_count = 0
        """How often it was sent."""
        self.timer: asyncio.TimerHandle | None = None
        """Lets it fail. It runs from when it was first sent over this connection."""
        self.echo: asyncio.Future[Envelope] = asyncio.get_running_loop().create_future()


class Outbox:
    """The pending envelopes of one participant.

    Args:
        patience_seconds: Seconds for which an envelope is tried again that was refused because of the rate limit, and
            after which one fails that has no answer.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._unacknowledged: dict[str, SentEnvelope] = {}
        self._queue: deque[SentEnvelope] = deque()
        self._wakeup = asyncio.Event()
        self._hold_until = 0.0
        """Time before which nothing may be sent."""
        self._patience_seconds = patience_seconds
        self._in_flight: set[str] = set()
        """Ids that were sent over this connection and have no echo, except for those in `_overdue`."""
        self._max_in_flight = float(MAX_IN_FLIGHT)
        self._overdue: set[str] = set()
        """Ids that were in flight for too long."""
        self._progress_at = 0.0
        """Time when something was last sent or answered."""

    def add(self, envelope: Envelope) -> SentEnvelope:
        """Queue an envelope.

        Raises:
            Refused: If no space accepts it.
        """
        _check_acceptable(envelope)
        sent = SentEnvelope(envelope, asyncio.get_running_loop().time())
        self._unacknowledged[sent.id] = sent
        self._queue.append(sent)
        self._wakeup.set()
        return sent

    def drop(self, sent: SentEnvelope) -> None:
        """Stop waiting for an echo."""
        _stop_timer(sent)
        if self._unacknowledged.get(sent.id) is sent:
            del self._unacknowledged[sent.id]
            self._remove_in_flight(sent.id)

    def _remove_in_flight(self, id: str) -> None:
        self._in_flight.discard(id)
        self._overdue.discard(id)
        self._progress_at = asyncio.get_running_loop().time()
        self._wakeup.set()

    def resend_all(self) -> None:
        """Queue everything without an echo again, in its order, when a connection has ended."""
        for sent in self._unacknowledged.values():
            _stop_timer(sent)
        self._overdue.clear()
        self._requeue()

    def _requeue(self) -> None:
        self._queue = deque(sent for sent in self._unacknowledged.values() if sent.id not in self._overdue)
        self._in_flight.clear()
        self._wakeup.set()

    async def next(self) -> SentEnvelope:
        """Wait for the next envelope that may be sent."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._queue:
                self._wakeup.clear()
                await self._wakeup.wait()
            elif len(self._in_flight) >= self._max_in_flight:
                await self._wait_for_answers()
            elif (wait := self._hold_until - loop.time()) > 0:
                await asyncio.sleep(wait)
            else:
                sent = self._queue.popleft()
                if sent.id in self._unacknowledged:
                    self._in_flight.add(sent.id)
                    self._progress_at = loop.time()
                    if sent.timer is None:
                        sent.timer = loop.call_later(self._patience_seconds, self._fail_unanswered, sent)
                    sent.send_count += 1
                    return sent

    async def _wait_for_answers(self) -> None:
        self._wakeup.clear()
        try:
            async with asyncio.timeout_at(self._progress_at + ANSWER_SECONDS):
                await self._wakeup.wait()
        except TimeoutError:
            self._overdue |= self._in_flight
            self._in_flight.clear()

    def acknowledge(self, envelope: Envelope) -> int:
        """Record the echo of an envelope.

        Returns:
            How often it was sent; 0 if no caller waits for it.
        """
        sent = self._unacknowledged.pop(envelope.id, None)
        if sent is None:
            return 0
        self._max_in_flight = min(self._max_in_flight + 1 / self._max_in_flight, MAX_IN_FLIGHT)
        self._remove_in_flight(sent.id)
        if not sent.echo.done():
            sent.echo.set_result(envelope)
        return sent.send_count

    def handle_error(self, error: Envelope) -> bool:
        """Apply an error of the space.

        Returns:
            Whether it is about an envelope that waits here.
        """
        payload = error.payload
        affected = [sent for id in error.correlation_id if (sent := self._unacknowledged.get(id)) is not None]
        if payload.get("code") == RATE_LIMITED:
            self._slow_down(affected, error)
            return bool(affected) or not error.correlation_id
        for sent in affected:
            self._refuse(sent, _to_error_info(payload))
        if payload.get("dropped"):
            self._slow_down([], error)
        return bool(affected)

    def fail_largest(self, reason: str) -> None:
        """Fail the largest envelope, because the connection was closed over the size of a frame."""
        if self._unacknowledged:
            largest = max(self._unacknowledged.values(), key=lambda sent: len(sent.data))
            self._refuse(
                largest, ErrorInfo("too_large", f"the space accepts no frame of {len(largest.data)} bytes: {reason}")
            )

    def fail_all(self, error: Exception) -> None:
        """Fail everything that waits."""
        for sent in self._unacknowledged.values():
            if not sent.echo.done():
                sent.echo.set_exception(error)
        self._unacknowledged.clear()
        self._queue.clear()

    def _slow_down(self, affected: list[SentEnvelope], error: Envelope) -> None:
        now, wait = asyncio.get_running_loop().time(), error.payload.get("retry_after")
        pause = float(wait) if isinstance(wait, int | float) and not isinstance(wait, bool) else 1.0
        for sent in affected:
            if now + pause > sent.created_at + self._patience_seconds:
                self._refuse(sent, _to_error_info(error.payload))
        self._hold_until = max(self._hold_until, now + pause)
        self._max_in_flight = max(1.0, self._max_in_flight / 2)
        if error.payload.get("dropped") or not error.correlation_id:
            self._overdue.clear()  # this stands for refusals that had no error of their own
        self._overdue.difference_update(error.correlation_id)
        # Not every refusal has an error of its own. What has no echo by then is sent again, in its order.
        self._requeue()

    def _refuse(self, sent: SentEnvelope, info: ErrorInfo) -> None:
        self._fail(sent, Refused(info, sent.id, sent.kind))

    def _fail_unanswered(self, sent: SentEnvelope) -> None:
        message = (
            f"the space has not answered this {sent.kind!r} within {self._patience_seconds:g} s; "
            "whether it is stored is not known"
        )
        self._fail(sent, PellucidError(ErrorInfo("timeout", message, code="no_answer")))

    def _fail(self, sent: SentEnvelope, error: PellucidError) -> None:
        if self._unacknowledged.get(sent.id) is sent:
            del self._unacknowledged[sent.id]
            self._remove_in_flight(sent.id)
        if not sent.echo.done():
            sent.echo.set_exception(error)


def _check_acceptable(envelope: Envelope) -> None:
    """Refuse what every space refuses, or ignores without an answer.

    Raises:
        Refused: If no space accepts it.
    """
    error = None
    if envelope.kind == HEARTBEAT:
        error = field_error("kind", f"a space ignores {HEARTBEAT!r}; the WebSocket keeps the connection open")
    elif is_nested_deeper(envelope.payload, MAX_DEPTH - 1):
        error = too_deep()
    if error is not None:
        raise Refused(error.info, envelope.id, envelope.kind)


def _stop_timer(sent: SentEnvelope) -> None:
    if sent.timer is not None:
        sent.timer.cancel()
        sent.timer = None


def _encode_frame(envelope: Envelope) -> bytes:
    try:
        return encode(envelope, DEFAULT_DIALECT)
    except UnicodeEncodeError:  # models sometimes write half an emoji
        return encode(json_safe(envelope), DEFAULT_DIALECT)


def _to_error_info(payload: dict[str, Any]) -> ErrorInfo:
    """Convert an error of the space (see `envelopes.gateway_messages`)."""
    error_code, code = msgspec.convert(payload, Failure, strict=False).error, payload.get("code")
    kind: ErrorKind = next(
        (one for one in ERROR_KINDS if one == error_code),
        "forbidden" if error_code == "capability_violation" else "invalid_request",
    )
    message = payload.get("message")
    param = payload.get("param")
    wait = payload.get("retry_after")
    return ErrorInfo(
        kind,
        message if isinstance(message, str) else str(error_code),
        code=code if isinstance(code, str) else str(error_code),
        param=param if isinstance(param, str) else None,
        retry_after=float(wait) if isinstance(wait, int | float) else None,
    )
