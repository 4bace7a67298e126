"""What somebody asks for in the query of a request, over HTTP and of a socket. Whatever is wrong is a `RequestError`.

view=full|collapsed|main    dialect=…     after_seq=N   before_seq=N   history=N
replay=instant|original     speed=2.5     longest_pause=SECONDS
since=TIME    until=TIME    (RFC 3339, or milliseconds since 1970)
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import msgspec

from ...envelopes import DIALECTS, DialectName, dialect_named
from ...envelopes.shown import SpaceView, space_view
from ...errors import RequestError
from ...spaces.past.history import Stretch
from ...text import meant
from ..exchange import Exchange

MOST_HISTORY = 10_000
"""How many envelopes of before may come along with a welcome."""

MAX_SPEED = 1000.0
MAX_PAUSE = 86_400.0
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


def yes(exchange: Exchange, name: str, usually: bool = False) -> bool:
    """A switch: where it is named it is on, unless it says that it is not."""
    text = exchange.asked(name)
    if text is None:
        return usually
    if text.lower() in ("false", "0", "no"):
        return False
    if text.lower() in ("", "true", "1", "yes"):
        return True
    raise RequestError(f"{name}: must be true or false, not {text[:40]!r}", code="invalid_value", param=name)


def several(exchange: Exchange, name: str) -> tuple[str, ...]:
    """All that is given under a name: it may come several times, and hold several with commas between them."""
    return tuple(one for key, text in exchange.query if key == name for one in text.split(",") if one)


def replay(exchange: Exchange, usual: Pace | None = None) -> Stretch | None:
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
    return Stretch(
        seq(exchange, "after_seq") or 0,
        seq(exchange, "before_seq"),
        time(exchange, "since"),
        time(exchange, "until"),
        (speed or 1.0) if pace == "original" else None,
        _longest_pause(exchange),
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
    return _positive(exchange, "speed", MAX_SPEED, "1 is the original pace")


def _longest_pause(exchange: Exchange) -> float | None:
    return _positive(exchange, "longest_pause", MAX_PAUSE, "the seconds after which a replay goes on")


def _positive(exchange: Exchange, name: str, most: float, meaning: str) -> float | None:
    text = exchange.asked(name)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= most:
        raise RequestError(
            f"{name}: must be a number above 0, up to {most:g}: {meaning}", code="invalid_value", param=name
        )
    return number


_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}(:\d{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:\d{1,5})?")


def address(exchange: Exchange) -> str:
    """Under which whoever asks reached the gateway: `wss://host:port`; empty where they do not say. It is told to them
    alone, so they are believed, and so is a proxy before us."""
    host = exchange.header("x-forwarded-host") or exchange.header("host") or ""
    if not _HOST.fullmatch(host):
        return ""
    scheme = exchange.header("x-forwarded-proto") or exchange.scope.get("scheme")
    root = str(exchange.scope.get("root_path") or "").rstrip("/")
    return f"{'wss' if scheme in ('https', 'wss') else 'ws'}://{host}{root}"


def subprotocol(offered: list[str]) -> tuple[str, DialectName] | None:
    """The first of those that a client offers which is a dialect's."""
    for name in offered:
        for row in DIALECTS.values():
            if name == row.subprotocol:
                return name, row.name
    return None
