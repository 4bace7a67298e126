"""From a frame to an envelope that may be judged: how much its sender says, whether it can be read, what in it nobody
is to see.

How much one participant may say: for each family of kinds, in messages and in bytes.

    guard = Guard(limits)
    guard.take("reasoning", size, now)        # raises RequestError (too_many_requests) with `retry_after`
    guard.out_of_patience(now)                # whether they go on all the same, and for how long

Each is a bucket that holds `burst` and fills up by `per_second`. What is refused takes nothing. The limits are one
replica's: they keep it, and whoever reads, from being drowned. `now` is in seconds, and never goes back.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from time import monotonic
from typing import Any, NamedTuple, Protocol

import msgspec

from ...envelopes import Defaults, DialectName, Envelope, EnvelopeError, decode_frame, read
from ...envelopes.frames import peek
from ...envelopes.translate import detect_dialect
from ...errors import ErrorInfo, PellucidError
from .ids import new_id
from .live_state import Configuration
from .settings import FloodLimits, Rate
from .write_queue import OnResult, WriteRequest

FAMILIES = ("reasoning", "chat", "mcp")
OTHER = "other"

QUIET_SECONDS = 2.0
"""Seconds without a refusal after which somebody is no longer over the limit."""


class Bucket:
    __slots__ = ("_at", "_available", "_rate")

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._available = rate.burst
        self._at: float | None = None

    def wait_seconds(self, amount: float, now: float) -> float:
        """Seconds until so much may be taken; 0: now. More than it ever holds is let by when it is full."""
        rate, level = self._rate, self._available
        if self._at is not None:
            level = min(rate.burst, level + max(0.0, now - self._at) * rate.per_second)
        self._available, self._at = level, now
        return max(0.0, (min(amount, rate.burst) - level) / rate.per_second)

    def take(self, amount: float) -> None:
        self._available -= amount


class RateLimiter:
    """One participant's."""

    __slots__ = ("_limits", "_messages", "_over_limit_since", "_over_limit_until", "_volume", "last_used")

    def __init__(self, limits: FloodLimits) -> None:
        self._limits = limits
        self._messages = {family: Bucket(getattr(limits, family)) for family in (*FAMILIES, OTHER)}
        self._volume = {family: Bucket(limits.bytes) for family in (*FAMILIES, OTHER)}
        self._over_limit_since = self._over_limit_until = -QUIET_SECONDS
        """When they began to be over the limit, and when they were last."""
        self.last_used = 0.0
        """When they last said something."""

    def take(self, family: str, size_bytes: int, now: float) -> None:
        """Raises `PellucidError`."""
        if family not in FAMILIES:
            family = OTHER
        self.last_used = now
        messages, volume = self._messages[family], self._volume[family]
        wait = max(messages.wait_seconds(1, now), volume.wait_seconds(size_bytes, now))
        if wait > 0:
            if now - self._over_limit_until >= QUIET_SECONDS:
                self._over_limit_since = now
            self._over_limit_until = now
            raise PellucidError(
                ErrorInfo(
                    "too_many_requests",
                    f"this participant says more ({family}) than the space takes; wait {wait:.1f} s, and go on slower",
                    code="rate_limited",
                    retry_after=ceil(wait * 1000) / 1000,
                )
            )
        messages.take(1)
        volume.take(size_bytes)

    def exceeds_patience(self, now: float) -> bool:
        return (
            now - self._over_limit_until < QUIET_SECONDS
            and self._over_limit_until - self._over_limit_since > self._limits.patience
        )


class RateLimiters:
    """Those of a space. Who said nothing for a while is forgotten: their buckets are full again."""

    MAX_LIMITERS = 1_000

    def __init__(self, limits: FloodLimits) -> None:
        self._by_participant: dict[str, RateLimiter] = {}
        self._limits: FloodLimits | None = None
        self.set_limits(limits)

    def set_limits(self, limits: FloodLimits) -> None:
        """From now on these hold."""
        if limits == self._limits:
            return
        self._limits = limits
        self._by_participant.clear()
        rates = [getattr(limits, family) for family in (*FAMILIES, OTHER, "bytes")]
        self._full_after_seconds = max(QUIET_SECONDS, *(rate.burst / rate.per_second for rate in rates))

    def get(self, participant: str, now: float) -> RateLimiter:
        limiter = self._by_participant.get(participant)
        if limiter is None:
            if len(self._by_participant) >= self.MAX_LIMITERS:
                self._by_participant = {
                    name: one
                    for name, one in self._by_participant.items()
                    if now - one.last_used < self._full_after_seconds
                }
            assert self._limits is not None
            limiter = self._by_participant[participant] = RateLimiter(self._limits)
        return limiter


MAX_CHARGED_UNREADABLE_BYTES = 1000
"""Bytes that are counted of what cannot be read."""


class IngestedEnvelope(NamedTuple):
    envelope: Envelope
    """Without what must not be seen."""
    has_sender_id: bool
    """Whether its id is its sender's own."""
    size_bytes: int
    redacted: tuple[str, ...]
    has_sender_ts: bool = False
    """Whether its sender says when it was sent."""

    def to_request(self, on_result: OnResult, address: str = "") -> WriteRequest:
        return WriteRequest(
            on_result,
            envelope=self.envelope,
            has_sender_id=self.has_sender_id,
            size_bytes=self.size_bytes,
            redacted=self.redacted,
            has_sender_ts=self.has_sender_ts,
            address=address,
        )


class RateLimited(PellucidError):
    """`about` was not taken: its sender says more than the space takes."""

    def __init__(self, info: ErrorInfo, envelope: Envelope) -> None:
        super().__init__(info)
        self.envelope = envelope


class DialectListener(Protocol):
    def set_dialect(self, dialect: DialectName) -> None:
        """It has shown which dialect it speaks."""
        ...


class Ingest:
    """A space's. `clock` gives seconds since 1970."""

    def __init__(self, configuration: Configuration, clock: Callable[[], float]) -> None:
        self._configuration = configuration
        self._clock = clock
        self._limiters = RateLimiters(configuration.settings.limits)

    def reload_limits(self) -> None:
        """The settings may be others now."""
        self._limiters.set_limits(self._configuration.settings.limits)

    def process(
        self,
        participant: str,
        data: bytes | str | dict[str, Any],
        size: int | None,
        dialect: DialectName | None,
        listener: DialectListener | None = None,
    ) -> IngestedEnvelope:
        """`size`: the bytes of what was read before. `speaker` is told the dialect if that is not known yet. Raises
        `PellucidError`."""
        now = monotonic()
        limiter = self._limiters.get(participant, now)
        size = _size_of(data) if size is None else size
        defaults = Defaults(participant, new_id(), round(self._clock() * 1000))
        try:
            limit = self._configuration.settings.limits.frame_bytes
            if size > limit:
                envelope_id, attempted_kind = peek(data)
                raise EnvelopeError(
                    f"an envelope has at most {limit} bytes here, not {size}; send it in parts",
                    kind="too_large",
                    code="too_large",
                    envelope_id=envelope_id,
                    attempted_kind=attempted_kind,
                )
            if dialect is None and listener is not None:
                data = decode_frame(data)
                dialect = detect_dialect(data)
                if dialect is not None:
                    listener.set_dialect(dialect)
            envelope = read(data, dialect, defaults)
        except EnvelopeError:
            limiter.take(OTHER, min(size, MAX_CHARGED_UNREADABLE_BYTES), now)
            raise
        try:
            limiter.take(envelope.family, size, now)
        except PellucidError as error:
            raise RateLimited(error.info, envelope) from None
        envelope, redacted = self._configuration.redactor.redact(envelope)
        return IngestedEnvelope(envelope, envelope.id != defaults.id, size, redacted, envelope.ts != defaults.ts)

    def exceeds_patience(self, participant: str) -> bool:
        now = monotonic()
        return self._limiters.get(participant, now).exceeds_patience(now)


def _size_of(data: bytes | str | dict[str, Any]) -> int:
    if isinstance(data, dict):
        try:
            return len(msgspec.json.encode(data))
        except (msgspec.MsgspecError, RecursionError, TypeError, ValueError):
            return 0  # `read` says what is wrong with it
    return len(data) if isinstance(data, bytes) or data.isascii() else len(data.encode(errors="replace"))
