"""`RunSource`: the common interface of a live run, a live log, and a finished log.

A source pushes. `deliver` passes every batch to a receiver in the call in which the batch was read, and returns when
the run is over: a delta needs no future, task or queue. `pause` and `resume` pass back-pressure to the origin of the
batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from ..errors import ErrorInfo
from ..events import Event, PartDeltaEvent, RunEndEvent
from ..models import TextWriter
from ..parts import Origin, TextPartDelta, ThinkingPartDelta
from ..run import RunState


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The events of one read of the upstream, or of one step between two turns."""

    time_ms: int
    """Time of the events, in milliseconds since 1970."""
    events: list[Event]


def batch_factory(event: PartDeltaEvent) -> Callable[[str, int], Batch]:
    """Return a function that makes the batch of one delta, from a text and a time in milliseconds.

    Args:
        event: A delta of a part of text or thinking. The deltas of the batches have the same part index and type.
    """
    index, kind = event.index, type(event.delta)
    assert issubclass(kind, ThinkingPartDelta | TextPartDelta)

    def make_batch(text: str, time_ms: int) -> Batch:
        return Batch(time_ms, [PartDeltaEvent(index, kind(text))])

    return make_batch


BatchReceiver: TypeAlias = Callable[[Batch], None]
"""Called with each batch. An exception ends the delivery, and is raised by `deliver`."""


class TextSink(Protocol):
    """Receiver of the texts of deltas, without an event for each (the text path)."""

    def open_text(self, last_delta: PartDeltaEvent) -> TextWriter | None:
        """Open the text path for deltas like this one.

        Args:
            last_delta: The last delta that was received. The texts have the same part index and type.

        Returns:
            The writer of texts, which is valid until the next batch is received; None if this receiver needs events.
        """
        ...


class RunSource(Protocol):
    """Source of the batches of one run. The last batch ends with the run's only `RunEndEvent`."""

    @property
    def queued(self) -> bool:
        """Whether the run began with a wait for a busy model."""
        ...

    @property
    def ended(self) -> RunEndEvent | None:
        """The run's end, when it has been delivered; None before that."""
        ...

    @property
    def is_interrupted(self) -> bool:
        """Whether only this delivery ended, while the run continues or has continued elsewhere."""
        ...

    async def open(self) -> None:
        """Start the source. After an exception there is nothing to clean up.

        Raises:
            ModelError: If the model cannot be reached, or rejects the call.
            RequestError: If the request is not valid.
        """
        ...

    async def deliver(self, receive: BatchReceiver, texts: TextSink | None = None) -> None:
        """Pass every batch to `receive`, until the run is over. May be cancelled; must be called only once.

        Args:
            receive: Called with each batch.
            texts: May get deltas of text instead, on the text path.
        """
        ...

    def pause(self) -> None:
        """Deliver no more batches until `resume`, except those in progress. Idempotent."""
        ...

    def resume(self) -> None:
        """Continue the delivery after `pause`. Idempotent."""
        ...

    async def stop(self, error: ErrorInfo | None = None) -> None:
        """End the delivery now, as cancelled or as failed with `error`. Idempotent.

        The events that close the run are delivered, `RunEndEvent` last, and the resources of the run are released.
        """
        ...


class DrivenRun(RunSource, Protocol):
    """Source whose run this process drives: a `LiveRun`, or the run of an agent."""

    @property
    def origin(self) -> Origin:
        """The model and provider that produce the run."""
        ...

    @property
    def state(self) -> RunState:
        """What the run does now."""
        ...

    @property
    def characters(self) -> int:
        """The size of the model's output so far, reasoning included."""
        ...

    async def abort(self, error: ErrorInfo) -> None:
        """End the run as failed with `error`. For other tasks than the one that opens or delivers the run."""
        ...


def clock_ms() -> int:
    """Return the current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
