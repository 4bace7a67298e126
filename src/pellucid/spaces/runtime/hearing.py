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

from ...envelopes import Defaults, DialectName, Envelope, EnvelopeError, load, read
from ...envelopes.frames import glimpse
from ...envelopes.translate import dialect_of
from ...errors import ErrorInfo, PellucidError
from .ids import new_id
from .inbox import Item, Tell
from .living import Configuration
from .settings import FloodLimits, Rate

FAMILIES = ("reasoning", "chat", "mcp")
OTHER = "other"

QUIET = 2.0
"""Seconds without a refusal after which somebody is no longer over the limit."""


class Bucket:
    __slots__ = ("_at", "_level", "_rate")

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._level = rate.burst
        self._at: float | None = None

    def wait(self, amount: float, now: float) -> float:
        """Seconds until so much may be taken; 0: now. More than it ever holds is let by when it is full."""
        rate, level = self._rate, self._level
        if self._at is not None:
            level = min(rate.burst, level + max(0.0, now - self._at) * rate.per_second)
        self._level, self._at = level, now
        return max(0.0, (min(amount, rate.burst) - level) / rate.per_second)

    def take(self, amount: float) -> None:
        self._level -= amount


class Guard:
    """One participant's."""

    __slots__ = ("_limits", "_messages", "_since", "_until", "_volume", "last")

    def __init__(self, limits: FloodLimits) -> None:
        self._limits = limits
        self._messages = {family: Bucket(getattr(limits, family)) for family in (*FAMILIES, OTHER)}
        self._volume = {family: Bucket(limits.bytes) for family in (*FAMILIES, OTHER)}
        self._since = self._until = -QUIET
        """When they began to be over the limit, and when they were last."""
        self.last = 0.0
        """When they last said something."""

    def take(self, family: str, size: int, now: float) -> None:
        """Raises `PellucidError`."""
        if family not in FAMILIES:
            family = OTHER
        self.last = now
        messages, volume = self._messages[family], self._volume[family]
        wait = max(messages.wait(1, now), volume.wait(size, now))
        if wait > 0:
            if now - self._until >= QUIET:
                self._since = now
            self._until = now
            raise PellucidError(
                ErrorInfo(
                    "too_many_requests",
                    f"this participant says more ({family}) than the space takes; wait {wait:.1f} s, and go on slower",
                    code="rate_limited",
                    retry_after=ceil(wait * 1000) / 1000,
                )
            )
        messages.take(1)
        volume.take(size)

    def out_of_patience(self, now: float) -> bool:
        return now - self._until < QUIET and self._until - self._since > self._limits.patience


class Guards:
    """Those of a space. Who said nothing for a while is forgotten: their buckets are full again."""

    MOST = 1_000

    def __init__(self, limits: FloodLimits) -> None:
        self._of: dict[str, Guard] = {}
        self._limits: FloodLimits | None = None
        self.take_limits(limits)

    def take_limits(self, limits: FloodLimits) -> None:
        """From now on these hold."""
        if limits == self._limits:
            return
        self._limits = limits
        self._of.clear()
        rates = [getattr(limits, family) for family in (*FAMILIES, OTHER, "bytes")]
        self._full_after = max(QUIET, *(rate.burst / rate.per_second for rate in rates))

    def of(self, participant: str, now: float) -> Guard:
        guard = self._of.get(participant)
        if guard is None:
            if len(self._of) >= self.MOST:
                self._of = {name: one for name, one in self._of.items() if now - one.last < self._full_after}
            assert self._limits is not None
            guard = self._of[participant] = Guard(self._limits)
        return guard


MOST_FOR_NOTHING = 1000
"""Bytes that are counted of what cannot be read."""


class Heard(NamedTuple):
    envelope: Envelope
    """Without what must not be seen."""
    named: bool
    """Whether its id is its sender's own."""
    size: int
    redacted: tuple[str, ...]
    dated: bool = False
    """Whether its sender says when it was sent."""

    def item(self, tell: Tell, address: str = "") -> Item:
        return Item(
            tell,
            envelope=self.envelope,
            named=self.named,
            size=self.size,
            redacted=self.redacted,
            dated=self.dated,
            address=address,
        )


class TooMuch(PellucidError):
    """`about` was not taken: its sender says more than the space takes."""

    def __init__(self, info: ErrorInfo, about: Envelope) -> None:
        super().__init__(info)
        self.about = about


class Speaker(Protocol):
    def speak(self, dialect: DialectName) -> None:
        """It has shown which dialect it speaks."""
        ...


class Hearing:
    """A space's. `clock` gives seconds since 1970."""

    def __init__(self, configuration: Configuration, clock: Callable[[], float]) -> None:
        self._configuration = configuration
        self._clock = clock
        self._guards = Guards(configuration.settings.limits)

    def take_limits(self) -> None:
        """The settings may be others now."""
        self._guards.take_limits(self._configuration.settings.limits)

    def read(
        self,
        participant: str,
        data: bytes | str | dict[str, Any],
        size: int | None,
        dialect: DialectName | None,
        speaker: Speaker | None = None,
    ) -> Heard:
        """`size`: the bytes of what was read before. `speaker` is told the dialect if that is not known yet. Raises
        `PellucidError`."""
        now = monotonic()
        guard = self._guards.of(participant, now)
        size = _size_of(data) if size is None else size
        defaults = Defaults(participant, new_id(), round(self._clock() * 1000))
        try:
            limit = self._configuration.settings.limits.frame_bytes
            if size > limit:
                about, attempted = glimpse(data)
                raise EnvelopeError(
                    f"an envelope has at most {limit} bytes here, not {size}; send it in parts",
                    kind="too_large",
                    code="too_large",
                    about=about,
                    attempted_kind=attempted,
                )
            if dialect is None and speaker is not None:
                data = load(data)
                dialect = dialect_of(data)
                if dialect is not None:
                    speaker.speak(dialect)
            envelope = read(data, dialect, defaults)
        except EnvelopeError:
            guard.take(OTHER, min(size, MOST_FOR_NOTHING), now)
            raise
        try:
            guard.take(envelope.family, size, now)
        except PellucidError as error:
            raise TooMuch(error.info, envelope) from None
        envelope, redacted = self._configuration.redactor.envelope(envelope)
        return Heard(envelope, envelope.id != defaults.id, size, redacted, envelope.ts != defaults.ts)

    def out_of_patience(self, participant: str) -> bool:
        now = monotonic()
        return self._guards.of(participant, now).out_of_patience(now)


def _size_of(data: bytes | str | dict[str, Any]) -> int:
    if isinstance(data, dict):
        try:
            return len(msgspec.json.encode(data))
        except (msgspec.MsgspecError, RecursionError, TypeError, ValueError):
            return 0  # `read` says what is wrong with it
    return len(data) if isinstance(data, bytes) or data.isascii() else len(data.encode(errors="replace"))
