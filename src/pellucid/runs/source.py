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
from ..events import Event, PartDeltaEvent, RunEndEvent
from ..models import TextWriter
from ..parts import TextPartDelta, ThinkingPartDelta


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The events of one read of the upstream, or of one step between two turns."""

    time_ms: int
    """When they became known, in milliseconds since 1970."""
    events: list[Event]


def batch_factory(event: PartDeltaEvent) -> Callable[[str, int], Batch]:
    """Makes the batch of one delta like `event`, of thought or text alone: of a text and a time (ms)."""
    index, kind = event.index, type(event.delta)
    assert issubclass(kind, ThinkingPartDelta | TextPartDelta)

    def make_batch(text: str, time_ms: int) -> Batch:
        return Batch(time_ms, [PartDeltaEvent(index, kind(text))])

    return make_batch


BatchReceiver: TypeAlias = Callable[[Batch], None]
"""Takes each batch. What it raises ends the delivery, and is raised by `deliver`."""


class TextSink(Protocol):
    """A receiver that can take the texts of deltas without their events."""

    def open_text(self, like: PartDeltaEvent) -> TextWriter | None:
        """How texts are passed on whose deltas are like `like`, the last that was received; None where their events
        are wanted. It may be used until a batch is received."""
        ...


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
    def is_interrupted(self) -> bool:
        """Whether only the delivery ended, of a run that goes on or went on elsewhere."""
        ...

    async def open(self) -> None:
        """Begin. Raises `ModelError` or `RequestError`; there is nothing to clean up then."""
        ...

    async def deliver(self, receive: BatchReceiver, texts: TextSink | None = None) -> None:
        """Hand every batch to `receive`, until the run is over; deltas that are text alone perhaps to `texts`. May be
        cancelled, but not be called again."""
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
