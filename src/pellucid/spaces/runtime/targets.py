"""Whom a chat is to: a chat that nobody of the space would hear is refused, by the code that MEW has for it.

Who may come in counts, whether they are there or not, and so does who was invited. Of several, those who are nobody are
flagged, and the others hear it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...envelopes import GATEWAY, Envelope
from ...envelopes.envelope import Flag
from ...envelopes.grants import Ledger
from ...envelopes.kinds import CHAT
from ...errors import ErrorInfo
from ...text import brief, meant

MOST = 256
"""Among so many the nearest is looked for."""
TOLD = 8
"""How many names a sentence lists."""


def unknown_targets(envelope: Envelope, ledger: Ledger) -> tuple[str, ...]:
    if envelope.kind != CHAT or envelope.sender == GATEWAY:
        return ()
    return tuple(one for one in envelope.to if one != GATEWAY and not ledger.is_member(one))


def target_not_found(strangers: Sequence[str], members: Sequence[str]) -> ErrorInfo:
    right = meant(strangers[0], members[:MOST])
    return ErrorInfo(
        "not_found",
        f"to: {_listed(strangers)} is in this space; {right}",
        code="target_not_found",
        param="to",
    )


def unheard(strangers: Sequence[str]) -> tuple[Flag, ...]:
    return (Flag("target_not_found", f"to: {_listed(strangers)} is in this space"),) if strangers else ()


def _listed(strangers: Sequence[str]) -> str:
    more = f" and {len(strangers) - TOLD} more" if len(strangers) > TOLD else ""
    return f"nobody called {' or '.join(repr(brief(one)) for one in strangers[:TOLD])}{more}"
