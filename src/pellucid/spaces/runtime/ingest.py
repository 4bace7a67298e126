"""From a frame to an envelope that can be judged: rate limits, decoding, redaction.

How much one participant may send, for each family of kinds, in messages and in bytes:

    limiter = RateLimiter(limits)
    limiter.take("reasoning", size, now)      # raises PellucidError (too_many_requests) with `retry_after`
    limiter.exceeds_patience(now)             # whether the limit has been exceeded for too long

Each limit is a bucket that holds `burst` and refills by `per_second`. A refused message takes nothing from it. The
limits hold for one replica: they protect it, and all readers, from floods. `now` is in seconds and never decreases.
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
"""Seconds without a refusal after which a participant no longer counts as over the limit."""


class Bucket:
    """A token bucket."""

    __slots__ = ("_at", "_available", "_rate")

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._available = rate.burst
        self._at: float | None = None

    def wait_seconds(self, amount: float, now: float) -> float:
        """Return the seconds until the amount may be taken; 0: now.

        More than the bucket ever holds is allowed when it is full.
        """
        rate, level = self._rate, self._available
        if self._at is not None:
            level = min(rate.burst, level + max(0.0, now - self._at) * rate.per_second)
        self._available, self._at = level, now
        return max(0.0, (min(amount, rate.burst) - level) / rate.per_second)

    def take(self, amount: float) -> None:
        """Take an amount."""
        self._available -= amount


class RateLimiter:
    """The limits of one participant."""

    __slots__ = ("_limits", "_messages", "_over_limit_since", "_over_limit_until", "_volume", "last_used")

    def __init__(self, limits: FloodLimits) -> None:
        self._limits = limits
        self._messages = {family: Bucket(getattr(limits, family)) for family in (*FAMILIES, OTHER)}
        self._volume = {family: Bucket(limits.bytes) for family in (*FAMILIES, OTHER)}
        self._over_limit_since = self._over_limit_until = -QUIET_SECONDS
        """When the participant first exceeded its limit, and when it last did."""
        self.last_used = 0.0
        """When the participant last sent something."""

    def take(self, family: str, size_bytes: int, now: float) -> None:
        """Charge one message.

        Raises:
            PellucidError: If the limit is exceeded.
        """
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
                    f"this participant sends more ({family}) than the space accepts; wait {wait:.1f} s, send slower",
                    code="rate_limited",
                    retry_after=ceil(wait * 1000) / 1000,
                )
            )
        messages.take(1)
        volume.take(size_bytes)

    def exceeds_patience(self, now: float) -> bool:
        """Check whether the participant has exceeded its limit for longer than the space tolerates."""
        return (
            now - self._over_limit_until < QUIET_SECONDS
            and self._over_limit_until - self._over_limit_since > self._limits.patience
        )


class RateLimiters:
    """The limiters of a space. Those of silent participants are dropped, because their buckets are full again."""

    MAX_LIMITERS = 1_000

    def __init__(self, limits: FloodLimits) -> None:
        self._by_participant: dict[str, RateLimiter] = {}
        self._limits: FloodLimits | None = None
        self.set_limits(limits)

    def set_limits(self, limits: FloodLimits) -> None:
        """Use these limits from now on."""
        if limits == self._limits:
            return
        self._limits = limits
        self._by_participant.clear()
        rates = [getattr(limits, family) for family in (*FAMILIES, OTHER, "bytes")]
        self._full_after_seconds = max(QUIET_SECONDS, *(rate.burst / rate.per_second for rate in rates))

    def get(self, participant: str, now: float) -> RateLimiter:
        """Return the limiter of a participant."""
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
"""Maximum number of bytes that is charged for a frame that cannot be decoded."""


class IngestedEnvelope(NamedTuple):
    """An envelope that can be judged."""

    envelope: Envelope
    """The envelope after redaction."""
    has_sender_id: bool
    """Whether its sender chose its id."""
    size_bytes: int
    redacted: tuple[str, ...]
    has_sender_ts: bool = False
    """Whether its sender chose its time."""

    def to_request(self, on_result: OnResult, address: str = "") -> WriteRequest:
        """Return the request to judge and store it."""
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
    """The rate limit is exceeded; `envelope` was not accepted."""

    def __init__(self, info: ErrorInfo, envelope: Envelope) -> None:
        super().__init__(info)
        self.envelope = envelope


class DialectListener(Protocol):
    """Is notified of a detected dialect."""

    def set_dialect(self, dialect: DialectName) -> None:
        """Set the detected dialect."""
        ...


class Ingest:
    """Decodes, limits and redacts the frames of a space.

    Args:
        configuration: The configuration of the space.
        clock: Returns seconds since 1970.
    """

    def __init__(self, configuration: Configuration, clock: Callable[[], float]) -> None:
        self._configuration = configuration
        self._clock = clock
        self._limiters = RateLimiters(configuration.settings.limits)

    def reload_limits(self) -> None:
        """Apply the limits of the current settings."""
        self._limiters.set_limits(self._configuration.settings.limits)

    def process(
        self,
        participant: str,
        data: bytes | str | dict[str, Any],
        size: int | None,
        dialect: DialectName | None,
        listener: DialectListener | None = None,
    ) -> IngestedEnvelope:
        """Turn a frame into an envelope that can be judged.

        Args:
            participant: The sender.
            data: The frame, or JSON that was decoded before.
            size: Number of bytes, for JSON that was decoded before.
            dialect: The dialect of the connection. None: not known yet.
            listener: Is notified of the dialect when it is detected.

        Raises:
            EnvelopeError: If the frame is not a valid envelope.
            PellucidError: If the rate limit is exceeded.
        """
        now = monotonic()
        limiter = self._limiters.get(participant, now)
        size = _size_of(data) if size is None else size
        defaults = Defaults(participant, new_id(), round(self._clock() * 1000))
        try:
            limit = self._configuration.settings.limits.frame_bytes
            if size > limit:
                envelope_id, attempted_kind = peek(data)
                raise EnvelopeError(
                    f"an envelope has at most {limit} bytes in this space, not {size}; send it in parts",
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
            return 0  # `read` reports the error
    return len(data) if isinstance(data, bytes) or data.isascii() else len(data.encode(errors="replace"))
