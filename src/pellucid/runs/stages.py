"""The stages of a live run: what every batch passes between the run's machine and its readers, once.

A run is created with a tuple of stages. Each takes a batch and returns one, with events added, changed or held back. A
stage that learns something later (a summary that was written, a commit that succeeded) hands a new batch to `push`; it
passes through the stages behind it. The run is over when its `RunEndEvent` has passed the last stage.

`SealStage` seals the items of a run, once, before anything is stored or shown. A client can send a token back to any
replica, also after a key rotation; nothing is stored for it here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from ..events import ItemEndEvent, ItemStartEvent, PartDeltaEvent, PartEndEvent, ResponseStartEvent
from ..parts import ModelResponsePart, Origin
from ..sealing import Sealed, SealError, seal_item
from ..telemetry import log
from .source import Batch

Push: TypeAlias = Callable[[Batch], None]


class Stage:
    """A stage that changes nothing; the base of all others.

    What leaves a stage is legal (`fold`) if what came was: who changes a delta changes the part's end, too, and a
    signature does not fit any more. The run's machine has taken every event before: what the next turn is asked with is
    what the model said. A stage may change the list of a batch that it was given; nobody else holds it yet.
    """

    wants_deltas = True
    """Whether `process` is called for a batch that is one `PartDeltaEvent`, as nearly all are; for others it is always
    called. May change in a run."""

    takes_texts = False
    """Whether `add_texts` will do for deltas that are text alone, also while `process` wants deltas."""

    push: Push
    """Hand a batch to the stages behind this one. Set before `open`."""

    async def open(self) -> None:
        """Prepare, before the model is called. What is raised here is raised by the run's `open`."""

    async def discard(self) -> None:
        """Release what `open` took: the run could not begin."""

    def on_opened(self, *, queued: bool) -> None:
        """The model was called, and the run begins."""

    def process(self, batch: Batch) -> Batch:
        """The batch as it goes on. Called once for each batch, in order."""
        return batch

    def add_texts(self, like: PartDeltaEvent, texts: list[tuple[str, int]]) -> None:
        """These texts, of deltas like `like`, have gone on at these times (ms). Before anything else is processed."""

    def on_stopping(self) -> None:
        """The reader stops the run: what closes it follows. Nothing may be held back for a result still to come."""


async def open_stages(stages: Sequence[Stage]) -> None:
    """Open all stages, in order. If one raises, those before it are discarded."""
    opened: list[Stage] = []
    try:
        for stage in stages:
            await stage.open()
            opened.append(stage)
    except BaseException:
        await discard_stages(opened)
        raise


async def discard_stages(stages: Sequence[Stage]) -> None:
    for stage in reversed(stages):
        await stage.discard()


class SealStage(Stage):
    """Puts a seal on every item end that needs one."""

    wants_deltas = False

    def __init__(self, seal: Callable[[Sealed], str]) -> None:
        self._seal = seal
        self._origin: Origin | None = None
        self._start: ItemStartEvent | None = None
        self._parts: list[ModelResponsePart] = []

    def process(self, batch: Batch) -> Batch:
        events = batch.events
        for at, event in enumerate(events):
            kind = type(event)
            if kind is PartDeltaEvent:
                continue
            if isinstance(event, PartEndEvent):
                self._parts.append(event.part)
            elif isinstance(event, ItemStartEvent):
                self._start, self._parts = event, []
            elif isinstance(event, ItemEndEvent):
                events[at] = self._seal_item_end(event)
            elif isinstance(event, ResponseStartEvent):
                self._origin = event.origin
        return batch

    def _seal_item_end(self, end: ItemEndEvent) -> ItemEndEvent:
        assert self._start is not None
        assert self._origin is not None
        sealed = seal_item(self._parts, self._start, end, self._origin, int(time.time()))
        if sealed is None:
            return end
        try:
            return replace(end, seal=self._seal(sealed))
        except SealError as error:
            # Whoever may read the item has read it in full; only sending it back is impossible.
            log.warning("an item has no seal: %s", error.info.message)
            return end
