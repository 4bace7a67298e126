"""Where batches of events come from: the one interface of a live run, a log that is followed, and a finished response.

A source pushes. `deliver` hands every batch to a receiver, in the call in which it became known, and returns when the
run is over: for a delta there is no future, task or queue. `pause` and `resume` carry back-pressure to whatever the
batches come from.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from ..errors import ErrorInfo
from ..events import Event, RunEndEvent


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The events of one read of the upstream, or of one step between two turns."""

    time_ms: int
    """When they became known, in milliseconds since 1970."""
    events: list[Event]


BatchReceiver: TypeAlias = Callable[[Batch], None]
"""Takes each batch. What it raises ends the delivery, and is raised by `deliver`."""


class RunSource(Protocol):
    """The batches of one run. The last batch ends with the run's only `RunEndEvent`."""

    @property
    def queued(self) -> bool:
        """Whether the run began with a wait for a model that was busy."""
        ...

    @property
    def ended(self) -> RunEndEvent | None:
        """The run's end, once it was delivered."""
        ...

    @property
    def broken_off(self) -> bool:
        """Whether only the delivery ended, of a run that goes on or went on elsewhere."""
        ...

    async def open(self) -> None:
        """Begin. Raises `ModelError` or `RequestError`; there is nothing to clean up then."""
        ...

    async def deliver(self, receive: BatchReceiver) -> None:
        """Hand every batch to `receive`, until the run is over. May be cancelled, but not be called again."""
        ...

    def pause(self) -> None:
        """Deliver no more than what is already on its way, until `resume`. Idempotent."""
        ...

    def resume(self) -> None:
        """Deliver again. Idempotent."""
        ...

    async def stop(self, error: ErrorInfo | None = None) -> None:
        """End the delivery now: as cancelled, or as failed with `error`.

        What closes the run is delivered, `RunEndEvent` last, and what the run holds is released. Idempotent.
        """
        ...


def clock_ms() -> int:
    """The time of day, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
