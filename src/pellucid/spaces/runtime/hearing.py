"""From a frame to an envelope that may be judged: how much its sender says, whether it can be read, what in it nobody
is to see.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple, Protocol

import msgspec

from ...envelopes import Defaults, DialectName, Envelope, EnvelopeError, load, read
from ...envelopes.dialects import dialect_of
from ...envelopes.glimpse import glimpse
from ...errors import ErrorInfo, PellucidError
from .configuration import Configuration
from .flood import OTHER, Guards
from .ids import new_id
from .inbox import Item, Tell

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
