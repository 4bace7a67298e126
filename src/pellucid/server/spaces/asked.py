"""What somebody asks for in the query of a request, over HTTP and of a socket. Whatever is wrong is a `RequestError`.

view=full|collapsed|main    dialect=…     after_seq=N   before_seq=N   history=N
replay=instant|original     speed=2.5     since=TIME    until=TIME     (RFC 3339, or milliseconds since 1970)
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal, NamedTuple

import msgspec

from ...envelopes import DIALECTS, DialectName, dialect_named
from ...envelopes.shown import SpaceView, space_view
from ...errors import RequestError
from ...text import meant
from ..exchange import Exchange

MOST_HISTORY = 10_000
"""How many envelopes of before may come along with a welcome."""

MAX_SPEED = 1000.0
MAX_SEQ = 2**53

Pace = Literal["instant", "original"]
_PACES = ("instant", "original")


class Wanted(NamedTuple):
    """What whoever opens a socket wants to be told, and how."""

    view: SpaceView
    dialect: DialectName | None
    """None: it is what they show that they speak."""
    after: int | None
    history: int


class Replay(NamedTuple):
    """A part of the history, and how fast."""

    after: int
    before: int | None
    since: int | None
    until: int | None
    """Milliseconds since 1970."""
    speed: float | None
    """None: as fast as it is read."""


def wanted(exchange: Exchange) -> Wanted:
    return Wanted(view(exchange), dialect(exchange), seq(exchange, "after_seq"), history(exchange))


def view(exchange: Exchange) -> SpaceView:
    name = exchange.asked("view")
    return "full" if name is None else space_view(name)


def dialect(exchange: Exchange) -> DialectName | None:
    name = exchange.asked("dialect")
    return None if name is None else dialect_named(name, "dialect")


def history(exchange: Exchange) -> int:
    return exchange.number("history", 0, 0, MOST_HISTORY)


def seq(exchange: Exchange, name: str) -> int | None:
    return None if exchange.asked(name) is None else exchange.number(name, 0, 0, MAX_SEQ)


def yes(exchange: Exchange, name: str) -> bool:
    """A switch: there is it, unless it says that it is not."""
    text = exchange.asked(name)
    if text is None or text.lower() in ("false", "0", "no"):
        return False
    if text.lower() in ("", "true", "1", "yes"):
        return True
    raise RequestError(f"{name}: must be true or false, not {text[:40]!r}", code="invalid_value", param=name)


def several(exchange: Exchange, name: str) -> tuple[str, ...]:
    """All that is given under a name: it may come several times, and hold several with commas between them."""
    return tuple(one for key, text in exchange.query if key == name for one in text.split(",") if one)


def replay(exchange: Exchange, usual: Pace | None = None) -> Replay | None:
    """None: none is wanted. `usual`: the pace where none is named."""
    pace = exchange.asked("replay") or exchange.asked("pace") or usual
    if pace is None:
        return None
    if pace not in _PACES:
        raise RequestError(
            f"replay: {pace[:40]!r} is no pace; {meant(pace, _PACES)}", code="invalid_value", param="replay"
        )
    speed = _speed(exchange)
    if speed is not None and exchange.asked("replay") is None and exchange.asked("pace") is None:
        pace = "original"
    return Replay(
        seq(exchange, "after_seq") or 0,
        seq(exchange, "before_seq"),
        time(exchange, "since"),
        time(exchange, "until"),
        (speed or 1.0) if pace == "original" else None,
    )


def time(exchange: Exchange, name: str) -> int | None:
    """Milliseconds since 1970."""
    text = exchange.asked(name)
    if text is None:
        return None
    if text.isascii() and text.isdecimal() and len(text) <= 16:
        return int(text)
    try:
        # A plus is a blank in a query, unless it was written as %2B.
        when = msgspec.convert(text.replace(" ", "+"), datetime)
        return int(when.replace(tzinfo=when.tzinfo or UTC).timestamp() * 1000)
    except (msgspec.ValidationError, OverflowError, ValueError):
        raise RequestError(
            f"{name}: must be a time like 2025-08-31T12:00:00Z (RFC 3339), or milliseconds since 1970",
            code="invalid_value",
            param=name,
        ) from None


def _speed(exchange: Exchange) -> float | None:
    text = exchange.asked("speed")
    if text is None:
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed <= MAX_SPEED:
        raise RequestError(
            f"speed: must be a number above 0, up to {MAX_SPEED:g}; 1 is the original pace",
            code="invalid_value",
            param="speed",
        )
    return speed


def subprotocol(offered: list[str]) -> tuple[str, DialectName] | None:
    """The first of those that a client offers which is a dialect's."""
    for name in offered:
        for row in DIALECTS.values():
            if name == row.subprotocol:
                return name, row.name
    return None


__all__ = ["Pace", "Replay", "Wanted", "dialect", "replay", "seq", "several", "subprotocol", "time", "view", "wanted"]
