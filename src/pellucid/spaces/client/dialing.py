"""Making the socket to a space, and what it means where there is none, or where it was closed: that there may be one
later (`Broken`), or that there will be none (`SpaceClosed`).
"""

from __future__ import annotations

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI

from ...envelopes import DIALECTS, USUAL, closing
from ...envelopes.shown import SpaceView
from .address import Address
from .arrivals import Resume
from .refusals import SpaceClosed
from .remote import problem

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
