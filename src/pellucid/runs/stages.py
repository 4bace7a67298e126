"""Stages of a live run, which every batch passes once between the run's state machine and its readers.

A run is created with a tuple of stages. Each takes a batch and returns one, with events added, changed or held back. A
stage with a later result (a summary was written, a commit succeeded) passes a new batch to `push`; it goes through the
stages after this one. The run is over when its `RunEndEvent` has passed the last stage.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..events import PartDeltaEvent
from ..settings import ModelCall
from .source import Batch, BatchReceiver


class Stage:
    """Stage that changes nothing; the base class of all stages.

    The output of a stage must be a legal sequence (`fold`) if its input is: a stage that changes a delta also changes
    the part's end, and then a signature is not valid any more. The run's state machine has processed every event
    before, so the request of the next turn contains the model's output without changes. A stage may change the event
    list of its input batch: no other object holds it yet.
    """

    wants_deltas = True
    """Whether `process` is called for a batch of one `PartDeltaEvent`, as nearly all batches are. It is always called
    for other batches. May change during a run."""

    takes_texts = False
    """Whether deltas of text may be passed to `add_texts` instead of `process`, also while `wants_deltas` is true."""

    push: BatchReceiver
    """Passes a batch to the stages after this one. Set before `open`."""

    async def open(self) -> None:
        """Prepare the stage, before the model is called. An exception is raised by the run's `open`."""

    async def discard(self, *, was_cancelled: bool) -> None:
        """Release the resources of `open`, because the run could not start.

        Args:
            was_cancelled: Whether it was cancelled while its model was called.
        """

    def on_call(self, call: ModelCall) -> None:
        """Called before the model is called for a turn, with the call as it is sent. For the first, before `on_opened`.

        If the model does not accept it, the run ends without events of the turn.
        """

    def on_opened(self, *, queued: bool) -> None:
        """Called when the model was called and the run starts. `queued`: whether the model was busy."""

    def process(self, batch: Batch) -> Batch:
        """Return the batch for the next stage. Called once for each batch, in order."""
        return batch

    def add_texts(self, last_delta: PartDeltaEvent, texts: list[tuple[str, int]]) -> None:
        """Take note of texts that were delivered on the text path. Called before the next event is processed.

        Args:
            last_delta: The delta whose part index and type the texts have.
            texts: Pairs of a text and its time in milliseconds since 1970.
        """

    def on_stopping(self) -> None:
        """Called when the reader stops the run; the closing events follow. The stage must not wait for results now."""


async def open_stages(stages: Sequence[Stage]) -> None:
    """Open all stages, in order. If one raises, the stages before it are discarded."""
    opened: list[Stage] = []
    try:
        for stage in stages:
            await stage.open()
            opened.append(stage)
    except BaseException:
        await discard_stages(opened)
        raise


async def discard_stages(stages: Sequence[Stage], *, was_cancelled: bool = False) -> None:
    """Discard stages, in reverse order."""
    for stage in reversed(stages):
        await stage.discard(was_cancelled=was_cancelled)
