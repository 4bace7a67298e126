"""The events of one run, for one reader."""

from __future__ import annotations

from collections.abc import Callable

from ..events import Event
from .less import Lesser
from .raw import Raw
from .reader import Reader


class Redactor:
    """`feed` the events of one run, batch by batch, from its beginning; what it gives back is for this reader.

    It keeps what it needs to number items and parts without gaps, so each read of a run has a redactor of its own.
    """

    __slots__ = ("_machine", "feed")

    feed: Callable[[list[Event]], list[Event]]
    """A batch in, what the reader gets of it out: the same list where nothing is to be changed."""

    def __init__(self, reader: Reader) -> None:
        self._machine = Raw(reader) if reader.view == "raw" else Lesser(reader)
        self.feed = self._machine.feed

    @property
    def wants_deltas(self) -> bool:
        """Whether `feed` is to be called for a batch that is one `PartDeltaEvent`: false while each passes as it is.
        May be another after each call of `feed`."""
        return self._machine.wants_deltas
