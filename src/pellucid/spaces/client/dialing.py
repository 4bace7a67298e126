"""Making the socket to a space, and what it means where there is none, or where it was closed: that there may be one
later (`Broken`), or that there will be none (`SpaceClosed`).

What has arrived of a space: each envelope once, in the space's order, whatever the connection did in between.

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
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI

from ...envelopes import DIALECTS, USUAL, closing
from ...envelopes.envelope import Envelope
from ...envelopes.shown import SpaceView
from .address import Address
from .refusals import SpaceClosed
from .remote import problem


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


CLOSE_SECONDS = 3.0
MOST_UNHEARD = 64
"""Frames that are read ahead."""

_FOR_GOOD = {
    closing.BROKE_RULES: "the space closed the connection for breaking its rules",
    closing.NO_JOIN: "the space does not understand how this participant came in",
    closing.NO_TOKEN: "the space does not know this token",
    closing.NOT_LET_IN: "this participant may not be in the space",
    closing.GONE: "there is no such space",
}
_MAY_PASS = frozenset({408, 421, 425, 429})
"""Statuses below 500 that say "not now"."""


class Broken(Exception):
    """There is no connection, and there may be one later."""


async def dial(address: Address, token: str, *, view: SpaceView, resume: Resume, max_frame: int) -> ClientConnection:
    """Raises `Broken`, `SpaceClosed`."""
    url = address.socket(view=view, after_seq=resume.after_seq, history=resume.history)
    try:
        return await connect(
            url,
            subprotocols=[DIALECTS[USUAL].subprotocol],  # type: ignore[list-item]
            additional_headers={"Authorization": f"Bearer {token}"},
            compression=None,
            max_size=max_frame,
            max_queue=MOST_UNHEARD,
            close_timeout=CLOSE_SECONDS,
        )
    except InvalidStatus as error:
        raise _not_let_in(address, error) from None
    except InvalidURI as error:
        raise SpaceClosed(str(error), kind="invalid_request", code="invalid_url") from None
    except (InvalidHandshake, OSError, TimeoutError, EOFError) as error:
        raise Broken(f"nobody answers ({type(error).__name__})") from None


def _not_let_in(address: Address, error: InvalidStatus) -> Exception:
    status = error.response.status_code
    info = problem(status, bytes(error.response.body or b""))
    if status >= 500 or status in _MAY_PASS:
        return Broken(f"it answers with {status}: {info.message}")
    return SpaceClosed(
        f"{address.socket()} does not let this participant in: {info.message}",
        kind=info.kind,
        code=info.code or "not_let_in",
    )


def closed_for_good(code: int | None, why: str) -> SpaceClosed | None:
    """What a connection that the space closed with this code means, where nobody is to come back. `why`: its words."""
    if code not in _FOR_GOOD:
        return None
    return SpaceClosed(f"{_FOR_GOOD[code]}{f': {why}' if why else ''}", kind="forbidden", code=f"closed_{code}")
