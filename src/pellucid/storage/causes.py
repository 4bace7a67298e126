"""Why a database does not do what it is asked, said in the log: callers are told only that it does not.

Everything that a database is asked goes through one of its two `Telling`s, one for what is read and one for what is
written (a full disk can be read). One line says that it stopped answering, one that it answers again, and none is
there for each request in between. Of what the database said, they hold the name of its error alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Literal

from ..telemetry import log
from .errors import AlreadyStored, Refused, Unanswered

SETTLED = 1.0
"""Seconds without a failure, after which an answer means that it answers again: a database that does every other thing
is not told twice each time."""

SECONDS = 10.0
"""So long the same fault is not said again."""


class Telling:
    """`with` it, whatever is asked is carried out."""

    def __init__(self, what: Literal["read", "written"], clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._failed: float | None = None
        """When it did last, while it does not answer."""
        self._faults: dict[str, float] = {}

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            if self._failed is not None and self._clock() - self._failed >= SETTLED:
                self._failed = None
                log.warning("the store answers again: it can be %s", self._what)
        elif isinstance(error, Unanswered):
            if self._failed is None:
                log.warning("the store does not answer: it cannot be %s (%s)", self._what, error.cause)
            self._failed = self._clock()
        elif isinstance(error, Refused) and not isinstance(error, AlreadyStored) and error.cause:
            now = self._clock()
            if now - self._faults.get(error.cause, -SECONDS) >= SECONDS:
                self._faults[error.cause] = now
                log.warning("the store failed: %s", error.cause)
