"""How each kind of client is answered: a package a protocol, which knows the parts and its own wire, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..events import Event


class Encoder(Protocol):
    """A protocol's encoder: events in, bytes for the client out."""

    def start(self, *, queued: bool = False) -> bytes:
        """What opens the stream; `queued` when the model has yet to become free."""
        ...

    def feed(self, events: list[Event], now: int) -> bytes:
        """What these events are on the wire (maybe nothing). `now` is in milliseconds."""
        ...

    def text_encoder(self) -> Callable[[str, int], bytes] | None:
        """Encodes the text of one more delta like the last, of a text that UTF-8 can hold and its time; None where
        that takes an event. It may be used until `feed` is called."""
        ...
