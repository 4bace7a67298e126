"""Client protocols: one package for each protocol in which clients are answered.

Each package knows the parts, the events and its own wire format, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from ..events import Event
from ..view import View

CAPTURED_PROMPT, CAPTURED_TIME = "(captured)", 0
"""The prompt and the time of an answer that was captured (`pellucid translate`)."""


class StoredRunHeader(msgspec.Struct, frozen=True, kw_only=True):
    """How a run was requested: what is stored of it, so that it can be encoded again for any viewer.

    Each protocol that stores runs adds what else its encoding depends on.
    """

    protocol: str
    view: View
    """The view that was requested."""
    max_view: View = msgspec.field(default="raw", name="most")
    """The fullest view that its model allowed to anyone."""


class Encoder(Protocol):
    """A client protocol's encoder: takes events, returns bytes for the client."""

    @property
    def ping(self) -> bytes:
        """Bytes without meaning, which keep a silent connection open; empty where the form has none."""
        ...

    def start(self, *, queued: bool = False) -> bytes:
        """Return the bytes that open the stream.

        Args:
            queued: Whether the request waits until the model is free.
        """
        ...

    def feed(self, events: list[Event], now: int) -> bytes:
        """Encode the events of one batch.

        Args:
            events: The events, in order.
            now: The time of the batch, in milliseconds since 1970.

        Returns:
            The bytes to send; empty if the protocol shows none of these events.
        """
        ...

    def text_encoder(self) -> Callable[[str, int], bytes] | None:
        """Return a function that encodes the text of further deltas without an event.

        The function takes a text that UTF-8 can hold, as the next delta of the same kind as the last, and the time in
        milliseconds since 1970. It may be used until `feed` is called.

        Returns:
            The function; None where the next delta needs an event.
        """
        ...
