"""Why a database does not do what it is asked, said in the log: callers are told only that it does not.

Of what the database said, the name of its error alone; and not again for every request that it fails.
"""

from __future__ import annotations

import time
from typing import TypeVar

from ..telemetry import log
from .errors import AlreadyStored, Refused, StoreError

E = TypeVar("E", bound=StoreError)

SECONDS = 10.0
"""So long the same is not said again."""

_said: dict[str, float] = {}


def noted(error: E) -> E:
    """The same error, for `raise`."""
    expected = isinstance(error, AlreadyStored) or (isinstance(error, Refused) and error.again)
    if error.cause and not expected:
        now = time.monotonic()
        if now - _said.get(error.cause, -SECONDS) >= SECONDS:
            _said[error.cause] = now
            log.warning("the store failed: %s", error.cause)
    return error


__all__ = ["noted"]
