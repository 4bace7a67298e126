"""Parameters in the query of a request or of a socket's upgrade. Invalid ones raise `RequestError`.

* `view=full|collapsed|main`, `dialect=…`, `after_seq=N`, `before_seq=N`, `history=N`
* `replay=instant|original`, `speed=2.5`, `longest_pause=SECONDS`
* `since=TIME`, `until=TIME` (RFC 3339, or milliseconds since 1970)
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Literal, NamedTuple, get_args

import msgspec

from ...envelopes import DIALECTS, DialectName, parse_dialect
from ...envelopes.visibility import SpaceView, space_view
from ...errors import RequestError
from ...spaces.history.history import ReplayRange
from ...unicode import did_you_mean
from ..exchange import Exchange

MAX_HISTORY = 10_000
"""Maximum number of earlier envelopes that are sent after a welcome."""

MAX_SPEED = 1000.0
MAX_PAUSE_SECONDS = 86_400.0
MAX_SEQ = 2**53

Pace = Literal["instant", "original"]


class SocketQuery(NamedTuple):
    """What a socket is to receive, and in which form."""

    view: SpaceView
    dialect: DialectName | None
    """None: the dialect of the first envelope that the client sends."""
    after: int | None
    history: int


def parse_socket_query(exchange: Exchange) -> SocketQuery:
    return SocketQuery(
        view_param(exchange),
        dialect_param(exchange),
        seq_param(exchange, "after_seq"),
        exchange.query_int("history", 0, 0, MAX_HISTORY),
    )


def view_param(exchange: Exchange) -> SpaceView:
    name = exchange.query_param("view")
    return "full" if name is None else space_view(name)


def dialect_param(exchange: Exchange) -> DialectName | None:
    name = exchange.query_param("dialect")
    return None if name is None else parse_dialect(name, "dialect")


def seq_param(exchange: Exchange, name: str) -> int | None:
    return None if exchange.query_param(name) is None else exchange.query_int(name, 0, 0, MAX_SEQ)


def bool_param(exchange: Exchange, name: str, default: bool = False) -> bool:
    """Return a switch: a parameter without a value is true."""
    text = exchange.query_param(name)
    if text is None:
        return default
    if text.lower() in ("false", "0", "no"):
        return False
    if text.lower() in ("", "true", "1", "yes"):
        return True
    raise RequestError(f"{name}: must be true or false, not {text[:40]!r}", code="invalid_value", param=name)


def list_param(exchange: Exchange, name: str) -> tuple[str, ...]:
    """Return all values of a parameter, which may be repeated, and may contain several values separated by commas."""
    return tuple(one for key, text in exchange.query if key == name for one in text.split(",") if one)


def replay_param(exchange: Exchange, default_pace: Pace | None = None) -> ReplayRange | None:
    """Return what to replay; None if no replay is requested. `default_pace`: the pace if none is named."""
    pace = exchange.query_param("replay") or default_pace
    if pace is None:
        return None
    if pace not in get_args(Pace):
        raise RequestError(
            f"replay: {pace[:40]!r} is not a pace; {did_you_mean(pace, get_args(Pace))}",
            code="invalid_value",
            param="replay",
        )
    speed = _positive_param(exchange, "speed", MAX_SPEED, "1 is the original pace")
    if speed is not None and exchange.query_param("replay") is None:
        pace = "original"
    return ReplayRange(
        seq_param(exchange, "after_seq") or 0,
        seq_param(exchange, "before_seq"),
        time_param(exchange, "since"),
        time_param(exchange, "until"),
        (speed or 1.0) if pace == "original" else None,
        _positive_param(exchange, "longest_pause", MAX_PAUSE_SECONDS, "the maximum pause of a replay in seconds"),
    )


def time_param(exchange: Exchange, name: str) -> int | None:
    """Return a time in milliseconds since 1970."""
    text = exchange.query_param(name)
    if text is None:
        return None
    if text.isascii() and text.isdecimal() and len(text) <= 16:
        return int(text)
    try:
        # In a query, a plus that was not written as %2B is decoded as a space.
        when = msgspec.convert(text.replace(" ", "+"), datetime)
        return int(when.replace(tzinfo=when.tzinfo or UTC).timestamp() * 1000)
    except (msgspec.ValidationError, OverflowError, ValueError):
        raise RequestError(
            f"{name}: must be a time like 2025-08-31T12:00:00Z (RFC 3339), or milliseconds since 1970",
            code="invalid_value",
            param=name,
        ) from None


def _positive_param(exchange: Exchange, name: str, maximum: float, meaning: str) -> float | None:
    text = exchange.query_param(name)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= maximum:
        raise RequestError(
            f"{name}: must be a number above 0, up to {maximum:g}: {meaning}", code="invalid_value", param=name
        )
    return number


_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}(:\d{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:\d{1,5})?")


def gateway_url(exchange: Exchange) -> str:
    """Return the URL at which the client reached the gateway, `wss://host:port`; empty if it is not known.

    It is sent only to the same client, so its headers, and those of a proxy, are trusted.
    """
    host = exchange.request_header("x-forwarded-host") or exchange.request_header("host") or ""
    if not _HOST.fullmatch(host):
        return ""
    scheme = exchange.request_header("x-forwarded-proto") or exchange.scope.get("scheme")
    root = str(exchange.scope.get("root_path") or "").rstrip("/")
    return f"{'wss' if scheme in ('https', 'wss') else 'ws'}://{host}{root}"


def choose_subprotocol(offered: list[str]) -> tuple[str, DialectName] | None:
    """Return the first offered subprotocol that belongs to a dialect, and the dialect."""
    for name in offered:
        for row in DIALECTS.values():
            if name == row.subprotocol:
                return name, row.name
    return None
