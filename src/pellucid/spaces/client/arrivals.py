"""What has arrived of a space: each envelope once, in the space's order, whatever the connection did in between.

    arrivals.resume           what to ask a connection for: where to go on, or how much of the history
    arrivals.welcomed(head)   a connection was accepted
    arrivals.begin_anew(head) … by another space than the one whose numbers these are
    arrivals.take(envelope)   the envelope as it is to be handed on, or None: it was here before

The space sends in its order, and leaves out what this reader is not shown: so numbers may be missing, but none comes
later than a greater one. What a connection missed the next one is asked for.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import structs

from ...envelopes.envelope import Envelope


class Resume(NamedTuple):
    after_seq: int | None
    history: int | None


class Arrivals:
    """Of one participant."""

    def __init__(self, after_seq: int | None = None, history: int = 0) -> None:
        self.seen = after_seq or 0
        """The number of the last that was taken."""
        self.head = self.seen
        """The number of the newest that is known of."""
        self.joined: int | None = 0 if after_seq is not None else None
        """Where the space stood when this participant came: what is not newer is replayed. None: it was not said."""
        self._history = history if after_seq is None else 0
        self._asked = after_seq is not None

    @property
    def resume(self) -> Resume:
        if self._asked or self.seen:
            return Resume(self.seen, None)
        return Resume(None, self._history or None)

    def welcomed(self, head: int | None) -> None:
        if head is None:
            return
        self.head = max(self.head, head)
        if self.joined is None:
            self.joined = head
            if not self._history:
                self.seen, self._asked = max(self.seen, head), True

    def begin_anew(self, head: int) -> None:
        """The numbers until now were another space's. All that there is, is past."""
        self.seen, self.head, self.joined, self._asked = 0, head, head, True

    def take(self, envelope: Envelope) -> Envelope | None:
        seq = envelope.seq
        if not seq:
            return envelope
        if seq <= self.seen:
            return None
        self.seen = seq
        self.head = max(self.head, seq)
        if self.joined is None or envelope.replayed == (seq <= self.joined):
            return envelope
        # Asked for again after a cut, the history holds what is new, and what was missed holds history.
        return structs.replace(envelope, replayed=seq <= self.joined)
