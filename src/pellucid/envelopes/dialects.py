"""The dialects that participants speak, as data; and which of them somebody means.

|                  | `meup-draft`                     | `meup/v0.2`      | `mew/v0.4`       |
| kind             | `reasoning.start`                | with slashes     | with slashes     |
| correlation      | `correlationId`; a string if one | `correlation_id` | `correlation_id` |
| words of a chat  | `message`                        | `text`           | `text`           |

Each is written as its own documents have it (`translate`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..text import meant
from .envelope import DialectName, EnvelopeError
from .kinds import CHAT

_MOST_QUOTED = 40
"""How much of a wrong value is told again."""


class Dialect(NamedTuple):
    """How one dialect writes."""

    name: DialectName
    protocol: str
    subprotocol: str
    """Its name where there may be no slash: in a WebSocket's handshake."""
    spoken: str
    """What the protocols' names look like whose speakers are taken for its own: a pattern."""
    separator: str
    correlation: str
    is_scalar: bool
    """Whether one id stands without a list."""
    words: str
    """The field of a chat's words."""


DIALECTS: Mapping[DialectName, Dialect] = {
    row.name: row
    for row in (
        Dialect(
            "meup-draft",
            "meup/draft",
            "meup-draft",
            r"meup[/.-](draft|v0\.[01])",
            ".",
            "correlationId",
            True,
            "message",
        ),
        Dialect("meup/v0.2", "meup/v0.2", "meup.v0.2", r"meup[/.-]v\d.*", "/", "correlation_id", False, "text"),
        Dialect("mew/v0.4", "mew/v0.4", "mew.v0.4", r"mew([/.-]v\d.*)?", "/", "correlation_id", False, "text"),
    )
}
USUAL: DialectName = "mew/v0.4"


def dialect_named(name: str, at: str = "protocol") -> DialectName:
    """The dialect that somebody means by a protocol, a subprotocol or a query. Raises `EnvelopeError`."""
    for row in DIALECTS.values():
        if re.fullmatch(row.spoken, name):
            return row.name
    said = name[:_MOST_QUOTED]
    raise EnvelopeError(
        f"{at}: {said!r} is not spoken here; {meant(said, DIALECTS)}", code="unknown_protocol", param=at
    )


def dialect_of(frame: Mapping[str, Any]) -> DialectName | None:
    """The dialect in which a first envelope is written: by its protocol, or its spelling. None: it does not show.

    Raises `EnvelopeError` for a protocol that nobody here speaks.
    """
    protocol, kind, payload = frame.get("protocol"), frame.get("kind"), frame.get("payload")
    if isinstance(protocol, str):
        return dialect_named(protocol)
    if isinstance(kind, str):
        if "." in kind or "correlationId" in frame:
            return "meup-draft"
        if kind == CHAT and isinstance(payload, dict) and ("message" in payload) != ("text" in payload):
            return "meup-draft" if "message" in payload else USUAL
        if "/" in kind or "correlation_id" in frame:
            return USUAL
    return None
