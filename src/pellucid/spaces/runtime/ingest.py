"""From a frame to an envelope that can be judged: rate limits, decoding, redaction.

How much one participant may send, for each family of kinds, in messages and in bytes:

    limiter = FloodLimiter(limits)
    limiter.take("reasoning", size, now)      # raises RateLimited, with `retry_after`

Each limit is a bucket that holds `burst` and refills by `per_second`. A refused message takes nothing from it. The
limits hold for one replica: they protect it, and all readers, from floods. `now` is in seconds and never decreases.

A participant that exceeds a limit stays over it until `QUIET_SECONDS` have passed in which at most
`REFUSALS_PER_ACCEPTED` of its messages were refused for each one that was accepted. So one that waits for `retry_after`
is not over the limit for long, and one that ignores it stays over it, whatever else of it is accepted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from math import ceil
from time import monotonic
from typing import Any

import msgspec

from ...envelopes import Defaults, DialectName, Envelope, EnvelopeError, decode_frame, read
from ...envelopes.frames import peek
from ...envelopes.translate import detect_dialect
from ...errors import ErrorInfo, PellucidError
from ...telemetry import log
from ...telemetry.lines import LogLine
from .ids import new_id
from .live_state import Configuration
from .settings import FloodLimits, Rate
from .writer import WriteRequest

FAMILIES = ("reasoning", "chat", "mcp", "stream")
OTHER = "other"

QUIET_SECONDS = 2.0
"""Seconds with few refusals after which a participant no longer counts as over the limit."""

REFUSALS_PER_ACCEPTED = 4
"""Refusals that are few, for each accepted message. A client that waits has one; one that sends the next messages
before it knows of a refusal, or has several connections, has a few more.
"""


class TokenBucket:
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


class RateLimited(PellucidError):
    """A rate limit is exceeded.

    Attributes:
        about: The envelope that was not accepted, or the error of reading it.
        is_persistent: Whether the limit has been exceeded for longer than the space tolerates.
    """

    about: Envelope | EnvelopeError | None = None

    def __init__(self, info: ErrorInfo, *, is_persistent: bool) -> None:
        super().__init__(info)
        self.is_persistent = is_persistent


class FloodLimiter:
    """The limits of one participant."""

    __slots__ = (
        "_limits",
        "_messages",
        "_over_limit_since",
        "_over_limit_until",
        "_tolerated_refusals",
        "_volume",
        "last_used",
    )

    def __init__(self, limits: FloodLimits) -> None:
        self._limits = limits
        self._messages = {family: TokenBucket(getattr(limits, family)) for family in (*FAMILIES, OTHER)}
        self._volume = {family: TokenBucket(limits.bytes) for family in (*FAMILIES, OTHER)}
        self._over_limit_since = self._over_limit_until = -QUIET_SECONDS
        """When the participant first exceeded its limit, and when it last did by more than is tolerated."""
        self._tolerated_refusals = 0
        """How many of the next refusals are tolerated, because messages were accepted since `_over_limit_until`."""
        self.last_used = 0.0
        """When the participant last sent something."""

    def take(self, family: str, size_bytes: int, now: float) -> None:
        """Charge one message.

        Raises:
            RateLimited: If the limit is exceeded.
        """
        if family not in FAMILIES:
            family = OTHER
        self.last_used = now
        messages, volume = self._messages[family], self._volume[family]
        wait = max(messages.wait_seconds(1, now), volume.wait_seconds(size_bytes, now))
        if wait > 0:
            if now - self._over_limit_until >= QUIET_SECONDS:
                self._over_limit_since = now
                self._tolerated_refusals = 0
            if self._tolerated_refusals:
                self._tolerated_refusals -= 1
            else:
                self._over_limit_until = now
            raise RateLimited(
                ErrorInfo(
                    "too_many_requests",
                    f"this participant sends more ({family}) than the space accepts; wait {wait:.1f} s, send slower",
                    code="rate_limited",
                    retry_after=(ceil(wait * 1000) + 1) / 1000,  # a millisecond more than rounding can take
                ),
                is_persistent=self.exceeds_patience(now),
            )
        messages.take(1)
        volume.take(size_bytes)
        self._tolerated_refusals += REFUSALS_PER_ACCEPTED

    def exceeds_patience(self, now: float) -> bool:
        """Check whether the participant has exceeded its limit for longer than the space tolerates."""
        return (
            now - self._over_limit_until < QUIET_SECONDS
            and self._over_limit_until - self._over_limit_since > self._limits.patience
        )


class FloodLimiters:
    """The limiters of a space. Those of silent participants are dropped, because their buckets are full again."""

    MAX_LIMITERS = 1_000

    def __init__(self, limits: FloodLimits) -> None:
        self._by_participant: dict[str, FloodLimiter] = {}
        self._limits = limits

    def set_limits(self, limits: FloodLimits) -> None:
        """Use these limits from now on."""
        if limits != self._limits:
            self._limits = limits
            self._by_participant.clear()

    def get(self, participant: str, now: float) -> FloodLimiter:
        """Return the limiter of a participant."""
        limiter = self._by_participant.get(participant)
        if limiter is None:
            if len(self._by_participant) >= self.MAX_LIMITERS:
                self._drop_silent(now)
            limiter = self._by_participant[participant] = FloodLimiter(self._limits)
        return limiter

    def _drop_silent(self, now: float) -> None:
        rates: list[Rate] = [getattr(self._limits, family) for family in (*FAMILIES, OTHER, "bytes")]
        full_after_seconds = max(QUIET_SECONDS, *(rate.burst / rate.per_second for rate in rates))
        self._by_participant = {
            name: one for name, one in self._by_participant.items() if now - one.last_used < full_after_seconds
        }


LOG_SECONDS = 10.0
"""Seconds in which the refusals of a participant are gathered in one log line."""


class RefusalLog:
    """Counts what rate limits refuse, and logs the counts, without contents.

    Args:
        space: The name of the space.
    """

    def __init__(self, space: str) -> None:
        self._space = space
        self._counts: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def count(self, participant: str) -> None:
        """Count one refusal."""
        self._counts[participant] += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOG_SECONDS, self.flush)

    def flush(self) -> None:
        """Log what was counted."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for participant, count in self._counts.items():
            fields = {"space": self._space, "participant": participant, "refused": count}
            log.warning("%s", LogLine("space_rate_limited", fields))
        self._counts.clear()


MAX_CHARGED_UNREADABLE_BYTES = 1000
"""Maximum number of bytes that is charged for a frame that cannot be decoded."""


MAX_STREAM_FRAME_BYTES = 16 * 1024
"""Maximum size of a frame of a stream. Other replicas receive it through the relay."""


class Ingest:
    """Decodes, limits and redacts the frames of a space.

    Args:
        configuration: The configuration of the space.
        clock: Returns seconds since 1970.
    """

    def __init__(self, configuration: Configuration, clock: Callable[[], float]) -> None:
        self._configuration = configuration
        self._clock = clock
        self._limiters = FloodLimiters(configuration.settings.limits)
        self.refusals = RefusalLog(configuration.name)

    def reload_limits(self) -> None:
        """Apply the limits of the current settings."""
        self._limiters.set_limits(self._configuration.settings.limits)

    def charge_stream_frame(self, participant: str, data: bytes | str) -> None:
        """Charge a frame of a stream.

        Raises:
            EnvelopeError: If it is too large.
            RateLimited: If the rate limit is exceeded.
        """
        size = _size_of(data)
        self._charge(participant, "stream", size if size <= MAX_STREAM_FRAME_BYTES else MAX_CHARGED_UNREADABLE_BYTES)
        if size > MAX_STREAM_FRAME_BYTES:
            message = f"a frame of a stream has at most {MAX_STREAM_FRAME_BYTES} bytes, not {size}; send it in parts"
            raise EnvelopeError(message, kind="too_large", code="too_large")

    def _charge(
        self, participant: str, family: str, size_bytes: int, about: Envelope | EnvelopeError | None = None
    ) -> None:
        now = monotonic()
        try:
            self._limiters.get(participant, now).take(family, size_bytes, now)
        except RateLimited as error:
            error.about = about
            self.refusals.count(participant)
            raise

    def process(
        self,
        participant: str,
        data: bytes | str | dict[str, Any],
        size: int | None,
        dialect: DialectName | None,
        on_dialect: Callable[[DialectName], None] | None = None,
        address: str = "",
    ) -> WriteRequest:
        """Turn a frame into a request to judge and store its envelope.

        Args:
            participant: The sender.
            data: The frame, or JSON that was decoded before.
            size: Number of bytes, for JSON that was decoded before.
            dialect: The dialect of the connection. None: not known yet.
            on_dialect: Receives the dialect when it is detected.
            address: Base URL under which the participant reached the gateway.

        Raises:
            EnvelopeError: If the frame is not a valid envelope.
            RateLimited: If the rate limit is exceeded.
        """
        size = _size_of(data) if size is None else size
        defaults = Defaults(participant, new_id(), round(self._clock() * 1000))
        try:
            limit = self._configuration.settings.limits.frame_bytes
            if size > limit:
                raise EnvelopeError(
                    f"an envelope has at most {limit} bytes in this space, not {size}; send it in parts",
                    kind="too_large",
                    code="too_large",
                )
            if dialect is None and on_dialect is not None:
                data = decode_frame(data)
                dialect = detect_dialect(data)
                if dialect is not None:
                    on_dialect(dialect)
            envelope = read(data, dialect, defaults)
        except EnvelopeError as error:
            if error.envelope_id is None:
                error.envelope_id, error.attempted_kind = peek(data)
            self._charge(participant, OTHER, min(size, MAX_CHARGED_UNREADABLE_BYTES), error)
            raise
        self._charge(participant, envelope.family, size, envelope)
        redactor, has_sender_id = self._configuration.redactor, envelope.id != defaults.id
        try:
            redactor.check_names(
                id=[envelope.id] if has_sender_id else [],
                kind=[envelope.kind],
                to=envelope.to,
                correlation_id=envelope.correlation_id,
                context=[envelope.context or ""],
            )
        except EnvelopeError as error:
            # The error names the envelope, but does not repeat the name in which a pattern matches.
            error.envelope_id = envelope.id if has_sender_id and error.info.param != "id" else None
            error.attempted_kind = envelope.kind if error.info.param != "kind" else None
            raise
        envelope, redacted = redactor.redact(envelope)
        return WriteRequest(
            envelope=envelope,
            has_sender_id=has_sender_id,
            has_sender_ts=envelope.ts != defaults.ts,
            size_bytes=size,
            redacted=redacted,
            address=address,
        )


def _size_of(data: bytes | str | dict[str, Any]) -> int:
    if isinstance(data, dict):
        try:
            return len(msgspec.json.encode(data))
        except (msgspec.MsgspecError, RecursionError, TypeError, ValueError):
            return 0  # `read` reports the error
    return len(data) if isinstance(data, bytes) or data.isascii() else len(data.encode(errors="replace"))
